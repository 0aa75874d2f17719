"""What the checks found in everything that was written, and what is dropped for it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from workbench_training.corpora.chunks import Tree, lines_of
from workbench_training.corpora.duplicates import near_duplicates, repeats
from workbench_training.corpora.quality import Text
from workbench_training.corpora.settings import CorpusConfig
from workbench_training.corpora.words import shingles
from workbench_training.corpora.writing import names_of

from workbench.runs import Units
from workbench.types import ndarray

NEAR = "near-duplicate"


@dataclass
class Survey:
    """What units of work hold beside their lines. A group is a quartet or a single document."""

    names: Sequence[str]
    """Of the files."""
    writer: str = ""
    """Its own name."""
    sizes: list[int] = field(default_factory=list)
    """Groups in each unit."""
    bins: list[str] = field(default_factory=list)
    """Length bin of each group."""
    words: Mapping[str, ndarray] = field(default_factory=dict)
    """By file, of each group."""
    failed: Mapping[str, Counter[str]] = field(default_factory=dict)
    """By file: documents by reason."""
    dropped: dict[int, list[str]] = field(default_factory=dict)
    """Groups that are left out, each with its reasons."""
    unsuitable: Counter[str] = field(default_factory=Counter)
    """Plans that the writer could not carry out, by reason."""
    counts: Counter[str] = field(default_factory=Counter)
    """What the writer counted."""
    seconds: float = 0.0
    """Of processors, to write and to check."""

    @property
    def written(self) -> int:
        """How many groups there are."""
        return len(self.bins)

    @property
    def kept(self) -> int:
        """How many of them stay."""
        return self.written - len(self.dropped)

    @property
    def reasons(self) -> Counter[str]:
        """Dropped groups by reason; one may have several."""
        return Counter(reason for found in self.dropped.values() for reason in set(found))

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Yield (unit, first group, group after the last)."""
        for unit, end in enumerate(accumulate(self.sizes)):
            yield unit, end - self.sizes[unit], end

    def take(self, tree: Tree) -> None:
        """Count what the next unit holds."""
        for group, name, reason in tree["failed"]:
            self.failed[name][reason] += 1
            self.dropped.setdefault(self.written + group, []).append(reason)
        self.writer = tree["writer"]
        self.bins += tree["bins"]
        self.sizes.append(len(tree["bins"]))
        self.unsuitable.update(reason for _, reason in tree["unsuitable"])
        self.counts.update(tree["counts"])
        self.seconds += tree["seconds"]


def survey_units(config: CorpusConfig, units: Units) -> Survey:
    """Look through all units for what speaks against their groups; then for near-duplicates."""
    names = names_of(config)
    survey = Survey(names, failed={name: Counter() for name in names})
    shelves: dict[str, list[tuple[ndarray, ndarray]]] = {name: [] for name in names}
    for unit in range(units.number):
        tree = units.load(unit)
        survey.take(tree)
        for name, shelf in tree["shelves"].items():
            shelves[name].append((shelf["words"], shelf["signatures"]))
    survey.words = {name: np.concatenate([w for w, _ in shelves[name]]) for name in names}
    minima = {name: np.concatenate([m for _, m in shelves[name]]) for name in names}
    _drop_near_duplicates(config, units, survey, minima)
    return survey


def _drop_near_duplicates(
    config: CorpusConfig, units: Units, survey: Survey, minima: Mapping[str, ndarray]
) -> None:
    """Count them in each file, and drop the later group of every pair."""
    pairs = []
    for name, signatures in minima.items():
        found = near_duplicates(signatures, _Reader(units, survey, name), config.near_duplicate)
        alike = {place for pair in found for place in (pair.first, pair.second)}
        survey.failed[name][NEAR] = len(alike)
        pairs += found
    for group in repeats(pairs, gone=survey.dropped):
        survey.dropped[group] = [NEAR]


@dataclass(frozen=True)
class _Reader:
    """Reads the shingles of some documents of a file, each unit once."""

    units: Units
    survey: Survey
    name: str

    def __call__(self, places: Sequence[int]) -> Iterator[tuple[int, ndarray]]:
        for unit, first, end in self.survey.spans():
            own = [place - first for place in places if first <= place < end]
            lines = lines_of(self.units.load(unit)["shelves"][self.name], own) if own else ()
            for place, line in zip(own, lines, strict=True):
                yield first + place, shingles(Text(json.loads(line)["text"]).numbers)
