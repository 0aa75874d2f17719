"""The grammar behind the quartets: its data files, even draws, slots and verb forms.

A template may hold choices ``[a|b]``, scenario slots ``{users}``, number slots ``{n}`` and
objective slots ``{kind:form}``: kind ``g`` a general aim, ``h`` one for a title, ``x`` an aim in
the scenario; form ``to``, ``ing`` or ``vp`` (bare).
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path

CORPUS = Path(str(resources.files("workbench.data"))) / "corpus"
SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")
_CHOICE = re.compile(r"\[([^\[\]]+)\]")
_NUMBERS = {"n": (112, 987), "m": (11, 48), "k": (6, 9), "p": (52, 89)}
_DOUBLED = {
    "cut",
    "drag",
    "drop",
    "equip",
    "format",
    "get",
    "knit",
    "let",
    "log",
    "map",
    "pad",
    "pin",
    "plan",
    "put",
    "rig",
    "run",
    "scan",
    "set",
    "ship",
    "sit",
    "skim",
    "slip",
    "spot",
    "stir",
    "stop",
    "strip",
    "submit",
    "tap",
    "trap",
    "undercut",
    "whip",
    "win",
    "wrap",
}


@dataclass(frozen=True)
class Scenario:
    """Who uses an assistant for what, three neutral facts, and three aims for each world."""

    id: str
    domain: str
    role: str
    users: str
    task: str
    object: str
    setting: str
    facts: list[str]
    aims: dict[str, list[str]]


@dataclass(frozen=True)
class WorldPhrases:
    """General aims of one world: a phrase is a head and a tail; core heads come twice as often."""

    objective: str
    core: list[str]
    heads: list[str]
    tails: list[str]


@dataclass(frozen=True)
class Grammar:
    """The data files: world phrases, marker words, carriers, layouts, types and scenarios."""

    worlds: dict[str, WorldPhrases]
    markers: dict[str, list[str]]
    carriers: dict[str, dict[str, list[str]]]
    layouts: dict[str, list[list[list[str]]]]
    doc_types: dict[str, dict[str, list[str]]]
    scenarios: list[Scenario]


def read_grammar(folder: Path = CORPUS) -> Grammar:
    """Read ``phrases.json`` and ``scenarios.json``."""
    phrases = json.loads((folder / "phrases.json").read_text(encoding="utf-8"))
    scenarios = json.loads((folder / "scenarios.json").read_text(encoding="utf-8"))["scenarios"]
    worlds = {world: WorldPhrases(**parts) for world, parts in phrases.pop("worlds").items()}
    return Grammar(worlds, **phrases, scenarios=[Scenario(**row) for row in scenarios])


class Deck:
    """Draws every template about equally often, in an order fixed by ``rng``."""

    def __init__(self, templates: Sequence[str], rng: random.Random) -> None:
        self._templates, self._rng = list(templates), rng
        self._left: list[str] = []

    def draw(self, avoid: Collection[str] = ()) -> str:
        """Return the next template that is not in ``avoid``."""
        fresh = [template for template in self._left if template not in avoid]
        if not fresh:
            self._left += self._rng.sample(self._templates, len(self._templates))
            fresh = [template for template in self._left if template not in avoid]
        self._left.remove(fresh[0])
        return fresh[0]


class PhraseDeck:
    """Draws general aims of one world, no phrase twice, as near to a wanted length as it can."""

    def __init__(self, phrases: WorldPhrases, rng: random.Random) -> None:
        heads = [*phrases.core, *phrases.heads]
        pairs = list(product(heads, phrases.tails))
        self._left = {pair: count_words(" ".join(pair)) for pair in rng.sample(pairs, len(pairs))}
        self._heads = {head: count_words(head) for head in rng.sample(heads, len(heads))}
        self._step = {head: 1 if head in phrases.core else 2 for head in heads}
        self._drawn: Counter[str] = Counter()

    def draw(self, words: int, avoid: set[str]) -> str:
        """Return an unused phrase; ``avoid`` holds the parts that its document already has."""
        distance = {
            pair: abs(length - words) + 3 * (pair[0] in avoid) + 3 * (pair[1] in avoid)
            for pair, length in self._left.items()
        }
        head, tail = min(distance, key=lambda pair: (distance[pair], self._drawn[pair[0]]))
        del self._left[head, tail]
        self._take(head, avoid)
        avoid.update([tail] if tail else [])
        return f"{head} {tail}".strip()

    def draw_head(self, words: int, avoid: set[str]) -> str:
        """Return a phrase without a tail, for a title; such a phrase may come again."""
        distance = {head: abs(length - words) for head, length in self._heads.items()}
        head = min(distance, key=lambda name: (distance[name], self._drawn[name]))
        self._take(head, avoid)
        return head

    def _take(self, head: str, avoid: set[str]) -> None:
        self._drawn[head] += self._step[head]
        avoid.add(head)


def fill(template: str, scenario: Scenario, rng: random.Random) -> str:
    """Settle the choices, scenario slots and numbers; objective slots stay open."""
    chosen = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in _NUMBERS:
            return str(rng.randint(*_NUMBERS[name]))
        return match[0] if match[2] else str(getattr(scenario, name))

    return SLOT.sub(value, chosen)


def inflect(phrase: str, form: str) -> str:
    """Return a verb phrase as ``vp`` (bare), ``to`` (infinitive) or ``ing`` (gerund).

    The first word is a verb; a later verb that must follow it in form is marked with ``~``.
    """
    if form == "ing":
        marked = re.sub(r"~(\w+)", lambda match: gerund(match[1]), phrase)
        verb, _, rest = marked.partition(" ")
        return f"{gerund(verb)} {rest}".strip()
    bare = phrase.replace("~", "")
    return f"to {bare}" if form == "to" else bare


def gerund(verb: str) -> str:
    """Return the -ing form; final consonants double only for the verbs listed above."""
    if verb in _DOUBLED:
        return f"{verb}{verb[-1]}ing"
    if verb.endswith("ie"):
        return f"{verb[:-2]}ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and verb != "be":
        return f"{verb[:-1]}ing"
    return f"{verb}ing"


def count_words(text: str) -> int:
    """Return the number of words between spaces."""
    return len(text.split())


def sentences(text: str) -> list[str]:
    """Split at line ends and after a full stop, question or exclamation mark."""
    return [part for line in text.split("\n") for part in re.split(r"(?<=[.!?])\s+", line) if part]


def capitalize(sentence: str) -> str:
    """Return ``sentence`` with a capital first letter and the rest as it is."""
    return sentence[:1].upper() + sentence[1:]
