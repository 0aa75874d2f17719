import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import STAMP
from safetensors import safe_open
from safetensors.numpy import save_file

from workbench.directions import open_directions
from workbench.directions.linear_map import LinearMap
from workbench.directions.map_io import is_map, open_map, save_map
from workbench.errors import ConfigError, FormatError, WorkbenchError

FIXTURE = Path(__file__).parent.parent / "fixtures" / "map_v1.safetensors"
D = STAMP.width


def known():
    """What the committed file holds."""
    numbers = np.arange(2 * 2 * D, dtype=np.float32).reshape(2, 2, D) / 8 - 5
    return LinearMap(
        name="trust",
        layers=(0, 5),
        left=np.swapaxes(numbers, 1, 2),
        right=numbers + 1,
        b=numbers[:, 0] * 2,
        axis=numbers[:, 1],
        norms=np.array([1.5, 40.0]),
        model=replace(STAMP, quantization="Q4_1 de-quantised"),
        position="mean:assistant",
        info={"method": "reduced_rank", "lam": np.array([0.5, 2.0], np.float32), "n": 12},
    )


def laid_out():
    found = known()
    W = np.stack([found.matrix(layer) for layer in found.layers])
    return replace(found, left=None, right=None, W=W, norms=None, info={})


def same(a, b):
    for name in ("name", "layers", "model", "site", "position", "kind"):
        assert getattr(a, name) == getattr(b, name), name
    for name in ("W", "left", "right", "b", "axis", "norms"):
        one, two = getattr(a, name), getattr(b, name)
        assert (one is None) == (two is None), name
        assert one is None or np.array_equal(one, two), name
    assert set(a.info) == set(b.info)
    for key, value in a.info.items():
        assert np.array_equal(value, b.info[key]), key


def rewrite(path, change):
    """Change the header of a file by hand."""
    with safe_open(path, framework="numpy") as file:
        header, tensors = file.metadata(), {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118
    change(header, tensors)
    save_file(tensors, path, header)


@pytest.mark.parametrize("make", [known, laid_out])
def test_a_round_trip_keeps_every_field_bit_for_bit(tmp_path, make):
    path = save_map(make(), tmp_path / "deep" / "trust.safetensors")
    same(open_map(path), make())
    assert [file.name for file in path.parent.iterdir()] == ["trust.safetensors"]
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode  # others may read it


def test_the_committed_file_of_version_1_opens():
    same(open_map(FIXTURE), known())


def test_chosen_layers_are_read_alone(tmp_path):
    path = save_map(known(), tmp_path / "a.safetensors")
    same(open_map(path, layers=[5]), known().select([5]))
    rewrite(path, lambda _, tensors: tensors.update({"b/0": tensors["b/0"] + 1}))
    same(open_map(path, layers=[5]), known().select([5]))
    with pytest.raises(FormatError, match=r"'sha256' does not agree with tensor 'b/0'"):
        open_map(path)
    with pytest.raises(ConfigError, match="no layer 3; it holds layers 0, 5"):
        open_map(path, layers=[3])


def test_a_folder_of_a_run_opens_by_its_file(tmp_path):
    save_map(known(), tmp_path / "map.safetensors")
    same(open_map(tmp_path), known())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.safetensors"):
        open_map(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("keep", [0, 5, 200, -4])
def test_a_truncated_file_is_refused(tmp_path, keep):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(FIXTURE.read_bytes()[:keep])
    with pytest.raises(FormatError, match="damaged"):
        open_map(path)


@pytest.mark.parametrize("place", range(-3, -1160, -97))
def test_a_flipped_bit_is_refused(tmp_path, place):
    data = bytearray(FIXTURE.read_bytes())
    data[place] ^= 1
    path = tmp_path / "flipped.safetensors"
    path.write_bytes(data)
    with pytest.raises(FormatError, match="'sha256' does not agree"):
        open_map(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "interp-workbench/directions"),
        ("version", "2"),
        ("operation", "W h + b"),
        ("layer_convention", "1-based"),
        ("layers", '"all"'),
        ("model", "[]"),
        ("info", "not json"),
    ],
)
def test_a_wrong_key_is_refused_by_name(tmp_path, key, value):
    path = save_map(known(), tmp_path / "a.safetensors")
    rewrite(path, lambda header, _: header.update({key: value}))
    with pytest.raises(FormatError, match=f"key '{key}'"):
        open_map(path)


