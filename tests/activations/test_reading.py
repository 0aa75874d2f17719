"""Reading less than everything: rows, columns, coordinates; checked, and nothing else is read."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench.activations import (
    Activations,
    open_activations,
    pack,
    save_embedding,
    threads,
    verify,
)
from workbench.activations import acts as acts_module
from workbench.activations import seal as seal_module
from workbench.activations.layout import STORED, decode
from workbench.activations.shard import Shard
from workbench.errors import ConfigError, FormatError, UnknownNameError

_spec = importlib.util.spec_from_file_location(
    "store_tests", Path(__file__).parent / "test_store.py"
)
_store = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_store)
write_store, LAYERS, STAMP = _store.write_store, _store.LAYERS, _store.STAMP


def flip(path, content):
    """Change one bit of the first place where ``content`` stands."""
    whole = bytearray(path.read_bytes())
    whole[whole.index(content)] ^= 4
    path.write_bytes(bytes(whole))


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(seal_module, "CHUNK_BYTES", 3 * 8 * 4)  # three float32 rows


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("lengths", [None, (3, 1, 5, 2, 4, 1, 2, 2, 1, 3)])
def test_any_rows_in_any_order_are_those_of_the_whole(
    tmp_path, small_chunks, packed, dtype, lengths
):
    write_store(tmp_path / "acts", dtype=dtype, lengths=lengths)
    place = pack(tmp_path / "acts", tmp_path / "one.h5") if packed else tmp_path / "acts"
    acts = open_activations(place)
    whole = acts.at(2)
    bounds = np.arange(11) if lengths is None else acts.offsets
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 10, 14):
        items = rng.integers(0, 10, size)
        expected = np.concatenate([whole[bounds[i] : bounds[i + 1]] for i in items])
        view = acts.take(items)
        np.testing.assert_array_equal(view.at(2), expected)
        np.testing.assert_array_equal(view.column("id"), [f"é{i}" for i in items])
        norms = np.linalg.norm(expected.astype(np.float64), axis=1)
        np.testing.assert_allclose(view.norms[1], norms, rtol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
def test_rows_read_only_the_chunks_that_hold_them(tmp_path, small_chunks, packed):
    values, _, _ = write_store(tmp_path / "acts", rows=9, shard_rows=9)
    place = tmp_path / "acts/shards/000000-000009.h5"
    if packed:
        place = pack(tmp_path / "acts", tmp_path / "one.h5")
    flip(place, values[1, 4].tobytes())  # rows 3, 4 and 5 share a chunk
    acts = open_activations(place if packed else tmp_path / "acts")
    np.testing.assert_array_equal(acts.take([8, 0, 2, 6]).at(2), values[1, [8, 0, 2, 6]])
    np.testing.assert_array_equal(acts.at(0), values[0])
    for rows in ([5], [0, 3], range(9)):
        with pytest.raises(FormatError, match=r"wrong checksum of chunk 1 .*(delete|pack)"):
            acts.take(np.array(rows)).at(2)


def test_rows_open_only_the_shards_that_hold_them(tmp_path):
    values, _, _ = write_store(tmp_path / "acts")
    acts = open_activations(tmp_path / "acts")
    assert len(acts.columns["label"]) == 10
    (tmp_path / "acts/shards/000004-000008.h5").unlink()
    np.testing.assert_array_equal(acts.take([9, 1]).at(3), values[2, [9, 1]])
    with pytest.raises(FormatError, match="is missing"):
        acts.take([9, 4]).at(3)


def test_a_filter_reads_its_own_column_and_views_share_what_was_read(tmp_path, monkeypatch):
    write_store(tmp_path / "acts")
    read = []
    shard = acts_module.open_parts(tmp_path / "acts")[1][0].__class__
    real = shard.read_column

    def reading(self, name):
        if name != "id":  # the type checker of the tests looks at a mapping's first value
            read.append(name)
        return real(self, name)

    monkeypatch.setattr(shard, "read_column", reading)
    acts = open_activations(tmp_path / "acts")
    some = acts.where(label=True).where(label=True)
    assert (len(some), read) == (5, ["label"] * 3)
    assert some.columns["topic"].tolist() == acts.columns["topic"][::2].tolist()
    assert read == ["label"] * 3 + ["topic"] * 3
    assert dict(some.columns).keys() == {"id", "label", "topic"}
    with pytest.raises(KeyError):
        some.columns["none"]


def test_large_layers_are_read_by_several_threads_to_the_same_bits(
    tmp_path, monkeypatch, small_chunks
):
    values, _, _ = write_store(tmp_path / "acts", rows=40)
    place = pack(tmp_path / "acts", tmp_path / "one.h5")
    monkeypatch.setattr(threads, "THREADED_BYTES", 1)
    monkeypatch.setattr(threads, "processors", lambda: 4)
    acts = open_activations(tmp_path / "acts")
    np.testing.assert_array_equal(acts.values, values)
    packed = open_activations(place)
    np.testing.assert_array_equal(packed.values, values)
    some = [31, 3, 3, 17, 0]
    np.testing.assert_array_equal(packed.take(some).stored(2), values[1, some])
    flip(place, values[1, 20].tobytes())
    with pytest.raises(FormatError, match="wrong checksum of chunk"):
        packed.at(2)
    (tmp_path / "acts/shards/000020-000024.h5").unlink()
    with pytest.raises(FormatError, match=r"000020-000024\.h5 is missing"):
        acts.at(2)


def test_a_short_read_is_continued_and_an_early_end_refused(tmp_path, monkeypatch):
    values, _, _ = write_store(tmp_path / "acts")
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, views, at: real(file, [views[0][:7]], at))
    acts = open_activations(tmp_path / "acts")
    np.testing.assert_array_equal(acts.at(2), values[1])
    monkeypatch.setattr(os, "preadv", lambda *_: 0)
    with pytest.raises(FormatError, match="it ends before byte"):
        acts.at(2)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("lengths", [None, (3, 1, 5, 2, 4, 1, 2, 2, 1, 3)])
def test_stored_bits_are_those_that_were_written_and_widen_to_what_at_gives(
    tmp_path, small_chunks, packed, dtype, lengths
):
    values, _, _ = write_store(tmp_path / "acts", dtype=dtype, lengths=lengths)
    place = pack(tmp_path / "acts", tmp_path / "one.h5") if packed else tmp_path / "acts"
    acts = open_activations(place)
    bits = acts.stored(2)
    assert bits.dtype == STORED[dtype]
    np.testing.assert_array_equal(bits, values[1])
    np.testing.assert_array_equal(decode(bits, dtype), acts.at(2))
    some = acts.take([7, 2, 3])
    np.testing.assert_array_equal(decode(some.stored(2), dtype), some.at(2))


def test_a_layer_is_read_into_an_array_that_fits_and_into_no_other(tmp_path):
    write_store(tmp_path / "acts", dtype="bfloat16")
    acts = open_activations(tmp_path / "acts")
    wide, bits = np.full((10, 8), np.nan, np.float32), np.zeros((10, 8), np.uint16)
    for view, rows in ((acts, range(10)), (acts.take([3, 1, 3]), [3, 1, 3])):
        assert view.at(3, wide[: len(view)]).base is wide
        np.testing.assert_array_equal(wide[: len(view)], acts.at(3)[list(rows)])
        view.stored(3, bits[: len(view)])
        np.testing.assert_array_equal(bits[: len(view)], acts.stored(3)[list(rows)])
    for wrong in (wide[:9], np.empty((8, 10), np.float32).T, np.empty((10, 9), np.float32)[:, 1:]):
        with pytest.raises(ValueError, match=r"contiguous array of float32 \(10, 8\)"):
            acts.at(3, wrong)
    with pytest.raises(ValueError, match="of uint16"):
        acts.stored(3, wide)


@pytest.mark.parametrize("lengths", [None, (3, 1, 5, 2, 4, 1, 2, 2, 1, 3)])
def test_a_store_with_an_index_opens_without_hdf5_and_reads_the_same(
    tmp_path, monkeypatch, lengths
):
    values, columns, _ = write_store(tmp_path / "acts", lengths=lengths)
    monkeypatch.setattr(Shard, "_check_marks", lambda *_: pytest.fail("looked through"))
    acts = open_activations(tmp_path / "acts")
    np.testing.assert_array_equal(acts.values, values)
    assert acts.columns["topic"].tolist() == list(columns["topic"])
    (tmp_path / "acts/shards.index").unlink()
    with pytest.raises(pytest.fail.Exception, match="looked through"):
        open_activations(tmp_path / "acts")


def test_an_index_is_not_believed_about_another_file(tmp_path):
    """A shard of the same shapes and another plan, or in another's place, is looked through."""
    write_store(tmp_path / "acts")
    write_store(tmp_path / "other", seed=1)
    shards = tmp_path / "acts/shards"
    whole = (shards / "000000-000004.h5").read_bytes()
    (shards / "000000-000004.h5").write_bytes((shards / "000004-000008.h5").read_bytes())
    with pytest.raises(FormatError, match="first = 4, 0 expected"):
        open_activations(tmp_path / "acts")
    (shards / "000000-000004.h5").write_bytes(whole)
    index = tmp_path / "other/shards.index"
    (tmp_path / "acts/shards.index").write_bytes(index.read_bytes())
    open_activations(tmp_path / "acts")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"plan": 1}', b"\xff", None])
