"""The linear discriminant of Fisher, its covariance shrunk."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from workbench.directions.cells import (
    Linear,
    center_by,
    center_cells,
    class_weights,
    inputs,
    midpoint,
)
from workbench.linalg import wide
from workbench.registry import METHODS
from workbench.types import ndarray

LEAST_WITHIN = 1e-10
"""Share of the variance along a discriminant that lies within classes; below it is rounding."""


@METHODS.register("lda")
class Lda(Linear):
    """Linear discriminant: the difference of means, weighed down where items vary anyway.

    ``((1 - r) S + r t I)^-1 (mean(X[y]) - mean(X[~y]))``, in inverse residual units: S is the
    covariance within classes, t the mean variance of a coordinate over all items. r does not depend
    on the labels, so that a fit to shuffled labels is shrunk alike.

    Args:
        shrinkage: r, above 0 to 1 (0 where items outnumber coordinates); None takes that of Ledoit
            and Wolf (2004) for the covariance of all items.
        center: subtract the mean of every (group, polarity) cell first, of the columns named.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, shrinkage: float | int | None = None, center: bool = True) -> None:
        self.shrinkage = shrinkage
        self.center = center

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Lda:
        """Fit one layer; ``info_`` holds the shrinkage.

        Raises:
            ValueError: a shrinkage outside [0, 1], or one that leaves the covariance singular.
        """
        X, y = inputs(X, y)
        found, shrinkage = self._solve(X, y[:, None], groups, polarity)
        self.coef_, self.center_ = found[0], midpoint(X, y)
        self.info_ = {"shrinkage": shrinkage}
        return self

    def fit_many(
        self,
        X: Float[ndarray, "n d"],
        Y: Bool[ndarray, "n m"],
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Float[ndarray, "m d"]:
        """Return the direction of each column of labels; one factorization gives them all."""
        return self._solve(wide(X), Y, groups, polarity)[0]

    def _solve(
        self,
        X: Float[ndarray, "n d"],
        Y: Bool[ndarray, "n m"],
        groups: ndarray | None,
        polarity: ndarray | None,
    ) -> tuple[Float[ndarray, "m d"], float]:
        n, d = X.shape
        one = np.zeros(n)
        centered = center_cells(X, Y, groups, polarity) if self.center else center_by(X, one)
        A = centered.astype(np.float64)
        gram = smaller_gram(A)
        r = ledoit_wolf(A, gram) if self.shrinkage is None else float(self.shrinkage)
        if not 0 <= r <= 1 or (r < LEAST_WITHIN and n < d):
            raise ValueError(f"shrinkage {r:.2g} with {n} items of width {d}; expected 0 < r <= 1")
        found = discriminant(A, gram, Y, keep=1 - r, ridge=r * np.trace(gram) / d)
        return found.astype(X.dtype), r


def discriminant(
    A: Float[ndarray, "n d"],
    gram: Float[ndarray, "g g"],
    Y: Bool[ndarray, "n m"],
    keep: float,
    ridge: float,
) -> Float[ndarray, "m d"]:
    """Return ``(keep S + ridge I)^-1 v`` for each column of labels, v the difference of means.

    One factorization, of the covariance T of all items, serves all: S = T - p (1 - p) v v', which
    by Sherman and Morrison only rescales ``T^-1 v``. With fewer items than coordinates the system
    solved is that of the items, of the same solution.

    Args:
        A: items whose mean is zero, in float64.
        gram: their smaller Gram matrix.
        Y: labels; a column has both.
        keep: share of the covariance that is kept.
        ridge: what is added to every variance.

    Raises:
        ValueError: the covariance is singular, or the classes do not vary where they differ.
    """
    system = keep * gram
    system[np.diag_indices_from(system)] += ridge
    try:
        factor = cho_factor(system, overwrite_a=True)
    except LinAlgError:
        raise ValueError(
            f"the covariance of {A.shape[0]} items of width {A.shape[1]} is singular with "
            f"{ridge:.3g} added to each variance; raise shrinkage above 0"
        ) from None
    weights = class_weights(Y)
    means = A.T @ weights
    few = len(A) < A.shape[1]
    solved = A.T @ cho_solve(factor, weights) if few else cho_solve(factor, means)
    share = keep * Y.mean(axis=0) * (1 - Y.mean(axis=0))
    within = 1 - share * (means * solved).sum(axis=0)
    if within.min() < LEAST_WITHIN:
        raise ValueError(
            f"the {len(A)} items do not vary within their classes in the direction in which the "
            "classes differ, so the discriminant has no length; add items, or set shrinkage"
        )
    return np.asarray((solved / within).T)


def smaller_gram(A: Float[ndarray, "n d"]) -> Float[ndarray, "g g"]:
    """Return A'A / n, or AA' / n where items are fewer than coordinates.

    Raises:
        ValueError: all items are the same.
    """
    if not A.any():
        raise ValueError(f"all {len(A)} activations are the same, so nothing can be fitted")
    return np.asarray((A @ A.T if len(A) < A.shape[1] else A.T @ A) / len(A))


def ledoit_wolf(X: Float[ndarray, "n d"], gram: Float[ndarray, "g g"]) -> float:
    """Return the shrinkage of centered items that is best in expectation (Ledoit and Wolf 2004).

    ``gram`` is X'X / n or XX' / n; both have the trace and the sum of squares that are needed.
    """
    n, d = X.shape
    squares = (gram**2).sum()
    noise = (((X**2).sum(axis=1) ** 2).sum() / n - squares) / n
    spread = squares - np.trace(gram) ** 2 / d
    return float(min(1.0, noise / spread)) if spread > 0 else 1.0  # alike in all directions
