"""Ridge regression of what changes within a pair on the state that it changes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from workbench.directions.cells import needed
from workbench.directions.map_method import MapMethod, exact
from workbench.directions.pairs import pair_rows
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
            on left-out pairs, which ``info_`` holds as ``r2_left_out``: the share of the
            differences' variance about their mean that W explains on pairs it has not seen. At 0
            or less the map is no better than its mean difference.
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
        found = paired(X, y, needed(pairs, "pairs", "ridge_map"))
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

    def choose(self, ridge: float | None) -> tuple[float, float]:
        """Return lam, and the share of variance that it explains on left-out pairs."""
        scale = float(np.square(self.X).sum()) / self.X.shape[1]
        lams = [scale * r for r in (GRID if ridge is None else (ridge,))]
        scores = self.left_out(lams)
        best = int(np.argmax(scores))
        return float(lams[best]), float(scores[best])

    def left_out(self, lams: Sequence[float]) -> Float[ndarray, " g"]:
        """Return R^2 about the mean difference for each lam, every pair left out in turn.

        Exact without refitting: a residual over one minus its leverage, the means counted in.
        """
        n, U = len(self.X), self.spectrum.U
        turned, bare = U.T @ self.D, np.square(self.D).sum() / (1 - 1 / n) ** 2
        scores = []
        for lam in lams:
            kept = self.spectrum.shrink(lam)
            free = np.maximum(1 - 1 / n - np.square(U) @ kept, 1e-12)
            missed = (self.D - U @ (kept[:, None] * turned)) / free[:, None]
            scores.append(1 - np.square(missed).sum() / bare)
        return np.array(scores)


def paired(X: Float[ndarray, "n d"], y: ndarray, pairs: ndarray) -> Paired:
    """Line up pairs and center them.

    Raises:
        ConfigError: a pair that is not one item of each label.
        ValueError: fewer than three pairs, or states that are all the same.
    """
    X, y = exact(X, y)
    plus, minus = pair_rows(y, pairs)
    if len(plus) < 3:
        raise ValueError(f"{len(plus)} pairs; a map needs at least three")
    states = X[minus]
    differences = X[plus] - states
    mean, shift = states.mean(axis=0), differences.mean(axis=0)
    states, differences = states - mean, differences - shift
    if not states.any():
        raise ValueError("the states of label 0 are all the same; a map has nothing to depend on")
    return Paired(states, differences, mean, shift, spectrum(states))
