"""Committed version 1 files: whatever the code becomes, these open; cut ones never do."""

import json
import shutil
import struct
import zlib
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
import pytest

from workbench.activations import open_activations, verify
from workbench.errors import FormatError

FIXTURES = Path(__file__).parents[1] / "fixtures"
FLAT = (np.arange(40, dtype=np.float32).reshape(2, 5, 4) - 7) / 4
RAGGED = (np.arange(72, dtype=np.float32).reshape(2, 9, 4) - 7) / 4


@pytest.mark.parametrize(
    "name",
    [
        "activations_v1",
        "activations_v1_packed.h5",
        "activations_v1_sealed",
        "activations_v1_sealed_packed.h5",
    ],
)
def test_a_version_1_file_always_opens(name):
    acts = open_activations(FIXTURES / name)
    np.testing.assert_array_equal(acts.values, FLAT)
    assert (acts.layers, acts.site, acts.position, acts.dtype) == (
        (0, 3),
        "resid_post",
        "last",
        "bfloat16",
    )
    assert {name: column.tolist() for name, column in acts.columns.items()} == {
        "id": ["s0", "s1", "s2", "s3", "s4"],
        "text": ["Ein Satz.", "Zwei Sätze.", "Three", "四", "five"],
        "label": [0, 1, 0, 1, 0],
        "score": [0.0, 0.5, 1.0, 1.5, 2.0],
        "kept": [False, False, True, True, True],
    }
    assert (acts.model.key, acts.model.width, acts.model.quantization) == ("tiny", 4, None)
    np.testing.assert_allclose(acts.norms, np.linalg.norm(FLAT, axis=-1), rtol=1e-6)
    assert verify(FIXTURES / name)


@pytest.mark.parametrize("name", ["activations_v1_all", "activations_v1_all_sealed"])
def test_a_version_1_store_of_all_tokens_always_opens(name):
    acts = open_activations(FIXTURES / name)
    np.testing.assert_array_equal(acts.values, RAGGED)
    assert acts.offsets.tolist() == [0, 2, 3, 6, 7, 9]
    np.testing.assert_array_equal(acts.take([2]).at(3), RAGGED[1, 3:6])


@pytest.mark.parametrize("name", ["activations_v1", "activations_v1_sealed"])
def test_foreign_readers_see_the_same_through_the_view(name):
    with h5py.File(FIXTURES / name / "acts.h5") as file:
        wide = file["values"][...].astype(np.uint32) << 16
        np.testing.assert_array_equal(wide.view(np.float32), FLAT)


@pytest.mark.parametrize("cut", [1, 100, 4096, 10_000])
@pytest.mark.parametrize(
    "name",
    [
        "activations_v1/shards/000002-000004.h5",
        "activations_v1_packed.h5",
        "activations_v1_sealed/shards/000002-000004.h5",
        "activations_v1_sealed_packed.h5",
    ],
)
def test_a_truncated_version_1_file_never_opens(tmp_path, name, cut):
    shutil.copytree(FIXTURES, tmp_path, dirs_exist_ok=True)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-cut])
    with pytest.raises(FormatError, match=r"(truncated or damaged|no checksums).*(delete|pack)"):
        open_activations(tmp_path / Path(name).parts[0])


@pytest.mark.parametrize("name", ["activations_v1", "activations_v1_sealed"])
def test_the_format_page_is_enough_to_read_a_store(name):
    folder = FIXTURES / name
    manifest = json.loads((folder / "manifest.json").read_text())
    plan = sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]
    parts = []
    for first, stop in manifest["shards"]:
        path = folder / f"shards/{first:06d}-{stop:06d}.h5"
        with h5py.File(path) as file:
            assert file.attrs["plan"] == plan
            assert (file.attrs["first"], file.attrs["rows"]) == (first, stop - first)
            stored = file["values"][...]
            assert sha256(stored.tobytes()).hexdigest() == file.attrs["sha256"]
            parts.append((stored.astype(np.uint32) << 16).view(np.float32))
        recorded = json.loads((folder / "hashes.json").read_text())
        assert recorded[f"shards/{path.name}"] == sha256(path.read_bytes()).hexdigest()
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), FLAT)


def test_the_format_page_is_enough_to_check_a_seal():
    for path in (FIXTURES / "activations_v1_all_sealed" / "shards").iterdir():
        whole = path.read_bytes()
        length, size, layers, chunks, rest, own, magic = struct.unpack("<QQIIII8s", whole[-40:])
        count = layers * chunks
        assert (magic, len(whole)) == (b"iwbseal1", length + 12 * count + 40)
        blank = whole[length:-12] + bytes(4) + magic
        assert zlib.crc32(blank) == own
        offsets = np.frombuffer(whole, "<u8", count, length)
        sums = np.frombuffer(whole, "<u4", count, length + 8 * count)
        others = bytearray(whole[:length])
        with h5py.File(path) as file:
            values = file["values"]
            assert values.chunks[0] == 1
            for layer, offset, expected in zip(range(layers), offsets, sums, strict=True):
                held = values[layer].tobytes()
                assert whole[int(offset) : int(offset) + len(held)] == held
                assert zlib.crc32(held) == expected
        for offset in sorted(map(int, offsets), reverse=True):
            del others[offset : offset + size]
        assert zlib.crc32(bytes(others)) == rest


def test_a_version_1_embedding_always_opens():
    found = open_activations(FIXTURES / "activations_v1_sealed").embedding("pca")
    assert (found.seed, found.parameters) == (7, {"method": "pca", "layer": 3})
    np.testing.assert_array_equal(found.coordinates, np.arange(10).reshape(5, 2) / 4)
