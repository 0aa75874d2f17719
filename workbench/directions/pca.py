"""Principal components: of the differences within pairs, about zero or their mean, or of items."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import eigh
from scipy.sparse import csr_matrix

from workbench.directions.cells import (
    Linear,
    cells,
    center_by,
    class_weights,
    inputs,
    midpoint,
    needed,
    pair_weights,
)
from workbench.linalg import wide
from workbench.registry import METHODS
from workbench.types import ndarray

OF = ("differences", "centered_differences", "items")


@METHODS.register("pca")
class Pca(Linear):
    """The directions along which pairs differ, or items vary, the most.

    A component's length is the root mean square of what it was computed of, along it, in residual
    units. Its sign is that of the mean projection: the mean of the items of label 1 lies further
    along it than that of label 0 (of pairs: their mean difference points along it). ``info_`` holds
    that ``label_difference`` in residual units; where it is near 0 the labels do not tell the sign.

    Args:
        of: ``differences`` within pairs, true minus false, about zero: keeps a shift that all pairs
            share. ``centered_differences``, about their mean (``pca_diff`` in other libraries):
            loses such a shift, and with it most of a concept. ``items``, about the mean of their
            (group, polarity) cell; needs no pairs.
        components: how many; named NAME:pc1, NAME:pc2 and so on where there are several.
    """

    labels: ClassVar[str] = "sign"

    def __init__(self, of: str = "differences", components: int = 1) -> None:
        self.of = of
        self.components = components

    @property
    def needs(self) -> tuple[str, ...]:
        """Pairs, unless the components are of items."""
        return () if self.of == "items" else ("pairs",)

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Pca:
        """Fit one layer; ``coef_`` is the first of ``components_``.

        ``info_`` holds each component's share of the total (``explained``), too.

        Raises:
            ValueError: an unknown ``of``, a pair that lacks a class, too many components.
        """
        X, y = inputs(X, y)
        rows = self._rows(X, y, groups, polarity, pairs)
        found, explained = principal(rows, self.components)
        along = self._toward(X, y[:, None], pairs) @ found.T
        signs = np.where(along[0] < 0, -1.0, 1.0)
        self.components_ = np.asarray(signs[:, None] * found, X.dtype)
        self.coef_, self.center_ = self.components_[0], midpoint(X, y)
        self.names_ = tuple(f"pc{i + 1}" for i in range(self.components))
        self.info_ = {
            "explained": explained,
            "label_difference": np.abs(along[0]) / np.linalg.norm(found, axis=1),
        }
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
        """Return the first component for each column of labels.

        Labels that only swap the sides of pairs turn their differences round, and the components
        about zero stay: one decomposition serves all such columns.
        """
        X, found, done = wide(X), [], {}
        toward = self._toward(X, Y, pairs)
        for y, difference in zip(Y.T, toward, strict=True):
            key = self._key(y, pairs)
            if key not in done:
                done[key] = principal(self._rows(X, y, groups, polarity, pairs), 1)[0][0]
            v = done[key]
            found.append(-v if difference @ v < 0 else v)
        return np.asarray(found, X.dtype)

    def _rows(
        self,
        X: Float[ndarray, "n d"],
        y: Bool[ndarray, " n"],
        groups: ndarray | None,
        polarity: ndarray | None,
        pairs: ndarray | None,
    ) -> Float[ndarray, "p d"]:
        """Return what the components are of, in float64."""
        if self.of not in OF:
            raise ValueError(f"of={self.of!r}; expected one of {', '.join(OF)}")
        exact = X.astype(np.float64)
        if self.of == "items":
            return center_by(exact, cells(groups, polarity, len(X)))
        weights, pair = pair_weights(y[:, None], needed(pairs, "pairs", "pca"))
        differences = csr_matrix((weights[:, 0], (pair, np.arange(len(X))))) @ exact
        mean = differences.mean(axis=0) if self.of == "centered_differences" else 0.0
        return np.asarray(differences - mean)

    def _toward(
        self, X: Float[ndarray, "n d"], Y: Bool[ndarray, "n m"], pairs: ndarray | None
    ) -> Float[ndarray, "m d"]:
        """Return what gives the sign: the mean difference of pairs, or of the classes."""
        if self.of == "items":
            weights = class_weights(Y)
        else:
            weights, pair = pair_weights(Y, needed(pairs, "pairs", "pca"))
            weights = weights / (pair.max() + 1)
        return np.asarray(weights.T @ X)

    def _key(self, y: Bool[ndarray, " n"], pairs: ndarray | None) -> bytes:
        """Return what labels of the same components share."""
        if self.of == "items":
            return b""
        if self.of == "centered_differences":
            return y.tobytes()
        _, first, pair = np.unique(
            needed(pairs, "pairs", "pca"), return_index=True, return_inverse=True
        )
        return bytes((y ^ y[first][pair]).tobytes())


def principal(
    rows: Float[ndarray, "p d"], k: int
) -> tuple[Float[ndarray, "k d"], Float[ndarray, " k"]]:
    """Return k components about zero, each as long as the root mean square along it, and shares.

    A component's largest coordinate is positive. Done on the smaller of the two Gram matrices.

    Raises:
        ValueError: k is not between 1 and the rank.
    """
    n, d = rows.shape
    gram = (rows @ rows.T if n < d else rows.T @ rows) / n
    total = np.trace(gram)
    last = len(gram) - 1
    if not 1 <= k <= len(gram) or not total > 0:
        raise ValueError(
            f"{k} components of {n} differences or items of width {d}, whose sum of "
            f"squares is {total * n:.3g}; expected 1 to {len(gram)}, above 0"
        )
    sizes, basis = eigh(gram, subset_by_index=(last - k + 1, last))
    sizes, basis = sizes[::-1], basis[:, ::-1]
    if sizes[-1] <= total * len(gram) * np.finfo(np.float64).eps:
        raise ValueError(f"{k} components, but {n} differences or items of width {d} have fewer")
    found = (rows.T @ basis / np.sqrt(n) if n < d else basis * np.sqrt(sizes)).T
    largest = np.take_along_axis(found, np.abs(found).argmax(axis=1)[:, None], axis=1)
    return found * np.sign(largest), sizes / total
