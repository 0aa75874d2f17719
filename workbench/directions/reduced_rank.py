"""The ridge map held to r dimensions of what it does."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float

from workbench.directions.cells import needed
from workbench.directions.map_method import MapMethod, refuse_rank
from workbench.directions.ridge_map import paired
from workbench.directions.spectrum import top_axes
from workbench.registry import METHODS
from workbench.types import ndarray


@METHODS.register("reduced_rank")
class ReducedRank(MapMethod):
    """``P_r W``: W of ``ridge_map``, P_r onto the r principal axes of its fitted values ``X W^T``.

    Without a ridge this is the best map of rank r in squared error.

    Args:
        rank: of W; the mean difference in ``b`` comes on top.
        ridge: as for ``ridge_map``; None chooses the whole map's.
    """

    needs: ClassVar[tuple[str, ...]] = ("pairs",)

    def __init__(self, rank: int = 8, ridge: float | None = None) -> None:
        self.rank = rank
        self.ridge = ridge

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> ReducedRank:
        """Fit one layer; W is never laid out whole."""
        refuse_rank(self.rank)
        found = paired(X, y, needed(pairs, "pairs", "reduced_rank"), groups)
        lam, r2 = found.choose(self.ridge)
        U, kept = found.spectrum.U, found.spectrum.shrink(lam)
        axes, _ = top_axes(kept[:, None] * (U.T @ found.D), self.rank)
        right = found.spectrum.solve(found.X, found.D @ axes.T, lam).T
        b = found.shift - axes.T @ (right @ found.mean)
        self._learned((axes.T, right), b, found.shift, {"lam": lam, "r2_left_out_whole": r2})
        return self
