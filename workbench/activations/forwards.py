"""Forwards of a capture: batches that fit the device, values on their way to host and disk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from workbench.activations.batches import Row, cut_batches, pad_right
from workbench.activations.job import Job, is_ragged
from workbench.activations.landing import Landing, Load, Mover, bits_of
from workbench.activations.layout import STORED, Block, encode, make_block
from workbench.activations.sink import Background, Sink
from workbench.engine.forward import is_out_of_memory
from workbench.errors import WorkbenchError
from workbench.types import Progress, Read, Subject

logger = logging.getLogger(__name__)
SHORTEST = 1e-15
"""The square of a smaller norm leaves float32, so it is worked out again in float64."""


def fill(
    job: Job,
    sinks: Sequence[Sink],
    shards: Sequence[tuple[int, int]],
    dtype: str | None,
    progress: Progress | None,
) -> None:
    """Read every shard that a sink lacks; values are written while the next shard is read.

    Where a batch does not fit the device, the shard and those after it take smaller batches. The
    size stands in the shard, so that a resumed capture goes on with it.
    """
    tally = _Tally(progress, sum(stop - first for first, stop in shards))
    budget = job.budget
    with Background() as writing, Mover() as mover:
        for first, stop in shards:
            there = [sink for sink in sinks if sink.has(first, stop)]
            if there:
                budget = there[0].budget(first, stop) or job.budget
            lacking = [number for number, sink in enumerate(sinks) if sink not in there]
            if lacking:
                reads = [job.reads[number] for number in lacking]
                rows = job.rows(first, stop)
                landings, budget = _read_shard(job.subject, reads, rows, budget, tally, mover)
                shrunk = budget if budget < job.budget else None
                for number, landing in zip(lacking, landings, strict=True):
                    shard = _Items(job, first, stop, [len(row.ids) for row in rows], shrunk)
                    writing.submit(partial(_keep, shard, sinks[number], landing, dtype))
            tally.close(stop - first)


class _Tally:
    """Progress that never falls, though a shard is begun again with smaller batches."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total = progress, total
        self.closed = self.told = 0

    def tell(self, within: int) -> None:
        """Say how many items of the present shard are done."""
        done = self.closed + within
        if self.progress is not None and done > self.told:
            self.progress(done, self.total)
        self.told = max(self.told, done)

    def close(self, items: int) -> None:
        """Say that a shard of so many items is done."""
        self.tell(items)
        self.closed += items


def _read_shard(
    subject: Subject,
    reads: Sequence[Read],
    rows: Sequence[Row],
    budget: int,
    tally: _Tally,
    mover: Mover,
) -> tuple[list[Landing], int]:
    """Return a landing for each read, ``(l, n, d)``, or ``(l, n t, d)`` where ragged.

    Also returns the budget that fitted: all batches of the shard are cut by it.
    """
    while True:
        try:
            return _read_batches(subject, reads, rows, budget, tally, mover), budget
        except _TooLargeError as error:
            tokens = error.tokens
        mover.settle()
        while budget >= tokens:
            budget //= 2
        logger.warning("a batch of %d tokens does not fit; now at most %d", tokens, budget)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class _TooLargeError(Exception):
    """A batch of several prompts does not fit the device."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


def _read_batches(
    subject: Subject,
    reads: Sequence[Read],
    rows: Sequence[Row],
    budget: int,
    tally: _Tally,
    mover: Mover,
) -> list[Landing]:
    """Run the batches; the values of one come to the host while the next is under way."""
    lengths = np.array([len(row.ids) for row in rows])
    offsets = np.cumsum([0, *lengths])
    ragged = [is_ragged(read) for read in reads]
    landings = [Landing(int(offsets[-1]) if each else len(rows)) for each in ragged]
    done = 0
    for chosen in cut_batches(lengths.tolist(), budget):
        items = np.array(chosen)
        tokens = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in chosen])
        places = [tokens if each else items for each in ragged]
        mover.bring(landings, _forward(subject, [rows[row] for row in chosen], reads, places))
        done += len(chosen)
        tally.tell(done)
    return landings


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


@dataclass(frozen=True)
class _Items:
    """Which items a block is of."""

    job: Job
    first: int
    stop: int
    lengths: Sequence[int]
    budget: int | None
    """Tokens of a batch, where memory allowed fewer than planned."""


def _keep(shard: _Items, sink: Sink, landing: Landing, dtype: str | None) -> None:
    landing.settle()
    stored, name = to_stored(landing.values, dtype)
    columns = {name: column[shard.first : shard.stop] for name, column in shard.job.columns.items()}
    offsets = np.cumsum([0, *shard.lengths]) if sink.plan.ragged else None
    own = str(landing.values.dtype).removeprefix("torch.")
    norms = landing.norms
    if name == own and np.isfinite(norms).all() and (norms > SHORTEST).all():
        block = Block(shard.first, stored, name, norms, columns, offsets, shard.budget)
    else:
        layers = sink.plan.layers
        block = make_block(shard.first, stored, name, columns, layers, offsets, shard.budget)
    sink.keep(block)


def to_stored(values: Tensor, dtype: str | None = None) -> tuple[np.ndarray, str]:
    """Turn a tensor into stored bits and the name of their dtype; lossless unless ``dtype`` asks.

    Float64 becomes float32.
    """
    own = str(values.dtype).removeprefix("torch.")
    name = dtype or (own if own in STORED else "float32")
    if name != own:
        return encode(values.to(torch.float32).numpy(), name), name
    bits = bits_of(values.contiguous())
    return bits.view(np.uint16) if own == "bfloat16" else bits, own