def test_a_damaged_index_costs_time_and_nothing_else(tmp_path, content):
    values, _, _ = write_store(tmp_path / "acts")
    index = tmp_path / "acts/shards.index"
    if content is None:  # one that names every shard, but gives nothing to recognise it by
        content = json.dumps({**json.loads(index.read_bytes()), "shards": {"a": 1}}).encode()
    index.write_bytes(content)
    np.testing.assert_array_equal(open_activations(tmp_path / "acts").values, values)


def test_verify_finds_an_index_that_lies_about_a_shard(tmp_path):
    write_store(tmp_path / "acts", lengths=(3, 1, 5, 2, 4, 1, 2, 2, 1, 3))
    index = tmp_path / "acts/shards.index"
    found = json.loads(index.read_bytes())
    found["shards"]["000004-000008.h5"][1] += 1
    index.write_text(json.dumps(found))
    with pytest.raises(FormatError, match=r"shards\.index says other than 000004-000008\.h5"):
        verify(tmp_path / "acts")


def test_an_embedding_comes_back_with_its_seed_and_parameters(tmp_path):
    write_store(tmp_path / "acts")
    acts = open_activations(tmp_path / "acts")
    assert acts.embeddings == ()
    points = np.random.default_rng(0).normal(size=(10, 2))
    parameters = {"method": "umap", "n_neighbors": 15, "layer": 3}
    for place in (tmp_path / "acts", pack(tmp_path / "acts", tmp_path / "one.h5")):
        acts = open_activations(place)
        save_embedding(acts, "umap/15", points, parameters, seed=4)
        found = open_activations(place).embedding("umap/15")
        np.testing.assert_array_equal(found.coordinates, points.astype(np.float32))
        assert (found.name, found.seed, found.parameters) == ("umap/15", 4, parameters)
        assert open_activations(place).embeddings == ("umap/15",)
        picked = acts.take([7, 2]).embedding("umap/15").coordinates
        np.testing.assert_array_equal(picked, points.astype(np.float32)[[7, 2]])
        save_embedding(acts, "umap/15", -points)
        assert acts.embedding("umap/15").seed is None
        assert acts.embedding("umap/15").coordinates[0, 0] == -np.float32(points[0, 0])
        left = [path.name for path in place.parent.rglob("*.tmp")]
        assert left == []


