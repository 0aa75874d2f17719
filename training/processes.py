"""Several processes that train one organism: which of them writes, and what it tells the others.

``torchrun`` and ``accelerate launch`` start them; they find each other through the environment.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch.distributed

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
    import torch.distributed

    held = [value]
    torch.distributed.broadcast_object_list(held, group=_meet(cpu))
    return held[0]


@contextlib.contextmanager
def first_alone(*, cpu: bool) -> Iterator[None]:
    """Let the first process through before the others, which then find what it fetched."""
    if count() > 1 and not is_first():
        shared(None, cpu=cpu)
    yield
    if count() > 1 and is_first():
        shared(None, cpu=cpu)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Around joint work: one that fails leaves at once, without a word to those that wait."""
    try:
        yield
    except BaseException:
        atexit.unregister(_part)
        raise


@functools.cache
def _meet(cpu: bool) -> torch.distributed.ProcessGroup:
    """Join the others, once and until the process ends; return the group in which they talk.

    It is none that training works in, so nothing else holds it and its threads can be ended.
    """
    import torch.distributed
    from accelerate import PartialState

    PartialState(cpu=cpu)
    atexit.register(_part)
    group: torch.distributed.ProcessGroup = torch.distributed.new_group(backend="gloo")
    return group


def _part() -> None:
    """Close the connections while the interpreter lives.

    A thread that frees a tensor while Python is torn down aborts a process that has done its work
    (pytorch pull request 179291).
    """
    import torch.distributed

    _meet.cache_clear()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
