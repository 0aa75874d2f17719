"""Several writers of one store, batches that must shrink, writers that fail: nothing is lost."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from workbench.activations import open_activations, verify
from workbench.activations.capture import capture
from workbench.activations.store import Store
from workbench.errors import ConfigError, FormatError, MismatchError, WorkbenchError

_spec = importlib.util.spec_from_file_location(
    "capture_tests", Path(__file__).parent / "test_capture.py"
)
_capture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_capture)
CountingRunner, fake_subject, prompts_of = (
    _capture.CountingRunner,
    _capture.fake_subject,
    _capture.prompts_of,
)


def files(folder):
    """Every file but the view, whose HDF5 time stamps differ."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "acts.h5")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("position", ["last", "all"])
def test_parts_fill_one_store_and_the_last_one_closes_it(tmp_path, position):
    prompts = prompts_of(23)
    options = {"shard_rows": 4, "position": position}
    whole = capture(fake_subject(), prompts, out=tmp_path / "whole", **options)
    kept = {}
    for index in (1, 2, 0):
        subject = fake_subject()
        acts = capture(subject, prompts, out=tmp_path / "acts", shard=(index, 3), **options)
        kept[index] = acts
        assert acts.complete == (index == 0)
        assert (tmp_path / "acts/hashes.json").exists() == (index == 0)
        assert 0 < sum(rows for rows, _ in subject.runner.batches) < 23
    assert files(tmp_path / "acts") == files(tmp_path / "whole")
    assert verify(tmp_path / "acts") == verify(tmp_path / "whole")
    own = kept[1]
    assert own.rows.tolist() == [4, 5, 6, 7, 16, 17, 18, 19]
    np.testing.assert_array_equal(own.columns["id"], whole.columns["id"][own.rows])
    np.testing.assert_array_equal(own.values, whole.take(own.rows).values)
    np.testing.assert_array_equal(own.take([5, 1]).at(2), whole.take([17, 5]).at(2))
    np.testing.assert_array_equal(kept[0].values, whole.values)


def test_an_unfinished_store_of_parts_says_what_is_missing(tmp_path):
    capture(fake_subject(), prompts_of(), out=tmp_path, shard_rows=4, shard="1/2")
    with pytest.raises(FormatError, match="lacks 2 of 3 shards: rows 0-3, 8-10 of 11"):
        open_activations(tmp_path)


def test_any_writer_goes_on_where_parts_ended(tmp_path):
    prompts = prompts_of(23)
    capture(fake_subject(), prompts, out=tmp_path / "acts", shard_rows=4, shard="1/2")
    rest = fake_subject()
    acts = capture(rest, prompts, out=tmp_path / "acts", shard_rows=4)
    assert acts.complete
    assert sum(rows for rows, _ in rest.runner.batches) == 23 - 4 - 4 - 3
    whole = capture(fake_subject(), prompts, out=tmp_path / "whole", shard_rows=4)
    assert files(tmp_path / "acts") == files(tmp_path / "whole")
    assert len(whole) == 23


def test_more_parts_than_shards_leave_some_nothing_to_do(tmp_path):
    prompts = prompts_of(5)
    idle = fake_subject()
    acts = capture(idle, prompts, out=tmp_path / "acts", shard_rows=4, shard=(3, 4))
    assert (len(acts), acts.complete, idle.runner.batches) == (0, False, [])
    assert acts.columns["id"].tolist() == []
    for index in (0, 1):
        acts = capture(
            fake_subject(), prompts, out=tmp_path / "acts", shard_rows=4, shard=(index, 4)
        )
    assert acts.complete
    assert capture(idle, prompts, out=tmp_path / "acts", shard_rows=4, shard=(2, 4)).complete
    assert idle.runner.batches == []


@pytest.mark.parametrize("shards", [[(0, 2), (1, 2)], [None, None], [(0, 2), (0, 2), (1, 2)]])
def test_writers_side_by_side_leave_what_one_leaves(tmp_path, shards):
    prompts = prompts_of(40)
    capture(fake_subject(), prompts, out=tmp_path / "whole", shard_rows=3)

    def write(shard):
        return capture(fake_subject(), prompts, out=tmp_path / "acts", shard_rows=3, shard=shard)

    with ThreadPoolExecutor(len(shards)) as pool:
        found = list(pool.map(write, shards))
    assert any(acts.complete for acts in found)
    assert files(tmp_path / "acts") == files(tmp_path / "whole")


def test_a_part_of_other_settings_is_refused(tmp_path):
    capture(fake_subject(), prompts_of(), out=tmp_path, shard_rows=4, shard=(0, 2))
    with pytest.raises(MismatchError, match="layers"):
        capture(fake_subject(), prompts_of(), out=tmp_path, shard_rows=4, shard=(1, 2), layers=[1])


