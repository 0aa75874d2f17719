"""Optimal transport of one Gaussian onto another: label 0 gets the mean and spread of label 1."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg
from jaxtyping import Float
from sklearn.covariance import ledoit_wolf

from workbench.directions.map_method import MapMethod, exact, refuse_rank
from workbench.directions.spectrum import top_axes
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("ot_map")
class OtMap(MapMethod):
    """``h -> mean_1 + T (h - mean_0)`` with the least movement among maps that do it for Gaussians.

    ``T = S0^-1/2 (S0^1/2 S1 S0^1/2)^1/2 S0^-1/2``, so ``T S0 T^T = S1`` (Singh et al. 2024). Where
    the covariances are equal it is the difference of means. Both labels are read at one position.

    Args:
        shrinkage: of each class covariance towards a multiple of the identity: ``ledoit_wolf``
            estimates it, a number from 0 to 1 sets it.
        components: T acts on this many principal axes of all items, and leaves the rest of the
            space but its mean; W is then of that rank. None is the whole space.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, shrinkage: float | str = "ledoit_wolf", components: int | None = None
    ) -> None:
        self.shrinkage = shrinkage
        self.components = components

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> OtMap:
        """Fit one layer; ``info_`` holds how much each covariance was shrunk."""
        X, y = exact(X, y)
        if min(y.sum(), (~y).sum()) < 2:
            raise ValueError("a class of one item has no covariance; give at least two of each")
        means = [X[side].mean(axis=0) for side in (~y, y)]
        centered = [X[side] - mean for side, mean in zip((~y, y), means, strict=True)]
        shift = means[1] - means[0]
        if self.components is None:
            T, shrunk = self._transport(centered)
            W = T - np.eye(len(T))
            self._learned(W, shift - W @ means[0], shift, {"shrinkage": shrunk})
            return self
        refuse_rank(self.components)
        axes, _ = top_axes(X - X.mean(axis=0), self.components)
        T, shrunk = self._transport([part @ axes.T for part in centered])
        left = axes.T @ (T - np.eye(len(T)))
        b = shift - left @ (axes @ means[0])
        self._learned((left, axes), b, shift, {"shrinkage": shrunk})
        return self

    def _transport(self, centered: list[ndarray]) -> tuple[ndarray, ndarray]:
        found = [covariance(part, self.shrinkage) for part in centered]
        return transport(found[0][0], found[1][0]), np.array([amount for _, amount in found])


def covariance(
    centered: Float[ndarray, "n d"], shrinkage: float | str
) -> tuple[Float[ndarray, "d d"], float]:
    """Return ``(1 - a) S + a (trace S / d) I`` and ``a``.

    Raises:
        ValueError: an unknown shrinkage.
    """
    if shrinkage == "ledoit_wolf":
        found, amount = ledoit_wolf(centered, assume_centered=True)
        return np.asarray(found), float(amount)
    if isinstance(shrinkage, str) or not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage {shrinkage!r}; expected ledoit_wolf or a number from 0 to 1")
    S = centered.T @ centered / len(centered)
    S *= 1 - shrinkage
    S[np.diag_indices_from(S)] += shrinkage * np.square(centered).mean()
    return np.asarray(S), float(shrinkage)


def transport(S0: Float[ndarray, "d d"], S1: Float[ndarray, "d d"]) -> Float[ndarray, "d d"]:
    """Return the one symmetric positive T with ``T S0 T = S1``, through a Cholesky factor of S0.

    Raises:
        ValueError: S0 has no inverse.
    """
    try:
        L = np.linalg.cholesky(S0)
    except np.linalg.LinAlgError:
        raise ValueError(
            "the covariance of label 0 has no inverse (fewer items than dimensions?); give a "
            "shrinkage above 0 or fewer components"
        ) from None
    values, V = scipy.linalg.eigh(L.T @ S1 @ L)
    half = (V * np.sqrt(np.maximum(values, 0))) @ V.T
    inner = scipy.linalg.solve_triangular(L, half.T, lower=True, trans="T")
    T = scipy.linalg.solve_triangular(L, inner.T, lower=True, trans="T")
    return np.asarray((T + T.T) / 2)
