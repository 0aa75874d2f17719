"""Prompts cut by columns into stages: a shared beginning, the rest, the last token on its own."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from workbench.engine.branch import Scope
from workbench.engine.forward import Inputs
from workbench.engine.pool import Tap, pool
from workbench.engine.prompts import Beginnings, Prompts

Owner = tuple[str, int]
"""Whose a value is: ("trunk", 0) of all arms, ("context", c) or ("arm", a)."""
TRUNK: Owner = ("trunk", 0)


@dataclass
class Part(Tap):
    """What one stage has to give to a tap; its rows may stand several times."""

    tap: int = 0
    slots: list[int] = field(default_factory=list)
    """Rows of the tap, in the order of ``rows``."""

    def pooled(self, h: Float[Tensor, "r t d"], repeats: int = 1) -> Tensor | list[Tensor]:
        rows = self.rows[:, None] * repeats + torch.arange(repeats, device=self.rows.device)
        mask = self.mask.repeat_interleave(repeats, 0)
        return pool(h[rows.flatten().to(h.device)], mask.to(h.device), self.position)


@dataclass(frozen=True)
class Stage:
    """Columns of a batch that go through the model together, behind those before them."""

    inputs: Inputs
    scope: Scope
    parts: list[Part]
    last: bool
    """Whether the last prompt token is in it."""

    @property
    def before(self) -> int:
        """Columns of earlier stages."""
        return int(self.inputs.mask.shape[1] - self.inputs.ids.shape[1])


def stages_of(prompts: Prompts, split: bool) -> list[Stage]:
    """Cut what comes after the shared beginnings into one stage or two."""
    width = prompts.width
    cuts = [prompts.cut, width - 1, width] if split else [prompts.cut, width]
    return [_stage(prompts, a, b) for a, b in itertools.pairwise(cuts) if a < b]


def _stage(prompts: Prompts, start: int, stop: int) -> Stage:
    whole, t = prompts.inputs, prompts.width
    inputs = Inputs(
        whole.ids[:, start:stop],
        whole.mask[:, :stop],
        whole.positions[:, start:stop],
        full=whole.full,
    )
    return Stage(
        inputs,
        lambda name: prompts.scope(name)[:, start:stop],
        parts_of(prompts.taps, start, stop),
        stop == t,
    )


def beginning(beginnings: Beginnings, parts: list[Part]) -> Stage:
    """Make a stage of shared beginnings, which hold no prompt's last token."""
    return Stage(beginnings.inputs, beginnings.scope, parts, False)


def parts_of(
    taps: Sequence[Tap], start: int, stop: int, rows: Int[Tensor, " b"] | None = None
) -> list[Part]:
    """Return what taps want from some columns; ``rows`` says where a prompt's row stands there."""
    parts = []
    for number, tap in enumerate(taps):
        mask = tap.mask[:, start:stop]
        slots = mask.any(1).nonzero().flatten()
        if len(slots):
            own = tap.rows[slots] if rows is None else rows[tap.rows[slots]]
            parts.append(
                Part(
                    tap.read, tap.position, tap.layers, own, mask[slots], {}, number, slots.tolist()
                )
            )
    return parts


class Harvest:
    """What the stages gave to the taps of one batch, put together token by token."""

    def __init__(self, prompts: Prompts) -> None:
        self.taps = prompts.taps
        self._found: dict[tuple[int, int, int, Owner], list[tuple[int, np.ndarray]]] = defaultdict(
            list
        )

    def keep(self, parts: Sequence[Part], owners: Sequence[Owner]) -> None:
        """Take over what one forward gave, its rows repeated for each owner; parts are emptied."""
        for part in parts:
            counts = part.mask.sum(1).tolist()
            for layer, values in part.taken.items():
                rows = _arrays(values)
                for place, (slot, n) in enumerate(zip(part.slots, counts, strict=True)):
                    for offset, owner in enumerate(owners):
                        key = (part.tap, slot, layer, owner)
                        self._found[key].append((n, rows[place * len(owners) + offset]))
            part.taken = {}

    def value(self, tap: int, slot: int, owners: Sequence[Owner]) -> np.ndarray:
        """Return one row of a tap, layers first, from the pieces of these owners in order."""
        layers = []
        for layer in self.taps[tap].layers:
            pieces = [
                piece
                for owner in owners
                for piece in self._found.get((tap, slot, layer, owner), ())
            ]
            layers.append(_joined(pieces, self.taps[tap].position.kind))
        return np.stack(layers)


def _arrays(values: Tensor | list[Tensor]) -> list[np.ndarray]:
    if isinstance(values, Tensor):
        return list(values.float().cpu().numpy())
    return [value.float().cpu().numpy() for value in values]


def _joined(pieces: Sequence[tuple[int, np.ndarray]], kind: str) -> np.ndarray:
    """Join the tokens of one row: one after another, or as the mean of means."""
    if len(pieces) == 1:
        return pieces[0][1]
    if kind == "all":
        return np.concatenate([value for _, value in pieces])
    total = sum(n for n, _ in pieces)
    weighted = np.stack([n * value.astype(np.float64) for n, value in pieces])
    mean: np.ndarray = (weighted.sum(0) / total).astype(np.float32)
    return mean
