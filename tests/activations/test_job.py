"""Which items run together, and how shards hold them."""

import importlib.util
from pathlib import Path

import h5py
import numpy as np
import pytest

from workbench.activations import verify
from workbench.activations.capture import capture
from workbench.activations.job import LAST_SHARDS, plan_groups
from workbench.activations.shard import Shard
from workbench.activations.store import VIRTUAL
from workbench.prompts import PromptSet

spec = importlib.util.spec_from_file_location("fake", Path(__file__).parent / "test_capture.py")
fake = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake)

TEXT = "a b c d e f g"


@pytest.mark.parametrize("n", [64, 100, 128, 131, 500])
@pytest.mark.parametrize("last", [0, 3, 8])
def test_groups_hold_every_item_once_in_order(n, last):
    groups = plan_groups(n, 32, 10, last)
    shards = [shard for group in groups for shard in group]
    assert [first for first, _ in shards] == [0, *(stop for _, stop in shards[:-1])]
    assert shards[-1][1] == n
    assert all(group[-1][1] - group[0][0] <= 32 for group in groups)
    assert all(0 < stop - first <= 10 for first, stop in shards)


def test_the_last_items_run_alone_in_small_shards():
    groups = plan_groups(128, 64, 32, 8)
    assert [group[-1][1] - group[0][0] for group in groups] == [56, 64, 8]
    assert [stop - first for first, stop in groups[-1]] == [1] * LAST_SHARDS


def test_two_processes_have_the_same_to_do():
    groups = plan_groups(1024, 512, 74, 56)
    sizes = [group[-1][1] - group[0][0] for group in groups]
    assert sum(sizes[::2]) == sum(sizes[1::2]) == 512


@pytest.fixture
def many(monkeypatch):
    """Sixteen items run together, in shards of eight; the last two items run alone."""
    item = fake.DEPTH * fake.WIDTH * 4
    tokens = fake.fake_subject().renderer.render(TEXT).ids
    monkeypatch.setattr("workbench.activations.job.GROUP_BYTES", 16 * item)
    monkeypatch.setattr("workbench.activations.job.SHARD_BYTES", 8 * item)
    monkeypatch.setattr("workbench.activations.job.LAST_TOKENS", 2 * len(tokens))
    return PromptSet.from_records([{"text": TEXT, "number": row} for row in range(40)])


def test_a_capture_in_many_shards_ends_with_a_small_group(many, tmp_path):
    acts = capture(fake.fake_subject(), many, out=tmp_path / "acts")
    assert acts.manifest.shards[-3:] == ((30, 38), (38, 39), (39, 40))
    assert acts.manifest.config["together"] == 16
    single = capture(fake.fake_subject(), many, shard_rows=40)
    np.testing.assert_array_equal(acts.values, single.values)
    verify(tmp_path / "acts")


def content(path):
    """Return everything in an HDF5 file but when its objects were made."""
    found = {}

    def look(name, one):
        values = (str(one.dtype), one[...].tolist()) if isinstance(one, h5py.Dataset) else ()
        found[name] = [*values, {key: np.asarray(v).tolist() for key, v in one.attrs.items()}]

    with h5py.File(path) as file:
        look("", file)
        file.visititems(look)
    return found


@pytest.mark.parametrize("position", ["last", "all"])
def test_the_view_is_the_same_whether_shards_were_just_written_or_are_read(
    many, tmp_path, monkeypatch, position
):
    options = {"position": position, "out": tmp_path / "acts"}
    read, real = [], Shard.read_part
    monkeypatch.setattr(Shard, "read_part", lambda shard: read.append(shard) or real(shard))
    capture(fake.fake_subject(), many, **options)
    assert read == []
    view = content(tmp_path / "acts" / VIRTUAL)
    shards = sorted((tmp_path / "acts/shards").iterdir())
    shards[1].unlink()
    capture(fake.fake_subject(), many, **options)
    assert len(read) == len(shards) - 1
    assert content(tmp_path / "acts" / VIRTUAL) == view
    assert ("offsets" in view) == (position == "all")
