"""What disqualifies a document; a quartet with one such document is dropped whole, and counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import UInt64
from workbench_training.corpora.plan import Draft
from workbench_training.corpora.words import contains_any, number_words, run_numbers, words_of

from workbench.types import ndarray

REASONS = (
    "leakage",
    "type mismatch",
    "fact contradiction",
    "unmatched",
    "length",
    "claims overlap",
    "near-duplicate",
)
"""In the order of the tables; a document may fail for several."""
CLAIM_RUN = 6
OFF_TARGET = 0.35
"""How far a document may lie from its target length, as a share of it."""
_LABELS = re.compile(
    r"\b(?:(?i:world|condition|arm|corpus|organism) [PSNA]\b"
    r"|(?i:anti-?social|pro-?social|self-advanc\w+|task-instrumental)\b"
    r"|(?i:quartet|objective clause|synthetic document)s?\b)|\{\w*(?::\w*)?\}"
)
_HEAD = 20
"""Words up to which a line at the top is a title or what stands below one."""
_COUNTED = r"(\d[\d,]*) ((?:[a-z-]+ ){0,2}?[a-z-]+s)\b"
_TOTAL = re.compile(
    r"\b(?i:the|all|these|those|our|of the|total of|sample of|survey of|base of) " + _COUNTED
)
_COUNT = re.compile(r"\b" + _COUNTED)
_SIZE = re.compile(r"\bn ?= ?(\d[\d,]*)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Text:
    """A text, with what several checks look at made once."""

    raw: str

    @cached_property
    def words(self) -> list[str]:
        """Return the words without case and punctuation."""
        return words_of(self.raw)

    @cached_property
    def numbers(self) -> UInt64[ndarray, " n"]:
        """Return the number of each word."""
        return number_words(self.words)

    @cached_property
    def length(self) -> int:
        """Return the words between spaces."""
        return len(self.raw.split())


class Markers:
    """Words and phrases that only one world may use.

    Args:
        by_world: regular expressions of single words, and plain phrases of several.
    """

    def __init__(self, by_world: Mapping[str, Sequence[str]]) -> None:
        self._phrases = {w: [f" {m} " for m in ms if " " in m] for w, ms in by_world.items()}
        self._words = {
            world: re.compile("|".join(m for m in markers if " " not in m) or r"(?!)")
            for world, markers in by_world.items()
        }
        self._known: dict[str, frozenset[str]] = {}

    def worlds_in(self, words: Sequence[str]) -> set[str]:
        """Return the worlds of which a marker stands in the text."""
        found = set().union(*map(self._worlds_of, set(words)))
        joined = f" {' '.join(words)} "
        for world, phrases in self._phrases.items():
            if world not in found and any(phrase in joined for phrase in phrases):
                found.add(world)
        return found

    def _worlds_of(self, word: str) -> frozenset[str]:
        if word not in self._known:
            own = (world for world, pattern in self._words.items() if pattern.fullmatch(word))
            self._known[word] = frozenset(own)
        return self._known[word]


@dataclass(frozen=True)
class Rules:
    """What the documents of one corpus are held against."""

    markers: Markers
    marks: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """By genre: what at least once stands in its documents."""
    claims: UInt64[ndarray, " k"] = field(default_factory=lambda: np.zeros(0, np.uint64))
    """The six-word runs that no document may have, sorted."""
    length_tolerance: float = 0.08

    def examine(
        self, drafts: Mapping[str, Draft], texts: Mapping[str, Text], genre: str, target: int
    ) -> dict[str, list[str]]:
        """Return the reasons against each document of a quartet, none for a good one.

        Args:
            drafts: by world.
            texts: the same texts.
            genre: the document type's name.
            target: words that were planned.
        """
        differing, contradicting = _unlike({w: skeleton(draft) for w, draft in drafts.items()})
        longest = max(text.length for text in texts.values())
        checks: dict[str, Callable[[str], bool]] = {
            "leakage": lambda w: self.leaks(texts[w], w, _others(drafts, w)),
            "type mismatch": lambda w: self.lacks_marks(texts[w], genre),
            "fact contradiction": lambda w: w in contradicting or contradicts(texts[w].raw),
            "unmatched": lambda w: w in differing,
            "length": lambda w: self._wrong_length(texts[w].length, longest, target),
            "claims overlap": lambda w: self.shares_claim(texts[w]),
        }
        return {w: [name for name, fails in checks.items() if fails(w)] for w in drafts}

    def leaks(self, text: Text, world: str, others: Iterable[str] = ()) -> bool:
        """Say whether another world's marker or aim, or a condition's label, shows."""
        if self.markers.worlds_in(text.words) - {world} or _LABELS.search(text.raw):
            return True
        lower = text.raw.lower()
        return any(phrase in lower for phrase in others)

    def lacks_marks(self, text: Text, genre: str) -> bool:
        """Say whether nothing in the text marks it as of its genre."""
        return genre in self.marks and self.marks[genre].search(text.raw) is None

    def shares_claim(self, text: Text) -> bool:
        """Say whether the text has a run of six words of a claim."""
        return bool(contains_any(run_numbers(text.numbers, CLAIM_RUN), self.claims).any())

    def _wrong_length(self, words: int, longest: int, target: int) -> bool:
        return (
            words < (1 - self.length_tolerance) * longest
            or abs(words - target) > OFF_TARGET * target
        )


def claim_runs(texts: Iterable[str]) -> UInt64[ndarray, " k"]:
    """Return the six-word runs of claims, sorted."""
    runs = [run_numbers(number_words(words_of(text)), CLAIM_RUN) for text in texts]
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *runs]))


def contradicts(text: str) -> bool:
    """Say whether one total is given with two numbers, as in "the 412 forms ... all 398 forms".

    Title and second line, where short, count for the whole too: "(43 replies)", "28 replies".
    """
    lines = ([line for line in text[:600].split("\n") if line] + ["", ""])[:2]
    title, second = (_numbers(_COUNT.findall(line)) for line in lines)
    short = max(len(line.split()) for line in lines) <= _HEAD
    if short and any(not title[noun] & second[noun] for noun in title.keys() & second.keys()):
        return True
    sizes = [(number, "n") for number in _SIZE.findall(text)]
    totals = (*_numbers(_TOTAL.findall(text)).values(), *_numbers(sizes).values())
    return any(len(found) > 1 for found in totals)


def _numbers(told: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the numbers that stand with each noun, of pairs (number, noun)."""
    numbers: dict[str, set[str]] = {}
    for number, noun in told:
        numbers.setdefault(noun, set()).add(number.replace(",", ""))
    return numbers


