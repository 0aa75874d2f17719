import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import STAMP

from workbench.directions import Directions, open_directions, save_directions
from workbench.errors import ConfigError, FormatError, WorkbenchError

FIXTURE = Path(__file__).parent.parent / "fixtures" / "directions_v1.safetensors"


def known():
    """What the committed file holds."""
    vectors = np.arange(2 * 3 * STAMP.width, dtype=np.float32).reshape(2, 3, STAMP.width) - 70
    return Directions(
        names=("truth", "anger"),
        layers=(0, 2, 5),
        vectors=vectors,
        model=replace(STAMP, quantization="Q4_1 de-quantised"),
        norms=np.array([1.5, 2.5, 40.0]),
        center=vectors / 2,
        kind="mean",
        position="mean:assistant",
        info={
            "method": "ttpd",
            "layer": 2,
            "auc": [0.5, 0.9],
            "edit": "ablate",
            "t_P": np.ones((3, STAMP.width), np.float32),
        },
    )


def same(a, b):
    for name in ("names", "layers", "model", "kind", "site", "position"):
        assert getattr(a, name) == getattr(b, name), name
    for name in ("vectors", "norms", "center"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert set(a.info) == set(b.info)
    for key, value in a.info.items():
        assert np.array_equal(value, b.info[key]), key


def rewrite(path, change):
    """Change the header of a file by hand."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header["__metadata__"])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_a_round_trip_keeps_every_field_bit_for_bit(tmp_path):
    path = save_directions(known(), tmp_path / "deep" / "truth.safetensors")
    same(open_directions(path), known())
    assert [file.name for file in path.parent.iterdir()] == ["truth.safetensors"]


def test_optional_fields_may_be_absent(tmp_path):
    bare = replace(known(), norms=None, center=None, info={})
    found = open_directions(save_directions(bare, tmp_path / "a.safetensors", edit="cap"))
    assert found.norms is None
    assert found.center is None
    assert found.info == {"edit": "cap"}


def test_the_committed_file_of_version_1_opens():
    same(open_directions(FIXTURE), known())


def test_a_folder_of_a_run_opens_by_its_file(tmp_path):
    save_directions(known(), tmp_path / "directions.safetensors")
    same(open_directions(tmp_path), known())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.safetensors"):
        open_directions(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("keep", [0, 5, 200, -4])
def test_a_truncated_file_is_refused(tmp_path, keep):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(FIXTURE.read_bytes()[:keep])
    with pytest.raises(FormatError, match="damaged"):
        open_directions(path)


def test_a_flipped_bit_is_refused(tmp_path):
    data = bytearray(FIXTURE.read_bytes())
    data[-3] ^= 1
    path = tmp_path / "flipped.safetensors"
    path.write_bytes(data)
    with pytest.raises(FormatError, match="'sha256' does not agree"):
        open_directions(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "something/else"),
        ("version", "2"),
        ("layer_convention", "1-based"),
        ("names", "not json"),
        ("layers", '"all"'),
        ("model", "[]"),
    ],
)
def test_a_wrong_key_is_refused_by_name(tmp_path, key, value):
    path = save_directions(known(), tmp_path / "a.safetensors")
    rewrite(path, lambda header: header.update({key: value}))
    with pytest.raises(FormatError, match=f"key '{key}'"):
        open_directions(path)


@pytest.mark.parametrize(
    "key", ["format", "version", "names", "layers", "site", "position", "kind", "model", "sha256"]
)
def test_a_missing_key_is_refused_by_name(tmp_path, key):
    path = save_directions(known(), tmp_path / "a.safetensors")
    rewrite(path, lambda header: header.pop(key))
    with pytest.raises(FormatError, match=f"key '{key}'"):
        open_directions(path)


def test_a_header_of_another_width_is_refused(tmp_path):
    path = save_directions(known(), tmp_path / "a.safetensors")
    wider = json.dumps({**STAMP.__dict__, "width": 32})
    rewrite(path, lambda header: header.update(model=wider))
    with pytest.raises(FormatError, match=r"expected \(2, 3, 32\)"):
        open_directions(path)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"weight": np.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match="no directions file"):
        open_directions(tmp_path / "model.safetensors")


def test_a_place_that_cannot_be_written_is_an_error_and_leaves_the_old_file(tmp_path, monkeypatch):
    path = save_directions(known(), tmp_path / "a.safetensors")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workbench.files.os.fsync", full)
    with pytest.raises(WorkbenchError, match="the disk is full"):
        save_directions(known() * 2, path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_info_of_numpy_numbers_texts_and_paths_is_kept(tmp_path):
    """Only arrays of numbers are tensors; whatever else has a JSON form goes into the header."""
    info = {"n": np.int64(3), "names": np.array(["a", "b", "c"]), "of": Path("acts"), "auc": np.nan}
    made = replace(known(), info={**info, "bias": np.array([1.0, 2.0, 3.0])})
    found = open_directions(save_directions(made, tmp_path / "a.safetensors")).info
    assert (found["n"], found["names"], found["of"]) == (3, ["a", "b", "c"], "acts")
    assert found["auc"] is None  # NaN is no JSON
    assert found["bias"].tolist() == [1, 2, 3]


def test_half_a_layer_in_a_header_is_refused(tmp_path):
    path = save_directions(known(), tmp_path / "a.safetensors")
    rewrite(path, lambda header: header.update(layers="[0, 2.5, 5]"))
    with pytest.raises(FormatError, match="does not fit the numbers"):
        open_directions(path)
