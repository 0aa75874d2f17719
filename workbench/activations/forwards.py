"""Forwards of a capture: batches that fit the device, values on their way to host and disk."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.activations.job import Job
from workbench.activations.layout import STORED, encode, make_block
from workbench.activations.sink import Background, Sink
from workbench.errors import WorkbenchError
from workbench.types import Progress, Read, Rendered, Subject

logger = logging.getLogger(__name__)


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
    with Background() as background:
        for first, stop in shards:
            there = [sink for sink in sinks if sink.has(first, stop)]
            if there:
                budget = there[0].budget(first, stop) or job.budget
            lacking = [number for number, sink in enumerate(sinks) if sink not in there]
            if lacking:
                reads = [job.reads[number] for number in lacking]
                values, budget = _read_shard(job, reads, first, stop, budget, tally)
                for number, parts in zip(lacking, values, strict=True):
                    background.submit(
                        partial(_keep, job, sinks[number], parts, first, stop, budget, dtype)
                    )
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
    job: Job, reads: Sequence[Read], first: int, stop: int, budget: int, tally: _Tally
) -> tuple[list[list[Tensor]], int]:
    """Return for each read one CPU tensor an item, ``(l, d)``, or ``(l, t, d)`` where ragged.

    Also returns the budget that fitted: all batches of the shard are cut by it.
    """
    rendered = [job.render(row) for row in range(first, stop)]
    while True:
        try:
            return _read_batches(job.subject, reads, rendered, budget, tally), budget
        except _TooLargeError as error:
            tokens = error.tokens
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
    rendered: Sequence[Rendered],
    budget: int,
    tally: _Tally,
) -> list[list[Tensor]]:
    """Run the batches; the values of one come to the host while the next is under way."""
    found: list[list[Tensor]] = [[torch.empty(0)] * len(rendered) for _ in reads]
    done = 0
    last: tuple[list[int], list[Copy]] | None = None

    def settle() -> None:
        for read_rows, copy in zip(found, last[1] if last else [], strict=True):
            for row, value in zip(last[0] if last else [], copy.rows(), strict=True):
                read_rows[row] = value

    for rows in cut_batches([len(one.ids) for one in rendered], budget):
        answers = _forward(subject, [rendered[row] for row in rows], reads)
        copies = [Copy(answer) for answer in answers]
        if last is not None:
            settle()
        last = rows, copies
        done += len(rows)
        tally.tell(done)
    settle()
    return found


class Copy:
    """One read's answer on its way to the host; from a GPU, without making the host wait."""

    def __init__(self, answer: Tensor | list[Tensor]) -> None:
        self._ragged = isinstance(answer, list)
        values = answer if isinstance(answer, list) else [answer]
        self._host = [_start(value.detach()) for value in values]
        devices = {value.device for value in values if value.is_cuda}
        self._events = [torch.cuda.current_stream(device).record_event() for device in devices]

    def rows(self) -> list[Tensor]:
        """Wait for the values and split them by row of the batch."""
        for event in self._events:
            event.synchronize()
        return self._host if self._ragged else list(self._host[0].unbind(1))


def _start(value: Tensor) -> Tensor:
    if not value.is_cuda:
        return value.to("cpu")
    host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    return host.copy_(value, non_blocking=True)


def cut_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield rows sorted by length, as many at once as fit ``budget`` tokens with their pads."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        if batch and (len(batch) + 1) * lengths[row] > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _forward(subject: Subject, rendered: Sequence[Rendered], reads: Sequence[Read]) -> list[Any]:
    """Run one batch. Padded right: real tokens never see a pad, and bfloat16 loses nothing."""
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    batch = subject.renderer.collate(rendered, "right")
    rows, tokens = batch.input_ids.shape
    try:
        return list(subject.runner.capture(subject, batch, reads))
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        if rows > 1:
            raise _TooLargeError(rows * tokens) from None
        raise WorkbenchError(
            f"one prompt of {tokens} tokens does not fit the device; give fewer layers or reads, a "
            "shorter prompt, or another device"
        ) from error


def _is_out_of_memory(error: RuntimeError) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in ("out of memory", "can't allocate memory"))


def _keep(
    job: Job, sink: Sink, parts: list[Tensor], first: int, stop: int, budget: int, dtype: str | None
) -> None:
    offsets = None
    if sink.plan.ragged:
        offsets = np.cumsum([0, *(part.shape[1] for part in parts)])
        values = torch.cat(parts, 1)
    else:
        values = torch.stack(parts, 1)
    stored, name = to_stored(values, dtype)
    columns = {name: column[first:stop] for name, column in job.columns.items()}
    shrunk = budget if budget < job.budget else None
    sink.keep(make_block(first, stored, name, columns, sink.plan.layers, offsets, shrunk))


def to_stored(values: Tensor, dtype: str | None = None) -> tuple[np.ndarray, str]:
    """Turn a tensor into stored bits and the name of their dtype; lossless unless ``dtype`` asks.

    Float64 becomes float32.
    """
    own = str(values.dtype).removeprefix("torch.")
    name = dtype or (own if own in STORED else "float32")
    if name != own:
        return encode(values.to(torch.float32).numpy(), name), name
    if own == "bfloat16":
        return values.contiguous().view(torch.int16).numpy().view(np.uint16), own
    return values.contiguous().numpy(), own
