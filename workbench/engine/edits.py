"""Arms carried out on the rows of a batch: grouped by block and edit, masked, and counted."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from workbench.engine.blocks import check_layers, hidden_of, watching, with_hidden
from workbench.engine.forward import dtype_of
from workbench.errors import ConfigError, MismatchError
from workbench.interventions import EditLog
from workbench.interventions.log import EditKey
from workbench.interventions.precision import widen
from workbench.interventions.scope import check_scope
from workbench.types import Arm, Edit, LayerEdit, Subject

MOVED = 1e-6
"""A position counts as engaged where it moved by more than this fraction of its norm."""


@dataclass(frozen=True)
class Group:
    """One kind of edit at one block, with a slot for each arm that has it."""

    key: EditKey
    edit: Edit
    v: Float[Tensor, "a d"]
    dose: Float[Tensor, " a"]
    numbers: Mapping[str, Float[Tensor, " a"]]
    weights: Mapping[str, Tensor]
    """What all its arms share."""

    def to(self, device: torch.device) -> Group:
        """Return the same with its tensors on a device."""
        numbers, weights = (
            {name: values.to(device) for name, values in part.items()}
            for part in (self.numbers, self.weights)
        )
        v, dose = self.v.to(device), self.dose.to(device)
        return replace(self, v=v, dose=dose, numbers=numbers, weights=weights)


@dataclass(frozen=True)
class Placed:
    """Which rows of a batch have a group's edit, and as which arm."""

    rows: Int[Tensor, " b"] | None
    """Rows that have the edit; None for all."""
    slots: Int[Tensor, " b"] | int
    """For each of these rows, its arm's slot in the group; a number where it is one for all."""
    n: int
    """How many they are."""

    def of(self, values: Float[Tensor, "a ..."]) -> Float[Tensor, "b ..."]:
        """Return what each of the rows has of a group's values."""
        if isinstance(self.slots, int):
            return values[self.slots].expand(self.n, *values.shape[1:])
        return values[self.slots]


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
        self._homes: dict[tuple[EditKey, torch.device], Group] = {}
        self._placed: dict[tuple[EditKey, tuple[int, ...], torch.device], Placed] = {}

    @property
    def layers(self) -> list[int]:
        """Edited blocks, in order."""
        return sorted(self.groups)

    @property
    def keys(self) -> list[EditKey]:
        """Every edit that it holds."""
        return [group.key for groups in self.groups.values() for group in groups]

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
        placed = self._place(group, current.arms, h.device)
        if not placed.n:
            return h
        own = self._at_home(group, h.device)
        mask, counted = current.masks(group.key.scope, h.device)
        t = h.shape[1]  # some families run late blocks on the last columns alone
        mask, counted = mask[:, -t:], counted[:, -t:]
        before, v = h, placed.of(own.v)
        if placed.rows is not None:
            before, mask, counted = h[placed.rows], mask[placed.rows], counted[placed.rows]
        numbers = {name: placed.of(values) for name, values in own.numbers.items()}
        edited = group.edit(before, v, placed.of(own.dose), **numbers, **own.weights)
        after = torch.where(mask[..., None], edited, before)
        sums = _sums(before, after, v, counted)
        self.log.add(group.key, _by_slot(sums, placed.slots, len(group.key.arms)))
        return after if placed.rows is None else h.index_copy(0, placed.rows, after)

    def _at_home(self, group: Group, device: torch.device) -> Group:
        """Put a group's vectors on a block's own device, once."""
        if (group.key, device) not in self._homes:
            self._homes[group.key, device] = group.to(device)
        return self._homes[group.key, device]

    def _place(self, group: Group, arms: tuple[int, ...], device: torch.device) -> Placed:
        """Find a group's rows, once for batches whose rows have the same arms."""
        key = (group.key, arms, device)
        if key not in self._placed:
            self._placed[key] = _place(group, arms, device)
        return self._placed[key]


def _place(group: Group, arms: tuple[int, ...], device: torch.device) -> Placed:
    slot_of = {arm: slot for slot, arm in enumerate(group.key.arms)}
    rows = [row for row, arm in enumerate(arms) if arm in slot_of]
    slots = [slot_of[arms[row]] for row in rows]

    def put(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long).to(device)

    return Placed(
        rows=None if len(rows) == len(arms) else put(rows),
        slots=slots[0] if len(set(slots)) == 1 else put(slots),
        n=len(rows),
    )


