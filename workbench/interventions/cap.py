"""The edit that keeps the coordinate along a direction inside a band."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from workbench.interventions.precision import along, blend
from workbench.registry import EDITS


@EDITS.register("cap")
@dataclass(frozen=True)
class Cap:
    """Clamp the coordinate along ``v`` to [floor, ceiling]; inside it, change nothing.

    ``dose`` blends: 0 leaves ``h`` as it is, 1 is the full cap (Lu et al. 2026, eq. 1). A floor
    along ``v`` is a ceiling along ``-v`` with the sign turned. -inf and +inf switch a side off.
    """

    def __call__(
        self,
        h: Float[Tensor, "b t d"],
        v: Float[Tensor, "b d"],
        dose: Float[Tensor, " b"],
        *,
        floor: Float[Tensor, " b"],
        ceiling: Float[Tensor, " b"],
    ) -> Float[Tensor, "b t d"]:
        coordinate = along(h, v)
        moved = coordinate.clamp(floor[:, None], ceiling[:, None]) - coordinate
        return blend(h, moved, v, dose)
