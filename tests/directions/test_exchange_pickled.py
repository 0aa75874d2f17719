"""PyTorch files of persona vectors and the Assistant Axis; none of them gets to run code."""

import pickle
import zipfile

import numpy as np
import pytest
import torch
from planted import STAMP

import workbench as wb
from workbench.directions.exchange import describe_foreign, recognise, released_caps
from workbench.errors import ConfigError, FormatError, MismatchError, UnknownNameError

ROWS = torch.randn(STAMP.n_layers, STAMP.width, generator=torch.Generator().manual_seed(0))
HIDDEN = torch.randn(STAMP.n_layers + 1, STAMP.width, generator=torch.Generator().manual_seed(1))
VECTOR = "contrast_role_pos3_default1"


def saved(path, content):
    path.parent.mkdir(exist_ok=True, parents=True)
    torch.save(content, path)
    return path


# --- persona vectors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "position"),
    [
        ("_response_avg_diff", "mean:assistant"),
        ("_prompt_avg_diff", "mean:prompt"),
        ("_prompt_last_diff", "last"),
        ("", "unstated"),
    ],
)
def test_row_l_of_hidden_states_is_block_l_minus_1(tmp_path, ending, position):
    path = saved(tmp_path / f"evil{ending}.pt", HIDDEN)
    found = wb.import_directions(path, STAMP)
    assert (found.names, found.position, found.kind) == (("evil",), position, "difference")
    for row in range(1, STAMP.n_layers):
        np.testing.assert_array_equal(found.at(row - 1)[0], HIDDEN[row].numpy())
    assert found.layers == (0, 1, 2, 3, 4)  # row 0 is the embedding, row 6 went through the norm
    assert "final norm" in found.info["left_out"]
    assert found.info["format"] == "persona-vectors"


def test_persona_rows_are_what_transformers_calls_hidden_states(tmp_path, subject_of):
    """The numbering against the model itself: a file of its hidden states gives its blocks."""
    subject = subject_of("llama")
    batch = subject.encode(["the city is in a"])
    hidden = subject.model(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True
    ).hidden_states
    path = saved(tmp_path / "x.pt", torch.stack([state[0, -1] for state in hidden]).detach())
    found = wb.import_directions(path, subject)
    prompts = wb.PromptSet.from_records([{"text": "the city is in a"}], text="text")
    acts = wb.capture(subject, prompts, position="last")
    assert found.layers == tuple(range(subject.n_layers - 1))
    for layer in found.layers:
        np.testing.assert_allclose(found.at(layer), acts.at(layer), atol=1e-5)
    last = acts.at(subject.n_layers - 1)
    assert not np.allclose(hidden[-1][0, -1].detach().numpy(), last, atol=0.1)


def test_bfloat16_and_float16_rows_are_widened_without_loss(tmp_path):
    for dtype in (torch.bfloat16, torch.float16):
        path = saved(tmp_path / "x.pt", HIDDEN.to(dtype))
        found = wb.import_directions(path, STAMP)
        np.testing.assert_array_equal(found.vectors[0], HIDDEN.to(dtype).float()[1:6].numpy())


@pytest.mark.parametrize(
    ("rows", "width", "message"),
    [(7, 32, "width 32, but tiny has width 24"), (9, 24, "9 rows, but tiny has 6 blocks")],
)
def test_rows_of_another_model_are_refused(tmp_path, rows, width, message):
    path = saved(tmp_path / "x.pt", torch.ones(rows, width))
    for name in ("persona-vectors", "assistant-axis"):
        with pytest.raises(MismatchError, match=message):
            wb.import_directions(path, STAMP, format=name, kind="difference")


@pytest.mark.parametrize(
    "content",
    [torch.ones(7, 24, dtype=torch.long), torch.ones(7), [1.0, 2.0], "text", None, {"a": 1}],
)
def test_what_is_no_matrix_of_floats_is_refused(tmp_path, content):
    path = saved(tmp_path / "x.pt", content)
    for name in ("persona-vectors", "assistant-axis"):
        with pytest.raises(FormatError, match=r"holds a .* expected"):
            wb.import_directions(path, STAMP, format=name)


def test_a_number_that_is_not_finite_is_refused(tmp_path):
    path = saved(tmp_path / "x.pt", torch.full((7, 24), torch.inf))
    with pytest.raises(FormatError, match="not finite"):
        wb.import_directions(path, STAMP)


