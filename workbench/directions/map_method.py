"""What the methods that learn a map ``h + dose * (W h + b)`` have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator

from workbench.directions.cells import inputs
from workbench.linalg import wide
from workbench.types import ndarray

ROUNDING = 1e-12
"""Share of the states' length below which a difference of float64 means is rounding error."""


class MapMethod(BaseEstimator):
    """A fitted map of one layer: ``b_``, and W whole or as ``left_ @ right_``, in float64.

    A method calls `_learned` at the end of its ``fit``. Positive doses move states of label 0
    towards label 1; ``axis_`` is the difference of the class means, along which shifts are counted.
    """

    gives: ClassVar[str] = "map"

    left_: Float[ndarray, "d r"] | None
    right_: Float[ndarray, "r d"] | None
    b_: Float[ndarray, " d"]
    axis_: Float[ndarray, " d"]
    info_: dict[str, Any]

    @property
    def W_(self) -> Float[ndarray, "d d"]:  # noqa: N802
        if self.left_ is None or self.right_ is None:
            return self._whole
        return np.asarray(self.left_ @ self.right_)

    @property
    def rank_(self) -> int:
        """Rank that the map is stored with; d where it is whole."""
        return len(self.b_) if self.right_ is None else len(self.right_)

    def displacement(self, X: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Return ``W h + b`` for every row, in residual-stream units."""
        X = wide(X)
        if self.left_ is None or self.right_ is None:
            return np.asarray(X @ self._whole.T + self.b_)
        return np.asarray(X @ self.right_.T @ self.left_.T + self.b_)

    def transform(self, X: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        """Return every row after the full edit, dose 1."""
        return np.asarray(wide(X) + self.displacement(X))

    def _learned(
        self,
        W: Float[ndarray, "d d"] | tuple[Float[ndarray, "d r"], Float[ndarray, "r d"]],
        b: Float[ndarray, " d"],
        axis: Float[ndarray, " d"],
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.left_, self.right_ = W if isinstance(W, tuple) else (None, None)
        if not isinstance(W, tuple):
            self._whole = W
        self.b_, self.axis_, self.info_ = b, axis, dict(info or {})


def exact(X: ndarray, y: ndarray) -> tuple[Float[ndarray, "n d"], Bool[ndarray, " n"]]:
    """Return states in float64, where the solves of maps are done, and labels as booleans.

    Raises:
        ValueError: labels that are not two classes, another number of rows, values not finite.
    """
    X, y = inputs(X, y)
    return np.asarray(X, np.float64), y


def difference_of(X: Float[ndarray, "n d"], y: Bool[ndarray, " n"]) -> Float[ndarray, " d"]:
    """Return the mean of the states of label 1 minus that of label 0.

    Raises:
        ValueError: it is rounding alone, so that a map along it would be noise at full strength.
    """
    found = X[y].mean(axis=0) - X[~y].mean(axis=0)
    if np.linalg.norm(found) <= ROUNDING * np.sqrt(np.square(X).sum(axis=1).mean()):
        raise ValueError("both labels have the same mean, so there is nothing to move or erase")
    return np.asarray(found)


def refuse_ridge(ridge: float | int | None) -> None:
    """Check that a ridge adds to a variance, or that one is to be chosen.

    Raises:
        ValueError: it is negative or no number.
    """
    if ridge is not None and not 0 <= ridge < np.inf:
        raise ValueError(f"ridge {ridge}; expected 0 or more")


def refuse_rank(rank: float | int) -> None:
    """Check that a rank is a number of axes.

    Raises:
        ValueError: it is no whole number, or below 1.
    """
    if rank != int(rank) or rank < 1:
        raise ValueError(f"rank {rank}; expected a whole number, 1 or more")
