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

    @property
    def always_there(self) -> bool:
        """Whether every prompt has such a token."""
        return self.kind in ("last", "all") and self.span is None


def parse_position(text: str) -> Position:
    """Read ``last``, ``all``, ``last:SPAN``, ``mean``, ``mean:SPAN[50:]+first`` or ``offset:-2``.

    ``offset:-1`` is the last real token and ``offset:0`` the first; a slice counts the tokens of
    the span.

    Raises:
        ConfigError: it is none of these.
    """
    match = _GRAMMAR.fullmatch(text) if isinstance(text, str) else None
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
    rows = torch.arange(len(mask), device=mask.device)
    return Places(position, rows, mask, h.device).pool(h)


class Places:
    """Where a read's tokens stand in the rows of a forward, worked out once for all blocks.

    From a mask in host memory nothing is asked of the device, so no forward is waited for.

    Args:
        position: what the read wants.
        rows: row of the forward for each row of the mask.
        mask: the tokens, of one row each.
        device: where the values will be.
    """

    def __init__(
        self,
        position: Position,
        rows: Int[Tensor, " b"],
        mask: Bool[Tensor, "b t"],
        device: torch.device,
    ) -> None:
        self.position = position
        self.rows = onto(rows, device)
        if position.single:
            self.columns = onto(mask.int().argmax(1), device)
        elif position.kind == "all":
            self.tokens = [onto(row.nonzero().flatten(), device) for row in mask]
        else:
            first, stop = _extent(mask)
            self.range = slice(first, stop)
            self.mask = onto(mask[:, first:stop], device)
            self.counts = onto(mask.sum(1, keepdim=True), device)
            self.runs = _runs(mask) if device.type == "cpu" else None

    def pool(self, h: Float[Tensor, "r t d"]) -> Float[Tensor, "b d"] | list[Tensor]:
        """See `pool`."""
        if self.position.single:
            return h[self.rows, self.columns]
        if self.position.kind == "all":
            pairs = zip(self._own(h), self.tokens, strict=True)
            return [row.index_select(0, tokens) for row, tokens in pairs]
        return self._sum(self._own(h)) / self.counts

    def _own(self, h: Float[Tensor, "r t d"]) -> Float[Tensor, "b t d"]:
        return h if len(self.rows) == len(h) else h[self.rows]

    def _sum(self, h: Float[Tensor, "b t d"]) -> Float[Tensor, "b d"]:
        """Add tokens in float32 or better, without a copy of ``h`` in that dtype."""
        wide = torch.promote_types(h.dtype, torch.float32)
        if self.runs is not None:
            pairs = zip(h, self.runs, strict=True)
            return torch.stack([row[run].sum(0, dtype=wide) for row, run in pairs])
        zero = h.new_zeros(())
        return torch.where(self.mask[..., None], h[:, self.range], zero).sum(1, dtype=wide)


def onto(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor without waiting for what the device is at."""
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def _extent(mask: Bool[Tensor, "b t"]) -> tuple[int, int]:
    """Return the columns between which all tokens lie; all columns where a device must be asked."""
    if mask.device.type != "cpu":
        return 0, mask.shape[1]
    columns = mask.any(0).nonzero().flatten()
    return int(columns[0]), int(columns[-1]) + 1


def _runs(mask: Bool[Tensor, "b t"]) -> list[slice] | None:
    """Return each row's tokens as one run; None where a row has several."""
    if mask.device.type != "cpu":
        return None
    firsts, counts = mask.int().argmax(1), mask.sum(1)
    lasts = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)
    if not torch.equal(lasts - firsts + 1, counts):
        return None
    return [slice(int(a), int(b) + 1) for a, b in zip(firsts, lasts, strict=True)]


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
    _places: dict[tuple[torch.device, int], Places] = field(
        default_factory=dict, init=False, repr=False
    )

    def take(self, layer: int, h: Float[Tensor, "r t d"], repeats: int = 1) -> None:
        """Keep one block's values, in which each row of the batch stands ``repeats`` times."""
        self.taken[layer] = self.pooled(h, repeats)

    def pooled(self, h: Float[Tensor, "r t d"], repeats: int = 1) -> Tensor | list[Tensor]:
        """Return what the read wants of a block's values."""
        key = h.device, repeats
        if key not in self._places:
            offsets = torch.arange(repeats, device=self.rows.device)
            rows = (self.rows[:, None] * repeats + offsets).flatten()
            mask = self.mask.repeat_interleave(repeats, 0)
            self._places[key] = Places(self.position, rows, mask, h.device)
        return self._places[key].pool(h)


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
