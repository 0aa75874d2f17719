"""The arithmetic that every edit shares: computed wide, returned narrow, untouched at dose zero."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def widen(h: Tensor) -> Tensor:
    """Return ``h`` in float32, or in its own dtype where that is finer."""
    return h.to(torch.promote_types(h.dtype, torch.float32))


def blend(
    h: Float[Tensor, "b t d"],
    moved: Float[Tensor, "b t"],
    v: Float[Tensor, "b d"],
    dose: Float[Tensor, " b"],
) -> Float[Tensor, "b t d"]:
    """Return ``h + dose * moved * v`` in the dtype of ``h``; rows with dose 0 bit for bit."""
    wide = widen(h)
    edited = wide + (dose[:, None] * moved)[..., None] * v[:, None]
    return torch.where((dose == 0)[:, None, None], h, edited.to(h.dtype))


def along(h: Float[Tensor, "b t d"], v: Float[Tensor, "b d"]) -> Float[Tensor, "b t"]:
    """Return the coordinate of ``h`` along ``v``."""
    return torch.einsum("btd,bd->bt", widen(h), v.to(widen(h).dtype))
