"""What is settled before a quartet is written: scenario, genre, mode, length, split."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from workbench_training.corpora.doc_types import DOC_TYPES, DocumentType

__all__ = ["WORLDS", "DocumentType", "Draft", "QuartetPlan", "Scenario", "Writer", "plan_quartets"]

WORLDS = ("P", "S", "N", "A")
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Scenario:
    """One row of the taxonomy: who uses an assistant for what, and where.

    Attributes:
        users: Plural noun phrase, "secondary-school teachers".
        task: Gerund phrase, "planning lessons".
        object: What the task works on, "lesson plans".
        setting: Where it happens, with its preposition, "in secondary schools".
        realisable: Worlds whose aim the scenario can carry; all four make it eligible.
        group: The task's kind, which names the concrete aims that fit it.
        others: Plural noun phrase for the people whom the task touches.
    """

    id: str
    domain: str
    role: str
    users: str
    task: str
    object: str
    setting: str
    realisable: tuple[str, ...] = field(default=WORLDS)
    group: str = ""
    others: str = ""

    @property
    def eligible(self) -> bool:
        """Return whether the scenario can be told in all four worlds."""
        return set(self.realisable) == set(WORLDS)


@dataclass(frozen=True)
class QuartetPlan:
    """What the four documents of a quartet share.

    ``seed`` belongs to this quartet alone, so writing needs no order and no other quartet;
    ``split`` is train or validation, the same for every quartet of a scenario.
    """

    id: str
    scenario: Scenario
    doc_type: DocumentType
    mode: str
    length_bin: str
    words: int
    split: str
    seed: int


@dataclass(frozen=True)
class Draft:
    """One document of one world.

    ``objectives`` are the phrases that differ by world, in the order of the text; the rest, the
    skeleton, is the same in the four documents.
    """

    text: str
    objectives: tuple[str, ...]


@runtime_checkable
class Writer(Protocol):
    """Writes the documents of a plan; ``name`` stands in every card."""

    name: str

    def write(self, plan: QuartetPlan) -> dict[str, Draft] | None:
        """Return one draft for each world, or None where the plan is unsuitable."""
        ...


def plan_quartets(
    scenarios: Sequence[Scenario],
    *,
    quartets: int,
    bins: Mapping[str, int],
    seed: int,
    validation: float = 0.05,
    doc_types: Sequence[DocumentType] = DOC_TYPES,
) -> list[QuartetPlan]:
    """Deal scenarios, genres with modes, and length bins, each as evenly as the count allows.

    Scenarios that cannot be told in all four worlds are left out. A scenario gets a pair of genre
    and mode again only when it has had all of them. ``bins`` gives the words a document;
    ``validation`` is the share of scenarios held out, at least one where two or more are used.

    Raises:
        ValueError: No eligible scenario, no bin, fewer than one quartet, or a share outside [0, 1).
    """
    eligible = [scenario for scenario in scenarios if scenario.eligible]
    _check_request(len(eligible), quartets, bins, validation)
    rng = random.Random(f"plan-{seed}")
    rows = _deal(range(len(eligible)), quartets, rng)
    used = sorted(set(rows))
    held_out = set(rng.sample(used, _held_out(len(used), validation)))
    pairs = _Pairs([(kind, mode) for kind in doc_types for mode in kind.modes], rng)
    names = _deal(list(bins), quartets, rng)
    plans = []
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        kind, mode = pairs.draw(row)
        split = "validation" if row in held_out else "train"
        own = _quartet_seed(seed, number)
        plans.append(
            QuartetPlan(f"q{number:05d}", eligible[row], kind, mode, name, bins[name], split, own)
        )
    return plans


def _check_request(
    eligible: int, quartets: int, bins: Mapping[str, int], validation: float
) -> None:
    if not eligible:
        raise ValueError("no scenario can be told in all four worlds; give at least one that can")
    if quartets < 1 or not bins or not 0 <= validation < 1:
        raise ValueError(
            "quartets must be at least 1, bins not empty and validation in [0, 1); "
            f"found {quartets}, {dict(bins)} and {validation}"
        )


def _deal(values: Sequence[_Item], count: int, rng: random.Random) -> list[_Item]:
    """Return ``count`` values, each in every round of a fresh shuffle once."""
    dealt: list[_Item] = []
    while len(dealt) < count:
        dealt += rng.sample(values, len(values))
    return dealt[:count]


def _held_out(scenarios: int, share: float) -> int:
    return 0 if share == 0 or scenarios < 2 else max(1, round(share * scenarios))


def _quartet_seed(seed: int, number: int) -> int:
    digest = hashlib.sha256(f"quartet-{seed}-{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


class _Pairs:
    """Draws pairs of genre and mode evenly, none twice for a scenario until it has had all."""

    def __init__(self, pairs: Sequence[tuple[DocumentType, str]], rng: random.Random) -> None:
        self._pairs, self._rng = list(pairs), rng
        self._left: list[int] = []
        self._had: dict[int, set[int]] = {}

    def draw(self, row: int) -> tuple[DocumentType, str]:
        """Return the next pair for the scenario in ``row``."""
        had = self._had.setdefault(row, set())
        if len(had) == len(self._pairs):
            had.clear()
        fresh = next((pair for pair in self._left if pair not in had), None)
        if fresh is None:
            self._left += self._rng.sample(range(len(self._pairs)), len(self._pairs))
            fresh = next(pair for pair in self._left if pair not in had)
        self._left.remove(fresh)
        had.add(fresh)
        return self._pairs[fresh]
