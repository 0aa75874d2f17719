"""A shift that chosen states get and benign states do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import scipy.linalg
from jaxtyping import Float

from workbench.directions.map_method import MapMethod, difference_of, exact, refuse_ridge
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("null_space")
class NullSpace(MapMethod):
    """``W = target w^T``, with ``w . h`` near 1 on states of label 1 and 0 on those of label 0.

    ``w`` solves a ridge regression of 1 on the states of label 1, inside the null space of the
    benign states (label 0): the directions in which they have no extent, measured from the origin
    (the map of Sheng et al. 2025, whose rank is one since every chosen state gets one target).

    Args:
        target: the shift at dose 1, in residual-stream units; None is the difference of means.
        ridge: of that regression, in multiples of the mean square inside the null space.
        share: the null space is this share of all dimensions, those in which benign states lie
            least; they then move a little (``info_["leak"]``: the mean of ``|w . h|`` over them).
            None takes only what they do not reach, which needs fewer benign states than d.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        target: Sequence[float] | ndarray | None = None,
        ridge: float = 1e-3,
        share: float | None = None,
    ) -> None:
        self.target = target
        self.ridge = ridge
        self.share = share

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> NullSpace:
        """Fit one layer; ``info_`` holds the size of the null space, leak and reach."""
        refuse_ridge(self.ridge)
        X, y = exact(X, y)
        difference = difference_of(X, y)
        target = difference if self.target is None else np.asarray(self.target, np.float64)
        if target.shape != difference.shape:
            raise ValueError(f"target has shape {target.shape}; expected {difference.shape}")
        if not (np.isfinite(target).all() and target.any()):
            raise ValueError("the target is zero or not finite; give a shift")
        busy = self._busy(X[~y])
        free = outside(X[y], busy)
        lam = self.ridge * float(np.square(free).sum()) / len(free)
        if lam <= 0:
            raise ValueError("states of label 1 have nothing in the null space; lower share")
        gram = free @ free.T
        gram[np.diag_indices_from(gram)] += lam
        w = outside(
            (free.T @ scipy.linalg.solve(gram, np.ones(len(free)), assume_a="pos"))[None], busy
        )
        told = {
            "null_dimensions": float(X.shape[1] - len(busy)),
            "leak": float(np.abs(X[~y] @ w[0]).mean()),
            "reach": float((X[y] @ w[0]).mean()),
        }
        self._learned((target[:, None], w), np.zeros_like(target), difference, told)
        return self

    def _busy(self, benign: Float[ndarray, "n d"]) -> Float[ndarray, "m d"]:
        """Return an orthonormal basis of what benign states reach, or reach most."""
        n, d = benign.shape
        _, sizes, axes = scipy.linalg.svd(benign, full_matrices=False, lapack_driver="gesdd")
        if self.share is not None:
            if not 0 < self.share < 1:
                raise ValueError(f"share {self.share}; expected a number between 0 and 1")
            return np.asarray(axes[: max(d - round(self.share * d), 0)])
        reached = int((sizes > sizes[0] * max(n, d) * np.finfo(np.float64).eps).sum())
        if reached == d:
            raise ValueError(
                f"{n} benign states reach all {d} dimensions, so nothing is free; give "
                "share=0.5, say, to use those that they reach least"
            )
        return np.asarray(axes[:reached])


def outside(X: Float[ndarray, "n d"], basis: Float[ndarray, "m d"]) -> Float[ndarray, "n d"]:
    """Remove from every row what lies in the span of an orthonormal basis."""
    X = X - (X @ basis.T) @ basis
    return np.asarray(X - (X @ basis.T) @ basis)  # twice: rounding of the first pass goes
