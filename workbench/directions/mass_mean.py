"""The difference of two means, plain or with every group counting alike."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator

from workbench.directions.cells import binary, cells, center_by, midpoint
from workbench.linalg import wide
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("mass_mean")
class MassMean(BaseEstimator):
    """``mean(X[y]) - mean(X[~y])`` (Marks and Tegmark 2023).

    Args:
        balance: average within ``groups`` first, so that a role with 300 transcripts counts no
            more than a role with 30. This is what turns a mass mean into an Assistant Axis.
        center: subtract the mean of every (group, polarity) cell first, so that a cell with more
            true than false items does not lend the direction its topic.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, balance: bool = False, center: bool = False) -> None:
        self.balance = balance
        self.center = center

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
        y = binary(y)
        self.coef_ = self.fit_many(X, y[:, None], groups=groups, polarity=polarity)[0]
        self.center_ = midpoint(X, y)
        return self

    def fit_many(
        self,
        X: Float[ndarray, "n d"],
        Y: Bool[ndarray, "n m"],
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
    ) -> Float[ndarray, "m d"]:
        """Return the direction of each column of labels; one product gives them all."""
        X = center_by(X, cells(groups, polarity, len(X))) if self.center else wide(X)
        if self.balance and groups is None:
            raise ValueError("balance=True needs groups")
        member = cells(groups if self.balance else None, None, len(X))
        weights = _class_weights(Y, member) - _class_weights(~Y, member)
        return np.asarray(weights.T.astype(X.dtype) @ X)

    def decision_function(self, X: Float[ndarray, "n d"]) -> Float[ndarray, " n"]:
        """Return scores that are positive on the true side of the midpoint."""
        return np.asarray((wide(X) - self.center_) @ self.coef_)


def _class_weights(member: Bool[ndarray, "n m"], group: ndarray) -> Float[ndarray, "n m"]:
    """Weights of sum 1 over the members, each group that has any counting alike."""
    one_hot = np.eye(int(group.max()) + 1)[group]
    counts = one_hot.T @ member
    share = np.divide(1.0, counts, out=np.zeros_like(counts), where=counts > 0)
    return np.asarray(member * (one_hot @ share) / (counts > 0).sum(axis=0))
