"""Activations of one batch: several reads from one pass, and no block more than needed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from workbench.engine.blocks import check_layers, stopping_after, stopping_before
from workbench.engine.forward import Inputs, device_of, is_out_of_memory, run, too_large
from workbench.engine.pool import SITES, Tap, layers_of, onto, parse_position, token_mask
from workbench.engine.sites import deepest_of, tapping
from workbench.errors import WorkbenchError
from workbench.models.spans import remember_spans
from workbench.types import Batch, Read, Subject

__all__ = ["capture", "gather", "run_taps", "tapping"]


def capture(subject: Subject, batch: Batch, reads: Sequence[Read]) -> list[Tensor | list[Tensor]]:
    """Run the batch once and return what each read asks for, in the order of ``reads``.

    Blocks after the deepest layer read do not run, nor does the LM head. Inside ``intervene``,
    values are those after the edits. A batch in host memory is moved to the device while the
    forward before it may still run there.

    Returns:
        ``Float[l b d]`` for each read, layers in the read's order; for position ``all`` a list
        with ``Float[l t d]`` for each row. Single tokens have the model's dtype, means float32.

    Raises:
        BatchTooLargeError: the device has no room for the batch; a smaller one may fit.
        WorkbenchError: an unknown site, block, position or span, an item whose span is empty, or
            a site that this family does not have.
    """
    if not reads:
        raise ValueError("nothing to read; give at least one Read")
    taps = [_tap(subject, batch, read) for read in reads]
    inputs = _inputs(subject, batch)
    try:
        with torch.no_grad():
            run_taps(subject, inputs, taps)
        return [gather(tap) for tap in taps]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error)
    taps.clear()
    rows, tokens = batch.input_ids.shape
    raise too_large(rows, tokens, reason)


def _inputs(subject: Subject, batch: Batch) -> Inputs:
    """Put a batch on the device; pads that no real token can see need no mask.

    Under causal attention a token sees those before it, so pads on the right reach none, and
    without a mask attention takes its faster kernel. Whoever watches the model's own call still
    gets the mask (``intervene`` tells pads by it).
    """
    home = device_of(subject)
    mask = batch.attention_mask
    watched = (subject.model, subject.model.get_decoder())
    free = not any(module._forward_pre_hooks or module._forward_hooks for module in watched)
    if free and mask.device.type == "cpu" and bool((mask[:, 1:] <= mask[:, :-1]).all()):
        mask = torch.ones_like(mask)
    ids, mask, positions = (
        onto(part, home) for part in (batch.input_ids, mask, batch.position_ids)
    )
    if not free and ids is not batch.input_ids:
        remember_spans(ids, batch.spans)
    return Inputs(ids, mask, positions)


def run_taps(subject: Subject, inputs: Inputs, taps: Sequence[Tap]) -> None:
    """Fill the taps in one forward that ends where the deepest of them has its values.

    Raises:
        WorkbenchError: a block never ran as a module.
    """
    layers = sorted({layer for tap in taps for layer in tap.layers})
    layer, input_alone = deepest_of(taps)
    stopping = stopping_before if input_alone else stopping_after
    with tapping(subject, taps, layers), stopping(subject, layer):
        run(subject, inputs)
    for tap in taps:
        _refuse_unread(subject, tap)


def _refuse_unread(subject: Subject, tap: Tap) -> None:
    unread = [layer for layer in tap.layers if layer not in tap.taken]
    if unread:
        raise WorkbenchError(
            f"block {unread[0]} of {subject.ref.key} never ran as a module, so {tap.read.site} "
            "cannot be read; a model compiled as a whole hides its blocks: compile them one by one "
            "(block.forward = torch.compile(block.forward)) or load it again"
        )


def gather(tap: Tap) -> Tensor | list[Tensor]:
    """Stack what was taken, layers first."""
    taken = [tap.taken[layer] for layer in tap.layers]
    if tap.position.kind != "all":
        home = taken[0].device  # type: ignore[union-attr]
        return torch.stack([value.to(home) for value in taken])  # type: ignore[union-attr]
    home = taken[0][0].device
    return [torch.stack([value.to(home) for value in row]) for row in zip(*taken, strict=True)]


def _tap(subject: Subject, batch: Batch, read: Read) -> Tap:
    position = parse_position(read.position)
    layers = layers_of(read, tuple(sorted(subject.blocks)), SITES)
    check_layers(subject, layers)
    mask = token_mask(position, batch.attention_mask.bool(), batch.spans)
    rows = torch.arange(len(mask), device=mask.device)
    return Tap(read, position, layers, rows, mask)
