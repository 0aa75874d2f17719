"""The edit that moves every state by an affine function of itself."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from workbench.interventions.precision import part_way, widen
from workbench.registry import EDITS


@EDITS.register("linear_map")
@dataclass(frozen=True)
class AffineMap:
    """``h + dose * (W h + b)``, W whole or as ``left @ right``: all rows share one map."""

    def __call__(
        self,
        h: Float[Tensor, "b t d"],
        v: Float[Tensor, "b d"],  # noqa: ARG002  (the axis that the log counts along)
        dose: Float[Tensor, " b"],
        *,
        b: Float[Tensor, " d"],
        W: Float[Tensor, "d d"] | None = None,
        left: Float[Tensor, "d r"] | None = None,
        right: Float[Tensor, "r d"] | None = None,
    ) -> Float[Tensor, "b t d"]:
        wide = widen(h)
        if W is not None:
            return part_way(h, linear(wide, W.to(wide.dtype), b.to(wide.dtype)), dose)
        if left is None or right is None:
            raise ValueError("a linear map needs W, or left and right")
        inner = linear(wide, right.to(wide.dtype))
        return part_way(h, linear(inner, left.to(wide.dtype), b.to(wide.dtype)), dose)
