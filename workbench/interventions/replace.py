"""The edit that sets the coordinate along a direction."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from workbench.interventions.precision import along, blend
from workbench.registry import EDITS


@EDITS.register("replace")
@dataclass(frozen=True)
class Replace:
    """Set the coordinate along ``v`` to ``value``, in residual-stream units.

    With the mean coordinate of a reference set it is ablation to the mean; with 0 it is ``ablate``.
    """

    def __call__(
        self,
        h: Float[Tensor, "b t d"],
        v: Float[Tensor, "b d"],
        dose: Float[Tensor, " b"],
        *,
        value: Float[Tensor, " b"],
    ) -> Float[Tensor, "b t d"]:
        return blend(h, value[:, None] - along(h, v), v, dose)
