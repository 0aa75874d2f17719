"""Erasure: the least change after which no linear classifier finds the label."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from workbench.directions.map_method import MapMethod, difference_of, exact, refuse_ridge
from workbench.directions.spectrum import spectrum
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("leace")
class Leace(MapMethod):
    """``h - m (w . (h - mean)) / (m . w)`` with ``w = S^+ m``, S over all items.

    The means of both labels become one, and no other such map changes less (Belrose et al. 2023).
    Dose 1 erases; swapped labels give the same map.

    Args:
        ridge: added to S, in multiples of its mean variance. Above 0 the label is still erased from
            the items it was fitted on, by more change than the least; with fewer items than
            dimensions it carries over better to others.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, ridge: float = 0.0) -> None:
        self.ridge = ridge

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Leace:
        """Fit one layer; ``S^+ m`` is the least-squares fit of the label, in either Gram form."""
        refuse_ridge(self.ridge)
        X, y = exact(X, y)
        mean = X.mean(axis=0)
        centered = X - mean
        contrast = np.where(y, 1 / y.sum(), -1 / (~y).sum())  # centered.T @ contrast is m
        m = difference_of(X, y)
        lam = self.ridge * float(np.square(centered).sum()) / X.shape[1]
        w = spectrum(centered).solve(centered, contrast[:, None], lam)[:, 0]
        right = w[None] / float(m @ w)
        self._learned((-m[:, None], right), m * (right[0] @ mean), m)
        return self
