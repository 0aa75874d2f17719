"""Answers of a headline that are many of a kind: the largest, and how many are beyond chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from workbench.pipelines.report_truth import Row

MANY = 3
"""So many answers of a kind are each told."""


@dataclass(frozen=True)
class Candidate:
    """One answer of a kind."""

    row: Row
    size: float
    beyond: bool
    """Whether it is more than chance."""


def shortened(
    found: Sequence[Candidate], beyond: str, table: str, most: str = "largest"
) -> Iterator[Row]:
    """Yield up to three answers as they are; of more, the largest, which counts the others.

    Args:
        found: answers of one kind.
        beyond: what those are that are more than chance, in words.
        table: the file where all of them stand.
        most: what the one of the largest size is called.
    """
    if len(found) <= MANY:
        yield from (one.row for one in found)
        return
    first = max(found, key=lambda one: one.size)
    count = sum(one.beyond for one in found)
    told = f"the {most} of {len(found)}, {count} of them {beyond}; all in {table}"
    yield replace(first.row, control=f"{first.row.control}; {told}", planned=False)
