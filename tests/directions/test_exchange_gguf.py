"""Control vectors as llama.cpp and repeng write them: direction.N acts after block N, from 0."""

import struct

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from planted import STAMP

import workbench as wb
from workbench.directions.exchange import describe_foreign
from workbench.directions.exchange.control_vector import model_hint
from workbench.errors import ConfigError, FormatError, MismatchError

OWN = "interp_workbench"


def foreign(
    path, layers=(1, 2, 3, 4, 5), *, width=24, hint="llama", count=None, fields=(), kind=np.float32
):
    """Write what repeng and llama.cpp's generator write, field by field; return the vectors."""
    rng = np.random.default_rng(0)
    vectors = {layer: rng.standard_normal(width).astype(kind) for layer in layers}
    writer = GGUFWriter(path, "controlvector")
    if hint is not None:
        writer.add_string("controlvector.model_hint", hint)
    writer.add_uint32("controlvector.layer_count", len(layers) if count is None else count)
    for key, value in fields:
        writer.add_string(key, value)
    for layer, vector in vectors.items():
        writer.add_tensor(f"direction.{layer}", vector)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return vectors


def made(layers=(1, 3, 5), **fields):
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((1, len(layers), STAMP.width)).astype(np.float32)
    return wb.Directions(("calm",), layers, vectors, STAMP, **fields)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_direction_n_is_the_output_of_block_n(tmp_path, kind):
    vectors = foreign(tmp_path / "happy.gguf", kind=kind)
    found = wb.import_directions(tmp_path / "happy.gguf", STAMP)
    assert (found.names, found.layers, found.site) == (("happy",), (1, 2, 3, 4, 5), "resid_post")
    for layer, vector in vectors.items():
        np.testing.assert_array_equal(found.at(layer)[0], vector.astype(np.float32))
    assert found.info["edit"] == "add"
    assert found.info["metadata"]["controlvector.model_hint"] == "llama"
    assert len(found.info["file_sha256"]) == 64
    assert (
        found.position,
        wb.import_directions(tmp_path / "happy.gguf", STAMP, position="last", name="joy").position,
    ) == ("unstated", "last")


def test_a_negative_number_counts_from_the_last_block(tmp_path):
    vectors = foreign(tmp_path / "x.gguf", (-1, -2, 3))
    found = wb.import_directions(tmp_path / "x.gguf", STAMP)
    assert found.layers == (3, 4, 5)
    for layer, number in ((3, 3), (4, -2), (5, -1)):
        np.testing.assert_array_equal(found.at(layer)[0], vectors[number])
    again = wb.import_directions(wb.export_directions(found, tmp_path / "y.gguf"), STAMP)
    np.testing.assert_array_equal(again.vectors, found.vectors)
    assert again.layers == found.layers