# --- the Assistant Axis ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "name", "kind"),
    [
        ("assistant_axis.pt", ROWS, "assistant", "difference"),
        ("default_vector.pt", ROWS, "default", "mean"),
        ("role_vectors/pirate.pt", ROWS, "pirate", "mean"),
        ("trait_vectors/calm.pt", ROWS, "calm", "difference"),
        ("x/ghost.pt", {"vector": ROWS, "type": "pos_3", "role": "ghost"}, "ghost", "mean"),
        ("x/default.pt", {"vector": ROWS, "type": "mean", "role": "default"}, "default", "mean"),
        ("axis.pt", {"axis": ROWS, "default_mean": ROWS, "n_roles": 5}, "assistant", "difference"),
    ],
)
def test_axis_files_count_blocks_and_say_whether_they_are_means(
    tmp_path, file, content, name, kind
):
    path = saved(tmp_path / file, content)
    found = wb.import_directions(path, STAMP)
    assert (found.names, found.kind, found.position) == ((name,), kind, "mean:assistant")
    assert found.layers == tuple(range(STAMP.n_layers))
    np.testing.assert_array_equal(found.vectors[0], ROWS.numpy())
    wb.open_directions(wb.save_directions(found, tmp_path / "own.safetensors"))


def test_a_folder_of_roles_becomes_one_file_of_named_means(tmp_path):
    for number, name in enumerate(("pirate", "bard", "sage")):
        saved(tmp_path / "role_vectors" / f"{name}.pt", ROWS * number)
    found = wb.import_directions(tmp_path / "role_vectors", STAMP)
    assert (found.names, found.kind) == (("bard", "pirate", "sage"), "mean")
    np.testing.assert_array_equal(found["sage"].vectors[0], 2 * ROWS.numpy())
    before = found.info["file_sha256"]
    saved(tmp_path / "role_vectors" / "bard.pt", -ROWS)
    assert wb.import_directions(tmp_path / "role_vectors", STAMP).info["file_sha256"] != before


def test_means_and_differences_do_not_mix_and_nothing_is_guessed(tmp_path):
    saved(tmp_path / "mixed" / "default_vector.pt", ROWS)
    saved(tmp_path / "mixed" / "assistant_axis.pt", ROWS)
    with pytest.raises(MismatchError, match="one kind at a time"):
        wb.import_directions(tmp_path / "mixed", STAMP)
    path = saved(tmp_path / "unknown" / "pirate.pt", ROWS)
    with pytest.raises(ConfigError, match=r"kind='mean'.*kind='difference'"):
        wb.import_directions(path, STAMP)
    assert wb.import_directions(path, STAMP, kind="mean").kind == "mean"
    with pytest.raises(MismatchError, match="kind is 'mean' in the call"):
        wb.import_directions(tmp_path / "mixed" / "assistant_axis.pt", STAMP, kind="mean")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match=r"holds no .pt file"):
        wb.import_directions(tmp_path / "empty", STAMP)


# --- the released caps ----------------------------------------------------------------------------


def capping(layers=range(STAMP.n_layers)):
    return {
        "vectors": {
            f"layer_{layer}/{VECTOR}": {"layer": layer, "vector": ROWS[layer]} for layer in layers
        },
        "experiments": [
            {
                "id": f"layers_2:4-p{share}",
                "interventions": [
                    {"vector": f"layer_{layer}/{VECTOR}", "cap": share + layer} for layer in (2, 3)
                ],
            }
            for share in (0.25, 0.5)
        ],
    }


def test_released_caps_are_ceilings_by_block(tmp_path):
    path = saved(tmp_path / "capping_config.pt", capping())
    assert recognise(path) == "capping-config"
    found = wb.import_directions(path, STAMP)
    assert (found.names, found.layers, found.info["edit"]) == ((VECTOR,), tuple(range(6)), "cap")
    np.testing.assert_array_equal(found.vectors[0], ROWS.numpy())
    assert released_caps(found, "layers_2:4-p0.25") == {2: 2.25, 3: 3.25}
    again = wb.open_directions(wb.save_directions(found, tmp_path / "caps.safetensors"))
    assert released_caps(again, "layers_2:4-p0.5") == {2: 2.5, 3: 3.5}
    assert released_caps(again.select([3, 5]), "layers_2:4-p0.5") == {3: 3.5}
    with pytest.raises(UnknownNameError, match=r"unknown experiment 'x'.*layers_2:4-p0.25"):
        released_caps(found, "x")


