"""The least work that gives the numbers: batches by token budget, and where arms part ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from workbench.types import Arm

LOGITS = 2**26
"""Logits held at once, a quarter of a gibibyte in float32."""
CACHED = 4
"""Cached columns that a batch may repeat, in multiples of the token budget."""


@dataclass(frozen=True)
class Limits:
    """What one forward may hold.

    Args:
        budget: rows x padded length, arms counted as rows.
        vocabulary: logits a position.
    """

    budget: int
    vocabulary: int

    @property
    def positions(self) -> int:
        """Positions at which the head may run in one forward."""
        return max(1, LOGITS // self.vocabulary)

    def arms_at_once(self, n_arms: int, length: int) -> int:
        """How many arms of one prompt fit into a forward."""
        return max(1, min(n_arms, self.budget // length, self.positions))


def lowest_edited(arms: Sequence[Arm]) -> int | None:
    """Return the block after whose output the arms may differ; None where nothing is edited."""
    layers = [edit.layer for arm in arms for edit in arm]
    return min(layers) if layers else None


def prompt_batches(lengths: Sequence[int], n_arms: int, limits: Limits) -> Iterator[list[int]]:
    """Cut prompts that are sorted by length into batches of row numbers.

    A batch holds all arms of its prompts; one prompt whose arms do not fit stands alone, and its
    arms are split over several forwards.
    """
    batch: list[int] = []
    for number, length in enumerate(lengths):
        rows = (len(batch) + 1) * n_arms
        if batch and (rows * length > limits.budget or rows > limits.positions):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def chunks_of(n: int, size: int) -> list[range]:
    """Cut 0..n-1 into runs of at most ``size``."""
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


def packed(costs: Sequence[int], fits: Callable[[int, int, int], bool]) -> Iterator[list[int]]:
    """Cut rows of the given lengths into runs; ``fits(rows, widest, total)`` says when one is full.

    A row that does not fit alone stands alone.
    """
    run: list[int] = []
    for number, cost in enumerate(costs):
        wider = [costs[member] for member in run] + [cost]
        if run and not fits(len(wider), max(wider), sum(wider)):
            yield run
            run = []
        run.append(number)
    if run:
        yield run
