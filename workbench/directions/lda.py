"""The linear discriminant of Fisher, its covariance shrunk."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.base import BaseEstimator

from workbench.directions.cells import center_by, center_cells, class_weights, inputs, midpoint
from workbench.linalg import wide
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("lda")
class Lda(BaseEstimator):
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

    def decision_function(self, X: Float[ndarray, "n d"]) -> Float[ndarray, " n"]:
        """Return scores that are positive on the true side of the midpoint."""
        return np.asarray((wide(X) - self.center_) @ self.coef_)

    def _solve(
        self,
        X: Float[ndarray, "n d"],
        Y: Bool[ndarray, "n m"],
        groups: ndarray | None,
        polarity: ndarray | None,
    ) -> tuple[Float[ndarray, "m d"], float]:
        """Solve with the covariance T of all items; S = T - p (1 - p) v v', v the difference.

        By Sherman and Morrison that only rescales ``T^-1 v``. With fewer items than coordinates
        the system is the one of the items, of the same solution.
        """
        n, d = X.shape
        one = np.zeros(n)
        centered = center_cells(X, Y, groups, polarity) if self.center else center_by(X, one)
        A = centered.astype(np.float64)
        gram = (A @ A.T if n < d else A.T @ A) / n
        mean_variance = np.trace(gram) / d
        r = ledoit_wolf(A, gram) if self.shrinkage is None else float(self.shrinkage)
        if not 0 <= r <= 1 or (r == 0 and n < d):
            raise ValueError(f"shrinkage {r} with {n} items of width {d}; expected 0 < r <= 1")
        system = (1 - r) * gram
        system[np.diag_indices_from(system)] += r * mean_variance
        weights = class_weights(Y)
        means = A.T @ weights
        try:
            factor = cho_factor(system, overwrite_a=True)
        except LinAlgError:
            raise ValueError(
                f"the covariance is singular at shrinkage {r:.3g}; raise it above 0"
            ) from None
        solved = A.T @ cho_solve(factor, weights) if n < d else cho_solve(factor, means)
        share = (1 - r) * Y.mean(axis=0) * (1 - Y.mean(axis=0))
        solved /= 1 - share * (means * solved).sum(axis=0)
        return np.asarray(solved.T, X.dtype), r


def ledoit_wolf(X: Float[ndarray, "n d"], gram: Float[ndarray, "g g"]) -> float:
    """Return the shrinkage of centered items that is best in expectation (Ledoit and Wolf 2004).

    ``gram`` is X'X / n or XX' / n; both have the trace and the sum of squares that are needed.
    """
    n, d = X.shape
    squares = (gram**2).sum()
    noise = (((X**2).sum(axis=1) ** 2).sum() / n - squares) / n
    return float(min(1.0, noise / (squares - np.trace(gram) ** 2 / d)))
