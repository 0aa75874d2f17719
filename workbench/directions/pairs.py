"""Matched items: which row of label 1 belongs to which row of label 0."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, Shaped

from workbench.errors import ConfigError
from workbench.types import ndarray


def pair_rows(
    y: Bool[ndarray, " n"], pairs: Shaped[ndarray, " n"]
) -> tuple[Int[ndarray, " m"], Int[ndarray, " m"]]:
    """Return the rows of label 1 and of label 0, one of each a pair, in the order of pair names.

    Raises:
        ConfigError: a pair that is not one item of each label.
    """
    names, member = np.unique(pairs, return_inverse=True)
    counts = [np.bincount(member[side], minlength=len(names)) for side in (y, ~y)]
    bad = np.flatnonzero((counts[0] != 1) | (counts[1] != 1))
    if len(bad):
        first = bad[0]
        raise ConfigError(
            f"pair {names.tolist()[first]!r} holds {counts[0][first]} items of label 1 and "
            f"{counts[1][first]} of label 0 ({len(bad)} of {len(names)} pairs are like that); a "
            "pair is one of each, at the same position of two prompts: name such a column"
        )
    found = []
    for side in (y, ~y):
        rows = np.empty(len(names), np.int64)
        rows[member[side]] = np.flatnonzero(side)
        found.append(rows)
    return found[0], found[1]


def pair_groups(
    groups: Shaped[ndarray, " n"] | None, plus: Int[ndarray, " m"], minus: Int[ndarray, " m"]
) -> Int[ndarray, " m"]:
    """Number each pair's group from 0; every pair is one of its own without groups.

    Raises:
        ConfigError: a pair in two groups, or all pairs in one.
    """
    if groups is None:
        return np.arange(len(plus))
    apart = groups[plus] != groups[minus]
    if apart.any():
        first = int(np.argmax(apart))
        sides = [groups.tolist()[rows[first]] for rows in (minus, plus)]
        raise ConfigError(
            f"a pair lies in two groups, {sides[0]!r} and {sides[1]!r}; left-out groups must "
            "hold whole pairs: name another column of groups"
        )
    names, member = np.unique(groups[plus], return_inverse=True)
    if len(names) < 2:
        raise ConfigError(
            f"all pairs are in group {names.tolist()[0]!r}; leaving groups out needs two or more: "
            "name another column, or none"
        )
    return np.asarray(member)
