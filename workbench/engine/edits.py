"""Arms carried out on the rows of a batch: grouped by block and edit, masked, and counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from workbench.engine.blocks import check_layers, hidden_of, watching, with_hidden
from workbench.errors import MismatchError
from workbench.interventions import EditLog
from workbench.interventions.log import EditKey
from workbench.interventions.scope import check_scope
from workbench.types import Arm, Edit, LayerEdit, Subject

MOVED = 1e-6
"""A position counts as engaged where it moved by more than this fraction of its norm."""


@dataclass(frozen=True)
class Group:
    """One kind of edit at one block, with a slot for each arm that has it."""

    key: EditKey
    edit: Edit
    v: Float[np.ndarray, "a d"]
    dose: Float[np.ndarray, " a"]
    numbers: Mapping[str, Float[np.ndarray, " a"]]


@dataclass(frozen=True)
class Placed:
    """A group on the rows of a batch and on their device."""

    rows: Int[Tensor, " b"] | None
    """Rows that have the edit; None for all."""
    slots: Int[Tensor, " b"]
    """For each of these rows, its arm's slot in the group."""
    v: Float[Tensor, "b d"]
    dose: Float[Tensor, " b"]
    numbers: Mapping[str, Float[Tensor, " b"]]


class Pass:
    """What an edit must know about one forward.

    Args:
        arms: for each row, the number of its arm.
        mask: from a scope's name to the tokens that it covers.
        counted: tokens that go into the log; all where None. It keeps a token that stands in
            several rows from being counted more than once.
    """

    def __init__(
        self,
        arms: tuple[int, ...],
        mask: Callable[[str], Bool[Tensor, "b t"]],
        counted: Bool[Tensor, "b t"] | None = None,
    ) -> None:
        self.arms = arms
        self._mask = mask
        self._counted = counted
        self._kept: dict[tuple[str, torch.device], tuple[Tensor, Tensor]] = {}

    def masks(self, scope: str, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the tokens in scope, and those of them to count, made once a forward."""
        if (scope, device) not in self._kept:
            mask = self._mask(scope).to(device)
            counted = mask if self._counted is None else mask & self._counted.to(device)
            self._kept[scope, device] = (mask, counted)
        return self._kept[scope, device]


class LiveEdits:
    """All edits of some arms, ready to act on any batch whose rows name their arm.

    Args:
        subject: the model under study.
        arms: the edits of each arm.
        log: where what they did is counted.

    Raises:
        WorkbenchError: an edit of an unknown block, scope or width.
    """

    def __init__(self, subject: Subject, arms: Sequence[Arm], log: EditLog) -> None:
        self.log = log
        self.groups: dict[int, list[Group]] = defaultdict(list)
        for group in _grouped(subject, arms):
            self.groups[group.key.layer].append(group)
            log.expect(group.key)
        self._placed: dict[EditKey, tuple[Any, Placed]] = {}

    @property
    def layers(self) -> list[int]:
        """Edited blocks, in order."""
        return sorted(self.groups)

    @contextmanager
    def acting(self, subject: Subject, current: Callable[[], Pass]) -> Iterator[None]:
        """Edit block outputs during any forward inside; ``current`` describes that forward."""

        def see(layer: int, output: Any) -> Any:
            return with_hidden(output, self.apply(layer, hidden_of(output), current()))

        with watching(subject, self.layers, see):
            yield

    def apply(self, layer: int, h: Float[Tensor, "b t d"], current: Pass) -> Float[Tensor, "b t d"]:
        """Return one block's output with its edits; ``h`` itself stays as it is."""
        for group in self.groups[layer]:
            h = self._apply(group, h, current)
        return h

    def _apply(self, group: Group, h: Tensor, current: Pass) -> Tensor:
        placed = self._place(group, current.arms, h)
        if not len(placed.slots):
            return h
        mask, counted = current.masks(group.key.scope, h.device)
        t = h.shape[1]  # some families run late blocks on the last columns alone
        mask, counted = mask[:, -t:], counted[:, -t:]
        before = h
        if placed.rows is not None:
            before, mask, counted = h[placed.rows], mask[placed.rows], counted[placed.rows]
        edited = group.edit(before, placed.v, placed.dose, **placed.numbers)
        after = torch.where(mask[..., None], edited, before)
        self.log.add(group.key, _tally(before, after, placed, counted, len(group.key.arms)))
        return after if placed.rows is None else h.index_copy(0, placed.rows, after)

    def _place(self, group: Group, arms: tuple[int, ...], h: Tensor) -> Placed:
        """Put a group's vectors on the block's own device, once as long as the rows stay."""
        key = (arms, h.device)
        kept = self._placed.get(group.key)
        if kept is None or kept[0] != key:
            kept = (key, _place(group, arms, h.device))
            self._placed[group.key] = kept
        return kept[1]


def _place(group: Group, arms: tuple[int, ...], device: torch.device) -> Placed:
    slot_of = {arm: slot for slot, arm in enumerate(group.key.arms)}
    rows = [row for row, arm in enumerate(arms) if arm in slot_of]
    slots = np.array([slot_of[arms[row]] for row in rows], np.int64)

    def put(values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device)

    return Placed(
        rows=None if len(rows) == len(arms) else put(np.array(rows, np.int64)),
        slots=put(slots),
        v=put(group.v[slots]),
        dose=put(group.dose[slots]),
        numbers={name: put(values[slots]) for name, values in group.numbers.items()},
    )


def _tally(
    before: Tensor, after: Tensor, placed: Placed, counted: Bool[Tensor, "b t"], n_arms: int
) -> Float[Tensor, "a 3"]:
    """Sum, by arm, positions in scope, positions that moved, and the shift along the direction."""
    exact = torch.promote_types(before.dtype, torch.float32)
    delta = after.to(exact) - before.to(exact)
    shift = torch.einsum("btd,bd->bt", delta, placed.v.to(exact))
    moved = delta.norm(dim=-1) > MOVED * before.to(exact).norm(dim=-1)
    parts = (counted, counted & moved, torch.where(counted, shift, 0))
    sums = torch.stack([part.sum(1, dtype=_finest(before)) for part in parts], 1)
    return torch.zeros(n_arms, 3, dtype=sums.dtype, device=sums.device).index_add_(
        0, placed.slots, sums
    )


def _finest(h: Tensor) -> torch.dtype:
    return torch.float32 if h.device.type == "mps" else torch.float64


def _grouped(subject: Subject, arms: Sequence[Arm]) -> list[Group]:
    """Collect what one call of an edit can do for several arms, in the order of acting."""
    found: dict[tuple[Any, ...], list[tuple[int, LayerEdit]]] = defaultdict(list)
    for number, arm in enumerate(arms):
        order: dict[int, int] = defaultdict(int)
        for edit in arm:
            _check(subject, edit)
            place = (edit.layer, order[edit.layer], edit.name, edit.scope)
            found[*place, edit.edit, tuple(sorted(edit.rows))].append((number, edit))
            order[edit.layer] += 1
    ordered = sorted(found.items(), key=lambda item: item[0][:4])
    return [_group(kind, members) for kind, members in ordered]


def _group(kind: tuple[Any, ...], members: Sequence[tuple[int, LayerEdit]]) -> Group:
    layer, order, name, scope, edit, numbers = kind
    return Group(
        key=EditKey(layer, order, name, scope, tuple(arm for arm, _ in members)),
        edit=edit,
        v=np.stack([member.v for _, member in members]).astype(np.float32),
        dose=np.array([member.dose for _, member in members], np.float32),
        numbers={
            number: np.array([member.rows[number] for _, member in members], np.float32)
            for number in numbers
        },
    )


def _check(subject: Subject, edit: LayerEdit) -> None:
    check_layers(subject, [edit.layer])
    check_scope(edit.scope)
    if edit.v.shape != (subject.width,):
        raise MismatchError(
            f"an edit of block {edit.layer} has a vector of width {edit.v.shape[-1]}, but "
            f"{subject.ref.key} has width {subject.width}; make the direction again from it"
        )
