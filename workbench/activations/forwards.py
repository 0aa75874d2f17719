"""Forwards of a capture: batches that fit the device, values on their way to host and disk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from workbench.activations.batches import Row, cut_batches, pad_right
from workbench.activations.job import Group, Job, is_ragged
from workbench.activations.landing import Landing, Load, Mover, keep_all
from workbench.activations.sink import Background, Sink
from workbench.engine.forward import is_out_of_memory
from workbench.errors import WorkbenchError
from workbench.types import Progress, Read, Subject

logger = logging.getLogger(__name__)


def fill(
    job: Job,
    sinks: Sequence[Sink],
    groups: Sequence[Group],
    dtype: str | None,
    progress: Progress | None,
) -> None:
    """Read every shard that a sink lacks; values are written while later ones are computed.

    What is left to do for a group's shards is done while the next group is read. Where a batch does
    not fit the device, the group and those after it take smaller batches. The size stands in the
    shards, so that a resumed capture goes on with it.
    """
    before: Future[None] | None = None
    tally = _Tally(progress, sum(group[-1][1] - group[0][0] for group in groups))
    budget = job.budget
    with Background() as writing, Mover() as mover:
        for group in groups:
            wanted = [
                _Wanted(read, sink, [shard for shard in group if not sink.has(*shard)], dtype)
                for read, sink in zip(job.reads, sinks, strict=True)
            ]
            there = [
                (one.sink, shard) for one in wanted for shard in group if shard not in one.shards
            ]
            if there:
                sink, shard = there[0]
                budget = sink.budget(*shard) or job.budget
            if lacking := [one for one in wanted if one.shards]:
                run = _Run(job, group[0][0], job.rows(group[0][0], group[-1][1]), lacking, before)
                budget, before = run.read(budget, tally, mover, writing)
            tally.close(group[-1][1] - group[0][0])


@dataclass(frozen=True)
class _Wanted:
    """The shards of a group that a sink lacks."""

    read: Read
    sink: Sink
    shards: Sequence[tuple[int, int]]
    dtype: str | None


class _Tally:
    """Progress that never falls, though a group is begun again with smaller batches."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total = progress, total
        self.closed = self.told = 0

    def tell(self, within: int) -> None:
        """Say how many items of the present group are done."""
        done = self.closed + within
        if self.progress is not None and done > self.told:
            self.progress(done, self.total)
        self.told = max(self.told, done)

    def close(self, items: int) -> None:
        """Say that a group of so many items is done."""
        self.tell(items)
        self.closed += items


@dataclass(frozen=True)
class _Run:
    """A group of which shards are wanted."""

    job: Job
    first: int
    """Item with which the group begins."""
    rows: Sequence[Row]
    wanted: Sequence[_Wanted]
    before: Future[None] | None
    """The writing of the group that ran before."""

    def read(
        self, budget: int, tally: _Tally, mover: Mover, writing: Background
    ) -> tuple[int, Future[None]]:
        """Run all batches, and leave the rest to the writing thread.

        Returns:
            The budget that fitted: all batches of the group are cut by it; and the writing.
        """
        while True:
            landings = [self._landing(one, budget) for one in self.wanted]
            with ExitStack() as undo:
                for landing in landings:
                    undo.callback(landing.discard)
                try:
                    self._run_batches(landings, budget, tally, mover)
                except _TooLargeError as error:
                    tokens = error.tokens
                else:
                    written = writing.submit(partial(keep_all, landings))
                    undo.pop_all()
                    return budget, written
            mover.settle()
            while budget >= tokens:
                budget //= 2
            logger.warning("a batch of %d tokens does not fit; now at most %d", tokens, budget)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    @property
    def _offsets(self) -> np.ndarray:
        return np.cumsum([0, *(len(row.ids) for row in self.rows)])

    def _landing(self, one: _Wanted, budget: int) -> Landing:
        ragged, offsets = is_ragged(one.read), self._offsets
        shrunk = budget if budget < self.job.budget else None
        places = offsets if ragged else np.arange(len(self.rows) + 1)
        parts, starts = [], []
        for first, stop in one.shards:
            bounds = places[first - self.first : stop - self.first + 1]
            own = bounds - bounds[0] if ragged else None
            parts.append(self.job.part(first, stop, own, shrunk))
            starts.append(int(bounds[0]))
        return Landing(one.sink, parts, starts, int(places[-1]), one.dtype, self.before)

    def _run_batches(
        self, landings: Sequence[Landing], budget: int, tally: _Tally, mover: Mover
    ) -> None:
        """The values of one batch go their way while the next is computed; the largest is first.

        So one that does not fit is met early, and little is under way when the last has ended.
        """
        offsets, done = self._offsets, 0
        lengths = np.diff(offsets)
        batches = cut_batches(lengths.tolist(), budget)
        for chosen in sorted(batches, key=lambda rows: -len(rows) * int(lengths[rows].max())):
            chosen.sort()  # neighbors in a shard are written at once
            items = np.array(chosen)
            tokens = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in chosen])
            places = [tokens if is_ragged(one.read) else items for one in self.wanted]
            if any(map(Landing.lacks, landings, places)):
                reads = [one.read for one in self.wanted]
                rows = [self.rows[row] for row in chosen]
                mover.bring(landings, _forward(self.job.subject, rows, reads, places))
            done += len(chosen)
            tally.tell(done)


class _TooLargeError(Exception):
    """A batch of several prompts does not fit the device."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


def _forward(
    subject: Subject, rows: Sequence[Row], reads: Sequence[Read], places: Sequence[np.ndarray]
) -> list[Load]:
    """Run one batch. Padded right: real tokens never see a pad, and bfloat16 loses nothing."""
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    batch = pad_right(rows)
    try:
        answers = subject.runner.capture(subject, batch, reads)
        return [Load.of(*pair) for pair in zip(answers, places, strict=True)]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        tokens = batch.input_ids.shape[1]
        if len(rows) > 1:
            raise _TooLargeError(len(rows) * tokens) from None
        raise WorkbenchError(
            f"one prompt of {tokens} tokens does not fit the device; give fewer layers or reads, a "
            "shorter prompt, or another device"
        ) from error
