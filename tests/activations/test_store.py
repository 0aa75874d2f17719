"""The store: round trips, damage that is refused, and what a reader is promised."""

import errno
import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from workbench.activations import Activations, open_activations, pack, save_embedding, verify
from workbench.activations.layout import Manifest, decode, encode, make_block
from workbench.activations.shard import lay_out
from workbench.activations.store import Store, plan_shards
from workbench.errors import ConfigError, FormatError, MismatchError, WorkbenchError
from workbench.types import ActivationsLike, ModelStamp

STAMP = ModelStamp("tiny", "qwen3", 4, 8, "a" * 16, "b" * 16)
LAYERS = (0, 2, 3)


def manifest_of(
    rows, dtype="float32", ragged=False, shard_rows=4, columns=("id", "label", "topic")
):
    return Manifest(
        layers=LAYERS,
        width=8,
        site="resid_post",
        position="all" if ragged else "last",
        dtype=dtype,
        ragged=ragged,
        shards=plan_shards(rows, shard_rows),
        columns=columns,
        model=STAMP,
        config={"render": "bare", "budget": 64},
    )


def planted(rows, dtype="float32", seed=0, lengths=None):
    """Values by layer and row, and item columns with non-ASCII text and booleans."""
    rng = np.random.default_rng(seed)
    total = rows if lengths is None else int(np.sum(lengths))
    values = encode(rng.normal(size=(len(LAYERS), total, 8)).astype(np.float32) * 50, dtype)
    columns = {
        "id": np.array([f"é{row}" for row in range(rows)]),
        "label": np.arange(rows) % 2 == 0,
        "topic": np.array(["a/b", "c", ""] * rows)[:rows],
    }
    return values, columns


def write_store(folder, rows=10, dtype="float32", lengths=None, finish=True, shard_rows=4, seed=0):
    values, columns = planted(rows, dtype, seed, lengths)
    manifest = manifest_of(rows, dtype, lengths is not None, shard_rows)
    store = Store.create(folder, manifest)
    bounds = np.arange(rows + 1) if lengths is None else np.concatenate([[0], np.cumsum(lengths)])
    for first, stop in manifest.shards:
        part = {name: column[first:stop] for name, column in columns.items()}
        offsets = None if lengths is None else bounds[first : stop + 1] - bounds[first]
        cut = values[:, bounds[first] : bounds[stop]]
        store.write(make_block(first, cut, dtype, part, LAYERS, offsets))
    if finish:
        store.finish()
    return values, columns, manifest


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_store_gives_back_every_bit_and_every_column(tmp_path, dtype, packed):
    values, columns, _ = write_store(tmp_path / "acts", dtype=dtype)
    place = pack(tmp_path / "acts", tmp_path / "one.h5") if packed else tmp_path / "acts"
    acts = open_activations(place)
    assert isinstance(acts, ActivationsLike)
    assert (len(acts), acts.layers, acts.width, acts.dtype) == (10, LAYERS, 8, dtype)
    assert (acts.site, acts.position, acts.model) == ("resid_post", "last", STAMP)
    np.testing.assert_array_equal(acts.values, decode(values, dtype))
    for index, layer in enumerate(LAYERS):
        assert acts.at(layer).dtype == np.float32
        np.testing.assert_array_equal(acts.at(layer), decode(values[index], dtype))
    assert list(acts.columns) == ["id", "label", "topic"]
    for name, column in columns.items():
        np.testing.assert_array_equal(acts.columns[name], column)
    expected = np.linalg.norm(decode(values, dtype).astype(np.float64), axis=-1)
    np.testing.assert_allclose(acts.norms, expected, rtol=1e-6)
    np.testing.assert_allclose(acts.mean_norms, expected.mean(1), rtol=1e-6)
    assert set(verify(place).values())


def test_a_run_folder_its_store_and_its_view_open_alike(tmp_path):
    values, _, _ = write_store(tmp_path / "run" / "acts")
    for place in ("run", "run/acts", "run/acts/manifest.json", "run/acts/acts.h5"):
        np.testing.assert_array_equal(open_activations(tmp_path / place).values, values)