@pytest.mark.parametrize("shard", [(2, 2), "2/2", "1", "a/b", (0, 0), (-1, 2), "0/2/3"])
def test_a_share_that_is_none_is_refused(tmp_path, shard):
    with pytest.raises(ConfigError, match="give i/n"):
        capture(fake_subject(), prompts_of(), out=tmp_path / "acts", shard=shard)
    assert not (tmp_path / "acts").exists()


class Cramped(CountingRunner):
    """Has room for so many tokens; its values tell how many rows a batch had."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def capture(self, subject, batch, reads):
        rows, tokens = batch.input_ids.shape
        if rows * tokens > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [value + rows for value in super().capture(subject, batch, reads)]


def cramped(room):
    subject = fake_subject()
    subject.runner = Cramped(room)
    return subject


def budgets(folder):
    found = []
    for path in sorted((folder / "shards").iterdir()):
        with h5py.File(path) as file:
            found.append(file.attrs.get("budget"))
    return found


def test_batches_shrink_where_memory_ends_and_the_size_is_kept(tmp_path):
    prompts, told = prompts_of(24), []
    subject = cramped(100)
    capture(
        subject,
        prompts,
        out=tmp_path / "acts",
        shard_rows=4,
        budget=130,
        progress=lambda done, total: told.append((done, total)),
    )
    kept = budgets(tmp_path / "acts")
    assert 65 in kept
    first = kept.index(65)
    assert kept == [None] * first + [65] * (len(kept) - first)
    assert told == sorted(set(told))
    assert told[-1] == (24, 24)
    assert all(rows * tokens <= 100 for rows, tokens in subject.runner.batches)


def test_a_resumed_capture_replays_the_smaller_batches(tmp_path):
    prompts = prompts_of(24)
    options = {"shard_rows": 4, "budget": 130}
    capture(cramped(100), prompts, out=tmp_path / "whole", **options)
    capture(cramped(100), prompts, out=tmp_path / "acts", **options)
    plenty = capture(cramped(10**6), prompts, out=tmp_path / "plenty", **options)
    assert not np.array_equal(plenty.values, open_activations(tmp_path / "whole").values)
    lost = tmp_path / "acts/shards/000020-000024.h5"
    lost.unlink()
    capture(cramped(10**6), prompts, out=tmp_path / "acts", **options)
    assert files(tmp_path / "acts") == files(tmp_path / "whole")


def test_one_prompt_that_does_not_fit_is_an_error(tmp_path):
    with pytest.raises(WorkbenchError, match=r"one prompt of \d+ tokens does not fit the device"):
        capture(cramped(3), prompts_of(), out=tmp_path / "acts")


def test_an_error_that_is_not_about_memory_passes(tmp_path):
    class Broken(CountingRunner):
        def capture(self, subject, batch, reads):
            raise RuntimeError("shapes do not match")

    subject = fake_subject()
    subject.runner = Broken()
    with pytest.raises(RuntimeError, match="shapes do not match"):
        capture(subject, prompts_of())


def test_an_error_of_the_writing_thread_reaches_the_caller_and_what_was_written_stays(
    tmp_path, monkeypatch
):
    prompts = prompts_of(40)
    real, calls = Store.keep, []

    def keep(self, draft, norms):
        calls.append(draft.part.first)
        if len(calls) > 3:
            raise WorkbenchError("the disk is full")
        real(self, draft, norms)

    monkeypatch.setattr(Store, "keep", keep)
    subject = fake_subject()
    with pytest.raises(WorkbenchError, match="the disk is full"):
        capture(subject, prompts, out=tmp_path / "acts", shard_rows=4)
    assert len(list((tmp_path / "acts/shards").iterdir())) == 3
    assert sum(rows for rows, _ in subject.runner.batches) <= 6 * 4  # it stopped soon after
    monkeypatch.setattr(Store, "keep", real)
    capture(fake_subject(), prompts, out=tmp_path / "acts", shard_rows=4)
    capture(fake_subject(), prompts, out=tmp_path / "whole", shard_rows=4)
    assert files(tmp_path / "acts") == files(tmp_path / "whole")


def test_two_errors_at_once_are_both_told(tmp_path, monkeypatch):
    def keep(self, draft, norms):
        raise WorkbenchError("the disk is full")

    class Late(CountingRunner):
        def capture(self, subject, batch, reads):
            if self.batches:
                raise KeyboardInterrupt
            return super().capture(subject, batch, reads)

    monkeypatch.setattr(Store, "keep", keep)
    subject = fake_subject()
    subject.runner = Late()
    with pytest.raises(KeyboardInterrupt) as caught:
        capture(subject, prompts_of(8), out=tmp_path / "acts", shard_rows=4)
    assert caught.value.__notes__ == ["writing had failed too: the disk is full"]
