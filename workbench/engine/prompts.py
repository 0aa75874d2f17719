"""A batch of requests: padded prompts, the trees of their candidates, and their residual reads."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from workbench.engine.batches import Batch, Unit
from workbench.engine.blocks import check_layers
from workbench.engine.branch import Scope
from workbench.engine.candidates import Tree, grow, wants_logits
from workbench.engine.forward import Inputs, device_of, pad_id, pad_left, positions_of
from workbench.engine.pool import SITES, Tap, layers_of, parse_position, token_mask
from workbench.interventions.scope import parse_scope, tokens_of
from workbench.types import Read, Request, Subject

Ranges = Mapping[str, tuple[tuple[int, int], ...]]
"""Half-open token ranges of an unpadded row, by the name of the span."""


@dataclass(frozen=True)
class Prompts:
    """Requests that go through the model together, padded on the left.

    Where they share beginnings, these come first, padded on the left, and then the rests, padded on
    the left too; ``inputs`` has both side by side.
    """

    numbers: list[int]
    """Their places in the caller's list."""
    requests: list[Request]
    inputs: Inputs
    trees: list[Tree]
    heads: list[int]
    """Rows that need next-token probabilities."""
    taps: list[Tap]
    cut: int = 0
    """Columns of the beginnings."""
    prefixes: Int[Tensor, " b"] | None = None
    """For each prompt, its row among the beginnings."""

    @functools.cached_property
    def scope(self) -> Scope:
        """Where edits act on the prompts."""
        named = [request.spans for request in self.requests]
        return scope_over(named, self.inputs.mask, self.width)

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        """Real tokens of each prompt."""
        lengths: Tensor = self.inputs.mask.sum(1)
        return lengths

    @property
    def width(self) -> int:
        return int(self.inputs.ids.shape[1])


def prompts_of(
    subject: Subject, requests: Sequence[Request], batch: Batch, beginnings: Beginnings | None
) -> Prompts:
    """Pad some of the requests into one batch.

    Raises:
        WorkbenchError: a residual read of an unknown site, block or span, or of an empty span.
    """
    chosen = [requests[number] for number in batch.numbers]
    rows = None
    if beginnings is None:
        inputs = pad_left([one.ids for one in chosen], pad_id(subject), device_of(subject))
    else:
        rows = torch.tensor(batch.prefixes, device=beginnings.inputs.ids.device)
        inputs = _joined(subject, chosen, beginnings, batch.prefixes, rows)
    return Prompts(
        numbers=list(batch.numbers),
        requests=chosen,
        inputs=inputs,
        trees=[grow(request.reads) for request in chosen],
        heads=[row for row, request in enumerate(chosen) if wants_logits(request.reads)],
        taps=_taps(subject, chosen, inputs),
        cut=0 if beginnings is None else int(beginnings.inputs.ids.shape[1]),
        prefixes=rows,
    )


@dataclass(frozen=True)
class Beginnings:
    """Shared beginnings of prompts, padded on the left."""

    inputs: Inputs
    lengths: tuple[int, ...]
    scope: Scope
    """Where edits act, alike in all prompts that share a beginning."""


def beginnings_of(subject: Subject, requests: Sequence[Request], unit: Unit) -> Beginnings | None:
    """Pad the prefixes of a unit into one batch; None where there are none."""
    if not unit.prefixes:
        return None
    inputs = pad_left(unit.prefixes, pad_id(subject), device_of(subject))
    member = {
        place: number
        for batch in unit.batches
        for place, number in zip(batch.prefixes, batch.numbers, strict=True)
    }
    named = [requests[member[place]].spans for place in range(len(unit.prefixes))]
    scope = scope_over(named, inputs.mask, inputs.ids.shape[1], ended=False)
    return Beginnings(inputs, tuple(map(len, unit.prefixes)), scope)


def _joined(
    subject: Subject,
    requests: Sequence[Request],
    beginnings: Beginnings,
    places: Sequence[int],
    rows: Int[Tensor, " b"],
) -> Inputs:
    rests = [
        request.ids[beginnings.lengths[place] :]
        for request, place in zip(requests, places, strict=True)
    ]
    rest = pad_left(rests, pad_id(subject), device_of(subject))
    mask = torch.cat([beginnings.inputs.mask[rows], rest.mask], 1)
    ids = torch.cat([beginnings.inputs.ids[rows], rest.ids], 1)
    return Inputs(ids, mask, positions_of(mask), full=beginnings.inputs.full and rest.full)


def _taps(subject: Subject, requests: Sequence[Request], inputs: Inputs) -> list[Tap]:
    wanted: dict[Read, list[int]] = {}
    for row, request in enumerate(requests):
        for read in dict.fromkeys(request.reads):
            if isinstance(read, Read):
                wanted.setdefault(read, []).append(row)
    return [_tap(subject, read, rows, requests, inputs) for read, rows in wanted.items()]


def _tap(
    subject: Subject,
    read: Read,
    rows: Sequence[int],
    requests: Sequence[Request],
    inputs: Inputs,
) -> Tap:
    layers = layers_of(read, tuple(sorted(subject.blocks)), SITES)
    check_layers(subject, layers)
    position = parse_position(read.position)
    index = torch.tensor(rows, device=inputs.ids.device)
    chosen = [requests[row] for row in rows]
    names = [f"{request.item} ({request.condition})" for request in chosen]
    spans = placed_spans([request.spans for request in chosen], inputs.mask[index])
    mask = token_mask(position, inputs.mask[index].bool(), spans, names)
    return Tap(read, position, layers, index, mask)


def scope_over(
    spans: Sequence[Ranges],
    mask: Int[Tensor, "b t"],
    prompt: int | Int[Tensor, " b"],
    *,
    ended: bool = True,
) -> Scope:
    """Return where edits act on whole rows, each scope looked at once.

    Args:
        spans: of each row, unpadded.
        mask: 1 on real tokens.
        prompt: columns that hold the prompt.
        ended: whether the prompt's last token is among them.
    """

    @functools.cache
    def within(name: str) -> Bool[Tensor, "b t"]:
        named = parse_scope(name).spans
        tokens = tokens_of(mask, mask.shape[1], prompt, placed_spans(spans, mask, named))
        final = tokens.final if ended else torch.zeros_like(tokens.final)
        return replace(tokens, final=final).within(name)

    return within


def placed_spans(
    spans: Sequence[Ranges], mask: Int[Tensor, "b t"], names: Collection[str] | None = None
) -> dict[str, Bool[Tensor, "b t"]]:
    """Move token ranges of unpadded rows to where padding put them; ``names`` alone, or all."""
    if names is not None and not names:
        return {}
    real = mask.bool().cpu()
    place = real.cumsum(1) - 1
    found: dict[str, Tensor] = {}
    for row, named in enumerate(spans):
        for name, ranges in named.items():
            if names is not None and name not in names:
                continue
            flags = found.setdefault(name, torch.zeros(mask.shape, dtype=torch.bool))
            for start, stop in ranges:
                flags[row] |= real[row] & (place[row] >= start) & (place[row] < stop)
    return {name: flags.to(mask.device) for name, flags in found.items()}
