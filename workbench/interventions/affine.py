"""The edit that scales and shifts the coordinate along a direction."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from workbench.interventions.precision import along, blend
from workbench.registry import EDITS


@EDITS.register("affine")
@dataclass(frozen=True)
class Affine:
    """Make the coordinate ``c`` along ``v`` into ``scale * c + offset`` (residual-stream units)."""

    def __call__(
        self,
        h: Float[Tensor, "b t d"],
        v: Float[Tensor, "b d"],
        dose: Float[Tensor, " b"],
        *,
        scale: Float[Tensor, " b"],
        offset: Float[Tensor, " b"],
    ) -> Float[Tensor, "b t d"]:
        moved = (scale[:, None] - 1) * along(h, v) + offset[:, None]
        return blend(h, moved, v, dose)
