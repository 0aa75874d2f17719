"""The trunk: blocks up to the first edited one run once, and every arm starts from their output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from workbench.engine.blocks import (
    hidden_into,
    hidden_of,
    stopping_after,
    watching,
    with_hidden,
)
from workbench.engine.forward import Inputs, run
from workbench.errors import WorkbenchError
from workbench.types import Subject


@dataclass(frozen=True)
class Trunk:
    """What came out of the lowest edited block, before any edit or hook: these act in branches."""

    layer: int
    output: Any
    """The block's whole output, as its family packs it."""

    @property
    def h(self) -> Float[Tensor, "b t d"]:
        return hidden_of(self.output)


def run_trunk(subject: Subject, inputs: Inputs, layer: int, cache: Any = None) -> Trunk:
    """Run blocks 0 to ``layer`` and nothing else; ``cache`` is filled for these blocks.

    Raises:
        WorkbenchError: the block never ran as a module.
    """
    kept: list[Any] = []

    def see(_layer: int, output: Any) -> None:
        kept.append(output)

    with watching(subject, [layer], see, first=True), stopping_after(subject, layer):
        run(subject, inputs, cache)
    if not kept:
        raise WorkbenchError(
            f"block {layer} of {subject.ref.key} never ran as a module, so edits cannot start "
            "there; a model compiled as a whole hides its blocks: compile them one by one "
            "(block.forward = torch.compile(block.forward)) or load it again"
        )
    return Trunk(layer, kept[0])


@contextmanager
def from_trunk(subject: Subject, trunk: Trunk, repeats: int) -> Iterator[None]:
    """Let a forward inside start from the trunk, each of its rows ``repeats`` times.

    Blocks up to the trunk's hand their input on, and the trunk's block hands out what was kept, so
    masks, rotary tables, the final norm and the head are still the model's own. Hooks on the
    trunk's block see its output. An instance ``forward`` that was there before comes back.
    """
    h = trunk.h.repeat_interleave(repeats, 0)
    saved = {
        layer: subject.blocks[layer].__dict__.get("forward") for layer in range(trunk.layer + 1)
    }
    try:
        for layer in saved:
            own = h if layer == trunk.layer else None
            subject.blocks[layer].forward = _handing_on(trunk.output, own)
        yield
    finally:
        for layer, forward in saved.items():
            del subject.blocks[layer].forward
            if forward is not None:
                subject.blocks[layer].forward = forward


def _handing_on(template: Any, h: Tensor | None) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return with_hidden(template, hidden_into(args, kwargs) if h is None else h)

    return forward
