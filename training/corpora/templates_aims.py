"""Objective phrases by world, drawn so that the documents of a quartet come out equally long."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench_training.corpora.plan import WORLDS, Scenario
from workbench_training.corpora.scenarios import SCENARIOS, Domain
from workbench_training.corpora.templates_grammar import Objective, capitalize, variants
from workbench_training.quartet_grammar import count_words, inflect

_SHORT, _LONG = 3, 13
_USUAL = (5, 10)
_SOURCES = ("domain", "kind", "any")
_WEIGHTS = (4, 5, 3)
_Table = Mapping[str, Sequence[Sequence[str]]]


def read_aims(folder: Path = SCENARIOS) -> dict[str, Any]:
    """Read ``aims.toml``."""
    return tomllib.loads((folder / "aims.toml").read_text(encoding="utf-8"))


def leak_markers() -> dict[str, list[str]]:
    """Return, by world, patterns of words that stand in no document of another world.

    The neutral text holds none at all. Join them between word boundaries and ignore case.
    """
    return dict(read_aims()["markers"])


@dataclass(frozen=True)
class _General:
    """The general aims of one world by length, each with the number of its head."""

    heads: tuple[tuple[int, str], ...]
    by_length: Mapping[int, tuple[tuple[int, str], ...]]

    @classmethod
    def build(cls, heads: Sequence[str], tails: Sequence[str]) -> _General:
        plain = [(row, text) for row, head in enumerate(heads) for text in variants(head)]
        ends = ["", *(text for tail in tails for text in variants(tail))]
        pairs = [(row, f"{text} {end}".strip()) for row, text in plain for end in ends]
        by_length: dict[int, list[tuple[int, str]]] = {}
        for row, text in pairs:
            by_length.setdefault(count_words(text), []).append((row, text))
        return cls(tuple(plain), {length: tuple(found) for length, found in by_length.items()})

    def draw(self, words: int, used: set[int], rng: random.Random) -> str:
        """Return a phrase of ``words`` words whose head is not in ``used``, where there is one."""
        return _unused(self.by_length[min(max(words, _SHORT), _LONG)], used, rng)

    def draw_head(self, used: set[int], rng: random.Random) -> str:
        """Return a phrase without a tail, for a title."""
        return _unused(self.heads, used, rng)


def _unused(phrases: Sequence[tuple[int, str]], used: set[int], rng: random.Random) -> str:
    for _ in range(8):
        head, text = phrases[int(rng.random() * len(phrases))]
        if head not in used:
            break
    used.add(head)
    return text


@dataclass(frozen=True)
class _Source:
    """Where a concrete aim is taken from in every world, and what it works on."""

    table: _Table
    row: int
    thing: str


class AimBook:
    """The phrases of all worlds; ``fill`` writes the open places of one quartet."""

    def __init__(self, domains: Mapping[str, Domain], folder: Path = SCENARIOS) -> None:
        aims = read_aims(folder)
        self._general = {w: _General.build(aims[w]["heads"], aims[w]["tails"]) for w in WORLDS}
        self._tables = {name: _table(aims[name]) for name in aims if set(aims[name]) == set(WORLDS)}
        del self._tables["markers"]
        self._domains = {name: _table(domain.aims) for name, domain in domains.items()}

    def covers(self, scenario: Scenario) -> bool:
        """Return whether there are concrete aims for the scenario's domain and kind of task."""
        return scenario.domain in self._domains and scenario.group in self._tables

    def fill(
        self, scenario: Scenario, places: Sequence[Objective], rng: random.Random
    ) -> dict[str, list[str]]:
        """Return the phrases for ``places`` in order, by world, equal in words as far as they go.

        Concrete aims are drawn first; what a world is behind or ahead by is then spread over its
        general aims.
        """
        sources = self._draw_sources(scenario, places, rng)
        concrete = {world: _concrete(world, sources, scenario, rng) for world in WORLDS}
        used: dict[str, set[int]] = {world: set() for world in WORLDS}
        short = {w: self._short(w, places, used[w], rng) for w in WORLDS}
        base = [rng.randint(*_USUAL) for place in places if place.kind == "g"]
        words = {w: _words(concrete[w]) + _words(short[w]) for w in WORLDS}
        mean = sum(words.values()) / len(words)
        filled = {}
        for world in WORLDS:
            general = self._spread(world, base, mean - words[world], used[world], rng)
            parts = {"x": iter(concrete[world]), "h": iter(short[world]), "g": iter(general)}
            filled[world] = [_inflected(next(parts[place.kind]), place) for place in places]
        return filled

    def _draw_sources(
        self, scenario: Scenario, places: Sequence[Objective], rng: random.Random
    ) -> list[_Source]:
        """Choose, for each concrete place, the same table and row in all worlds."""
        tables: dict[str, _Table] = {
            "domain": self._domains[scenario.domain],
            "kind": self._tables[scenario.group],
            "any": self._tables["any"],
        }
        rows: dict[str, list[int]] = {name: [] for name in _SOURCES}
        drawn: list[_Source] = []
        for place in places:
            if place.kind == "x":
                name = rng.choices(_SOURCES, _WEIGHTS)[0]
                if not rows[name]:
                    count = len(tables[name][WORLDS[0]])
                    rows[name] = rng.sample(range(count), count)
                drawn.append(_Source(tables[name], rows[name].pop(), _thing(scenario, name)))
        return drawn

    def _short(
        self, world: str, places: Sequence[Objective], used: set[int], rng: random.Random
    ) -> list[str]:
        general = self._general[world]
        return [general.draw_head(used, rng) for place in places if place.kind == "h"]

    def _spread(
        self, world: str, base: Sequence[int], missing: float, used: set[int], rng: random.Random
    ) -> list[str]:
        phrases = []
        for row, words in enumerate(base):
            wanted = round(words + missing / (len(base) - row))
            phrase = self._general[world].draw(wanted, used, rng)
            missing += words - count_words(phrase)
            phrases.append(phrase)
        return phrases


def _table(aims: Mapping[str, Iterable[str]]) -> _Table:
    return {world: [variants(text) for text in aims[world]] for world in WORLDS}


def _concrete(
    world: str,
    sources: Sequence[_Source],
    scenario: Scenario,
    rng: random.Random,
) -> list[str]:
    phrases = []
    for source in sources:
        options = source.table[world][source.row]
        text = options[int(rng.random() * len(options))]
        if "{" in text:
            text = text.format(object=source.thing, others=scenario.others, task=scenario.task)
        phrases.append(text)
    return phrases


def _thing(scenario: Scenario, source: str) -> str:
    """Return what an aim works on; what advice is about cannot be handed over, notes on it can."""
    about = source == "any" and scenario.group == "advice"
    return f"notes on {scenario.object}" if about else scenario.object


def _words(phrases: Iterable[str]) -> int:
    return sum(map(count_words, phrases))


def _inflected(phrase: str, place: Objective) -> str:
    text = inflect(phrase, place.form)
    return capitalize(text) if place.capital else text