def test_a_released_cap_bounds_the_coordinate_that_it_names(tmp_path, subject_of):
    """The formula of the release, h - u max(h.u - cap, 0), against what the engine does."""
    subject = subject_of("llama")
    content = capping(range(subject.n_layers))
    for entry in content["vectors"].values():
        entry["vector"] = torch.randn(subject.width, generator=torch.Generator().manual_seed(3))
    content["experiments"] = content["experiments"][:1]
    content["experiments"][0]["interventions"] = [{"vector": f"layer_1/{VECTOR}", "cap": -0.5}]
    found = wb.import_directions(saved(tmp_path / "capping_config.pt", content), subject)
    ceiling = released_caps(found, "layers_2:4-p0.25")
    edit = wb.Intervention.cap(found, layers=list(ceiling), ceiling=ceiling, scope="all+first")
    prompts = wb.PromptSet.from_records([{"text": "the city is in a"}], text="text")
    plain = wb.capture(subject, prompts, position="last").at(1)
    with wb.intervene(subject, [edit]):
        capped = wb.capture(subject, prompts, position="last").at(1)
    u = found.unit_vectors()[1, 0]
    expected = plain - u * np.maximum(plain @ u + 0.5, 0)[:, None]
    np.testing.assert_allclose(capped, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("experiments"), "KeyError at 'experiments'"),
        (lambda c: c["vectors"].clear(), "names layer_2|holds no vectors"),
        (lambda c: c["vectors"].pop(f"layer_2/{VECTOR}"), "which is no vector"),
        (lambda c: c["vectors"][f"layer_2/{VECTOR}"].update(layer=3), "twice for layer 3"),
        (lambda c: c["vectors"][f"layer_2/{VECTOR}"].update(layer=9), "layers .* are not all"),
        (lambda c: c["vectors"].update(a={"layer": 0, "vector": ROWS[0]}), "differ in layer 1"),
        (
            lambda c: c["experiments"][0]["interventions"].append(
                {"vector": f"layer_2/{VECTOR}", "cap": 1.0}
            ),
            "no single cap",
        ),
        (lambda c: c["experiments"][0]["interventions"][0].update(cap="low"), "ValueError at"),
    ],
)
def test_a_broken_capping_file_says_what_is_wrong(tmp_path, change, message):
    content = capping()
    change(content)
    path = saved(tmp_path / "capping_config.pt", content)
    with pytest.raises(FormatError, match=message):
        wb.import_directions(path, STAMP, format="capping-config")


# --- no code is run -------------------------------------------------------------------------------


class Attack:
    """A pickle whose loading would make a file."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (str(self.target), "w")


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle", "nested"])
@pytest.mark.parametrize("format", [None, "persona-vectors", "assistant-axis", "capping-config"])
def test_a_pickle_that_runs_code_is_refused_and_nothing_runs(tmp_path, form, format):
    target, path = tmp_path / "ran", tmp_path / "assistant_axis.pt"
    attack = (
        {"vectors": {}, "experiments": [Attack(target)]} if form == "nested" else Attack(target)
    )
    if form == "pickle":
        path.write_bytes(pickle.dumps(attack))
    else:
        torch.save(attack, path, _use_new_zipfile_serialization=form != "legacy")
    with pytest.raises(FormatError, match=r"Python object \S*open.* nothing was run"):
        wb.import_directions(path, STAMP, format=format)
    with pytest.raises(FormatError, match="nothing was run"):
        describe_foreign(path)
    assert not target.exists()


def test_the_attack_would_have_worked(tmp_path):
    """Else the test above shows nothing."""
    target = tmp_path / "ran"
    pickle.loads(pickle.dumps(Attack(target))).close()
    assert target.exists()


def test_an_object_of_a_class_is_refused_by_name(tmp_path):
    path = saved(tmp_path / "assistant_axis.pt", {"axis": np.ones((6, 24))})
    with pytest.raises(FormatError, match=r"Python object numpy\S+, which only running"):
        wb.import_directions(path, STAMP)


@pytest.mark.parametrize("legacy", [False, True])
def test_wherever_it_is_cut_a_file_is_refused(tmp_path, legacy):
    path = tmp_path / "assistant_axis.pt"
    torch.save(ROWS, path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    for length in range(10, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(
            FormatError, match=r"truncated or damaged|no PyTorch file|nothing was run"
        ):
            assert wb.import_directions(path, STAMP) is None, length


def test_a_changed_number_is_found_by_the_checksum_that_pytorch_passes_over(tmp_path):
    path = saved(tmp_path / "assistant_axis.pt", ROWS)
    whole = bytearray(path.read_bytes())
    whole[whole.index(ROWS[2].numpy().tobytes()) + 3] ^= 8
    path.write_bytes(whole)
    assert not torch.equal(torch.load(path, weights_only=True), ROWS)
    with pytest.raises(FormatError, match=r"damaged \(wrong checksum of assistant_axis/data/0\)"):
        wb.import_directions(path, STAMP)


@pytest.mark.parametrize("legacy", [False, True])
def test_whatever_byte_is_wrong_the_file_is_read_or_refused_and_nothing_else_happens(
    tmp_path, legacy
):
    path = tmp_path / "assistant_axis.pt"
    torch.save(ROWS, path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, min(len(whole), 600), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            wb.import_directions(path, STAMP)
        except wb.WorkbenchError:
            refused += 1
    assert refused > 20


def test_a_zip_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as file:
        file.writestr("a.txt", "hello")
    with pytest.raises(FormatError, match="truncated or damaged"):
        wb.import_directions(tmp_path / "x.pt", STAMP)


def test_a_bare_tensor_is_described_by_both_readings(tmp_path):
    found = describe_foreign(saved(tmp_path / "x.pt", HIDDEN))
    assert found["shape"] == (7, 24)
    assert "7 blocks (assistant-axis) or of 6" in found["rows"]
    assert describe_foreign(saved(tmp_path / "c.pt", capping()))["experiments"] == 2
