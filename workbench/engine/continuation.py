"""Candidates as forwards after a batch of prompts: on its cache, or as whole strings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from workbench.engine.batches import CACHED, Limits, packed
from workbench.engine.branch import Scope
from workbench.engine.cache import attends_fully, chosen_rows
from workbench.engine.candidates import Feed, Line, feed, lines_of
from workbench.engine.forward import Inputs, device_of, pad_id, pad_left
from workbench.engine.prompts import Prompts, scope_over
from workbench.engine.trunk import Trunk, run_trunk
from workbench.interventions.scope import Tokens
from workbench.types import Subject


@dataclass(frozen=True)
class Continuation:
    """One forward that scores candidates."""

    inputs: Inputs
    scope: Scope
    counted: Bool[Tensor, "f w"]
    where: dict[tuple[int, int], tuple[int, int]]
    """(prompt, node) -> (row, column)."""
    prompts: Int[Tensor, " f"] | None = None
    """Rows of the prompts' cache that the rows continue; None for whole strings."""
    trunk: Trunk | None = None


def cached_continuations(
    subject: Subject,
    prompts: Prompts,
    n_arms: int,
    limits: Limits,
    trunk_cache: Any,
    fork: int | None,
) -> Iterator[Continuation]:
    """Feed candidates on the prompts' cache; blocks up to ``fork`` run here, once for all arms.

    Where every block attends fully, all candidates of a prompt share one row, each token seeing
    its own beginning alone; elsewhere each candidate has a row.
    """
    widest = max(len(tree.tokens) for tree in prompts.trees)
    whole = attends_fully(subject) and widest * n_arms <= limits.positions
    lines = lines_of(prompts.trees, whole)
    columns = prompts.width

    def fits(rows: int, width: int, total: int) -> bool:
        fed, cached = rows * width, rows * (columns + width)
        head = total * n_arms <= limits.positions
        return head and max(fed, cached / CACHED) * n_arms <= limits.budget

    seen: set[tuple[int, int]] = set()
    for members in packed([len(nodes) for _, nodes in lines], fits):
        fed = feed(
            prompts.trees,
            [lines[member] for member in members],
            whole=whole,
            pad=pad_id(subject),
            device=prompts.inputs.ids.device,
            seen=seen,
        )
        yield _cached(subject, prompts, fed, trunk_cache, fork)


def _cached(
    subject: Subject, prompts: Prompts, fed: Feed, trunk_cache: Any, fork: int | None
) -> Continuation:
    inputs = _after(subject, prompts, fed)
    trunk = None
    if fork is not None:
        blocks = range(fork + 1)
        cache = chosen_rows(subject, trunk_cache, fed.prompts, blocks, prompts.width)
        trunk = run_trunk(subject, inputs, fork, cache)
    tokens = Tokens(
        real=fed.real,
        place=inputs.positions,
        decoded=torch.ones_like(fed.real),
        final=torch.zeros_like(fed.real),
        spans={},
    )
    return Continuation(inputs, tokens.within, fed.counted, fed.where, fed.prompts, trunk)


def _after(subject: Subject, prompts: Prompts, fed: Feed) -> Inputs:
    past = prompts.inputs.mask[fed.prompts]
    positions = prompts.lengths[fed.prompts][:, None] + fed.depths
    if fed.sees is None:
        return Inputs(fed.ids, torch.cat([past, fed.real.to(past.dtype)], 1), positions)
    w = fed.ids.shape[1]
    allowed = torch.cat([past.bool()[:, None].expand(-1, w, -1), fed.sees], 2)
    dtype = subject.model.get_input_embeddings().weight.dtype
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    mask.masked_fill_(~allowed, torch.finfo(dtype).min)
    return Inputs(fed.ids, mask[:, None], positions)


def whole_strings(
    subject: Subject, prompts: Prompts, n_arms: int, limits: Limits
) -> Iterator[Continuation]:
    """Feed each candidate behind its whole prompt: the plain way, right for every family."""
    lines = lines_of(prompts.trees, whole=False)
    lengths = [len(prompts.requests[prompt].ids) + len(nodes) for prompt, nodes in lines]

    def fits(rows: int, width: int, _total: int) -> bool:
        heads = rows * max(len(nodes) for _, nodes in lines)
        return max(rows * width / limits.budget, heads / limits.positions) * n_arms <= 1

    seen: set[tuple[int, int]] = set()
    for members in packed(lengths, fits):
        yield _whole(subject, prompts, [lines[member] for member in members], seen)


def _whole(
    subject: Subject, prompts: Prompts, lines: list[Line], seen: set[tuple[int, int]]
) -> Continuation:
    rows = [
        [*prompts.requests[prompt].ids, *(prompts.trees[prompt].tokens[node] for node in nodes)]
        for prompt, nodes in lines
    ]
    inputs = pad_left(rows, pad_id(subject), device_of(subject))
    t = inputs.ids.shape[1]
    counted = torch.zeros(inputs.ids.shape, dtype=torch.bool)
    where: dict[tuple[int, int], tuple[int, int]] = {}
    for row, (prompt, nodes) in enumerate(lines):
        for place, node in enumerate(nodes):
            if (prompt, node) not in seen:
                seen.add((prompt, node))
                where[prompt, node] = (row, t - len(nodes) + place)
                counted[where[prompt, node]] = True
    ends = torch.tensor([t - len(nodes) for _, nodes in lines], device=inputs.ids.device)
    scope = scope_over([prompts.requests[p].spans for p, _ in lines], inputs.mask, ends)
    return Continuation(inputs, scope, counted.to(inputs.ids.device), where)
