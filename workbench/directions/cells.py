"""What methods share: checked inputs, cells of topic and polarity, pairs of items."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from workbench.linalg import wide
from workbench.types import ndarray


class Linear(BaseEstimator):
    """What scores by one direction and the midpoint of the two means."""

    coef_: Float[ndarray, " d"]
    center_: Float[ndarray, " d"]

    def decision_function(self, X: Float[ndarray, "n d"]) -> Float[ndarray, " n"]:
        """Return scores that are positive on the true side of the midpoint."""
        return np.asarray((wide(X) - self.center_) @ self.coef_)


def inputs(X: ndarray, y: ndarray) -> tuple[Float[ndarray, "n d"], Bool[ndarray, " n"]]:
    """Return activations in float32 or better, and labels as booleans.

    Raises:
        ValueError: labels that are not two classes, another number of rows, values not finite.
    """
    y, X = binary(y), wide(X)
    if X.ndim != 2 or len(X) != len(y):
        raise ValueError(f"activations of shape {X.shape} for {len(y)} labels; expected (n, d)")
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise ValueError(f"{len(bad)} of {len(X)} rows are not finite; the first is row {bad[0]}")
    return X, y


def needed(column: Shaped[ndarray, " n"] | None, name: str, method: str) -> Shaped[ndarray, " n"]:
    """Return a column that a method cannot do without.

    Raises:
        ValueError: it was not given.
    """
    if column is None:
        raise ValueError(f"{method} needs {name}; got {name}=None")
    return column


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
        centered[rows] -= centered[rows].mean(axis=0, dtype=np.float64)
    return centered


def center_cells(
    X: Float[ndarray, "n d"],
    Y: Bool[ndarray, "n m"],
    groups: Shaped[ndarray, " n"] | None,
    polarity: Shaped[ndarray, " n"] | None,
) -> Float[ndarray, "n d"]:
    """Subtract from every row the mean of its (group, polarity) cell.

    Raises:
        ValueError: every cell holds one class alone, so that nothing of the labels would be left.
    """
    keys = cells(groups, polarity, len(X))
    rows = [Y[keys == key] for key in np.unique(keys)]
    mixed = np.any([own.any(axis=0) & ~own.all(axis=0) for own in rows], axis=0)
    if not mixed.all():
        raise ValueError(
            f"each of the {len(rows)} cells of group and polarity holds one class alone, so that "
            "centering within them removes what tells the classes apart; name other groups"
        )
    return center_by(X, keys)


def class_weights(
    Y: Bool[ndarray, "n m"], group: Int[ndarray, " n"] | None = None
) -> Float[ndarray, "n m"]:
    """Weights whose product with items is the difference of the two class means.

    With ``group``, each group that has any items of a class counts alike in that class's mean.
    """
    group = np.zeros(len(Y), np.int64) if group is None else group
    return np.asarray(_mean_weights(Y, group) - _mean_weights(~Y, group))


def _mean_weights(member: Bool[ndarray, "n m"], group: ndarray) -> Float[ndarray, "n m"]:
    """Weights of sum 1 over the members."""
    one_hot = np.eye(int(group.max()) + 1)[group]
    counts = one_hot.T @ member
    share = np.divide(1.0, counts, out=np.zeros_like(counts), where=counts > 0)
    return np.asarray(member * (one_hot @ share) / (counts > 0).sum(axis=0))


def pair_weights(
    Y: Bool[ndarray, "n m"], pairs: Shaped[ndarray, " n"]
) -> tuple[Float[ndarray, "n m"], Int[ndarray, " n"]]:
    """Return each item's share in its pair's difference, true minus false, and its pair's number.

    A pair may hold several items of a class: their mean counts.

    Raises:
        ValueError: a pair without items of both classes.
    """
    names, pair = np.unique(pairs, return_inverse=True)
    size, true = np.bincount(pair)[:, None], np.zeros((len(names), Y.shape[1]))
    np.add.at(true, pair, Y)
    lacking = np.argwhere((true == 0) | (true == size))
    if len(lacking):
        row, labeling = lacking[0]
        held = int(true[row, labeling])
        raise ValueError(
            f"pair {names[row].item()!r} holds {held} true and {int(size[row, 0]) - held} false "
            f"items; a pair needs both ({len(np.unique(lacking[:, 0]))} of {len(names)} lack one)"
        )
    return np.where(Y, 1 / true[pair], -1 / (size - true)[pair]), pair


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
    """Fit a nearly unpenalized logistic regression on few features of comparable size."""
    return LogisticRegression(C=C, max_iter=1000).fit(features, y)
