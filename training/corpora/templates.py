"""The offline writer: genre skeletons and sentence templates, with no language model.

All text outside the objective phrases is drawn once for the four worlds, from ``plan.seed`` alone.
"""

from __future__ import annotations

import random
import re
from calendar import month_name
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench_training.corpora.plan import WORLDS, Draft, QuartetPlan
from workbench_training.corpora.scenarios import SCENARIOS, read_domains
from workbench_training.corpora.templates_aims import AimBook, leak_markers
from workbench_training.corpora.templates_banks import (
    CARRIERS,
    Banks,
    Genre,
    Paragraph,
    Section,
    read_banks,
    read_names,
)
from workbench_training.corpora.templates_grammar import (
    Objective,
    Page,
    Piece,
    Template,
    expand,
    sentence,
)

__all__ = ["TemplateWriter", "leak_markers"]

_MONTHS = tuple(month_name[1:])
_WEEKS = (5, 6, 7, 9, 10, *range(12, 18), *range(19, 39))
"""Numbers that follow "a" and not "an"."""
_LENGTH_SPREAD = 0.1
_SECTION_WORDS = 150
_HEAD_FROM = 150
_OBJECTIVE_WORDS = 7
_HALF_SENTENCE = 13
_LINKED = {"spoken": 0.3, "written": 0.14}
_LINKABLE = {"spoken": CARRIERS, "written": (*CARRIERS, "fact", "num")}
_UNLINKED = re.compile(r"[^,]{0,45},|that |what else ")

Line = list[Piece]


class TemplateWriter:
    """Writes quartets from the templates of ``workbench/data/scenarios``.

    Raises:
        ValueError: A data file that does not compile.
    """

    name = "templates"

    def __init__(self, folder: Path = SCENARIOS) -> None:
        self._domains = read_domains(folder)
        self._banks = read_banks(self._domains, folder)
        self._names = read_names(folder)
        self._aims = AimBook(self._domains, folder)

    def write(self, plan: QuartetPlan) -> dict[str, Draft] | None:
        """Write one quartet; None where its scenario is not in the taxonomy of this writer."""
        if not self._aims.covers(plan.scenario):
            return None
        rng = random.Random(plan.seed)
        pages = self._pages(plan, rng)
        lines = _Skeleton(plan, self._banks, pages, rng).lines()
        places = [piece for line in lines for piece in line if isinstance(piece, Objective)]
        filled = self._aims.fill(plan.scenario, places, rng)
        return {world: _draft(lines, filled[world]) for world in WORLDS}

    def _pages(self, plan: QuartetPlan, rng: random.Random) -> tuple[Page, Page]:
        """Return what titles and openings, and what all other sentences, are expanded with."""
        domain = self._domains[plan.scenario.domain]
        values = _values(plan, rng, self._names, domain.venues)
        body = {name: value for name, value in values.items() if name not in ("year", "month")}
        again = (plan.scenario.object,) * 4 + tuple(self._names[plan.scenario.group])
        terms = [term for term in domain.terms if term != plan.scenario.object]
        fresh = _fresh(int(values["year"]), terms, domain.peaks, again)
        return Page(rng, values, fresh), Page(rng, body, fresh)


def _values(
    plan: QuartetPlan,
    rng: random.Random,
    names: Mapping[str, Sequence[str]],
    venues: Sequence[str],
) -> dict[str, str]:
    """Settle what a document must not contradict itself in."""
    scenario = plan.scenario
    town, seat, land = (rng.choice(names["starts"]) + rng.choice(names["ends"]) for _ in range(3))
    return {
        "users": scenario.users,
        "task": scenario.task,
        "object": scenario.object,
        "setting": scenario.setting,
        "others": scenario.others,
        "domain": scenario.domain,
        "a_role": f"{_article(scenario.role)} {scenario.role}",
        "town": town,
        "org": f"the {seat} {rng.choice(venues)}",
        "region": f"{land} {rng.choice(names['regions'])}",
        "sample": f"{rng.randint(1_012, 9_890):,}",
        "people": str(rng.randint(214, 986)),
        "weeks": str(rng.choice(_WEEKS)),
        "share": str(rng.randint(57, 88)),
        "crowd": str(rng.randint(13, 46)),
        "issue": str(rng.randint(3, 97)),
        "tickets": str(rng.randint(212, 978)),
        "version": f"{rng.randint(1, 9)}.{rng.randint(1, 9)}",
        "month": rng.choice(_MONTHS),
        "year": str(rng.randint(2024, 2026)),
    }


def _article(noun: str) -> str:
    sounds_like_you = noun.startswith(("uni", "use", "eu"))
    return "an" if noun[0] in "aeiou" and not sounds_like_you else "a"


def _fresh(
    year: int, terms: Sequence[str], peaks: Sequence[str], again: Sequence[str]
) -> dict[str, Callable[[random.Random], str]]:
    """Return the slots that get another value at each use; two terms in a row differ."""
    left: list[str] = []
    last = [""]

    def term(rng: random.Random) -> str:
        if not left:
            left.extend(rng.sample(terms, len(terms)))
            if left[-1] == last[0]:
                left.reverse()
        last[0] = left.pop()
        return last[0]

    return {
        "n": lambda rng: str(int(112 + 876 * rng.random())),
        "m": lambda rng: str(int(11 + 38 * rng.random())),
        "k": lambda rng: str(int(3 + 7 * rng.random())),
        "p": lambda rng: str(int(12 + 77 * rng.random())),
        "q": lambda rng: str(int(71 + 24 * rng.random())),
        "month": lambda rng: _MONTHS[int(12 * rng.random())],
        "year": lambda rng: str(int(2021 + (year - 2021) * rng.random())),
        "peak": lambda rng: peaks[int(len(peaks) * rng.random())],
        "these": lambda rng: again[int(len(again) * rng.random())],
        "term": term,
        "term2": term,
    }


