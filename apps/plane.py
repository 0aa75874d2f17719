"""Two-dimensional PCA of each layer, turned so that neighboring layers do not flip."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

ndarray = np.ndarray


@runtime_checkable
class Stored(Protocol):
    """What a map needs of stored activations."""

    @property
    def layers(self) -> Sequence[int]: ...

    @property
    def columns(self) -> Mapping[str, ndarray]: ...

    def at(self, layer: int) -> Float[ndarray, "n d"]: ...


@dataclass(frozen=True)
class Plane:
    """Coordinates of every item; NaN for an item whose activations are not finite."""

    xy: Float[ndarray, "n 2"]
    share: float
    """Part of the layer's variance that the plane holds, 0 to 1."""


def pca_plane(X: Float[ndarray, "n d"]) -> Plane:
    """Project items onto their first two principal components, in float64."""
    from sklearn.decomposition import PCA

    whole = np.isfinite(X).all(axis=1)
    xy = np.full((len(X), 2), np.nan)
    kept = X[whole].astype(np.float64)
    if len(kept) < 3 or X.shape[1] < 2:
        return Plane(xy, float("nan"))
    exact = kept.shape[1] <= 1024 and len(kept) >= kept.shape[1]
    solver = "covariance_eigh" if exact else "randomized"
    pca = PCA(2, svd_solver=solver, random_state=0, iterated_power=7)
    xy[whole] = pca.fit_transform(kept)
    return Plane(xy, float(np.nansum(pca.explained_variance_ratio_)))


def align(xy: Float[ndarray, "n 2"], reference: Float[ndarray, "n 2"]) -> Float[ndarray, "n 2"]:
    """Rotate or mirror ``xy`` onto ``reference`` (orthogonal Procrustes); distances stay."""
    whole = np.isfinite(xy).all(axis=1) & np.isfinite(reference).all(axis=1)
    if not whole.any():
        return xy
    left, _, right = np.linalg.svd(xy[whole].T @ reference[whole])
    return np.asarray(xy @ (left @ right))


class Planes:
    """The planes of one store, each turned to its neighbor on the way from the middle layer.

    Starting always from the middle makes a plane depend on the store alone and not on the order
    of a visit, so a polygon in a link finds the same points again.
    """

    def __init__(self, acts: Stored) -> None:
        self.acts = acts
        self._done: dict[int, Plane] = {}
        self._lock = threading.Lock()

    def at(self, layer: int) -> Plane:
        """Return the plane of a layer."""
        layers = list(self.acts.layers)
        middle, wanted = len(layers) // 2, layers.index(layer)
        step = 1 if wanted >= middle else -1
        with self._lock:
            previous: Plane | None = None
            for row in range(middle, wanted + step, step):
                if layers[row] not in self._done:
                    self._done[layers[row]] = self._make(layers[row], previous)
                previous = self._done[layers[row]]
        return self._done[layer]

    def _make(self, layer: int, previous: Plane | None) -> Plane:
        plane = pca_plane(np.asarray(self.acts.at(layer), np.float32))
        return plane if previous is None else Plane(align(plane.xy, previous.xy), plane.share)
