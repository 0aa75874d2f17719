"""What a steering matrix is block by block: lengths, and the angles between blocks and methods."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.directions import Directions, LinearMap
from workbench.types import ndarray

BLOCKS = ("layer", "norm", "share", "cosine_below", "cosine_other")
Matrix = Directions | LinearMap
"""A steering matrix: directions of one name, or a map by the direction that it is about."""


def by_block(matrix: Matrix, other: Matrix | None = None) -> pd.DataFrame:
    """Return a row for each block that a matrix edits: the columns ``BLOCKS``.

    Args:
        matrix: one vector a block.
        other: what it is compared with, over the blocks that both hold.

    Returns:
        ``norm`` in residual units; ``share`` of the mean residual norm, NaN where that is not
        known; ``cosine_below`` with the next lower block that is edited, NaN for the lowest;
        ``cosine_other`` with the same block of ``other``. A zero vector has no cosine.
    """
    own = matrix.vectors[0].astype(np.float64)
    lengths = np.linalg.norm(own, axis=1)
    held = {} if other is None else dict(zip(other.layers, other.vectors[0], strict=True))
    rows = []
    for row, layer in enumerate(matrix.layers):
        norm = matrix.norms[row] if matrix.norms is not None else np.nan
        below = own[row - 1] if row else None
        rows.append({
            "layer": layer,
            "norm": float(lengths[row]),
            "share": float(lengths[row] / norm),
            "cosine_below": _cosine(own[row], below),
            "cosine_other": _cosine(own[row], held.get(layer)),
        })  # fmt: skip
    return pd.DataFrame(rows, columns=list(BLOCKS))


def _cosine(first: Float[ndarray, " d"], second: Float[ndarray, " d"] | None) -> float:
    if second is None:
        return float("nan")
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second.astype(np.float64)) / size if size else float("nan")
