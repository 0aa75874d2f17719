"""The edit that shifts the residual stream along a direction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from workbench.interventions.precision import widen
from workbench.registry import EDITS


@EDITS.register("add")
@dataclass(frozen=True)
class Add:
    """``h + dose * v``: the dose is in residual-stream units, since ``v`` is a unit vector."""

    def __call__(
        self, h: Float[Tensor, "b t d"], v: Float[Tensor, "b d"], dose: Float[Tensor, " b"]
    ) -> Float[Tensor, "b t d"]:
        shift = widen(dose[:, None] * v)
        edited = (h + shift[:, None]).to(h.dtype)  # in float32 where h is narrower
        return torch.where((dose == 0)[:, None, None], h, edited)
