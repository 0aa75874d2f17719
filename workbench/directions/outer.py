"""Maps made of outer products: the discriminant's coordinate, or the plane of the differences."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from jaxtyping import Float

from workbench.directions.cells import center_by, needed
from workbench.directions.map_method import (
    MapMethod,
    difference_of,
    exact,
    refuse_rank,
    refuse_ridge,
)
from workbench.directions.pairs import pair_rows
from workbench.directions.spectrum import top_axes
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("outer")
class Outer(MapMethod):
    """Rank 1: move the discriminant's coordinate ``w . h`` to that of the label 1 mean.

    With ``m`` the difference of means and ``w = S^-1 m`` (S within classes, regularised),
    ``W = -m w^T / (m . w)`` and ``b = m (w . mean_1) / (m . w)``: a state that is there already
    does not move. Rank r > 1, over pairs: ``W = scale * U U^T`` with U the r principal axes of the
    differences (not centered) and ``b`` their mean; it scales what a state does in that subspace.

    Args:
        rank: 1, or more with ``pairs``.
        ridge: added to S, in multiples of its mean variance; rank 1 only.
        scale: of W; rank above 1 only.
    """

    def __init__(self, rank: int = 1, ridge: float = 0.01, scale: float = 1.0) -> None:
        self.rank = rank
        self.ridge = ridge
        self.scale = scale

    @property
    def needs(self) -> tuple[str, ...]:
        return ("pairs",) if self.rank > 1 else ()

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Outer:
        """Fit one layer."""
        refuse_rank(self.rank)
        refuse_ridge(self.ridge)
        X, y = exact(X, y)
        if self.rank > 1:
            return self._fit_pairs(X, y, needed(pairs, "pairs", f"outer of rank {self.rank}"))
        return self._fit_classes(X, y)

    def _fit_classes(self, X: ndarray, y: ndarray) -> Outer:
        m, upper = difference_of(X, y), X[y].mean(axis=0)
        w = inverse_times(center_by(X, y), m, self.ridge)
        size = float(m @ w)
        self._learned((-m[:, None] / size, w[None]), m * (w @ upper) / size, m)
        return self

    def _fit_pairs(self, X: ndarray, y: ndarray, pairs: ndarray) -> Outer:
        plus, minus = pair_rows(y, pairs)
        differences = X[plus] - X[minus]
        axes, squares = top_axes(differences, self.rank)
        shift = differences.mean(axis=0)
        retained = squares.sum() / np.square(differences).sum()
        self._learned((self.scale * axes.T, axes), shift, shift, {"retained": float(retained)})
        return self


def inverse_times(
    centered: Float[ndarray, "n d"], v: Float[ndarray, " d"], ridge: float
) -> Float[ndarray, " d"]:
    """Return ``(S + ridge * mean variance * I)^-1 v`` for ``S = X^T X / n``, X centered.

    Raises:
        ValueError: that matrix has no inverse.
    """
    n, d = centered.shape
    lam = ridge * float(np.square(centered).sum()) / d
    if not lam > 0 and (n <= d or not centered.any()):
        raise ValueError(f"{n} items of width {d} have no invertible covariance; give a ridge > 0")
    if n < d:  # through the n x n matrix instead
        gram = centered @ centered.T
        gram[np.diag_indices(n)] += lam
        inner = scipy.linalg.solve(gram, centered @ v, assume_a="pos")
        return np.asarray((v - centered.T @ inner) / (lam / n))
    spread = centered.T @ centered
    spread[np.diag_indices(d)] += lam
    return np.asarray(n * scipy.linalg.solve(spread, v, assume_a="pos"))