def test_bfloat16_bits_survive_and_round_as_torch_rounds():
    import torch

    wide = torch.randn(4000, generator=torch.Generator().manual_seed(0)) * torch.logspace(
        -37, 37, 4000
    )
    narrow = wide.bfloat16()
    bits = encode(wide.numpy(), "bfloat16")
    np.testing.assert_array_equal(bits, narrow.view(torch.int16).numpy().view(np.uint16))
    np.testing.assert_array_equal(decode(bits, "bfloat16"), narrow.float().numpy())
    every = np.arange(2**16, dtype=np.uint16)
    finite = np.isfinite(decode(every, "bfloat16"))
    np.testing.assert_array_equal(
        encode(decode(every, "bfloat16"), "bfloat16")[finite], every[finite]
    )


def test_tokens_of_ragged_items_stay_with_their_items(tmp_path):
    lengths = np.array([3, 1, 5, 2, 4, 1, 2])
    values, _, _ = write_store(tmp_path / "acts", 7, lengths=lengths, shard_rows=3)
    for place in (tmp_path / "acts", pack(tmp_path / "acts", tmp_path / "one.h5")):
        acts = open_activations(place)
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        np.testing.assert_array_equal(acts.offsets, bounds)
        np.testing.assert_array_equal(acts.values, values)
        picked = acts.take([6, 2, 3])
        expected = np.concatenate([values[1, bounds[i] : bounds[i + 1]] for i in (6, 2, 3)])
        np.testing.assert_array_equal(picked.at(2), expected)
        np.testing.assert_array_equal(np.diff(picked.offsets), lengths[[6, 2, 3]])
        later = np.setdiff1d(np.arange(bounds[-1]), bounds[:-1])
        expected = np.linalg.norm(values[:, later].astype(np.float64), axis=-1).mean(1)
        np.testing.assert_allclose(acts.mean_norms, expected, rtol=1e-6)


def test_views_pick_rows_by_number_mask_and_column(tmp_path):
    values, columns, _ = write_store(tmp_path / "acts")
    acts = open_activations(tmp_path / "acts")
    rows = [9, 0, 5, 5]
    np.testing.assert_array_equal(acts.take(rows).values, values[:, rows])
    np.testing.assert_array_equal(acts.take(rows).take([1, 3]).at(0), values[0, [0, 5]])
    some = acts.where(topic=["a/b", ""], label=True)
    keep = np.isin(columns["topic"], ["a/b", ""]) & columns["label"]
    np.testing.assert_array_equal(some.at(3), values[2, keep])
    np.testing.assert_array_equal(some.columns["id"], columns["id"][keep])
    np.testing.assert_array_equal(some.norms, acts.norms[:, keep])
    with pytest.raises(ConfigError, match="no item of 10 has"):
        acts.where(topic="nowhere")
    with pytest.raises(ConfigError, match="no column 'tpic'; columns: id, label, topic"):
        acts.where(tpic="c")
    with pytest.raises(ConfigError, match="layer 1 was not captured; layers here: 0, 2, 3"):
        acts.at(1)


def test_activations_in_memory_read_like_a_store():
    values, columns = planted(6)
    acts = Activations.from_values(values, columns, model=STAMP, layers=LAYERS)
    np.testing.assert_array_equal(acts.where(label=True).at(2), values[1, ::2])
    assert Activations.from_values(values, {}, model=STAMP).columns["id"][5] == "5"
    with pytest.raises(ValueError, match="column 'x' has 2 rows, values 6"):
        Activations.from_values(values, {"x": [1, 2]}, model=STAMP)


