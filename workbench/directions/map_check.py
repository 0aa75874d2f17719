"""Held-out evidence for a map: does it foresee how pairs differ that it has not seen?"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import clone

from workbench.directions.fit import Columns
from workbench.directions.map_method import exact
from workbench.directions.pairs import pair_rows
from workbench.errors import ConfigError
from workbench.types import ndarray


def explained(
    estimator: Any, X: Float[ndarray, "n d"], columns: Columns, folds: int, *, seed: int = 0
) -> float:
    """Return the share of the left-out differences' variance that the map's displacements explain.

    1 is all of it, 0 no more than the mean difference of the pairs that were fitted on, and below 0
    less than that. Part of it is regression to the mean: a state that is high by chance falls.

    Args:
        estimator: a method that gives a map, not fitted.
        X: one layer.
        columns: with pairs. Where there are groups, whole groups are left out together.
        folds: parts of which each is left out once.
        seed: of the draw of parts.

    Raises:
        ConfigError: no pairs, a pair in two groups, or fewer groups than two.
        ValueError: folds under two, or a fit that cannot be made on what remains.
    """
    if columns.pairs is None:
        raise ConfigError("left-out pairs need pairs; name their column, or leave folds out")
    X, y = exact(X, columns.y)
    plus, minus = pair_rows(y, columns.pairs)
    part = _parts(columns, plus, minus, folds, seed)
    missed = bare = 0.0
    for number in range(part.max() + 1):
        out = part == number
        rows = np.sort(np.concatenate([plus[~out], minus[~out]]))
        fitted = clone(estimator).fit(X[rows], y[rows], **columns.take(rows))
        lower = X[minus[out]]
        difference = X[plus[out]] - lower
        shift = (X[plus[~out]] - X[minus[~out]]).mean(axis=0)
        moved = lower @ np.asarray(fitted.W_, np.float64).T + fitted.b_
        missed += float(np.square(difference - moved).sum())
        bare += float(np.square(difference - shift).sum())
    return 1 - missed / bare


def _parts(
    columns: Columns, plus: ndarray, minus: ndarray, folds: int, seed: int
) -> Int[ndarray, " m"]:
    """Number the part in which each pair is left out."""
    if folds < 2:
        raise ValueError(f"folds {folds}; expected 2 or more, or 0 for none")
    keys = np.arange(len(plus))
    if columns.groups is not None:
        if (columns.groups[plus] != columns.groups[minus]).any():
            first = int(np.argmax(columns.groups[plus] != columns.groups[minus]))
            sides = [columns.groups.tolist()[rows[first]] for rows in (minus, plus)]
            raise ConfigError(
                f"a pair lies in two groups, {sides[0]!r} and {sides[1]!r}; left-out groups must "
                "hold whole pairs: name another column of groups"
            )
        keys = np.unique(columns.groups[plus], return_inverse=True)[1]
    number = int(keys.max()) + 1
    if number < 2:
        raise ConfigError("all pairs are in one group; leaving groups out needs two or more")
    order = np.random.default_rng(seed).permutation(number)
    return np.asarray((order % min(folds, number))[keys])
