"""The difference of two means: plain, with every group counting alike, or whitened."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from workbench.directions.cells import Linear, cells, center_cells, class_weights, inputs, midpoint
from workbench.linalg import wide
from workbench.registry import METHODS
from workbench.types import ndarray

IN_DISTRIBUTION = (
    "in distribution only: whitened by the covariance of the items fitted on; fit without whiten "
    "to read another set of items or another model"
)


@METHODS.register("mass_mean")
class MassMean(Linear):
    """``mean(X[y]) - mean(X[~y])`` (Marks and Tegmark 2023).

    Args:
        balance: average within ``groups`` first, so that a role with 300 transcripts counts no
            more than a role with 30. This is what turns a mass mean into an Assistant Axis.
        center: subtract the mean of every (group, polarity) cell first, so that a cell with more
            true than false items does not lend the direction its topic.
        whiten: multiply by the pseudo-inverse of the pooled within-class covariance (the paper's
            iid form). It separates better the items that it was fitted on and their like; it is
            not to be carried to other distributions or models, and ``info_`` says so.
        tolerance: eigenvalues of that covariance at or below it, in squared residual units, count
            as zero.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        balance: bool = False,
        center: bool = False,
        whiten: bool = False,
        tolerance: float | int = 1e-3,
    ) -> None:
        self.balance = balance
        self.center = center
        self.whiten = whiten
        self.tolerance = tolerance

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> MassMean:
        """Fit one layer."""
        X, y = inputs(X, y)
        self.coef_ = self.fit_many(X, y[:, None], groups=groups, polarity=polarity)[0]
        self.center_ = midpoint(X, y)
        self.info_ = {"scope": IN_DISTRIBUTION} if self.whiten else {}
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
        """Return the direction of each column of labels; one product gives them all.

        Whitened, each takes an eigendecomposition of its own.
        """
        if self.balance and (groups is None or self.whiten):
            raise ValueError(
                "balance=True needs groups"
                if groups is None
                else "balance=True and whiten=True do not go together: the covariance is of items"
            )
        X = center_cells(X, Y, groups, polarity) if self.center else wide(X)
        weights = class_weights(Y, cells(groups, None, len(X)) if self.balance else None)
        means = np.asarray(weights.T.astype(X.dtype) @ X)
        if not self.whiten:
            return means
        return np.stack([self._whitened(X, y, v) for y, v in zip(Y.T, means, strict=True)])

    def _whitened(
        self, X: Float[ndarray, "n d"], y: Bool[ndarray, " n"], v: Float[ndarray, " d"]
    ) -> Float[ndarray, " d"]:
        within = np.where(y[:, None], X - X[y].mean(axis=0), X - X[~y].mean(axis=0))
        within = within.astype(np.float64)
        sizes, basis = np.linalg.eigh(within.T @ within / len(X))
        kept = sizes > self.tolerance
        if not kept.any():
            raise ValueError(
                f"no eigenvalue of the within-class covariance is above tolerance="
                f"{self.tolerance:g}; the largest is {sizes[-1]:.3g}, so lower it"
            )
        return np.asarray((basis[:, kept] / sizes[kept]) @ (basis[:, kept].T @ v), X.dtype)