def test_equal_shards_are_equal_files(tmp_path):
    for name in ("first", "second"):
        write_store(tmp_path / name, dtype="bfloat16")
    files = sorted(path.relative_to(tmp_path / "first") for path in tmp_path.glob("first/**/*.*"))
    files.remove(Path("acts.h5"))  # carries HDF5's time stamps
    assert len(files) == 6
    for path in files:
        assert (tmp_path / "first" / path).read_bytes() == (tmp_path / "second" / path).read_bytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_virtual_view_shows_foreign_readers_the_same_and_nan_for_a_lost_shard(tmp_path, dtype):
    values, columns, _ = write_store(tmp_path / "acts", dtype=dtype)
    (tmp_path / "acts").rename(tmp_path / "moved")
    with h5py.File(tmp_path / "moved" / "acts.h5") as file:
        np.testing.assert_array_equal(file["values"][...], values)
        assert file["values"].attrs["dtype"] == dtype
        assert list(file["items/id"].asstr()) == list(columns["id"])
    (tmp_path / "moved" / "shards" / "000004-000008.h5").unlink()
    with h5py.File(tmp_path / "moved" / "acts.h5") as file:
        wide = decode(file["values"][...], dtype)
        np.testing.assert_array_equal(np.isnan(wide[0, :, 0]), [*[0] * 4, *[1] * 4, *[0] * 2])


def test_a_missing_shard_is_refused_with_its_rows_and_the_way_to_mend(tmp_path):
    write_store(tmp_path / "run" / "acts")
    (tmp_path / "run/acts/shards/000004-000008.h5").unlink()
    with pytest.raises(
        FormatError, match=r"lacks 1 of 3 .*: rows 4-7 .*`workbench cache.*--out .*run"
    ):
        open_activations(tmp_path / "run")


def test_a_shard_that_vanishes_after_opening_is_an_error_not_a_fill_value(tmp_path):
    write_store(tmp_path / "acts")
    acts = open_activations(tmp_path / "acts")
    (tmp_path / "acts/shards/000004-000008.h5").unlink()
    with pytest.raises(FormatError, match=r"000004-000008.h5 is missing"):
        acts.at(0)


@pytest.mark.parametrize("cut", [1, 4096, 1_000_000])
def test_a_truncated_shard_is_refused_with_a_hint(tmp_path, cut):
    write_store(tmp_path / "acts")
    shard = tmp_path / "acts/shards/000004-000008.h5"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: max(0, len(whole) - cut)])
    with pytest.raises(FormatError, match=r"000004-000008.h5.*delete 000004-000008.h5 and run"):
        open_activations(tmp_path / "acts")


def test_a_flipped_bit_is_caught_on_read_and_by_verify(tmp_path):
    values, _, _ = write_store(tmp_path / "acts")
    shard = tmp_path / "acts/shards/000004-000008.h5"
    content = bytearray(shard.read_bytes())
    place = content.index(values[1, 4:8].tobytes())
    content[place + 5] ^= 1
    shard.write_bytes(bytes(content))
    acts = open_activations(tmp_path / "acts")
    np.testing.assert_array_equal(acts.at(0), values[0])
    with pytest.raises(FormatError, match="truncated or damaged"):
        acts.at(2)
    with pytest.raises(FormatError, match=r"1 damaged files: .*000004-000008"):
        verify(tmp_path / "acts")


