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
    v = v.to(moved.dtype)
    edited = torch.addcmul(h, (dose[:, None] * moved)[..., None], v[:, None])
    return torch.where((dose == 0)[:, None, None], h, edited.to(h.dtype))


def part_way(
    h: Float[Tensor, "b t d"], shift: Float[Tensor, "b t d"], dose: Float[Tensor, " b"]
) -> Float[Tensor, "b t d"]:
    """Return ``h + dose * shift`` in the dtype of ``h``; rows with dose 0 bit for bit."""
    edited = torch.addcmul(h, dose.to(shift.dtype)[:, None, None], shift)
    return torch.where((dose == 0)[:, None, None], h, edited.to(h.dtype))


def along(h: Float[Tensor, "b t d"], v: Float[Tensor, "b d"]) -> Float[Tensor, "b t"]:
    """Return the coordinate of ``h`` along ``v``."""
    wide = widen(h)
    return torch.einsum("btd,bd->bt", wide, v.to(wide.dtype))