def test_an_embedding_of_a_view_stands_for_its_items_alone(tmp_path):
    write_store(tmp_path / "acts")
    acts = open_activations(tmp_path / "acts")
    some = acts.take([8, 3, 5])
    save_embedding(some, "pca", np.arange(9.0).reshape(3, 3))
    np.testing.assert_array_equal(acts.take([5, 8]).embedding("pca").coordinates[:, 0], [6, 0])
    with pytest.raises(ConfigError, match="leaves out 7 of these 10 items"):
        acts.embedding("pca")


def test_an_embedding_that_cannot_belong_is_refused(tmp_path):
    write_store(tmp_path / "acts")
    acts = open_activations(tmp_path / "acts")
    with pytest.raises(ValueError, match="for 10 items"):
        save_embedding(acts, "pca", np.zeros((9, 2)))
    with pytest.raises(ValueError, match="twice"):
        save_embedding(acts.take([1, 1]), "pca", np.zeros((2, 2)))
    with pytest.raises(ConfigError, match="not finite"):
        save_embedding(acts, "pca", np.full((10, 2), np.inf))
    with pytest.raises(ValueError, match="begin with a dot"):
        save_embedding(acts, ".pca", np.zeros((10, 2)))
    with pytest.raises(UnknownNameError, match="known: none"):
        acts.embedding("pca")
    memory = Activations.from_values(np.zeros((1, 2, 3)), {}, model=STAMP)
    with pytest.raises(ConfigError, match="in memory"):
        save_embedding(memory, "pca", np.zeros((2, 2)))
    with pytest.raises(UnknownNameError):
        memory.embedding("pca")


def test_a_damaged_embedding_or_one_of_another_store_is_refused(tmp_path):
    write_store(tmp_path / "acts")
    write_store(tmp_path / "other", rows=10, shard_rows=5)
    acts = open_activations(tmp_path / "acts")
    path = save_embedding(acts, "pca", np.arange(20.0).reshape(10, 2), {"layer": 3}, seed=1)
    whole = path.read_bytes()
    for place in range(0, len(whole), 23):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        with pytest.raises(FormatError, match=r"pca\.h5.*delete it and embed again"):
            acts.embedding("pca")
    with pytest.raises(FormatError, match=r"1 damaged files: .*pca\.h5"):
        verify(tmp_path / "acts")
    path.write_bytes(whole)
    verify(tmp_path / "acts")
    other = tmp_path / "other/embeddings/pca.h5"
    other.parent.mkdir()
    other.write_bytes(whole)
    with pytest.raises(FormatError, match="belongs to another store"):
        open_activations(tmp_path / "other").embedding("pca")


def test_who_reads_a_store_does_not_wait_for_torch():
    code = (
        "import sys, workbench.activations\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
