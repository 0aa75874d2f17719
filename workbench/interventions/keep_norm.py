"""Any edit, with the length of every state restored after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from workbench.interventions.precision import widen
from workbench.types import Edit

ZERO = 1e-6


@dataclass(frozen=True)
class KeepNorm:
    """``edit(h) * |h| / |edit(h)|``, but where the edit leaves less than `ZERO` of the norm.

    What is left there is rounding, with no direction to restore a length along.

    Args:
        edit: what changes the direction of a state.
    """

    edit: Edit

    def __call__(
        self,
        h: Float[Tensor, "b t d"],
        v: Float[Tensor, "b d"],
        dose: Float[Tensor, " b"],
        **parts: Any,
    ) -> Float[Tensor, "b t d"]:
        wide = widen(h)
        edited = self.edit(wide, v, dose, **parts)
        before, after = (x.norm(dim=-1, keepdim=True) for x in (wide, edited))
        ratio = torch.where(after > ZERO * before, before / after, 1)
        return torch.where((dose == 0)[:, None, None], h, (edited * ratio).to(h.dtype))