def _sums(
    before: Tensor, after: Tensor, v: Float[Tensor, "b d"], counted: Bool[Tensor, "b t"]
) -> Float[Tensor, "b 3"]:
    """Sum, by row, positions in scope, positions that moved, and the shift along the direction."""
    wide = widen(before)
    delta = after - wide
    shift = torch.einsum("btd,bd->bt", delta, v.to(wide.dtype))
    moved = delta.norm(dim=-1) > MOVED * wide.norm(dim=-1)
    parts = (counted, counted & moved, torch.where(counted, shift, 0))
    return torch.stack([part.sum(1, dtype=_finest(before)) for part in parts], 1)


def _by_slot(
    sums: Float[Tensor, "b 3"], slots: Int[Tensor, " b"] | int, n_arms: int
) -> Float[Tensor, "a 3"]:
    """Add up the rows of each arm."""
    total = torch.zeros(n_arms, 3, dtype=sums.dtype, device=sums.device)
    if isinstance(slots, int):
        total[slots] = sums.sum(0)
        return total
    return total.index_add_(0, slots, sums)


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
            parts = (tuple(sorted(edit.rows)), id(edit.weights) if edit.weights else None)
            found[*place, edit.edit, *parts].append((number, edit))
            order[edit.layer] += 1
    ordered = sorted(found.items(), key=lambda item: item[0][:4])
    return [_group(kind, members) for kind, members in ordered]


def _group(kind: tuple[Any, ...], members: Sequence[tuple[int, LayerEdit]]) -> Group:
    layer, order, name, scope, edit, numbers, _ = kind
    weights = members[0][1].weights
    return Group(
        key=EditKey(layer, order, name, scope, tuple(arm for arm, _ in members)),
        edit=edit,
        v=torch.from_numpy(np.stack([member.v for _, member in members]).astype(np.float32)),
        dose=torch.tensor([member.dose for _, member in members], dtype=torch.float32),
        numbers={
            number: torch.tensor([member.rows[number] for _, member in members]).float()
            for number in numbers
        },
        weights={
            weight: torch.from_numpy(np.require(values, np.float32, ["C", "W"]))
            for weight, values in weights.items()
        },
    )


def _check(subject: Subject, edit: LayerEdit) -> None:
    check_layers(subject, [edit.layer])
    check_scope(edit.scope)
    if not (isinstance(edit.v, np.ndarray) and edit.v.dtype.kind == "f"):
        kind = getattr(edit.v, "dtype", type(edit.v).__name__)
        raise MismatchError(
            f"an edit of block {edit.layer} has a vector of {kind}, expected an array of float32; "
            "convert it (tensor.float().numpy(), or values.astype(numpy.float32))"
        )
    if not np.isfinite(edit.v).all():
        raise MismatchError(
            f"an edit of block {edit.layer} has a vector with {_infinite(edit.v)} values that are "
            "not finite; fit the direction again, with activations checked for overflow"
        )
    if edit.v.shape != (subject.width,):
        raise MismatchError(
            f"an edit of block {edit.layer} has a vector of width {edit.v.shape[-1]}, but "
            f"{subject.ref.key} has width {subject.width}; make the direction again from it"
        )
    _check_range(subject, edit)


def _infinite(v: np.ndarray) -> int:
    return int((~np.isfinite(v)).sum())


def _check_range(subject: Subject, edit: LayerEdit) -> None:
    """Refuse numbers that the edit's arithmetic, or what it adds, cannot hold.

    Raises:
        ConfigError: one would become infinite.
    """
    size = float(np.abs(edit.v).max()) if edit.name == "add" else 1.0
    kinds = {str(dtype): torch.finfo(dtype).max for dtype in (torch.float32, dtype_of(subject))}
    for name, value in {"dose": edit.dose * size, **edit.rows}.items():
        for dtype, largest in kinds.items():
            if largest < abs(value) < math.inf:
                shown = edit.dose if name == "dose" else value
                raise ConfigError(
                    f"{edit.name} at block {edit.layer} has {name} {shown:g}, which {dtype} cannot "
                    f"hold (its largest number is {largest:.3g}), so every token would become "
                    f"infinite; give a smaller {name}, or load the model in a wider dtype"
                )
