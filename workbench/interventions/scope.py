"""Where in a row an edit acts: scope names turned into masks over the tokens of one pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from workbench.errors import unknown


def scope_mask(
    scope: str, attention_mask: Shaped[Tensor, "b s"], t: int, prompt: int | Tensor | None = None
) -> Bool[Tensor, "b t"]:
    """Return which of the last ``t`` columns an edit of this scope may touch; never a pad.

    Positions are absolute: they are counted over the whole mask, cached tokens included, so the
    same token is treated alike in a prefill, in a chunk of one and in a decoding step.

    Args:
        scope: ``all`` (real tokens but each row's first), ``all+first``, or ``last`` (the final
            prompt token and every decoded one).
        attention_mask: 1 on real tokens, over cached and new columns.
        t: number of new columns.
        prompt: number of columns that hold the prompt, for all rows or by row. Left out: all
            columns where nothing is cached, else the cached ones, so that every new token counts
            as decoded.

    Raises:
        UnknownNameError: there is no such scope.
    """
    check_scope(scope)
    real = attention_mask.bool()
    start = real.shape[1] - t
    width = (start or real.shape[1]) if prompt is None else prompt
    width = width[:, None] if isinstance(width, Tensor) else width
    return (real & _SCOPES[scope](real, width))[:, start:]


def check_scope(scope: str) -> None:
    """Refuse a scope that nobody knows.

    Raises:
        UnknownNameError: there is no such scope; the known ones are listed.
    """
    if scope not in _SCOPES:
        raise unknown("scope", scope, _SCOPES)


def _but_first(real: Tensor, _width: int | Tensor) -> Tensor:
    return real.cumsum(1) > 1


def _everywhere(real: Tensor, _width: int | Tensor) -> Tensor:
    return real


def _from_last(real: Tensor, width: int | Tensor) -> Tensor:
    column = torch.arange(real.shape[1], device=real.device)
    final = torch.where(real & (column < width), column, -1).amax(1, keepdim=True)
    return column >= final


_SCOPES: dict[str, Callable[[Tensor, int | Tensor], Tensor]] = {
    "all": _but_first,
    "all+first": _everywhere,
    "last": _from_last,
}
SCOPES = tuple(_SCOPES)
