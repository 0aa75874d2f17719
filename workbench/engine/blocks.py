"""What goes in and out of a decoder block, whatever its family, and how to stop after one."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from workbench.errors import WorkbenchError
from workbench.types import Subject


class StopForwardError(Exception):
    """Ends a forward on purpose once the deepest block that anybody reads has run."""


def hidden_of(output: Any) -> Tensor:
    """Return the hidden states of a block's output: a tensor, or the first of a container."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, (tuple, list)):
        first = output[0]
    elif dataclasses.is_dataclass(output):
        first = getattr(output, dataclasses.fields(output)[0].name)
    else:
        raise TypeError(f"a block returned {type(output).__name__}; expected a tensor or a tuple")
    assert isinstance(first, Tensor), f"a block returned {type(first).__name__} first"
    return first


def with_hidden(output: Any, h: Tensor) -> Any:
    """Return a block's output with other hidden states, in the same container."""
    if isinstance(output, Tensor):
        return h
    if isinstance(output, tuple):
        return (h, *output[1:])
    if isinstance(output, list):
        return [h, *output[1:]]
    return dataclasses.replace(output, **{dataclasses.fields(output)[0].name: h})


def hidden_into(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return the hidden states that go into a block."""
    h = args[0] if args else kwargs["hidden_states"]
    assert isinstance(h, Tensor)
    return h


def check_layers(subject: Subject, layers: Sequence[int]) -> None:
    """Refuse a block that the model does not have.

    Raises:
        WorkbenchError: there is no such block; the last one is named.
    """
    for layer in layers:
        if layer not in subject.blocks:
            raise WorkbenchError(
                f"no block {layer} in {subject.ref.key}; its blocks are 0 to "
                f"{max(subject.blocks)} (block indices, counted from 0)"
            )


def eager(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch.compile from tracing a hook into a graph that would outlive it."""
    if "torch._dynamo" not in sys.modules:  # importing it takes a second
        return hook
    disabled: Callable[..., Any] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return disabled


@contextmanager
def watching(
    subject: Subject,
    layers: Sequence[int],
    see: Callable[[int, Any], Any],
    *,
    first: bool = False,
) -> Iterator[None]:
    """Call ``see(layer, output)`` after each of the blocks; what it returns replaces the output.

    With ``first`` it sees the output before any hook that is there already.
    """

    def hook(layer: int) -> Callable[..., Any]:
        return eager(lambda _module, _args, output: see(layer, output))

    handles = [
        subject.blocks[layer].register_forward_hook(hook(layer), prepend=first) for layer in layers
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def stopping_before(subject: Subject, layer: int) -> Iterator[None]:
    """End the forward inside on entering block ``layer``; enter it last."""

    def stop(*_: Any) -> None:
        raise StopForwardError

    handle = subject.blocks[layer].register_forward_pre_hook(eager(stop))
    try:
        yield
    except StopForwardError:
        return
    finally:
        handle.remove()


@contextmanager
def stopping_after(subject: Subject, layer: int) -> Iterator[None]:
    """End the forward inside after block ``layer``: later blocks, norm and head never run.

    Enter it last: on that block, hooks that are registered later do not run.
    """

    def stop(_layer: int, _output: Any) -> None:
        raise StopForwardError

    with watching(subject, [layer], stop):
        try:
            yield
        except StopForwardError:
            return
