"""Token prefixes that prompts have in common, chosen so that the most tokens run once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

SHARED = 16
"""Fewest tokens that a shared beginning must have to be worth a forward of its own."""
GAIN = 0.1
"""Fraction of a group's tokens that sharing must save."""

Group = tuple[int, list[int]]
"""Length of a shared beginning, and the numbers of the rows that have it."""


def shared_prefixes(rows: Sequence[Sequence[int]]) -> list[Group]:
    """Group rows of ids by a common beginning, which always leaves each row a token.

    Rows that have most in common stand together, unless it saves more tokens to join a larger group
    with a shorter beginning. Rows in no group are left out.
    """
    order = sorted(range(len(rows)), key=lambda number: tuple(rows[number]))
    common = np.array([_common(rows[a], rows[b]) for a, b in itertools.pairwise(order)], np.int64)
    lengths = np.array([len(rows[number]) for number in order], np.int64)
    groups = [
        (length, [order[place] for place in places]) for length, places in _groups(common, lengths)
    ]
    return sorted(groups, key=lambda group: (-group[0], group[1]))


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(np.asarray(a[:n]) != np.asarray(b[:n]))
    return int(differ[0]) if len(differ) else n


@dataclass
class _Range:
    """Sorted rows that stand side by side, and the groups found among them."""

    start: int
    stop: int
    shared: int
    """Tokens with which all of them begin, leaving each a token."""
    outer: int
    groups: list[Group] = field(default_factory=list)


def _groups(common: np.ndarray, lengths: np.ndarray) -> list[Group]:
    """Return length and places of the groups among sorted rows.

    Ranges fall apart where their rows have least in common, from the outside in, and are decided
    from the inside out.
    """
    ranges: list[_Range] = []
    stack = [(0, len(lengths), -1)]
    while stack:
        start, stop, outer = stack.pop()
        if stop - start < 2:
            continue
        here = common[start : stop - 1]
        least = int(here.min())
        cuts = [start, *(start + 1 + np.flatnonzero(here == least)).tolist(), stop]
        stack += [(a, b, len(ranges)) for a, b in itertools.pairwise(cuts)]
        shared = min(least, int(lengths[start:stop].min()) - 1)
        ranges.append(_Range(start, stop, shared, outer))
    for one in reversed(ranges):
        one.groups = _joined(one, lengths)
        if one.outer >= 0:
            ranges[one.outer].groups += one.groups
    return ranges[0].groups if ranges else []


def _joined(one: _Range, lengths: np.ndarray) -> list[Group]:
    """Let rows outside groups, and of groups that save less, form one with what all share."""
    if one.shared < SHARED:
        return one.groups
    kept = [
        (length, places)
        for length, places in one.groups
        if (len(places) - 1) * length >= len(places) * one.shared
    ]
    inside = {place for _, places in kept for place in places}
    free = [place for place in range(one.start, one.stop) if place not in inside]
    if (len(free) - 1) * one.shared < GAIN * int(lengths[free].sum()) or len(free) < 2:
        return one.groups
    return [*kept, (one.shared, free)]