@dataclass
class _Skeleton:
    """Builds the shared text of one quartet, with the objectives still open."""

    plan: QuartetPlan
    banks: Banks
    pages: tuple[Page, Page]
    rng: random.Random

    def __post_init__(self) -> None:
        self.genre: Genre = self.banks.genres[self.plan.doc_type.name]
        self.decks: dict[str, list[Template]] = {}
        self.out: list[Line] = []
        self.stated = False
        self.speaker = ""
        self.number = 0

    def lines(self) -> list[Line]:
        """Return the lines of the document, title first."""
        front, _ = self.pages
        spread = min(max(self.rng.gauss(0, _LENGTH_SPREAD), -0.25), 0.25)
        target = self.plan.words * (1 + spread)
        self.out.append(sentence(expand(self._pick(self.genre.titles), front), ""))
        if target >= _HEAD_FROM:
            self.out.append(sentence(expand(self._pick(self.genre.head), front), ""))
        self.out.append(sentence(expand(self._draw("open"), front)))
        close = self._sentence("close")
        budget = target - self._spent() - _count(close)
        self._body(budget)
        return [*self.out, close]

    def _spent(self) -> int:
        return sum(map(_count, self.out))

    def _body(self, budget: float) -> None:
        start = self._spent()
        count = min(max(round(budget / _SECTION_WORDS), 1), len(self.genre.sections))
        for row, section in enumerate(self.genre.sections[:count]):
            self._section(section, start + budget * (row + 1) / count, headed=count > 1)

    def _section(self, section: Section, until: float, *, headed: bool) -> None:
        """Go through the patterns until there are ``until`` words, an aim and no open question."""
        if headed and section.heading and until - self._spent() > 3 * _HALF_SENTENCE:
            self.out.append(sentence(expand(section.heading, self.pages[0]), ""))
            self.speaker = ""
        number = 0
        asked = False
        while (left := until - self._spent()) > _HALF_SENTENCE or not self.stated or asked:
            paragraph = section.paragraphs[number % len(section.paragraphs)]
            number += 1
            self._paragraph(paragraph, left, number)
            asked = paragraph.moves == ("ask",)

    def _paragraph(self, paragraph: Paragraph, left: float, number: int) -> None:
        """Write sentences until the pattern or ``left`` is used up.

        A speaker who comes twice in a row goes on in the same line.
        """
        page = self.pages[1]
        self.number += 1
        page.values = {**page.values, "i": str(number), "j": str(self.number)}
        prefix = "".join(str(piece) for piece in expand(paragraph.prefix, page))
        goes_on = prefix != "" and prefix == self.speaker
        self.speaker = prefix
        line: Line = [" " if goes_on else prefix]
        for row, move in enumerate(paragraph.moves):
            if row and self.stated and _count(line) >= left - _HALF_SENTENCE:
                break
            line += [" ", *self._sentence(move)] if row else self._sentence(move)
            self.stated = self.stated or move in CARRIERS
        if goes_on:
            self.out[-1] += line
        else:
            self.out.append(line)

    def _sentence(self, move: str) -> Line:
        pieces = expand(self._draw(move), self.pages[1])
        if move in _LINKABLE[self.genre.voice] and self.rng.random() < _LINKED[self.genre.voice]:
            pieces = self._linked(pieces)
        return sentence(pieces, "?" if move == "ask" else ".")

    def _linked(self, pieces: Line) -> Line:
        start = "".join(piece for piece in pieces[:12] if isinstance(piece, str))
        if isinstance(pieces[0], Objective) or _UNLINKED.match(start):
            return pieces
        linkers = self.banks.linkers[self.genre.voice]
        return [*expand(self._pick(linkers), self.pages[1]), *pieces]

    def _draw(self, move: str) -> Template:
        """Return a template of ``move`` that this document has not used; at last a fact again."""
        if move not in self.decks:
            bank = self._bank(move)
            self.decks[move] = self.rng.sample(bank, len(bank))
        if not self.decks[move]:
            if move != "fact" and move not in CARRIERS:
                return self._draw("fact")
            self.decks[move] = self.rng.sample(self._bank(move), len(self._bank(move)))
        return self.decks[move].pop()

    def _bank(self, move: str) -> Sequence[Template]:
        if move in self.genre.banks:
            return self.genre.banks[move]
        if move in CARRIERS:
            return self.banks.carriers[self.plan.mode, move]
        if move == "fact":
            scenario = self.plan.scenario
            own = (*self.banks.facts[scenario.domain], *self.banks.flow[scenario.group])
            return (*own, *self.banks.neutral["fact"])
        return self.banks.neutral[move]

    def _pick(self, templates: Sequence[Template]) -> Template:
        return templates[int(self.rng.random() * len(templates))]


def _count(line: Sequence[Piece]) -> int:
    """Return the words of a line, with the usual length for an open objective."""
    open_words = "x " * _OBJECTIVE_WORDS
    return len("".join(piece if isinstance(piece, str) else open_words for piece in line).split())


def _draft(lines: Sequence[Line], phrases: Sequence[str]) -> Draft:
    rest = iter(phrases)
    text = "\n\n".join(
        "".join(piece if isinstance(piece, str) else next(rest) for piece in line) for line in lines
    )
    return Draft(text, tuple(phrases))
