"""Topics and polarities as cells of items: centering within them, weighing them alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from sklearn.linear_model import LogisticRegression

from workbench.linalg import wide
from workbench.types import ndarray


def cells(
    groups: Shaped[ndarray, " n"] | None, polarity: Shaped[ndarray, " n"] | None, n: int
) -> Int[ndarray, " n"]:
    """Number the (group, polarity) cell of every item from 0."""
    code = np.zeros(n, np.int64)
    for column in (groups, polarity):
        if column is not None:
            values, own = np.unique(column, return_inverse=True)
            code = code * len(values) + own
    return np.asarray(np.unique(code, return_inverse=True)[1])


def center_by(X: Float[ndarray, "n d"], keys: Shaped[ndarray, " n"]) -> Float[ndarray, "n d"]:
    """Subtract from every row the mean of the rows with the same key (not scaled)."""
    centered = wide(X).copy()
    for key in np.unique(keys):
        rows = keys == key
        centered[rows] -= centered[rows].mean(axis=0)
    return centered


def cell_weights(keys: Shaped[ndarray, " n"]) -> Float[ndarray, " n"]:
    """Return weights that sum to the number of items and give every key the same total."""
    _, member, count = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(len(keys) / len(count) / count[member])


def midpoint(X: Float[ndarray, "n d"], y: ndarray) -> Float[ndarray, " d"]:
    """Return the point halfway between the two class means, in raw coordinates."""
    X = wide(X)
    return np.asarray((X[y].mean(axis=0) + X[~y].mean(axis=0)) / 2)


def binary(y: ndarray) -> ndarray:
    """Return labels as booleans.

    Raises:
        ValueError: they are not 0/1, or all of one class.
    """
    y = np.asarray(y)
    found = np.unique(y)
    if y.dtype.kind not in "biuf" or not np.isin(found, (0, 1)).all():
        raise ValueError(f"labels must be 0 and 1; got {found[:5].tolist()}")
    if len(found) < 2:
        raise ValueError(f"labels are of one class; got {len(y)} times {found.tolist()}")
    return y.astype(bool)


def signs(polarity: Shaped[ndarray, " n"] | None, n: int) -> Float[ndarray, " n"]:
    """Return polarities as +1.0 and -1.0.

    Raises:
        ValueError: another value.
    """
    if polarity is None:
        return np.ones(n)
    found = np.unique(polarity)
    if polarity.dtype.kind not in "iuf" or not np.isin(found, (-1, 1)).all():
        raise ValueError(f"polarity must be +1 and -1; got {found[:5].tolist()}")
    return polarity.astype(np.float64)


def logistic(features: Float[ndarray, "n f"], y: ndarray, *, C: float = 100.0) -> Any:
    """Fit a nearly unpenalised logistic regression on few features of comparable size."""
    return LogisticRegression(C=C, max_iter=1000).fit(features, y)
