"""Batches of rendered prompts: which rows run together, and their ids padded in host memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Int32

from workbench.types import Batch, Rendered

OVERHEAD = 64
"""What a further batch costs beside its tokens, in tokens (71 were measured, 64 blocks, H200)."""
SMALLEST = 512
"""A batch of fewer tokens takes no less time on a GPU, which waits for its host there."""


@dataclass(frozen=True)
class Row:
    """A rendered prompt, small enough to keep many: 4 bytes a token."""

    ids: Int32[np.ndarray, " t"]
    spans: Mapping[str, tuple[tuple[int, int], ...]]

    @classmethod
    def of(cls, rendered: Rendered) -> Row:
        return cls(np.array(rendered.ids, np.int32), rendered.spans)


def cut_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Return rows sorted by length, cut where batches and pads together cost least.

    A batch holds at most ``budget`` tokens with its pads, and at least one row. It costs its
    tokens, with pads, and `OVERHEAD`; the cheapest cut is found by dynamic programming over runs
    of rows of one length.
    """
    runs = _runs(lengths, budget)
    best: list[tuple[int, int]] = [(0, 0)]
    """For each number of runs: the least cost, and where its last batch begins."""
    for stop in range(1, len(runs) + 1):
        longest = lengths[runs[stop - 1][0]]
        rows, found = 0, []
        for first in range(stop - 1, -1, -1):
            rows += len(runs[first])
            if rows * longest > budget and first < stop - 1:
                break
            found.append((best[first][0] + _cost(rows * longest), first))
        best.append(min(found))
    return _traced(runs, [first for _, first in best])


def _runs(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Return rows of equal length side by side, no more than fit one batch."""
    order = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    runs = []
    for length, group in groupby(order, key=lambda row: lengths[row]):
        rows, most = list(group), max(1, budget // length)
        runs += [rows[first : first + most] for first in range(0, len(rows), most)]
    return runs


def _cost(tokens: int) -> int:
    """Return the cost in thousandths of a token; among equal times, fewer tokens win."""
    return 1000 * (max(tokens, SMALLEST) + OVERHEAD) + tokens


def _traced(runs: Sequence[list[int]], begins: Sequence[int]) -> list[list[int]]:
    batches: list[list[int]] = []
    stop = len(runs)
    while stop:
        first = begins[stop]
        batches.append([row for run in runs[first:stop] for row in run])
        stop = first
    return batches[::-1]


def pad_right(rows: Sequence[Row]) -> Batch:
    """Pad into one batch in host memory. Pads repeat a known id; they come after every token."""
    lengths = np.array([len(row.ids) for row in rows])
    real = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(real.shape, rows[0].ids[0], np.int64)
    ids[real] = np.concatenate([row.ids for row in rows])
    spans: dict[str, np.ndarray] = {}
    for number, row in enumerate(rows):
        for name, ranges in row.spans.items():
            flags = spans.setdefault(name, np.zeros(real.shape, bool))
            for first, stop in ranges:
                flags[number, first:stop] = True
    positions = np.where(real, np.arange(lengths.max()), 0)
    return Batch(
        torch.from_numpy(ids),
        torch.from_numpy(real.astype(np.int64)),
        torch.from_numpy(positions),
        {name: torch.from_numpy(flags) for name, flags in spans.items()},
    )
