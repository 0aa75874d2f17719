"""Truth apart from polarity: a general truth direction and one that turns under negation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator

from workbench.directions.cells import (
    cell_weights,
    cells,
    center_by,
    center_cells,
    inputs,
    logistic,
    midpoint,
    needed,
    signs,
)
from workbench.directions.lda import discriminant, smaller_gram
from workbench.linalg import unit, wide
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("ttpd")
class Ttpd(BaseEstimator):
    """Least squares of centered activations on truth ``s`` and truth times polarity ``s * p``.

    ``a - mu(cell) = s * t_G + s * p * t_P`` with s, p = +-1 (Buerger et al. 2024); ``coef_`` is
    t_G. The polarity direction is a ridge discriminant, where the paper has an unpenalized
    logistic regression: polarity is separable at the last token, so that one has no optimum.

    Args:
        balance: every (group, polarity) cell counts alike, as after drawing equal numbers.
    """

    needs: ClassVar[tuple[str, ...]] = ("polarity",)

    def __init__(self, balance: bool = False) -> None:
        self.balance = balance

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Ttpd:
        """Fit one layer; ``info_`` holds t_P, the polarity direction and the classifier.

        The classifier is ``(w_truth, w_polarity, bias)`` on the coordinates along both unit
        vectors, in raw residual units. Items of one polarity have no t_P.
        """
        X, y = inputs(X, y)
        p = signs(needed(polarity, "polarity", "ttpd"), len(X))
        centered = center_cells(X, y[:, None], groups, polarity)
        truth, turning = self._solution(y[:, None], groups, polarity)
        self.coef_, self.center_ = truth[:, 0].astype(X.dtype) @ centered, midpoint(X, y)
        self.info_ = {}
        if len(np.unique(p)) == 2:
            self.info_ = {
                "t_P": turning[:, 0].astype(X.dtype) @ centered,
                "polarity_direction": _polarity_direction(X, p > 0),
            }
        self.info_["classifier"] = self._classifier(X, y)
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
        """Return t_G for each column of labels; one product gives them all."""
        centered = center_cells(X, Y, groups, polarity)
        truth, _ = self._solution(Y, groups, polarity)
        return np.asarray(truth.T.astype(centered.dtype) @ centered)

    def decision_function(self, X: Float[ndarray, "n d"]) -> Float[ndarray, " n"]:
        """Return the classifier's log odds of true."""
        *weights, bias = self.info_["classifier"]
        return np.asarray(self._features(wide(X)) @ np.array(weights) + bias)

    def _solution(
        self, Y: Bool[ndarray, "n m"], groups: ndarray | None, polarity: ndarray | None
    ) -> tuple[Float[ndarray, "n m"], Float[ndarray, "n m"]]:
        """Return what each item adds to t_G and to t_P: the rows of ``(X'WX)^-1 X'W``.

        The 2 x 2 matrix is the same for all labels, since s * s = 1.
        """
        p = signs(polarity, len(Y))
        weights = cell_weights(cells(groups, polarity, len(Y))) if self.balance else np.ones(len(Y))
        total, slant = weights.sum(), (weights * p).sum()
        s = np.where(Y, 1.0, -1.0) * weights[:, None]
        if len(np.unique(p)) == 1:  # truth and truth times polarity are one column
            return s / total, np.zeros_like(s)
        square = total**2 - slant**2
        return (
            s * ((total - slant * p) / square)[:, None],
            s * ((total * p - slant) / square)[:, None],
        )

    def _features(self, X: ndarray) -> Float[ndarray, "n 2"]:
        turn = self.info_.get("polarity_direction")
        along = X @ unit(self.coef_)
        across = np.zeros_like(along) if turn is None else X @ unit(turn)
        return np.stack([along, across], axis=1).astype(np.float64)

    def _classifier(self, X: ndarray, y: ndarray) -> Float[ndarray, " 3"]:
        features = self._features(X)
        center, spread = features.mean(axis=0), features.std(axis=0)
        spread[spread == 0] = 1.0
        fitted = logistic((features - center) / spread, y)
        weights = fitted.coef_[0] / spread
        return np.array([*weights, fitted.intercept_[0] - weights @ center])


def _polarity_direction(
    X: Float[ndarray, "n d"], affirmed: Bool[ndarray, " n"], ridge: float = 0.01
) -> Float[ndarray, " d"]:
    """Return the discriminant of polarity, ``ridge`` of the mean variance within added to each."""
    A = X.astype(np.float64)
    A -= A.mean(axis=0)
    within = center_by(A, affirmed)
    variance = (within**2).sum() / A.size
    found = discriminant(A, smaller_gram(A), affirmed[:, None], keep=1.0, ridge=ridge * variance)
    return np.asarray(found[0], X.dtype)