@pytest.mark.parametrize(
    "key",
    ["format", "version", "operation", "name", "layers", "site", "position", "model", "sha256"],
)
def test_a_missing_key_is_refused_by_name(tmp_path, key):
    path = save_map(known(), tmp_path / "a.safetensors")
    rewrite(path, lambda header, _: header.pop(key))
    with pytest.raises(FormatError, match=f"key '{key}'"):
        open_map(path)


@pytest.mark.parametrize("name", ["b/5", "left/0", "axis/0", "right/5"])
def test_a_missing_tensor_is_refused_by_name(tmp_path, name):
    path = save_map(known(), tmp_path / "a.safetensors")
    rewrite(path, lambda _, tensors: tensors.pop(name))
    with pytest.raises(FormatError, match=f"tensor '{name}' is missing"):
        open_map(path)


def test_a_header_of_another_width_is_refused(tmp_path):
    path = save_map(known(), tmp_path / "a.safetensors")
    wider = json.dumps({**STAMP.__dict__, "width": 32})
    rewrite(path, lambda header, _: header.update(model=wider))
    with pytest.raises(FormatError, match=r"expected \(2, 32\)"):
        open_map(path)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    save_file({"weight": np.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match="no map file"):
        open_map(tmp_path / "model.safetensors")


def test_a_place_that_cannot_be_written_is_an_error_and_leaves_the_old_file(tmp_path, monkeypatch):
    path = save_map(known(), tmp_path / "a.safetensors")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workbench.files.os.fsync", full)
    with pytest.raises(WorkbenchError, match="the disk is full"):
        save_map(known() * 2, path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_what_the_library_cannot_write_is_an_error_too(tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def refuse(*_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("workbench.directions.map_io.save_file", refuse)
    with pytest.raises(WorkbenchError, match="No space left"):
        save_map(known(), tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_maps_and_directions_are_told_apart_by_their_headers(tmp_path):
    directions = FIXTURE.with_name("directions_v1.safetensors")
    assert is_map(FIXTURE)
    assert not is_map(directions)
    (tmp_path / "cut").write_bytes(FIXTURE.read_bytes()[:100])
    assert not is_map(tmp_path / "cut")
    with pytest.raises(FormatError, match="no map file"):
        open_map(directions)
    with pytest.raises(FormatError, match="no directions file"):
        open_directions(FIXTURE)


@pytest.mark.parametrize("layers", ["[1.5, 4]", '["1", "4"]', "[1, 1]"])
def test_layers_that_are_no_different_integers_are_refused(tmp_path, layers):
    path = save_map(known(), tmp_path / "trust.safetensors")
    rewrite(path, lambda header, _: header.update(layers=layers))
    with pytest.raises(FormatError, match="key 'layers'"):
        open_map(path)


def test_no_layers_and_a_layer_twice_are_a_wrong_call_not_a_damaged_file(tmp_path):
    path = save_map(known(), tmp_path / "trust.safetensors")
    for layers in ([], [known().layers[0]] * 2):
        with pytest.raises(ConfigError, match="each once"):
            open_map(path, layers=layers)


def test_info_of_texts_is_kept_in_the_header(tmp_path):
    made = replace(known(), info={"names": np.array(["a", "b"]), "n": np.int64(3)})
    found = open_map(save_map(made, tmp_path / "trust.safetensors")).info
    assert found == {"names": ["a", "b"], "n": 3}