@pytest.mark.parametrize("lengths", [None, (2, 1, 3, 1)])
def test_whatever_byte_is_flipped_the_shard_is_refused_and_nothing_crashes(tmp_path, lengths):
    """Values, items, attributes, HDF5's own trees and the seal: a prime stride meets them all."""
    write_store(tmp_path / "acts", 4, "bfloat16", lengths=lengths)
    shard = tmp_path / "acts/shards/000000-000004.h5"
    whole = shard.read_bytes()
    for place in [*range(0, len(whole), 41), *range(len(whole) - 60, len(whole))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        shard.write_bytes(bytes(damaged))
        with pytest.raises(FormatError, match=r"000000-000004\.h5.* delete .*run the command"):
            assert open_activations(tmp_path / "acts").values is None, place
    shard.write_bytes(whole)
    verify(tmp_path / "acts")


def test_a_changed_label_is_refused(tmp_path):
    write_store(tmp_path / "acts")
    with h5py.File(tmp_path / "acts/shards/000000-000004.h5", "r+") as file:
        file["items/label"][0] = False
    with pytest.raises(FormatError, match=r"damaged \(|no checksums"):
        open_activations(tmp_path / "acts")


def test_verify_compares_whole_files_with_their_hashes(tmp_path):
    write_store(tmp_path / "acts", seed=0)
    write_store(tmp_path / "other", seed=1)
    name = "shards/000004-000008.h5"
    (tmp_path / "acts" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    open_activations(tmp_path / "acts")
    with pytest.raises(FormatError, match="does not match its hash"):
        verify(tmp_path / "acts")


def test_verify_asks_to_resume_an_unfinished_store(tmp_path):
    write_store(tmp_path / "acts", finish=False)
    with pytest.raises(FormatError, match="did not finish"):
        verify(tmp_path / "acts")


def change(path, **attrs):
    with h5py.File(path, "r+") as file:
        for name, value in attrs.items():
            file.attrs[name] = value


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"version": 2}, "version 2, this program reads version 1"),
        ({"format": "other"}, "format 'other'"),
        ({"rows": 3}, "rows = 3, 4 expected"),
        ({"first": 0}, "first = 0, 4 expected"),
        ({"plan": "0" * 16}, "plan = 0000000000000000"),
    ],
)
def test_a_shard_that_is_not_the_listed_one_is_refused(tmp_path, attrs, message):
    write_store(tmp_path / "acts")
    change(
        tmp_path / "acts/shards/000004-000008.h5",
        **{
            name: np.int64(value) if isinstance(value, int) else value
            for name, value in attrs.items()
        },
    )
    with pytest.raises(FormatError, match=message):
        open_activations(tmp_path / "acts")


def test_a_shard_with_fewer_values_than_it_says_is_refused(tmp_path):
    write_store(tmp_path / "acts")
    with h5py.File(tmp_path / "acts/shards/000004-000008.h5", "r+") as file:
        short = file["values"][:, :3]
        del file["values"]
        file.create_dataset("values", data=short).attrs["dtype"] = "float32"
    with pytest.raises(FormatError, match=r"shape \(3, 3, 8\), \(3, 4, 8\) expected"):
        open_activations(tmp_path / "acts")


def test_a_store_of_other_settings_is_refused_with_the_keys(tmp_path):
    *_, manifest = write_store(tmp_path / "acts")
    other = replace(manifest, position="mean", config={"render": "chat", "budget": 64})
    with pytest.raises(MismatchError) as error:
        Store.create(tmp_path / "acts", other)
    assert "position: 'last' -> 'mean'" in str(error.value)
    assert "config.render: 'bare' -> 'chat'" in str(error.value)
    assert "budget" not in str(error.value)


def test_invalid_shards_are_removed_on_resume_and_valid_ones_kept(tmp_path):
    *_, manifest = write_store(tmp_path / "acts")
    shards = tmp_path / "acts/shards"
    damaged = shards / "000004-000008.h5"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    (shards / "000008-000010.h5").unlink()
    store = Store.create(tmp_path / "acts", manifest)
    assert [store.has(*shard) for shard in manifest.shards] == [True, False, False]
    assert not damaged.exists()


def test_what_killed_writers_left_is_swept_and_what_living_ones_write_is_not(tmp_path):
    *_, manifest = write_store(tmp_path / "acts")
    import socket
    import subprocess
    import sys

    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    ).stdout.strip()
    host = socket.gethostname().replace(".", "_")
    shards = tmp_path / "acts" / "shards"
    names = [
        f".x.h5.{host}.{gone}.ab.tmp",
        f".x.h5.{host}.{os.getpid()}.ab.tmp",
        ".x.h5.else.1.ab.tmp",
    ]
    for name in names:
        (shards / name).write_bytes(b"")
    Store.create(tmp_path / "acts", manifest)
    assert [(shards / name).exists() for name in names] == [False, True, True]


