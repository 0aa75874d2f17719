"""Prompts before their first new token: blocks below the edits run once for rows that are equal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from workbench.engine.apply import edits_on
from workbench.engine.batches import ENOUGH, chunks_of
from workbench.engine.blocks import stopping_after, with_hidden
from workbench.engine.cache import fresh_cache, why_plain
from workbench.engine.forward import Inputs, run
from workbench.engine.room import hold, roomy_cache
from workbench.engine.trunk import Trunk, from_trunk, run_trunk
from workbench.types import Rendered, Subject

LEAST = ENOUGH
"""Tokens of prompts below which two forwards for one are no gain."""


def prefilled(
    subject: Subject, inputs: Inputs, rows: Sequence[Rendered], max_new_tokens: int
) -> Any:
    """Return a cache to generate with: empty, or of all columns of the prompts but the last.

    It holds prompts where several rows in turn are the same one, as the arms of an ``intervene``
    are: blocks up to the lowest edited one then run once for them all.

    Args:
        subject: the model under study, edited or not.
        inputs: the rows, padded on the left.
        rows: the same, as they were rendered.
        max_new_tokens: room to leave.

    Returns:
        None where the family or the model's settings want another cache than a growing one.
    """
    config = getattr(subject.model, "generation_config", None)
    static = getattr(config, "cache_implementation", None) is not None
    if static or getattr(config, "use_cache", True) is False or why_plain(subject) is not None:
        return None
    columns = inputs.ids.shape[1]
    cache = roomy_cache(subject, columns + max_new_tokens)
    times, fork = together(rows), _fork(subject)
    if times == 1 or fork is None or columns < 2 or len(rows) * columns < LEAST:
        return cache
    with torch.no_grad():
        _fill(subject, inputs, times, fork, cache)
    return cache


def together(rows: Sequence[Rendered]) -> int:
    """Return the largest number n such that rows in turn, n by n, are the same prompt."""
    spans = [sorted((name, tuple(own)) for name, own in row.spans.items()) for row in rows]
    keys = [(tuple(row.ids), tuple(own)) for row, own in zip(rows, spans, strict=True)]
    return math.gcd(*(len(list(run)) for _, run in itertools.groupby(keys)))


def _fork(subject: Subject) -> int | None:
    """Return the lowest edited block; None where nobody edits, or others watch blocks up to it.

    A foreign hook would see rows of the trunk, and then stand-ins.
    """
    edits = edits_on(subject)
    own = [layer for editing in edits for layer in editing.live.layers]
    if not own:
        return None
    fork = min(own)
    for layer in range(fork + 1):
        block = subject.blocks[layer]
        hooks = sum(
            len(part._forward_hooks) + len(part._forward_pre_hooks) for part in block.modules()
        )
        if hooks > own.count(layer):
            return None
    return fork


def _fill(subject: Subject, inputs: Inputs, times: int, fork: int, cache: Any) -> None:
    """Run all columns but the last: the trunk once for equal rows, what is above for each row."""
    once, below = _part(inputs, slice(None, None, times)), fresh_cache(subject)
    with ExitStack() as stack:
        for editing in edits_on(subject):
            stack.enter_context(editing.calls.pausing())
        trunk = run_trunk(subject, once, fork, below)
    parts = []
    for groups in chunks_of(len(once.ids), _at_once(once, times)):
        part = fresh_cache(subject)
        rows = slice(groups.start * times, groups.stop * times)
        own = with_hidden(trunk.output, trunk.h[groups.start : groups.stop])
        with ExitStack() as stack:
            for editing in edits_on(subject):
                stack.enter_context(editing.calls.prompted(inputs.ids, inputs.mask, rows))
            stack.enter_context(from_trunk(subject, Trunk(fork, own), times))
            stack.enter_context(stopping_after(subject, max(subject.blocks)))
            run(subject, _part(inputs, rows), part)
        parts.append(part)
    for number in range(len(cache.layers)):
        if number <= fork:
            below.layers[number].batch_repeat_interleave(times)
            hold(cache, number, [below.layers[number]])
        else:
            hold(cache, number, [part.layers[number] for part in parts])


def _at_once(once: Inputs, times: int) -> int:
    """Return of how many different rows the copies run together above the trunk.

    A processor is fastest where what passes between modules stays in its caches.
    """
    tokens = ENOUGH if once.ids.device.type == "cpu" else 4 * ENOUGH
    return max(1, tokens // (times * once.ids.shape[1]))


def _part(inputs: Inputs, rows: slice) -> Inputs:
    """Return some rows without their last column."""
    ids, mask, positions = (part[rows, :-1] for part in (inputs.ids, inputs.mask, inputs.positions))
    return Inputs(ids, mask, positions, full=inputs.full)
