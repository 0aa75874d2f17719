"""The edit that removes the component along a direction."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from workbench.interventions.precision import along, blend
from workbench.registry import EDITS


@EDITS.register("ablate")
@dataclass(frozen=True)
class Ablate:
    """``h - dose * (h . v) v``: dose 0 changes nothing, 1 removes the component."""

    def __call__(
        self, h: Float[Tensor, "b t d"], v: Float[Tensor, "b d"], dose: Float[Tensor, " b"]
    ) -> Float[Tensor, "b t d"]:
        return blend(h, -along(h, v), v, dose)