def test_a_full_disk_is_explained_and_leaves_nothing_behind(tmp_path, monkeypatch):
    values, columns = planted(4)
    manifest = manifest_of(4)
    store = Store.create(tmp_path / "acts", manifest)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("workbench.files.os.fsync", full)
    with pytest.raises(WorkbenchError, match=r"disk is full: .* needs \d+\.\d kB, .* are free"):
        store.write(make_block(0, values, "float32", columns, LAYERS))
    assert list((tmp_path / "acts" / "shards").iterdir()) == []


@pytest.mark.parametrize("what", ["finish", "pack", "embed"])
def test_a_disk_that_fills_up_later_leaves_the_finished_files_as_they_were(
    tmp_path, monkeypatch, what
):
    *_, manifest = write_store(tmp_path / "acts")
    store = Store.create(tmp_path / "acts", manifest)
    acts = open_activations(tmp_path / "acts")
    save_embedding(acts, "pca", np.zeros((10, 2)), {"k": 2})
    out = pack(tmp_path / "acts", tmp_path / "out" / "one.h5")
    (tmp_path / "acts/hashes.json").unlink()
    tasks = {
        "finish": store.finish,
        "pack": lambda: pack(tmp_path / "acts", out),
        "embed": lambda: save_embedding(acts, "pca", np.ones((10, 2)), {"k": 2}),
    }
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("workbench.files.os.fsync", full)
        with pytest.raises(WorkbenchError, match=r"the disk is full: .* free; free some space"):
            tasks[what]()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == before
    tasks[what]()
    store.finish()
    verify(tmp_path / "acts")


