"""Interventions on disk: what is saved is what acts, here and in plain transformers."""

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

import workbench as wb
from workbench.directions.linear_map import LinearMap
from workbench.errors import ConfigError, FormatError, MismatchError
from workbench.interventions.dose import Gap
from workbench.interventions.io import load_intervention, save_intervention
from workbench.interventions.snippet import plain_code

TEXTS = ["the city of the", "is true and a city is not false"]


def directions(subject, k=1, norms=True):
    draw = np.random.default_rng(3)
    layers = tuple(range(subject.n_layers))
    vectors = draw.normal(size=(k, len(layers), subject.width))
    return wb.Directions(
        tuple(f"d{n}" for n in range(k)), layers, vectors, subject.stamp,
        norms=np.full(len(layers), 4.0) if norms else None,
    )  # fmt: skip


def several(subject):
    """Every edit that takes a direction, on several blocks, two of them on one block."""
    one = directions(subject)
    make = wb.Intervention
    return [
        make.add(one, layers=[1, 2], dose=0.3, unit="norm", scope="all"),
        make.ablate(one, layers=[1], dose=0.5, scope="last"),
        make.cap(one, layers=[2], floor=-0.1, ceiling={2: 0.2}, scope="all+first"),
        make.replace(one, layers=[0], value=0.7, scope="all"),
        make.rescale(one, layers=[0], factor=2.0, scope="last"),
        make.of("affine", one, layers=[3], scale=0.5, offset=0.1, keep_norm=True),
        make.project_to_subspace(directions(subject, k=5), layers=[2], dose=0.8),
    ]


def logits(subject, batch, context):
    with context, torch.no_grad():
        return subject.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits


def ran(code):
    space = {}
    exec(compile(code, "<snippet>", "exec"), space)
    return space["edited"]


def test_a_file_does_what_the_interventions_did(tiny_subject, tmp_path):
    made = several(tiny_subject)
    path = save_intervention(made, tmp_path / "all.safetensors")
    batch = tiny_subject.encode(TEXTS)
    ours = logits(tiny_subject, batch, wb.intervene(tiny_subject, made))
    again = logits(tiny_subject, batch, wb.intervene(tiny_subject, [load_intervention(path)]))
    assert torch.equal(ours, again)


def test_doses_in_norms_and_gaps_are_saved_in_raw_units(tiny_subject, tmp_path):
    one = directions(tiny_subject)
    made = wb.Intervention.add(one, layers=[1], dose=2.0, unit="gap")
    path = save_intervention(made, tmp_path / "gap.safetensors", gap=Gap(1.5, 0.1, 9, "item"))
    saved = load_intervention(path)
    assert saved.edits[0].dose == pytest.approx(3.0)
    assert saved.layers == (1,)
    assert saved.info["made_of"][0]["unit"] == "gap"
    with pytest.raises(ConfigError, match="natural gap"):
        save_intervention(made, tmp_path / "no.safetensors")
    assert not (tmp_path / "no.safetensors").exists()


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma2", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_plain_code_reproduces_the_logits(subject_of, tmp_path, family, side):
    subject = subject_of(family)
    made = several(subject)
    path = save_intervention(made, tmp_path / "all.safetensors")
    edited = ran(plain_code(load_intervention(path), str(path)))
    batch = subject.encode(TEXTS, side=side)
    real = batch.attention_mask.bool()
    ours = logits(subject, batch, wb.intervene(subject, made))[real]
    plain = logits(subject, batch, edited(subject.model))[real]
    torch.testing.assert_close(plain, ours, atol=1e-5, rtol=1e-5)
    untouched = logits(subject, batch, torch.no_grad())[real]
    assert (untouched - ours).abs().max() > 0.01


@pytest.mark.parametrize(
    "scope", ["last", "prompt", "generated", "prompt+generated+first", "generated+tokens:2,5:9"]
)
def test_the_plain_code_generates_the_same_text(scope, tiny_subject, tmp_path):
    made = [wb.Intervention.add(directions(tiny_subject), layers=[1], dose=5.0, scope=scope)]
    path = save_intervention(made, tmp_path / "a.safetensors")
    edited = ran(plain_code(load_intervention(path), str(path)))
    batch = tiny_subject.encode(TEXTS)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    with edited(tiny_subject.model), torch.no_grad():
        plain = tiny_subject.model.generate(**inputs, **options)
    with wb.intervene(tiny_subject, made), torch.no_grad():
        ours = tiny_subject.model.generate(**inputs, **options)
    free = tiny_subject.model.generate(**inputs, **options)
    assert torch.equal(plain, ours)
    assert not torch.equal(free, ours)


def test_a_scope_of_spans_has_no_plain_code(tiny_subject, tmp_path):
    made = wb.Intervention.add(directions(tiny_subject), layers=[1], scope="user+generated")
    path = save_intervention(made, tmp_path / "a.safetensors")
    saved = load_intervention(path)
    assert saved.edits[0].scope == "user+generated"
    with pytest.raises(ConfigError, match=r"a plain model knows no spans; apply it with wb\.inter"):
        plain_code(saved, str(path))


def test_a_map_is_saved_with_its_weights(tiny_subject, tmp_path):
    d, draw = tiny_subject.width, np.random.default_rng(0)
    b, axis = draw.normal(size=(2, 1, d))
    W = 0.1 * draw.normal(size=(1, d, d))
    maps = LinearMap("turn", (1,), b, axis, tiny_subject.stamp, W)
    made = wb.Intervention.map(maps, dose=0.5)
    path = save_intervention(made, tmp_path / "map.safetensors")
    edited = ran(plain_code(load_intervention(path), str(path)))
    batch = tiny_subject.encode(TEXTS)
    ours = logits(tiny_subject, batch, wb.intervene(tiny_subject, [made]))
    again = logits(tiny_subject, batch, wb.intervene(tiny_subject, [load_intervention(path)]))
    assert torch.equal(ours, again)
    plain = logits(tiny_subject, batch, edited(tiny_subject.model))
    real = batch.attention_mask.bool()
    torch.testing.assert_close(plain[real], ours[real], atol=1e-5, rtol=1e-5)


def test_another_model_is_refused(tiny_subject, subject_of, tmp_path):
    path = save_intervention(several(tiny_subject)[:1], tmp_path / "a.safetensors")
    with pytest.raises(MismatchError, match="model_type = qwen3"):
        wb.intervene(subject_of("llama"), [load_intervention(path)])


def changed(path, **keys):
    with safe_open(path, framework="numpy") as file:
        header = {**file.metadata(), **keys}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, header)
    return path


def test_damaged_and_foreign_files_are_refused_with_the_key(tiny_subject, tmp_path):
    path = save_intervention(several(tiny_subject)[:1], tmp_path / "a.safetensors")
    whole = path.read_bytes()
    with pytest.raises(ConfigError, match="no file"):
        load_intervention(tmp_path / "none.safetensors")
    for keys, words in (
        ({"format": "other"}, "key 'format' is 'other'"),
        ({"version": "9"}, "key 'version' is '9'"),
        ({"layer_convention": "1-based"}, "key 'layer_convention' is '1-based'"),
        ({"sha256": "0"}, "'sha256' does not agree"),
        ({"model": "{}"}, "in its header"),
        ({"edits": "[{}]"}, "in its header"),
    ):
        path.write_bytes(whole)
        with pytest.raises(FormatError, match=words):
            load_intervention(changed(path, **keys))
    path.write_bytes(whole[:-9])
    with pytest.raises(FormatError, match="damaged"):
        load_intervention(path)
    with pytest.raises(ConfigError, match="no intervention to save"):
        save_intervention([], path)
