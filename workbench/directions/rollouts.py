"""Judged rollouts as columns and rows: scores that may be missing, weighted sums of many rows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.sparse import csr_matrix

from workbench.directions.fit import column
from workbench.directions.rows import count_items
from workbench.errors import ConfigError
from workbench.types import ActivationsLike, ndarray

UNJUDGED = "none"
"""The judge's name where nobody judged, so that every rollout counts."""
CHUNK_CELLS = 1 << 24
"""Numbers that are widened to float64 at a time."""


def scores_of(
    acts: ActivationsLike, name: str, judge: str, low: float | int, high: float | int
) -> Float[ndarray, " n"]:
    """Return one score a rollout, NaN where the judge gave none; all NaN where nobody judged.

    Args:
        acts: with the scores as a column, unless nobody judged.
        name: of that column.
        judge: who gave them.
        low: least score there is.
        high: largest score there is.

    Raises:
        ConfigError: there is no such column, it holds texts, or a score that is outside.
    """
    if judge == UNJUDGED:
        return np.full(count_items(acts), np.nan)
    if name not in acts.columns:
        raise ConfigError(
            f"the activations have no column {name!r} with the scores of {judge}; columns: "
            f"{', '.join(acts.columns) or 'none'}. judge='none' counts every rollout"
        )
    values = np.asarray(acts.columns[name])
    if values.dtype.kind not in "iuf":
        raise ConfigError(f"column {name!r} holds {values.dtype}; numbers, or NaN, expected")
    found = values.astype(np.float64)
    wrong = ~np.isnan(found) & ~((found >= low) & (found <= high))
    if wrong.any():
        row = int(wrong.argmax())
        raise ConfigError(
            f"column {name!r} holds {found[row]:g} (item {row}; {int(wrong.sum())} are like that); "
            f"a score from {low:g} to {high:g} expected, or NaN where there is none"
        )
    return found


def names_in(acts: ActivationsLike, name: str) -> tuple[list[str], Int[ndarray, " n"]]:
    """Return the names in a column and each row's number among them, -1 where it is empty text."""
    values = column(acts, name).astype(str)
    names, member = np.unique(values, return_inverse=True)
    if len(names) and names[0] == "":
        return names[1:].tolist(), member - 1
    return names.tolist(), member


def tally(member: Int[ndarray, " n"], keep: Bool[ndarray, " n"], k: int) -> Int[ndarray, " k"]:
    """Count the rows of each name that are to be kept."""
    return np.bincount(member[keep & (member >= 0)], minlength=k)


def mean_weights(group: Shaped[ndarray, " n"], k: int) -> csr_matrix:
    """Return the weights (k, n) of group means; rows of group -1 take no part."""
    rows = np.flatnonzero(group >= 0)
    counts = np.bincount(group[rows], minlength=k)
    return csr_matrix((1 / counts[group[rows]], (group[rows], rows)), shape=(k, len(group)))


def weighted_sums(values: Float[ndarray, "n d"], weights: csr_matrix) -> Float[ndarray, "k d"]:
    """Return ``weights @ values`` in float64, some rows at a time."""
    total = np.zeros((weights.shape[0], values.shape[1]))
    by_row, size = weights.tocsc(), max(1, CHUNK_CELLS // values.shape[1])
    for start in range(0, len(values), size):
        rows = slice(start, start + size)
        total += by_row[:, rows] @ values[rows].astype(np.float64)
    return total
