"""How many blocks recompute, decided on a device that is only pretended."""

import contextlib

import pytest
import torch
from workbench_training import recompute
from workbench_training.recompute import Recomputing, Step, fit_to_memory

from workbench.errors import ConfigError

GIB = 2**30


class Device:
    """The memory of a card: what is fixed, what a block holds kept or recomputed, and the room."""

    def __init__(self, monkeypatch, *, room, fixed=60, kept=1.5, boundary=0.08, waste=0.0):
        self.state = Recomputing([object()] * 64, 0)
        self.room, self.fixed, self.kept, self.boundary = room, fixed, kept, boundary
        self.waste = waste
        self.tried = []
        monkeypatch.setattr(recompute, "_fits", self.fits)
        monkeypatch.setattr(recompute, "_peak_and_room", lambda *_: (self.peak(), room * GIB))
        monkeypatch.setattr(recompute, "_after_forward", lambda *_: self.after())
        monkeypatch.setattr(torch.random, "fork_rng", lambda **_: contextlib.nullcontext())
        parameter = torch.nn.Parameter(torch.empty(GIB // 4, device="meta"))
        self.step = Step(lambda: torch.zeros(()), [parameter])

    def after(self):
        again = self.state.count
        return int((self.fixed + again * self.boundary + (64 - again) * self.kept) * GIB)

    def peak(self):
        return self.after() + 3 * GIB

    def fits(self, step, device, adam):
        self.tried.append(self.state.count)
        return self.peak() + adam + self.waste * GIB <= self.room * GIB

    def choose(self, **more):
        fit_to_memory(self.state, self.step, torch.device("cuda"), **more)
        return self.state.count


def test_no_block_recomputes_where_all_fit(monkeypatch):
    assert Device(monkeypatch, room=180).choose() == 0


@pytest.mark.parametrize("room", [80, 100, 139])
def test_the_fewest_blocks_recompute_with_some_memory_to_spare(room, monkeypatch):
    device = Device(monkeypatch, room=room)
    chosen = device.choose()
    needs = device.peak() + 2 * GIB
    one_more = (device.kept - device.boundary) * GIB
    spare = room * GIB * (1 - recompute.SPARE)
    assert 0 < chosen < 64
    assert needs <= spare
    assert needs + one_more * 1.1 > spare


def test_gradients_of_other_processes_are_counted(monkeypatch):
    alone = Device(monkeypatch, room=100).choose()
    assert Device(monkeypatch, room=100).choose(extra=6 * GIB) == pytest.approx(alone + 4, abs=1)


def test_a_choice_that_does_not_fit_after_all_is_taken_back_in_steps(monkeypatch):
    device = Device(monkeypatch, room=100, waste=9)
    chosen = device.choose()
    assert device.fits(None, None, 2 * GIB)
    tried = device.tried[1:-1]
    assert len(tried) > 1
    assert tried == list(range(tried[0], chosen + 1, 4))


def test_a_batch_that_never_fits_is_refused_with_the_next_step(monkeypatch):
    with pytest.raises(ConfigError, match="lower batch_size"):
        Device(monkeypatch, room=60).choose()
