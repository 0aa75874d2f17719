"""Held-out evidence for a map: does it foresee how pairs differ that it has not seen?"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import clone

from workbench.directions.fit import Columns
from workbench.directions.map_method import exact
from workbench.directions.pairs import pair_groups, pair_rows
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
        ConfigError: no pairs, a pair in two groups, or all pairs in one.
        ValueError: folds under two, or a fit that cannot be made on what remains.
    """
    if columns.pairs is None:
        raise ConfigError("left-out pairs need pairs; name their column, or leave folds out")
    X, y = exact(X, columns.y)
    plus, minus = pair_rows(y, columns.pairs)
    if folds < 2:
        raise ValueError(f"folds {folds}; expected 2 or more, or 0 for none")
    member = pair_groups(columns.groups, plus, minus)
    number = int(member.max()) + 1
    order = np.random.default_rng(seed).permutation(number)
    part = (order % min(folds, number))[member]
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
    if bare == 0:
        raise ValueError("all pairs differ by the same vector, so there is nothing to explain")
    return 1 - missed / bare