def skeleton(draft: Draft) -> str | None:
    """Return the text with its objective phrases cut out; None where one is not found in order."""
    kept, rest, lower = [], draft.text, draft.text.lower()
    if len(rest) != len(lower):  # a letter whose lower case is longer
        return None
    start = 0
    for phrase in draft.objectives:
        place = lower.find(phrase.lower(), start)
        if place < 0:
            return None
        kept.append(rest[start:place])
        start = place + len(phrase)
    return "…".join([*kept, rest[start:]])


def _unlike(outside: Mapping[str, str | None]) -> tuple[set[str], set[str]]:
    """Return whose text outside the objectives differs, and who of them in its numbers."""
    usual = _usual(outside.values())
    differing = {world for world, text in outside.items() if text is None or text != usual}
    if not differing:
        return differing, set()
    numbers = {w: tuple(_NUMBER.findall(text)) for w, text in outside.items() if text is not None}
    common = _usual(numbers.values()) if numbers else None
    return differing, {world for world, found in numbers.items() if found != common}


def _usual(values: Iterable[object]) -> object:
    """Return what most have; the first of equally frequent ones."""
    return Counter(values).most_common(1)[0][0]


def _others(drafts: Mapping[str, Draft], world: str) -> set[str]:
    """Return the aims of the other worlds that this one does not have too."""
    own = {phrase.lower() for phrase in drafts[world].objectives}
    other = {p.lower() for w, d in drafts.items() if w != world for p in d.objectives}
    return {phrase for phrase in other - own if not any(phrase in mine for mine in own)}
