"""One door for foreign files: recognised by content, refused with the field named."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import STAMP
from safetensors.numpy import save_file

import workbench as wb
from workbench.directions.exchange import FORMATS, describe_foreign, recognise
from workbench.errors import ConfigError, FormatError, MismatchError, UnknownNameError


def direction(layers=(1, 2, 4), names=("truth",), **fields):
    rng = np.random.default_rng(len(names))
    vectors = rng.standard_normal((len(names), len(layers), STAMP.width)).astype(np.float32)
    norms = np.linspace(3, 4, len(layers), dtype=np.float32)
    return wb.Directions(names, layers, vectors, STAMP, norms=norms, **fields)


def same(found, made):
    np.testing.assert_array_equal(found.vectors, made.vectors)
    for field in ("names", "layers", "site", "position", "kind", "model"):
        assert getattr(found, field) == getattr(made, field), field
    np.testing.assert_array_equal(found.norms, made.norms)


@pytest.mark.parametrize("ending", [".gguf", ".safetensors"])
def test_what_goes_out_comes_back_without_a_difference(tmp_path, ending):
    made = direction(position="mean:assistant", kind="difference", info={"AUC": 0.9, "n": [1, 2]})
    path = wb.export_directions(made, tmp_path / f"truth{ending}")
    found = wb.import_directions(path, STAMP)
    same(found, made)
    assert (found.info["AUC"], found.info["n"], found.info["edit"]) == (0.9, [1, 2], "add")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_every_writable_format_is_chosen_by_its_ending_and_recognised_by_its_content(tmp_path):
    for name, one in FORMATS.items():
        if one.write is None:
            continue
        path = wb.export_directions(direction(), tmp_path / f"x{one.suffix}")
        odd = path.rename(tmp_path / f"{name}.anything")
        assert recognise(odd, STAMP) == name
        assert describe_foreign(odd)["format"] == name
        same(wb.import_directions(odd, STAMP, name="truth"), direction())


@pytest.mark.parametrize("ending", [".gguf", ".safetensors"])
@pytest.mark.parametrize(
    ("field", "value"),
    [("model_type", "qwen3"), ("n_layers", 7), ("width", 32), ("tokenizer", "0" * 16)],
)
def test_directions_of_another_model_are_refused_and_the_field_is_named(
    tmp_path, ending, field, value
):
    path = wb.export_directions(direction(), tmp_path / f"x{ending}")
    with pytest.raises(MismatchError, match=rf"{field} = .*{field} = {value}"):
        wb.import_directions(path, replace(STAMP, **{field: value}))
    organism = replace(STAMP, fingerprint="0" * 16)
    assert len(wb.import_directions(path, organism)) == 1


@pytest.mark.parametrize("ending", [".gguf", ".safetensors"])
@pytest.mark.parametrize(
    ("key", "value"),
    [("edit", "ablate"), ("site", "mlp_out"), ("position", "all"), ("kind", "mean")],
)
def test_what_the_file_says_is_compared_with_the_call(tmp_path, ending, key, value):
    path = wb.export_directions(direction(), tmp_path / f"x{ending}")
    with pytest.raises(MismatchError, match=rf"{key} is '{value}' in the call, but the file"):
        wb.import_directions(path, STAMP, **{key: value})
    said = {"edit": "add", "site": "resid_post", "position": "last", "kind": "difference"}
    same(wb.import_directions(path, STAMP, **said), direction())


@pytest.mark.parametrize("ending", [".gguf", ".safetensors"])
def test_layers_are_kept_by_number_and_one_that_is_not_there_is_named(tmp_path, ending):
    path = wb.export_directions(direction(), tmp_path / f"x{ending}")
    found = wb.import_directions(path, STAMP, layers=[4, 1])
    np.testing.assert_array_equal(found.vectors[0], direction().vectors[0, [2, 0]])
    assert found.layers == (4, 1)
    with pytest.raises(ConfigError, match="holds no layer 3"):
        wb.import_directions(path, STAMP, layers=[3])


def test_a_file_remembers_the_operation_it_was_exported_for(tmp_path):
    path = wb.export_directions(direction(), tmp_path / "x.safetensors", edit="ablate")
    assert wb.import_directions(path, STAMP, edit="ablate").info["edit"] == "ablate"
    with pytest.raises(MismatchError, match="edit is 'add' in the call"):
        wb.import_directions(path, STAMP, edit="add")


def test_what_is_no_directions_file_is_refused_with_what_would_be(tmp_path):
    for content in (b"", b"hello", b"\x00" * 64, b"\x10" + b"\x00" * 7 + b"[1, 2, 3, 4, 5] "):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(FormatError, match=r"no known format; known: directions .*gguf"):
            wb.import_directions(tmp_path / "x", STAMP)
    with pytest.raises(ConfigError, match="no file"):
        wb.import_directions(tmp_path / "absent", STAMP)
    with pytest.raises(UnknownNameError, match=r"unknown format 'guff'.*gguf"):
        wb.import_directions(tmp_path / "x", STAMP, format="guff")
    save_file({"v": np.zeros((6, 24), np.float32)}, tmp_path / "bare.safetensors")
    with pytest.raises(FormatError, match="nothing says what its tensors mean"):
        wb.import_directions(tmp_path / "bare.safetensors", STAMP)


def test_an_export_that_has_no_format_says_which_there_are(tmp_path):
    with pytest.raises(ConfigError, match=r"does not end in \.safetensors, \.gguf"):
        wb.export_directions(direction(), tmp_path / "x.pt")
    with pytest.raises(ConfigError, match="'sae' is only read"):
        wb.export_directions(direction(), tmp_path / "x.pt", format="sae")
    assert list(tmp_path.iterdir()) == []


def test_the_origin_of_a_foreign_file_is_kept_through_our_own_format(tmp_path):
    torch.save(torch.ones(7, 24), tmp_path / "evil_response_avg_diff.pt")
    found = wb.import_directions(tmp_path / "evil_response_avg_diff.pt", STAMP)
    again = wb.open_directions(wb.save_directions(found, tmp_path / "evil.safetensors"))
    for key in ("format", "file", "file_sha256", "left_out", "layer_convention"):
        assert again.info[key] == found.info[key]
    assert again.info["file"] == "evil_response_avg_diff.pt"
    json.dumps(dict(found.info))


def test_a_subject_stands_for_its_stamp(tmp_path, subject_of):
    subject = subject_of("llama")
    rows = torch.randn(subject.n_layers, subject.width)
    torch.save(rows, tmp_path / "assistant_axis.pt")
    found = wb.import_directions(tmp_path / "assistant_axis.pt", subject)
    assert found.model == subject.stamp
    np.testing.assert_array_equal(found.vectors[0], rows.numpy())


@pytest.mark.parametrize("ending", [".gguf", ".safetensors"])
@pytest.mark.parametrize("block", [1, 2, 3])
def test_a_vector_planted_at_one_block_changes_the_model_from_that_block_on(
    tmp_path, subject_of, ending, block
):
    """Through a file and back: what comes out of the blocks below stays as it was."""
    subject = subject_of("llama")
    vectors = np.full((1, 1, subject.width), 9, np.float32)
    made = wb.Directions(("x",), (block,), vectors, subject.stamp)
    path = wb.export_directions(made, tmp_path / f"x{ending}")
    found = wb.import_directions(path, subject)
    batch = subject.encode(["the city is in a"])
    plain = outputs(subject, batch)
    edit = wb.Intervention.add(found, layers=[block], dose=1.0, unit="raw", scope="all+first")
    with wb.intervene(subject, [edit]):
        edited = outputs(subject, batch)
    changed = [not torch.equal(a, b) for a, b in zip(plain, edited, strict=True)]
    assert changed == [layer >= block for layer in range(subject.n_layers)]


def outputs(subject, batch):
    """What each block puts out, read by hooks of the test's own after those of the engine."""
    seen = {}

    def reader(layer):
        def read(_module, _args, output):
            seen[layer] = (output[0] if isinstance(output, tuple) else output).detach().clone()

        return read

    hooks = [block.register_forward_hook(reader(n)) for n, block in subject.blocks.items()]
    try:
        with torch.no_grad():
            subject.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
    finally:
        for hook in hooks:
            hook.remove()
    return [seen[layer] for layer in sorted(seen)]
