"""Ridge regression of what changes within a pair on the state that it changes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from workbench.directions.cells import needed
from workbench.directions.map_method import MapMethod, exact, refuse_ridge
from workbench.directions.pairs import pair_groups, pair_rows
from workbench.directions.spectrum import Spectrum, spectrum
from workbench.registry import METHODS
from workbench.types import ndarray

GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Ridges to choose among, in multiples of the mean variance."""


@METHODS.register("ridge_map")
class RidgeMap(MapMethod):
    """``W^T = (X^T X + lam I)^-1 X^T D`` over pairs, X their states of label 0, D the differences.

    Both are centered and ``b = mean(D) - W mean(X)``, so the mean state moves by the mean
    difference whatever the ridge. With fewer pairs than d it is solved in its dual form.

    Args:
        ridge: ``lam`` in multiples of ``trace(X^T X) / d``; None chooses from `GRID` by the error
            on left-out pairs (on left-out groups of pairs, where there are groups), which ``info_``
            holds as ``r2_left_out``: the share of the differences' variance about the mean
            difference that W explains where it was not fitted. At 0 or less the map is no better
            than that difference.
    """

    needs: ClassVar[tuple[str, ...]] = ("pairs",)

    def __init__(self, ridge: float | None = None) -> None:
        self.ridge = ridge

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> RidgeMap:
        """Fit one layer."""
        found = paired(X, y, needed(pairs, "pairs", "ridge_map"), groups)
        lam, r2 = found.choose(self.ridge)
        W = found.spectrum.solve(found.X, found.D, lam).T
        self._learned(W, found.shift - W @ found.mean, found.shift, {"lam": lam, "r2_left_out": r2})
        return self


@dataclass(frozen=True)
class Paired:
    """Pairs of one layer, centered: states of label 0, and differences to label 1."""

    X: Float[ndarray, "m d"]
    D: Float[ndarray, "m d"]
    mean: Float[ndarray, " d"]
    shift: Float[ndarray, " d"]
    spectrum: Spectrum
    groups: Int[ndarray, " m"]
    """What is left out together, numbered from 0."""

    def choose(self, ridge: float | None) -> tuple[float, float]:
        """Return lam, and the share of variance that it explains on what is left out."""
        refuse_ridge(ridge)
        scale = float(np.square(self.X).sum()) / self.X.shape[1]
        lams = [scale * r for r in (GRID if ridge is None else (ridge,))]
        scores = self.left_out(lams)
        best = int(np.argmax(scores))
        return float(lams[best]), float(scores[best])

    def left_out(self, lams: Sequence[float]) -> Float[ndarray, " g"]:
        """Return R^2 about the mean difference for each lam, every group left out in turn.

        Exact without refitting: residuals of a group times the inverse of one minus its block of
        the hat matrix, the mean counted in.
        """
        bare = self._missed(np.zeros_like(self.spectrum.values))
        return np.array([1 - self._missed(self.spectrum.shrink(lam)) / bare for lam in lams])

    def _missed(self, kept: Float[ndarray, " m"]) -> float:
        n, U = len(self.X), self.spectrum.U
        residual = self.D - (U * kept) @ (U.T @ self.D)
        if self.groups.max() + 1 == n:
            free = np.maximum(1 - 1 / n - np.square(U) @ kept, 1e-12)
            return float(np.square(residual / free[:, None]).sum())
        total = 0.0
        for group in range(self.groups.max() + 1):
            own = np.flatnonzero(self.groups == group)
            hat = (U[own] * kept) @ U[own].T + 1 / n
            free_block = np.eye(len(own)) * (1 + 1e-12) - hat
            total += float(np.square(np.linalg.solve(free_block, residual[own])).sum())
        return total


def paired(
    X: Float[ndarray, "n d"], y: ndarray, pairs: ndarray, groups: ndarray | None = None
) -> Paired:
    """Line up pairs and center them.

    Raises:
        ConfigError: a pair that is not one item of each label or lies in two groups.
        ValueError: fewer than three pairs, or states or differences that are all the same.
    """
    X, y = exact(X, y)
    plus, minus = pair_rows(y, pairs)
    if len(plus) < 3:
        raise ValueError(f"{len(plus)} pairs; a map needs at least three")
    states = X[minus]
    differences = X[plus] - states
    mean, shift = states.mean(axis=0), differences.mean(axis=0)
    states, differences = states - mean, differences - shift
    if not differences.any():
        raise ValueError(
            "all pairs differ by the same vector, which is no map but a direction: fit that with "
            "method='paired'"
        )
    if not states.any():
        raise ValueError("the states of label 0 are all the same; a map has nothing to depend on")
    together = pair_groups(groups, plus, minus)
    return Paired(states, differences, mean, shift, spectrum(states), together)
