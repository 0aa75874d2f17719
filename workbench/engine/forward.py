"""One forward of the model: its inputs, padded rows, and a head that runs where it is asked."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from workbench.errors import WorkbenchError
from workbench.models import input_device
from workbench.types import Subject

_FULL = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


class BatchTooLargeError(WorkbenchError, torch.OutOfMemoryError):
    """A batch did not fit the device's memory; fewer rows or tokens at once may."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a forward failed for want of memory, on any device and in any allocator's words."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    words = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in words for part in _FULL)


def too_large(
    rows: int, tokens: int, reason: str, then: str = "give fewer rows or tokens at once"
) -> BatchTooLargeError:
    """Return the error for a batch that does not fit, once what it held is free.

    Call it after the handler of the first error, which holds the batch's tensors, has ended.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    line = reason.strip().splitlines()[0] if reason.strip() else "out of memory"
    return BatchTooLargeError(
        f"a batch of {rows} rows of up to {tokens} tokens does not fit the device's memory "
        f"({line}); {then}"
    )


@dataclass(frozen=True)
class Inputs:
    """Token ids of some rows, what they may attend to, and where they stand."""

    ids: Int[Tensor, "b t"]
    mask: Shaped[Tensor, "b ..."]
    """1 on real tokens, over cached and new columns; or an additive mask (b, 1, t, s)."""
    positions: Int[Tensor, "b t"]
    full: bool = field(default=False, kw_only=True)
    """Known to hold no pad, so that nobody need ask the device."""

    def repeat(self, times: int) -> Inputs:
        """Repeat each row, copies of a row side by side."""
        ids, mask, positions = (
            part.repeat_interleave(times, 0) for part in (self.ids, self.mask, self.positions)
        )
        return Inputs(ids, mask, positions, full=self.full)


def positions_of(mask: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
    """Count real tokens from 0; 0 on pads."""
    return (mask.cumsum(1) - 1).clamp(min=0) * mask


def device_of(subject: Subject) -> torch.device:
    """Where token ids go: the device of the embedding, also of one whose weights are on disk."""
    return input_device(subject.model)


def dtype_of(subject: Subject) -> torch.dtype:
    """Return the dtype of hidden states: that of the embedding."""
    dtype: torch.dtype = subject.model.get_input_embeddings().weight.dtype
    return dtype


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> Inputs:
    """Pad rows of ids on the left."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, width - len(row) :] = torch.tensor(row)
        mask[number, width - len(row) :] = 1
    full = all(len(row) == width for row in rows)
    return Inputs(ids.to(device), mask.to(device), positions_of(mask).to(device), full=full)


def pad_id(subject: Subject) -> int:
    """Return an id to fill pads with; its value reaches no number, since pads are masked."""
    for token in (subject.tokenizer.pad_token_id, subject.tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def run(subject: Subject, inputs: Inputs, cache: Any = None) -> Any:
    """Run the model's own forward; position ids go along wherever the family takes them.

    With a cache, rows without pads go without a mask: a model looks for pads in a mask that it is
    given, which waits for the device.
    """
    kwargs: dict[str, Any] = {"use_cache": cache is not None}
    if cache is not None:
        kwargs["past_key_values"] = cache
    if _takes_positions(forward_of(subject.model)):
        kwargs["position_ids"] = inputs.positions
    mask = None if inputs.full and cache is not None else inputs.mask
    return subject.model(input_ids=inputs.ids, attention_mask=mask, **kwargs)


@contextmanager
def head_at(
    subject: Subject, rows: Int[Tensor, " p"], columns: Int[Tensor, " p"]
) -> Iterator[None]:
    """Run the LM head at these (row, column) positions alone; logits come as (1, p, v).

    The head's input is gathered, so that caps and scales that the model puts on its logits stay.
    """

    def gather(_module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        h = args[0]
        return (h[rows.to(h.device), columns.to(h.device)][None], *args[1:])

    handle = subject.model.get_output_embeddings().register_forward_pre_hook(gather)
    try:
        yield
    finally:
        handle.remove()


def forward_of(model: Any) -> Any:
    """Return the forward whose signature the model has, below an adapter or torch.compile."""
    model = getattr(model, "_orig_mod", model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return type(base).forward


@functools.cache
def _takes_positions(forward: Any) -> bool:
    return "position_ids" in inspect.signature(forward).parameters