def test_other_readers_find_what_they_look_for(tmp_path):
    directions = made()
    wb.export_directions(directions, tmp_path / "x.gguf")
    reader = GGUFReader(tmp_path / "x.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "controlvector"
    assert fields["controlvector.model_hint"] == "llama"
    assert fields["controlvector.layer_count"] == 3
    assert fields[f"{OWN}.operation"] == "add"
    assert "output of block N, counted from 0" in fields[f"{OWN}.layer_convention"]
    # llama.cpp refuses a file with any tensor that is not direction.N, N from 1, float32, flat
    assert [tensor.name for tensor in reader.tensors] == [
        "direction.1",
        "direction.3",
        "direction.5",
    ]
    for tensor, vector in zip(reader.tensors, directions.vectors[0], strict=True):
        assert tensor.tensor_type.name == "F32"
        assert list(tensor.shape) == [STAMP.width]
        np.testing.assert_array_equal(tensor.data, vector)


def test_equal_directions_make_equal_files(tmp_path):
    one, two = (wb.export_directions(made(), tmp_path / name) for name in ("a.gguf", "b.gguf"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("model_type", "hint"),
    [
        ("mistral", "llama"),
        ("gpt_neox", "gptneox"),
        ("qwen3_moe", "qwen3moe"),
        ("gemma3_text", "gemma3"),
        ("qwen2", "qwen2"),
    ],
)
def test_the_hint_is_llama_cpps_name_and_either_name_is_accepted(tmp_path, model_type, hint):
    from dataclasses import replace

    model = replace(STAMP, model_type=model_type)
    assert model_hint(model) == hint
    for name in (model_type, hint, "Tiny"):
        foreign(tmp_path / "x.gguf", hint=name)
        assert len(wb.import_directions(tmp_path / "x.gguf", model).layers) == 5
    foreign(tmp_path / "x.gguf", hint="falcon")
    with pytest.raises(MismatchError, match=r"model_hint is 'falcon'.* take a file"):
        wb.import_directions(tmp_path / "x.gguf", model)


def test_another_width_is_named(tmp_path):
    foreign(tmp_path / "x.gguf", width=32)
    with pytest.raises(MismatchError, match=r"direction\.1 has width 32, but tiny has width 24"):
        wb.import_directions(tmp_path / "x.gguf", STAMP)


@pytest.mark.parametrize("layers", [(1, 6), (1, -6), (3, -3)])
def test_a_block_that_the_model_lacks_or_that_stands_twice_is_named(tmp_path, layers):
    foreign(tmp_path / "x.gguf", layers)
    with pytest.raises(MismatchError, match=r"is block \d.*blocks 0 to 5, each at most once"):
        wb.import_directions(tmp_path / "x.gguf", STAMP)


@pytest.mark.parametrize("layers", [(0, 1), ("x",), ("1.weight",), ()])
def test_a_tensor_that_is_no_direction_is_named(tmp_path, layers):
    foreign(tmp_path / "x.gguf", layers)
    with pytest.raises(FormatError, match=r"direction\.N"):
        wb.import_directions(tmp_path / "x.gguf", STAMP)


def test_a_missing_layer_is_refused_unless_the_rest_is_asked_for_by_number(tmp_path):
    vectors = foreign(tmp_path / "x.gguf", (1, 2, 4, 5), count=5)
    with pytest.raises(FormatError, match=r"layer_count is 5, but there are 4 .*1, 2, 4, 5"):
        wb.import_directions(tmp_path / "x.gguf", STAMP)
    found = wb.import_directions(tmp_path / "x.gguf", STAMP, layers=[4])
    np.testing.assert_array_equal(found.at(4)[0], vectors[4])
    with pytest.raises(ConfigError, match="holds no layer 3"):
        wb.import_directions(tmp_path / "x.gguf", STAMP, layers=[3, 4])


def test_a_file_that_projects_is_not_taken_for_one_that_adds(tmp_path):
    foreign(tmp_path / "x.gguf", fields=[("glp.mode", "project")])
    assert wb.import_directions(tmp_path / "x.gguf", STAMP).info["edit"] == "ablate"
    with pytest.raises(MismatchError, match="edit is 'add' in the call, but the file says 'abl"):
        wb.import_directions(tmp_path / "x.gguf", STAMP, edit="add")
    foreign(tmp_path / "y.gguf", fields=[("glp.mode", "rotate")])
    with pytest.raises(FormatError, match=r"glp\.mode is 'rotate'"):
        wb.import_directions(tmp_path / "y.gguf", STAMP)
    foreign(tmp_path / "z.gguf", fields=[("glp.hook_point", "attention_output")])
    with pytest.raises(MismatchError, match=r"glp\.hook_point is 'attention_output'"):
        wb.import_directions(tmp_path / "z.gguf", STAMP)


def test_a_model_in_gguf_form_is_no_control_vector(tmp_path):
    writer = GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("direction.1", np.zeros(24, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(FormatError, match="architecture is 'llama', 'controlvector' expected"):
        wb.import_directions(tmp_path / "x.gguf", STAMP)


@pytest.mark.parametrize("own", [True, False])
def test_wherever_it_is_cut_a_file_is_refused(tmp_path, own):
    path = tmp_path / "x.gguf"
    if own:
        wb.export_directions(made(), path)
    else:
        foreign(path)
    whole = path.read_bytes()
    for length in [*range(4, len(whole) - 31, 53), len(whole) - 32]:
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=r"x\.gguf"):
            assert wb.import_directions(path, STAMP) is None, length


def test_whatever_byte_is_wrong_the_file_is_read_or_refused_and_nothing_else_happens(tmp_path):
    path = wb.export_directions(made(), tmp_path / "x.gguf")
    whole = path.read_bytes()
    refused = 0
    for place in range(4, len(whole), 19):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            wb.import_directions(path, STAMP)
        except wb.WorkbenchError:
            refused += 1
    assert refused > len(whole) / 19 / 2


def test_a_flipped_bit_in_the_numbers_of_our_own_file_is_found(tmp_path):
    path = wb.export_directions(made(), tmp_path / "x.gguf")
    whole = bytearray(path.read_bytes())
    place = whole.index(made().vectors[0, 1].tobytes())
    whole[place + 40] ^= 1
    path.write_bytes(whole)
    with pytest.raises(FormatError, match=r"do not match interp_workbench\.sha256"):
        wb.import_directions(path, STAMP)


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (b"counted from 0", b"counted from 1", MismatchError, "layer_convention is .*from 1"),
        (b"[1, 3, 5]", b"[1, 3, 4]", FormatError, r"layers \[1, 3, 4\] announced"),
        (b"[1, 3, 5]", b"[1, 3, 5}", FormatError, "header is damaged"),
        (b'"tokenizer"', b'"tokenizes"', FormatError, "header is damaged"),
        (b"interp_workbench.site", b"interp_workbench.seat", FormatError, r"\.site is missing"),
        (b"resid_post", b"resid_pree", MismatchError, "site is 'resid_post' in the call"),
        (
            b"interp_workbench.version" + struct.pack("<II", 4, 1),
            b"interp_workbench.version" + struct.pack("<II", 4, 2),
            FormatError,
            "version is 2",
        ),
    ],
)
def test_an_edited_header_is_refused_with_its_key(tmp_path, old, new, error, message):
    path = wb.export_directions(made(), tmp_path / "x.gguf")
    whole = path.read_bytes()
    assert old in whole
    path.write_bytes(whole.replace(old, new))
    with pytest.raises(error, match=message):
        wb.import_directions(path, STAMP, site="resid_post")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: made((0, 1)), r"cannot say block 0.*select"),
        (lambda: made(site="mlp_out"), "site mlp_out"),
        (lambda: made(info={"edit": "cap"}), "meant for 'cap'.*edit='add'"),
        (
            lambda: wb.Directions(("a", "b"), (1,), np.ones((2, 1, 24), np.float32), STAMP),
            r"holds one direction.*\['a'\]",
        ),
    ],
)
def test_what_a_control_vector_cannot_say_is_not_written(tmp_path, wrong, message):
    with pytest.raises(ConfigError, match=message):
        wb.export_directions(wrong(), tmp_path / "x.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_described_without_a_model(tmp_path):
    foreign(tmp_path / "x.gguf", (2, 3))
    found = describe_foreign(tmp_path / "x.gguf")
    assert found["directions"] == "direction.2, direction.3"
    assert (found["width"], found["controlvector.model_hint"]) == ("24", "llama")
