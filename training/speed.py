"""How a run trains fast: leaner forwards, a chunked loss, compiled blocks, little recomputation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from workbench_training import processes
from workbench_training.fused import fused
from workbench_training.head_loss import chunked_loss
from workbench_training.recompute import Recomputing, Step, fit_to_memory, recomputing
from workbench_training.settings import TrainConfig

from workbench.models import input_device

RECOMPILES = 64
"""Variants of a block that may be compiled: modes, shapes, and kinds of block."""
KEPT = 0.6
"""Of what a compiled block would keep: what is cheap to form again, norms to attention, is not.

At the shape of Qwen3-32B it keeps both inner products of the MLP, the queries and two residual
states: 1.2 instead of 3 GB for 8,192 tokens."""
SINGLE = 4
"""Bytes of a float32 gradient."""


@dataclass(frozen=True)
class Pace:
    """What was done for speed, for the card."""

    recomputed_blocks: int
    blocks: int
    compiled: bool
    chunked_loss: bool


@contextlib.contextmanager
def quickened(config: TrainConfig, model: Any, batch: Mapping[str, torch.Tensor]) -> Iterator[Pace]:
    """Let a PEFT model train faster while inside; what it computes stays the same.

    Args:
        config: recompute and compile count.
        model: on its device, and not yet wrapped for several processes.
        batch: one batch as the loop will read it, to measure memory with.
    """
    with contextlib.ExitStack() as stack:
        if config.compile:
            stack.enter_context(torch._dynamo.config.patch(recompile_limit=RECOMPILES))
            kept = KEPT if config.recompute == "auto" else 1.0
            stack.enter_context(torch._functorch.config.patch(activation_memory_budget=kept))
        stack.enter_context(fused(model, traceable=config.compile))
        chunked = stack.enter_context(chunked_loss(model))
        state = stack.enter_context(recomputing(model, 0, compiled=config.compile))
        _choose(config, model, batch, state)
        yield Pace(state.count, len(state), config.compile, chunked)


def _choose(
    config: TrainConfig, model: Any, batch: Mapping[str, torch.Tensor], state: Recomputing
) -> None:
    """Set how many blocks recompute: what is asked for, or what memory demands."""
    if isinstance(config.recompute, int):
        state.count = min(config.recompute, len(state))
    elif config.recompute == "all":
        state.count = len(state)
    elif config.recompute == "auto":
        device = input_device(model)
        if (
            processes.is_sharded()
        ):  # what a process will hold cannot be tried before the weights are spread
            state.count = len(state)
        elif device.type == "cuda":
            step = _step(model, batch, device)
            fit_to_memory(state, step, device, extra=_buckets(step.parameters))


def _buckets(parameters: list[torch.nn.Parameter]) -> int:
    """Return the bytes in which several processes sum their gradients."""
    return SINGLE * sum(p.numel() for p in parameters) if processes.count() > 1 else 0


def _step(model: Any, batch: Mapping[str, torch.Tensor], device: torch.device) -> Step:
    placed = {name: value.to(device) for name, value in batch.items()}
    model.train()

    def forward() -> torch.Tensor:
        with half_precision(model, device):
            loss: torch.Tensor = model(**placed).loss
        return loss

    return Step(forward, [p for p in model.parameters() if p.requires_grad])


def half_precision(model: Any, device: torch.device) -> torch.autocast:
    """Let a bfloat16 base compute in bfloat16 with float32 adapters."""
    half = model.get_input_embeddings().weight.dtype == torch.bfloat16
    return torch.autocast(device.type, torch.bfloat16, enabled=half)
