"""The edit that scales the coordinate along a direction."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from workbench.interventions.precision import along, blend
from workbench.registry import EDITS


@EDITS.register("rescale")
@dataclass(frozen=True)
class Rescale:
    """Multiply the coordinate along ``v`` by ``factor``: 1 changes nothing, 0 ablates."""

    def __call__(
        self,
        h: Float[Tensor, "b t d"],
        v: Float[Tensor, "b d"],
        dose: Float[Tensor, " b"],
        *,
        factor: Float[Tensor, " b"],
    ) -> Float[Tensor, "b t d"]:
        return blend(h, (factor[:, None] - 1) * along(h, v), v, dose)
