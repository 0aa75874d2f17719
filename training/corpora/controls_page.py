"""Pages: what a document of one genre is made of, read from a file, and how one is written."""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench_training.corpora.controls_grammar import (
    Choice,
    Expander,
    Pole,
    Template,
    draws,
    finish,
    has_poles,
    parse,
    slots,
)

_PARAGRAPH = (3, 6)
"""Sentences in a paragraph."""
_FULL = 0.85
"""The part of all lines of a page that an article may use."""
_HEADED = 0.6
"""The part of articles whose sections have headings."""


@dataclass(frozen=True)
class Section:
    """A stretch of a page and the sentences that it draws from, no line twice in an article.

    ``heads`` are headings, of which one is drawn; ``single`` puts each sentence in its own line.
    """

    lines: tuple[Template, ...]
    heads: tuple[Template, ...] = ()
    single: bool = False


@dataclass(frozen=True)
class Page:
    """A genre: its titles and sections, its symbols, and its topics (rows of fixed values)."""

    name: str
    titles: tuple[Template, ...]
    sections: tuple[Section, ...]
    symbols: Mapping[str, tuple[Template, ...]]
    fixed: tuple[str, ...]
    topics: tuple[Mapping[str, str], ...]
    given: tuple[str, ...]
    poles: int

    @cached_property
    def lines(self) -> list[Template]:
        """Return every template of the page but the symbols."""
        return [
            *self.titles,
            *(line for part in self.sections for line in (*part.lines, *part.heads)),
        ]

    @cached_property
    def capacities(self) -> tuple[float, ...]:
        """Return about how many words each section has when every line of it is used."""
        rng = random.Random(0)
        values = {**self._topics(1, rng)[0], **{name: name for name in self.given}}
        expander = self._expander(rng, values)
        return tuple(
            sum(_count(expander.expand(line)) for line in section.lines)
            for section in self.sections
        )

    def write(self, words: int, rng: random.Random, given: Mapping[str, str] | None = None) -> Text:
        """Write one document of about ``words`` words, in as many versions as there are poles.

        A document that is too long for one article has several of equal length, each on a topic of
        its own. ``given`` are fixed values from outside, such as a scenario's.
        """
        count = math.ceil(words / (_FULL * sum(self.capacities)))
        body = _Body(self.poles)
        topics = self._topics(count, rng)
        for topic in topics:
            body.left += words / count
            expander = self._expander(rng, {**topic, **(given or {})})
            self._article(expander, body, headed=rng.random() < _HEADED)
        return Text(tuple("\n".join(text) for text in body.texts), topics[0])

    def _topics(self, count: int, rng: random.Random) -> list[Mapping[str, str]]:
        """Draw different topics while there are such."""
        if not self.topics:
            return [{}] * count
        drawn: list[Mapping[str, str]] = []
        while len(drawn) < count:
            drawn += rng.sample(self.topics, min(len(self.topics), count - len(drawn)))
        return drawn

    def _expander(self, rng: random.Random, values: Mapping[str, str]) -> Expander:
        expander = Expander(self.symbols, values, rng, self.poles)
        for name in self.fixed:
            if name not in expander.fixed:
                expander.fix(name)
        return expander

    def _article(self, expander: Expander, body: _Body, *, headed: bool) -> None:
        title = [finish(text) for text in expander.expand(expander.rng.choice(self.titles))]
        body.line(title)
        left = sum(self.capacities)
        for row, section in enumerate(self.sections):
            body.section(section, expander, self.capacities[row] / left, headed and row > 0)
            left -= self.capacities[row]


@dataclass(frozen=True)
class Text:
    """One document in all its versions, and the topic of its first article."""

    versions: tuple[str, ...]
    topic: Mapping[str, str]


