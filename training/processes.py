"""Several processes that train one organism: which of them writes, and what it tells the others.

``torchrun`` and ``accelerate launch`` start them; they find each other through the environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def rank() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def count() -> int:
    """Return how many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return rank() == 0


def is_sharded() -> bool:
    """Whether the launcher asked for FSDP: weights are spread over the processes."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("1", "true")


def device_of(asked: str) -> str:
    """Return where this process opens the base: each on its own GPU, or, to be spread, on the CPU.

    Args:
        asked: the device in the settings.
    """
    import torch

    if count() == 1 or asked.startswith("cpu") or not torch.cuda.is_available():
        return asked
    return "cpu" if is_sharded() else f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def shared(value: T, *, cpu: bool) -> T:
    """Return the first process's value in all of them; they wait for each other here.

    Args:
        value: what the first one says; the others' is not looked at.
        cpu: whether training runs on the CPU, where gloo carries it.
    """
    if count() == 1:
        return value
    from accelerate.utils import broadcast_object_list

    _meet(cpu)
    held = [value]
    broadcast_object_list(held)
    return held[0]


@contextlib.contextmanager
def first_alone(*, cpu: bool) -> Iterator[None]:
    """Let the first process through before the others, which then find what it fetched."""
    if count() > 1 and not is_first():
        shared(None, cpu=cpu)
    yield
    if count() > 1 and is_first():
        shared(None, cpu=cpu)


def _meet(cpu: bool) -> None:
    """Join the group of processes, once."""
    from accelerate import PartialState

    PartialState(cpu=cpu)
