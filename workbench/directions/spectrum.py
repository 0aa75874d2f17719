"""Centered data through the smaller of its two Gram matrices, whichever of n and d is larger."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float

from workbench.types import ndarray

_NOISE = 1e-12
"""Eigenvalues under this share of the largest are rounding: a Gram matrix squares its data."""


@dataclass(frozen=True)
class Spectrum:
    """``X X^T = U diag(values) U^T`` for some X (n, d), without directions that X does not have."""

    U: Float[ndarray, "n m"]
    values: Float[ndarray, " m"]

    def shrink(self, lam: float) -> Float[ndarray, " m"]:
        """Return the share of each component that a ridge of ``lam`` keeps."""
        return np.asarray(self.values / (self.values + lam))

    def solve(
        self, X: Float[ndarray, "n d"], targets: Float[ndarray, "n q"], lam: float
    ) -> Float[ndarray, "d q"]:
        """Return ``(X^T X + lam I)^-1 X^T targets``; with ``lam`` 0 the least one (Moore-Penrose).

        It equals ``X^T (X X^T + lam I)^-1 targets``, the dual form.
        """
        inner = (self.U / (self.values + lam)) @ (self.U.T @ targets)
        return np.asarray(X.T @ inner)


def spectrum(X: Float[ndarray, "n d"], *, dual: bool | None = None) -> Spectrum:
    """Decompose ``X X^T`` (dual) or ``X^T X`` (primal); by default the smaller of the two."""
    if len(X) < X.shape[1] if dual is None else dual:
        values, U = scipy.linalg.eigh(X @ X.T)
        keep = _present(values)
        return Spectrum(U[:, keep], values[keep])
    values, V = scipy.linalg.eigh(X.T @ X)
    keep = _present(values)
    return Spectrum(X @ V[:, keep] / np.sqrt(values[keep]), values[keep])


def top_axes(X: Float[ndarray, "n d"], k: int) -> tuple[Float[ndarray, "k d"], ndarray]:
    """Return the k orthonormal axes on which rows of X lie most, and their sums of squares.

    Raises:
        ValueError: X has fewer than k.
    """
    n, d = X.shape
    if k > min(n, d):
        raise ValueError(f"{k} axes asked for, {n} rows of width {d} have at most {min(n, d)}")
    size = min(n, d)
    gram = X @ X.T if n < d else X.T @ X
    values, vectors = scipy.linalg.eigh(gram, subset_by_index=(size - k, size - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    if not _present(values).all():
        found = int(_present(values).sum())
        raise ValueError(f"{k} axes asked for, but these rows span only {found} of them")
    axes = (X.T @ vectors / np.sqrt(values)).T if n < d else vectors.T
    return np.asarray(axes), np.asarray(values)


def _present(values: ndarray) -> ndarray:
    return np.asarray(values > max(float(values.max()), np.finfo(np.float64).tiny) * _NOISE)
