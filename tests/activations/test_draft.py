"""Shards filled row by row: any order makes one file, and what failures leave."""

import errno
import importlib.util
import os
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from workbench.activations import draft as module
from workbench.activations import forwards, open_activations, verify
from workbench.activations.capture import capture
from workbench.activations.layout import decode, make_block
from workbench.activations.store import Store
from workbench.errors import WorkbenchError


def neighbor(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


_capture, _sharing, _store = map(neighbor, ("test_capture", "test_sharing", "test_store"))
DEPTH, WIDTH = _capture.DEPTH, _capture.WIDTH
ROW = WIDTH * 4
fake_subject, prompts_of, files = _capture.fake_subject, _capture.prompts_of, _sharing.files
LAYERS, manifest_of, planted = _store.LAYERS, _store.manifest_of, _store.planted


@pytest.fixture
def together(monkeypatch):
    """Eight items run together, in shards of three, three and two."""
    item = DEPTH * WIDTH * 4
    monkeypatch.setattr("workbench.activations.job.GROUP_BYTES", 8 * item)
    monkeypatch.setattr("workbench.activations.job.SHARD_BYTES", 3 * item)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("lengths", [None, (3, 1, 5, 2, 4)])
def test_rows_in_any_order_make_one_file(tmp_path, monkeypatch, dtype, lengths):
    monkeypatch.setattr("workbench.activations.seal.CHUNK_BYTES", 4 * 8 * 2)
    values, columns = planted(5, dtype, lengths=lengths)
    n = values.shape[1]
    offsets = None if lengths is None else np.cumsum([0, *lengths])
    block = make_block(0, values, dtype, columns, LAYERS, offsets)
    store = Store.create(tmp_path, manifest_of(5, dtype, lengths is not None, shard_rows=5))
    rng, found = np.random.default_rng(3), []
    for order in (np.arange(n), np.arange(n)[::-1], rng.permutation(n)):
        draft = store.begin(block.part, dtype)
        for places in np.array_split(order, 3):
            put = draft.route(places)
            for layer in range(len(LAYERS)):
                put(layer, values[layer, places])
        store.keep(draft, block.norms)
        found.append(draft.path.read_bytes())
    assert found == found[:1] * 3
    store.finish()
    verify(tmp_path)
    with h5py.File(draft.path) as file:
        np.testing.assert_array_equal(file["values"][...], values)
        np.testing.assert_array_equal(file["norms"][...], block.norms)
        assert file["values"].attrs["dtype"] == dtype
    np.testing.assert_array_equal(open_activations(tmp_path).values, decode(values, dtype))


def draft_of(folder, rows=4):
    values, columns = planted(rows)
    block = make_block(0, values, "float32", columns, LAYERS)
    store = Store.create(folder, manifest_of(rows))
    return store.begin(block.part, "float32"), block


def test_a_draft_that_lacks_a_row_is_never_accepted(tmp_path):
    draft, block = draft_of(tmp_path)
    put = draft.route(np.array([0, 1, 3]))
    for layer in range(len(LAYERS)):
        put(layer, block.values[layer, [0, 1, 3]])
    with pytest.raises(AssertionError, match="every row"):
        draft.close(block.norms)
    draft.discard()
    assert list((tmp_path / "shards").iterdir()) == []


def test_a_discarded_draft_leaves_nothing_and_a_closed_one_stays(tmp_path):
    draft, _ = draft_of(tmp_path)
    assert len(list((tmp_path / "shards").iterdir())) == 1
    draft.discard()
    draft.discard()
    assert list((tmp_path / "shards").iterdir()) == []
    draft, block = draft_of(tmp_path)
    put = draft.route(np.arange(4))
    for layer, values in enumerate(block.values):
        put(layer, values)
    draft.close(block.norms)
    draft.discard()
    assert list((tmp_path / "shards").iterdir()) == [draft.path]


def test_a_draft_takes_its_room_before_the_first_row(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "free_bytes", lambda _: 100)
    with pytest.raises(WorkbenchError, match=r"the disk is full: .*000000-000004.h5 needs"):
        draft_of(tmp_path)
    assert list((tmp_path / "shards").iterdir()) == []


def test_a_disk_that_fails_amid_a_shard_keeps_whole_shards_and_is_gone_on_with(
    tmp_path, monkeypatch
):
    prompts, real, calls = prompts_of(24), os.pwrite, []

    def failing(file, piece, offset):
        calls.append(file)
        if len(calls) > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, piece, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", failing)
        with pytest.raises(WorkbenchError, match=r"the disk is full: .* finished parts are kept"):
            capture(fake_subject(), prompts, out=tmp_path / "acts", shard_rows=4, budget=40)
    left = sorted(path.name for path in (tmp_path / "acts/shards").iterdir())
    assert 0 < len(left) < 6
    assert all(name.endswith(".h5") and not name.startswith(".") for name in left)
    capture(fake_subject(), prompts, out=tmp_path / "acts", shard_rows=4, budget=40)
    capture(fake_subject(), prompts, out=tmp_path / "whole", shard_rows=4, budget=40)
    assert files(tmp_path / "acts") == files(tmp_path / "whole")


def test_an_interrupted_group_leaves_no_temporary(tmp_path, together):
    whole = fake_subject()
    capture(whole, prompts_of(20), out=tmp_path / "whole", budget=40)
    broken = fake_subject(fail_at=len(whole.runner.batches) // 2)
    with pytest.raises(KeyboardInterrupt):
        capture(broken, prompts_of(20), out=tmp_path / "cut", budget=40)
    left = [path.name for path in (tmp_path / "cut/shards").iterdir()]
    assert sorted(left) == ["000000-000003.h5", "000003-000006.h5", "000006-000008.h5"]


@pytest.mark.parametrize("position", ["last", "all"])
def test_shards_that_run_together_hold_what_one_shard_would(tmp_path, together, position):
    prompts = prompts_of(20)
    options = {"position": position, "budget": 60}
    if position == "all":
        options["layers"] = [1]
    acts = capture(fake_subject(), prompts, out=tmp_path, **options)
    memory = capture(fake_subject(), prompts, **options)
    single = capture(fake_subject(), prompts, shard_rows=20, **options)
    assert acts.manifest.shards == memory.manifest.shards
    if position == "last":
        assert acts.manifest.shards[:4] == ((0, 3), (3, 6), (6, 8), (8, 11))
        assert acts.manifest.config["together"] == 8
    np.testing.assert_array_equal(acts.values, single.values)
    np.testing.assert_array_equal(memory.values, single.values)
    np.testing.assert_array_equal(acts.norms, single.norms)
    assert list(acts.columns["text"]) == list(prompts.items)
    verify(tmp_path)


def test_a_shard_that_is_lost_runs_only_the_batches_that_hold_its_rows(tmp_path, together):
    prompts = prompts_of(20)
    whole, first, rest = (_sharing.cramped(10**6) for _ in range(3))  # values tell a batch's rows
    capture(whole, prompts, out=tmp_path / "whole", budget=40)
    capture(first, prompts, out=tmp_path / "acts", budget=40)
    (tmp_path / "acts/shards/000006-000008.h5").unlink()
    capture(rest, prompts, out=tmp_path / "acts", budget=40)
    assert 0 < len(rest.runner.batches) <= 2
    assert len(whole.runner.batches) > 6
    assert files(tmp_path / "acts") == files(tmp_path / "whole")


def test_parts_share_by_what_runs_together(tmp_path, together):
    prompts = prompts_of(20)
    capture(fake_subject(), prompts, out=tmp_path / "whole", budget=60)
    first = capture(fake_subject(), prompts, out=tmp_path / "acts", budget=60, shard="0/2")
    assert first.rows.tolist() == [*range(8), *range(16, 20)]
    assert capture(fake_subject(), prompts, out=tmp_path / "acts", budget=60, shard="1/2").complete
    assert files(tmp_path / "acts") == files(tmp_path / "whole")


def test_one_shard_that_cannot_be_kept_leaves_its_neighbors(tmp_path, monkeypatch, together):
    real = Store.keep

    def keep(self, draft, norms):
        if draft.part.first == 3:
            raise WorkbenchError("the disk is full")
        real(self, draft, norms)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "keep", keep)
        with pytest.raises(WorkbenchError, match="the disk is full"):
            capture(fake_subject(), prompts_of(8), out=tmp_path / "acts")
    left = {path.name for path in (tmp_path / "acts/shards").iterdir()}
    assert left <= {"000000-000003.h5", "000006-000008.h5"}
    capture(fake_subject(), prompts_of(8), out=tmp_path / "acts")
    capture(fake_subject(), prompts_of(8), out=tmp_path / "whole")
    assert files(tmp_path / "acts") == files(tmp_path / "whole")


@pytest.mark.parametrize(("alone", "apart"), [(0, True), (1 << 40, False)])
def test_a_large_group_lands_when_the_one_before_is_written(
    tmp_path, monkeypatch, together, alone, apart
):
    monkeypatch.setattr("workbench.activations.landing.ALONE_BYTES", alone)
    said, begin, keep_all = [], Store.begin, forwards.keep_all

    def begun(store, part, dtype):
        said.append(part.first)
        return begin(store, part, dtype)

    def slow(landings):
        time.sleep(0.2)
        keep_all(landings)
        said.append("kept")

    monkeypatch.setattr(Store, "begin", begun)
    monkeypatch.setattr(forwards, "keep_all", slow)
    capture(fake_subject(), prompts_of(16), out=tmp_path / "acts")
    assert (said == [0, 3, 6, "kept", 8, 11, 14, "kept"]) == apart
    assert sorted(map(str, said)) == ["0", "11", "14", "3", "6", "8", "kept", "kept"]


def test_a_closed_draft_holds_no_values(tmp_path):
    draft, block = draft_of(tmp_path)
    put = draft.route(np.arange(4))
    for layer, values in enumerate(block.values):
        put(layer, values)
    draft.close(block.norms)
    assert draft._values.size == 0