def test_a_file_of_another_program_is_refused_with_what_to_give(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["values"] = np.zeros((3, 4, 8))
    with pytest.raises(FormatError, match=r"format None, .* give a file or folder that `workbench"):
        open_activations(tmp_path / "other.h5")
    write_store(tmp_path / "acts")
    shard = tmp_path / "acts/shards/000004-000008.h5"
    shard.write_bytes((tmp_path / "other.h5").read_bytes())
    with pytest.raises(FormatError, match=r"000004-000008\.h5 has format None"):
        open_activations(tmp_path / "acts")


def test_values_beyond_float16_and_rows_that_are_not_finite_are_refused():
    values, columns = planted(3)
    with pytest.raises(ConfigError, match=r"65505 is beyond float16"):
        encode(np.float32([[[1, -65505]]]), "float16")
    assert encode(np.float32([65504]), "float16")[0] == 65504
    for wrong in (np.nan, np.inf, -np.inf):
        spoiled = values.copy()
        spoiled[1, 2, 3] = wrong
        with pytest.raises(ConfigError, match=r"1 of 3 rows are not finite at layer 2.*'é2'"):
            make_block(0, spoiled, "float32", columns, LAYERS)


def test_large_float16_values_have_finite_norms():
    values = np.full((3, 1, 8), 60000, np.float16)
    block = make_block(0, values, "float16", {"id": np.array(["a"])}, LAYERS)
    np.testing.assert_allclose(block.norms, 60000 * np.sqrt(8), rtol=1e-3)


@pytest.mark.parametrize("name", ["a/b", "..", ".", "50%", "a%2Fb", "ü"])
def test_any_column_name_survives(tmp_path, name):
    values, columns = planted(2)
    block = make_block(0, values, "float32", {"id": columns["id"], name: np.array([1, 2])}, LAYERS)
    store = Store.create(tmp_path / "acts", manifest_of(2, columns=("id", name)))
    store.write(block)
    np.testing.assert_array_equal(open_activations(tmp_path / "acts").columns[name], [1, 2])


def test_a_column_that_hdf5_cannot_hold_is_named():
    values, columns = planted(1)
    block = make_block(0, values, "float32", {**columns, "topic": np.array(["a\0b"])}, LAYERS)
    with pytest.raises(ConfigError, match="column 'topic' holds"):
        lay_out(block.part, manifest_of(1))


def test_nothing_to_open_says_what_was_expected(tmp_path):
    with pytest.raises(FormatError, match="no activations at"):
        open_activations(tmp_path / "nowhere")
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(FormatError, match="truncated or damaged"):
        open_activations(tmp_path / "text.h5")
    write_store(tmp_path / "acts")
    with pytest.raises(FormatError, match="one shard, not a whole store"):
        open_activations(tmp_path / "acts/shards/000000-000004.h5")


def test_several_reads_are_listed_to_choose_from(tmp_path):
    for name in ("a", "b"):
        write_store(tmp_path / "run" / "acts" / name)
    with pytest.raises(FormatError, match=r"2 reads; open one of: .*acts/a, .*acts/b"):
        open_activations(tmp_path / "run")


def test_a_damaged_manifest_names_itself(tmp_path):
    write_store(tmp_path / "acts")
    path = tmp_path / "acts" / "manifest.json"
    whole = path.read_text()
    path.write_text(whole[:50])
    with pytest.raises(FormatError, match=r"manifest.json is not JSON"):
        open_activations(tmp_path / "acts")
    path.write_text(json.dumps({**json.loads(whole), "version": 9}))
    with pytest.raises(FormatError, match="version 9"):
        open_activations(tmp_path / "acts")
    path.write_text(json.dumps({**json.loads(whole), "dtype": "int4"}))
    with pytest.raises(FormatError, match="int4"):
        open_activations(tmp_path / "acts")


@pytest.mark.thorough
def test_threads_read_one_store_at_once(tmp_path):
    values, _, _ = write_store(tmp_path / "acts", rows=40)
    acts = open_activations(tmp_path / "acts")
    wrong = []

    def read(index):
        for turn in range(30):
            layer = (index + turn) % len(LAYERS)
            if not np.array_equal(acts.at(LAYERS[layer]), values[layer]):
                wrong.append((index, turn))

    threads = [threading.Thread(target=read, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("rows", [1, 5, 9])
def test_values_that_hdf5_never_touched_lie_where_it_says(tmp_path, monkeypatch, rows):
    """Chunks that are not full, values that are no block of memory, and columns of any length."""
    monkeypatch.setattr("workbench.activations.seal.CHUNK_BYTES", 4 * 8 * 2)  # four rows
    values, columns = planted(3 * rows, "bfloat16")
    columns["text"] = np.array(["x" * 5000 * row for row in range(3 * rows)])
    columns = {name: column[::3] for name, column in columns.items()}
    manifest = manifest_of(rows, "bfloat16", shard_rows=rows, columns=tuple(columns))
    store = Store.create(tmp_path / "acts", manifest)
    store.write(make_block(0, values[:, ::3], "bfloat16", columns, LAYERS))
    store.finish()
    shard = tmp_path / f"acts/shards/000000-{rows:06d}.h5"
    with h5py.File(shard) as file:
        np.testing.assert_array_equal(file["values"][...], values[:, ::3])
        assert list(file["items/text"].asstr()) == list(columns["text"])
    np.testing.assert_array_equal(
        open_activations(tmp_path / "acts").stored(2), values[LAYERS.index(2), ::3]
    )
    verify(tmp_path / "acts")


def test_one_layer_reads_in_one_sweep(tmp_path):
    write_store(tmp_path / "acts", rows=10, dtype="bfloat16", shard_rows=10)
    with h5py.File(tmp_path / "acts/shards/000000-000010.h5") as file:
        assert file["values"].chunks == (1, 10, 8)
        assert file["values"].attrs["dtype"] == "bfloat16"
        assert file["values"].dtype == np.uint16
        assert file["norms"].dtype == np.float32


def test_a_packed_file_that_was_cut_is_refused(tmp_path):
    write_store(tmp_path / "acts")
    out = pack(tmp_path / "acts", tmp_path / "one.h5")
    shutil.rmtree(tmp_path / "acts")
    out.write_bytes(out.read_bytes()[:-4096])
    with pytest.raises(FormatError, match="pack"):
        open_activations(out)
