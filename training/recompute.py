"""Which blocks compute their activations again in the backward pass: as few as memory demands."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from workbench.errors import ConfigError
from workbench.models.families import find_blocks

logger = logging.getLogger(__name__)

SPARE = 0.04
"""Part of the memory that stays free: allocators do not fill the last gaps."""
ADAM = 8
"""Bytes that AdamW keeps for one float32 weight."""


@dataclass
class Recomputing:
    """The blocks of a model, of which the first ``count`` recompute."""

    blocks: list[Any]
    count: int

    def __len__(self) -> int:
        return len(self.blocks)


@contextlib.contextmanager
def recomputing(model: Any, count: int, *, compiled: bool = False) -> Iterator[Recomputing]:
    """Let the first blocks recompute, as many as ``count`` of what this yields says at the time.

    The first ones, because theirs is the last turn in the backward pass, when the others' memory
    is free again.

    Args:
        model: a network, wrapped or not.
        count: blocks at the start.
        compiled: compile each block's forward too.
    """
    state = Recomputing(list(find_blocks(model).values()), count)
    for place, block in enumerate(state.blocks):
        inner = torch.compile(block.forward) if compiled else block.forward
        block.forward = functools.partial(_run, state, place, inner)
    try:
        yield state
    finally:
        for block in state.blocks:
            del block.forward


def _run(state: Recomputing, place: int, inner: Callable[..., Any], *args: Any, **more: Any) -> Any:
    if place < state.count and torch.is_grad_enabled():
        return checkpoint(inner, *args, use_reentrant=False, **more)
    return inner(*args, **more)


@dataclass(frozen=True)
class Step:
    """One batch forward and backward, as the loop will do it."""

    forward: Callable[[], torch.Tensor]
    parameters: list[torch.nn.Parameter]
    """Those that are trained."""

    def run(self) -> None:
        torch.autograd.backward(self.forward())

    def clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        gc.collect()
        torch.cuda.empty_cache()


def fit_to_memory(state: Recomputing, step: Step, device: torch.device, *, extra: int = 0) -> None:
    """Set ``state.count`` to the fewest blocks with which a step fits the device; CUDA alone.

    A step that recomputes every block says what the rest needs, and one that keeps two blocks
    what each of them adds. The choice is tried before it counts.

    Args:
        state: of the model under ``recomputing``.
        step: one batch; its gradients are dropped again.
        device: where the model is.
        extra: bytes that training needs beside, such as buffers of other processes' gradients.

    Raises:
        ConfigError: not even a step that recomputes every block fits.
    """
    blocks = len(state)
    adam = extra + ADAM * sum(p.numel() for p in step.parameters)
    with torch.random.fork_rng(devices=[device]):
        state.count = blocks
        if not _fits(step, device, adam):
            raise ConfigError(
                "one batch does not fit the device's memory though every block recomputes; lower "
                "batch_size and raise accumulation by as much, or lower block"
            )
        peak, room = _peak_and_room(step, device)
        least = _after_forward(step, device)
        state.count = max(blocks - 2, 0)
        each = max((_after_forward(step, device) - least) / max(blocks - state.count, 1), 1.0)
        kept = int(max(room * (1 - SPARE) - peak - adam, 0) / each)
        state.count = max(blocks - kept, 0)
        while state.count < blocks and not _fits(step, device, adam):
            state.count = min(state.count + max(blocks // 16, 1), blocks)
    logger.info(
        "recomputing %d of %d blocks: one keeps %.2f GiB, the rest takes %.1f of %.1f GiB",
        *(state.count, blocks, each / 2**30, (peak + adam) / 2**30, room / 2**30),
    )


def _fits(step: Step, device: torch.device, adam: int) -> bool:
    """Try a step beside the memory that the optimizer will take."""
    held = None
    try:
        held = torch.empty(adam, dtype=torch.uint8, device=device)
        step.run()
    except torch.OutOfMemoryError:
        return False
    finally:
        del held
        step.clear()
    return True


def _peak_and_room(step: Step, device: torch.device) -> tuple[int, int]:
    """Return the largest number of bytes held in a step, and how many this process could hold."""
    torch.cuda.reset_peak_memory_stats(device)
    step.run()
    peak = torch.cuda.max_memory_allocated(device)
    step.clear()
    free, _ = torch.cuda.mem_get_info(device)
    return peak, free + torch.cuda.memory_reserved(device)


def _after_forward(step: Step, device: torch.device) -> int:
    """Return the bytes held between forward and backward."""
    loss = step.forward()
    held = torch.cuda.memory_allocated(device)
    del loss
    step.clear()
    return held
