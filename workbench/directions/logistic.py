"""Logistic regression that says whether it converged."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from workbench.directions.cells import center_cells, inputs, midpoint
from workbench.linalg import wide
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("logistic")
class Logistic(BaseEstimator):
    """Logistic regression, converged or with a warning.

    Minimizes ``C * sum(log(1 + exp(-s (w . x + b)))) + |w|^2 / 2``, s = +-1. Activations are
    divided by one number, their root mean square, so that C means the same at every layer.
    ``coef_`` is in inverse residual units; the scores are the log odds at the minimum, with b.

    Args:
        C: inverse penalty; None is unpenalized, which has an optimum only where no plane separates
            the classes (never with fewer items than coordinates).
        center: subtract the mean of every (group, polarity) cell first, of the columns named.
        max_iter: steps after which it gives up, with a ``ConvergenceWarning``.
        tolerance: largest coordinate of the gradient of the mean loss that counts as converged.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        C: float | int | None = 1.0,
        center: bool = True,
        max_iter: int = 5000,
        tolerance: float | int = 1e-6,
    ) -> None:
        self.C = C
        self.center = center
        self.max_iter = max_iter
        self.tolerance = tolerance

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Logistic:
        """Fit one layer; ``info_`` holds the bias, the largest gradient and the steps taken.

        Raises:
            ValueError: C is not positive.
        """
        X, y = inputs(X, y)
        weights, told = self._minimize(X, y[:, None], groups, polarity)
        self.coef_, self.center_ = weights[0], midpoint(X, y)
        shifted = center_cells(X, y[:, None], groups, polarity) if self.center else X
        bias = told.pop("bias")[0] + midpoint(shifted, y) @ self.coef_
        self.info_ = {**told, "bias": float(bias)}
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
        """Return the direction of each column of labels, all minimized together."""
        return self._minimize(wide(X), Y, groups, polarity)[0]

    def decision_function(self, X: Float[ndarray, "n d"]) -> Float[ndarray, " n"]:
        """Return the log odds of true."""
        return np.asarray((wide(X) - self.center_) @ self.coef_ + self.info_["bias"])

    def _minimize(
        self,
        X: Float[ndarray, "n d"],
        Y: Bool[ndarray, "n m"],
        groups: ndarray | None,
        polarity: ndarray | None,
    ) -> tuple[Float[ndarray, "m d"], dict[str, ndarray]]:
        if self.C is not None and not self.C > 0:
            raise ValueError(f"C must be positive, or None for no penalty; got {self.C}")
        A = center_cells(X, Y, groups, polarity) if self.center else X
        A = A.astype(np.float64)
        middle = A.mean(axis=0)
        size = np.sqrt(((A - middle) ** 2).mean())
        if size == 0:
            raise ValueError(f"all {len(X)} activations are the same, so nothing can be fitted")
        A, basis = _narrow((A - middle) / size)
        penalty = np.full(A.shape[1] + 1, 0.0 if self.C is None else 1 / (self.C * len(X)))
        penalty[-1] = 0.0
        found, gradient, steps = descend(
            np.c_[A, np.ones(len(A))], Y, penalty, self.max_iter, self.tolerance
        )
        if gradient.max() > self.tolerance:
            self._warn(len(X), X.shape[1])
        weights = (found[:-1].T if basis is None else found[:-1].T @ basis) / size
        told = {"bias": found[-1] - weights @ middle, "gradient": gradient.max(), "steps": steps}
        return np.asarray(weights, X.dtype), told

    def _warn(self, n: int, d: int) -> None:
        warnings.warn(
            f"logistic regression of {n} items of width {d} with C={self.C} did not reach a "
            f"gradient of {self.tolerance:g} in {self.max_iter} steps, so that the direction is "
            "not the optimum; lower C, or raise max_iter where no plane separates the classes",
            ConvergenceWarning,
            stacklevel=4,
        )


def descend(
    X: Float[ndarray, "n d"],
    Y: Bool[ndarray, "n m"],
    penalty: Float[ndarray, " d"],
    max_iter: int,
    tolerance: float,
) -> tuple[Float[ndarray, "d m"], Float[ndarray, " m"], int]:
    """Minimize ``mean(log(1 + exp(-s x.w))) + sum(penalty * w^2) / 2`` for each column of labels.

    Steps go against the gradient in the metric of the largest possible Hessian (Boehning 1992: each
    p (1 - p) at 1/4), which one factorization gives for all; momentum restarts where it points
    uphill (O'Donoghue and Candes 2015).

    Returns:
        The weights, the largest coordinate of each column's gradient, and the steps taken.
    """
    signs, n = np.where(Y, 1.0, -1.0), len(X)
    bound = X.T @ X / (4 * n)
    bound[np.diag_indices_from(bound)] += penalty + 1e-12 * np.trace(bound)
    factor = cho_factor(bound, overwrite_a=True)
    ahead = last = np.zeros((X.shape[1], Y.shape[1]))
    age = np.ones(Y.shape[1])
    for step in range(max_iter + 1):
        pull = signs * expit(-signs * (X @ ahead))
        gradient = penalty[:, None] * ahead - X.T @ pull / n
        largest = np.abs(gradient).max(axis=0)
        if largest.max() <= tolerance or step == max_iter:
            break
        new = ahead - cho_solve(factor, gradient, check_finite=False)
        age[(gradient * (new - last)).sum(axis=0) > 0] = 1.0
        older = (1 + np.sqrt(1 + 4 * age**2)) / 2
        ahead, last = new + (age - 1) / older * (new - last), new
        age = older
    return ahead, largest, step


def _narrow(X: Float[ndarray, "n d"]) -> tuple[ndarray, ndarray | None]:
    """Return coordinates in an orthonormal basis of the rows, and it, where that is narrower."""
    if X.shape[0] >= X.shape[1]:
        return X, None
    basis, coordinates = np.linalg.qr(X.T)
    return np.ascontiguousarray(coordinates.T), basis.T
