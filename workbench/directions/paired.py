"""The mean of the differences within matched pairs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from workbench.directions.cells import Linear, inputs, midpoint, needed, pair_weights
from workbench.linalg import wide
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("paired")
class Paired(Linear):
    """``mean over pairs of (X[true] - X[false])``: what a pair shares cancels in each of them.

    Persona vectors are of this kind, their pairs being rows (Chen et al. 2025). A pair counts once
    however many items it holds; with one item a side this is the mass mean.
    """

    needs: ClassVar[tuple[str, ...]] = ("pairs",)

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Paired:
        """Fit one layer; ``info_`` holds the number of pairs.

        Raises:
            ValueError: no pairs, or a pair that lacks a class.
        """
        X, y = inputs(X, y)
        self.coef_ = self.fit_many(X, y[:, None], pairs=pairs)[0]
        self.center_ = midpoint(X, y)
        self.info_ = {"n_pairs": len(np.unique(needed(pairs, "pairs", "paired")))}
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
        """Return the direction of each column of labels; one product gives them all."""
        weights, pair = pair_weights(Y, needed(pairs, "pairs", "paired"))
        weights = (weights / (pair.max() + 1)).astype(wide(X).dtype)
        return np.asarray(weights.T @ wide(X))