class _Body:
    """The lines of a document so far, for each pole, and how many words are still to come."""

    def __init__(self, poles: int) -> None:
        self.texts: list[list[str]] = [[] for _ in range(poles)]
        self.left = 0.0
        self._begun = False

    def section(self, section: Section, expander: Expander, share: float, headed: bool) -> None:
        """Add sentences until the section has its share of the words that are left."""
        head: list[str] = []
        if section.heads and headed:
            head = [finish(t) for t in expander.expand(expander.rng.choice(section.heads))]
            self.left -= _count(head)
        goal = self.left * (1 - share)
        chosen: list[list[str]] = []
        for template in expander.rng.sample(section.lines, len(section.lines)):
            sentence = [finish(text) for text in expander.expand(template)]
            words = _count(sentence)
            if self.left - words / 2 < goal and (chosen or self._begun):
                break
            chosen.append(sentence)
            self.left -= words
        if head and chosen:
            self._add([head])
        elif head:
            self.left += _count(head)
        self._begun = self._begun or bool(chosen)
        for paragraph in _paragraphs(chosen, expander.rng, section.single):
            self._add(paragraph)

    def line(self, text: Sequence[str]) -> None:
        """Add one line that counts."""
        self._add([text])
        self.left -= _count(text)

    def _add(self, sentences: Sequence[Sequence[str]]) -> None:
        for pole, text in enumerate(self.texts):
            text.append(" ".join(sentence[pole] for sentence in sentences))


def _paragraphs(
    sentences: list[list[str]], rng: random.Random, single: bool
) -> Iterator[list[list[str]]]:
    start = 0
    while start < len(sentences):
        size = 1 if single else rng.randint(*_PARAGRAPH)
        if not single and len(sentences) - start - size < _PARAGRAPH[0] - 1:
            size = len(sentences) - start
        yield sentences[start : start + size]
        start += size


def _count(versions: Sequence[str]) -> float:
    return sum(len(text.split()) for text in versions) / len(versions)


def read_page(path: Path, shared: Sequence[Path] = (), given: Sequence[str] = ()) -> Page:
    """Read a page and check that every slot has a value and every pole its sides.

    Args:
        path: the page's file.
        shared: files whose symbols it may use.
        given: names whose values come from outside.

    Raises:
        ValueError: the grammar cannot be expanded; the message names the line.
    """
    table = _table(path)
    symbols: dict[str, tuple[Template, ...]] = {}
    for source in [*(_table(file) for file in shared), table]:
        symbols |= {name: _lines(text) for name, text in source.get("symbols", {}).items()}
    topics = tuple(_topics(table["topics"])) if "topics" in table else ()
    sections = tuple(_section(part) for part in table["section"])
    fixed = tuple(table.get("fixed", "").split())
    titles = _lines(table["titles"])
    poles = table.get("poles", 1)
    page = Page(path.stem, titles, sections, symbols, fixed, topics, tuple(given), poles)
    _check(page)
    return page


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _lines(text: str) -> tuple[Template, ...]:
    return tuple(parse(line.strip()) for line in text.split("\n") if line.strip())


def _section(table: Mapping[str, Any]) -> Section:
    return Section(
        lines=_lines(table["lines"]),
        heads=_lines(table.get("heads", "")),
        single=table.get("single", False),
    )


def _topics(text: str) -> Iterator[dict[str, str]]:
    """Read a table whose first line names the columns; columns are parted by ``|``."""
    names, *rows = [
        [cell.strip() for cell in line.split("|")] for line in text.split("\n") if line.strip()
    ]
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"topic {row} has {len(row)} columns, {names} are {len(names)}")
        yield dict(zip(names, row, strict=True))


def _check(page: Page) -> None:
    columns = [*page.given, *(page.topics[0] if page.topics else ())]
    known = {*columns, *page.symbols}
    constant = [*columns, *page.fixed]
    every = [*page.lines, *(line for lines in page.symbols.values() for line in lines)]
    for line in every:
        unknown = sorted(set(slots(line)) - known)
        if unknown:
            raise ValueError(f"page {page.name}: no symbol {', '.join(unknown)} for {line}")
        _check_poles(page, line, constant)
    for name in page.fixed:
        if any(has_poles(line) for line in page.symbols[name]):
            raise ValueError(f"page {page.name}: the fixed symbol {name} differs by pole")


def _check_poles(page: Page, line: Template, constant: Sequence[str]) -> None:
    for part in line:
        if isinstance(part, Choice):
            for option in part.options:
                _check_poles(page, option, constant)
        if isinstance(part, Pole):
            if len(part.sides) != page.poles:
                raise ValueError(f"page {page.name}: {part} has not {page.poles} sides")
            if any(draws(side, constant) for side in part.sides):
                raise ValueError(f"page {page.name}: a side of {part} takes a draw of its own")
