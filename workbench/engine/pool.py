"""Position strings: which tokens of each row a read wants, and how they become one vector."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from workbench.errors import ConfigError
from workbench.types import Read

_GRAMMAR = re.compile(
    r"(?P<kind>last|mean|all|offset)"
    r"(?::(?P<rest>-?\d+|[^\W\d][\w.-]*)(?:\[(?P<start>\d*):(?P<stop>\d*)\])?)?"
    r"(?P<first>\+first)?"
)
SITES = ("resid_post", "resid_pre", "attn_out", "mlp_out")
"""What a capture reads of a block; see `sites`."""


@dataclass(frozen=True)
class Position:
    """A parsed position string."""

    text: str
    kind: str
    """last, mean, all or offset."""
    span: str | None = None
    start: int | None = None
    stop: int | None = None
    first: bool = False
    """Whether a mean keeps the row's first token, the attention sink."""
    offset: int = -1

    @property
    def single(self) -> bool:
        """Whether the read is one token a row, so that its value is kept as it is."""
        return self.kind in ("last", "offset")


def parse_position(text: str) -> Position:
    """Read ``last``, ``all``, ``last:SPAN``, ``mean``, ``mean:SPAN[50:]+first`` or ``offset:-2``.

    ``offset:-1`` is the last real token and ``offset:0`` the first; a slice counts the tokens of
    the span.

    Raises:
        ConfigError: it is none of these.
    """
    match = _GRAMMAR.fullmatch(text)
    if match is None or not _fits(match):
        raise ConfigError(
            f"position {text!r}; expected last, all, last:SPAN, mean:SPAN, mean:SPAN[50:], "
            "offset:-2, with +first to let a mean keep the first token"
        )
    kind, rest = match["kind"], match["rest"]
    first = match["first"] is not None
    if kind == "offset":
        return Position(text, kind, offset=int(rest))
    bounds = [int(match[name]) if match[name] else None for name in ("start", "stop")]
    return Position(text, kind, rest, bounds[0], bounds[1], first)


def _fits(match: re.Match[str]) -> bool:
    kind, rest = match["kind"], match["rest"]
    number = rest is not None and rest.lstrip("-").isdigit()
    sliced, first = match["start"] is not None, match["first"] is not None
    if kind == "offset":
        return number and not sliced and not first
    if kind == "all":
        return rest is None and not first
    return not number and (kind == "mean" or not (sliced or first))


def token_mask(
    position: Position,
    real: Bool[Tensor, "b t"],
    spans: Mapping[str, Bool[Tensor, "b t"]],
    names: Sequence[str] | None = None,
) -> Bool[Tensor, "b t"]:
    """Mark the tokens that a read takes; exactly one a row where it is single.

    Args:
        position: which tokens.
        real: false on pads.
        spans: named parts of each row.
        names: of the rows, for messages; their numbers where left out.

    Raises:
        ConfigError: a span that the batch lacks, or a row in which nothing is left.
    """
    if position.kind == "offset":
        mask = _at_offset(position.offset, real)
    else:
        mask = _in_span(position, real, spans)
    if position.kind == "last":
        mask = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    if position.kind == "mean" and not position.first:
        mask = mask & (real.cumsum(1) > 1)
    _refuse_empty(position, mask, names)
    return mask


def _at_offset(offset: int, real: Bool[Tensor, "b t"]) -> Bool[Tensor, "b t"]:
    if offset < 0:
        return real & (real.flip(1).cumsum(1).flip(1) == -offset)
    return real & (real.cumsum(1) == offset + 1)


def _in_span(
    position: Position, real: Bool[Tensor, "b t"], spans: Mapping[str, Bool[Tensor, "b t"]]
) -> Bool[Tensor, "b t"]:
    if position.span is None:
        mask = real
    elif position.span in spans:
        mask = spans[position.span] & real
    else:
        raise ConfigError(
            f"position {position.text!r}: no span {position.span!r} in these prompts; "
            f"spans: {', '.join(sorted(spans)) or 'none'}"
        )
    number = mask.cumsum(1) - 1
    if position.start is not None:
        mask = mask & (number >= position.start)
    if position.stop is not None:
        mask = mask & (number < position.stop)
    return mask


def _refuse_empty(
    position: Position, mask: Bool[Tensor, "b t"], names: Sequence[str] | None
) -> None:
    empty = (~mask.any(1)).nonzero().flatten().tolist()
    if empty:
        span = f"span {position.span!r}" if position.span else "the prompt"
        item = f"item {names[empty[0]]!r}" if names else f"item {empty[0]} of the batch"
        raise ConfigError(
            f"position {position.text!r}: {span} has no token left in {item} ({len(empty)} of "
            f"{len(mask)} items); choose another position, or drop these items. A mean leaves the "
            "first token of a row out unless +first is added"
        )


def pool(
    h: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"], position: Position
) -> Float[Tensor, "b d"] | list[Tensor]:
    """Take one vector a row, or for ``all`` the row's tokens; never a view of ``h``.

    Single tokens keep their dtype bit for bit; means are float32 or better.
    """
    if position.kind == "all":
        return [row[keep] for row, keep in zip(h, mask, strict=True)]
    if position.single:
        return h[torch.arange(len(h), device=h.device), mask.int().argmax(1)]
    wide = h.to(torch.promote_types(h.dtype, torch.float32))
    weights = mask.to(wide.dtype)
    kept = torch.where(mask[..., None], wide, 0)
    return torch.einsum("btd,bt->bd", kept, weights) / weights.sum(1, keepdim=True)


@dataclass
class Tap:
    """A read over some rows of a batch, filled layer by layer while the model runs."""

    read: Read
    position: Position
    layers: tuple[int, ...]
    rows: Int[Tensor, " b"]
    """Rows of the batch that want it."""
    mask: Bool[Tensor, "b t"]
    """Their tokens."""
    taken: dict[int, Tensor | list[Tensor]] = field(default_factory=dict)

    def take(self, layer: int, h: Float[Tensor, "r t d"], repeats: int = 1) -> None:
        """Keep one block's values, in which each row of the batch stands ``repeats`` times."""
        self.taken[layer] = self.pooled(h, repeats)

    def pooled(self, h: Float[Tensor, "r t d"], repeats: int = 1) -> Tensor | list[Tensor]:
        """Return what the read wants of a block's values."""
        rows = (
            self.rows[:, None] * repeats + torch.arange(repeats, device=self.rows.device)
        ).flatten()
        mask = self.mask.repeat_interleave(repeats, 0)
        whole = len(rows) == len(h)
        chosen = h if whole else h[rows.to(h.device)]
        return pool(chosen, mask.to(h.device), self.position)


def layers_of(
    read: Read, known: tuple[int, ...], sites: Sequence[str] = SITES[:1]
) -> tuple[int, ...]:
    """Return the layers that a read names; none named means every block.

    Raises:
        ConfigError: a site that is not among ``sites``.
    """
    if read.site not in sites:
        elsewhere = "; wb.capture reads it" if read.site in SITES else ""
        raise ConfigError(f"site {read.site!r}; read here: {', '.join(sites)}{elsewhere}")
    return read.layers or known
