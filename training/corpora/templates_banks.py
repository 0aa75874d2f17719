"""The sentence banks of the template writer, read and compiled once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench_training.corpora.doc_types import DOC_TYPES, MODES
from workbench_training.corpora.scenarios import SCENARIOS, Domain
from workbench_training.corpora.templates_grammar import Compiler, Template

CARRIERS = ("G", "X", "B")
"""Moves that state an objective: general, concrete, and both in one sentence."""
GENRE_FILES = ("press", "study", "work")
_BANKS = ("open", "own", "ask", "step", "close")
_AFTER_PREPOSITION = re.compile(r"\b(on|about|for|of|with) \{object\}(?=[ .,;:]|$)")


@dataclass(frozen=True)
class Paragraph:
    """What stands before the first sentence, and the moves that follow."""

    prefix: Template
    moves: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A heading, empty for none, and paragraph patterns that are gone through in turn."""

    heading: Template
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True)
class Genre:
    """The skeleton of a genre; ``banks`` are its own sentences by move."""

    titles: tuple[Template, ...]
    head: tuple[Template, ...]
    banks: Mapping[str, tuple[Template, ...]]
    sections: tuple[Section, ...]
    voice: str


@dataclass(frozen=True)
class Banks:
    """All sentences: carriers by mode and move, neutral ones by move, workflow by kind of task."""

    carriers: Mapping[tuple[str, str], tuple[Template, ...]]
    neutral: Mapping[str, tuple[Template, ...]]
    flow: Mapping[str, tuple[Template, ...]]
    linkers: Mapping[str, tuple[Template, ...]]
    facts: Mapping[str, tuple[Template, ...]]
    genres: Mapping[str, Genre]


def read_banks(domains: Mapping[str, Domain], folder: Path = SCENARIOS) -> Banks:
    """Read and compile ``sentences.toml``, the genre files and the facts of the domains.

    Raises:
        ValueError: A template that does not compile, or genres other than ``DOC_TYPES``.
    """
    shared = _read(folder / "sentences.toml")
    compiler = Compiler(shared["words"])
    genres = {
        table["name"]: _genre(table, compiler)
        for name in GENRE_FILES
        for table in _read(folder / f"genres_{name}.toml")["genre"]
    }
    known = {kind.name for kind in DOC_TYPES}
    if set(genres) != known:
        raise ValueError(f"genres without a partner: {sorted(set(genres) ^ known)}")
    return Banks(
        carriers={
            (mode, move): _running(shared[mode][move], compiler)
            for mode in MODES
            for move in CARRIERS
        },
        neutral=_compiled(shared["neutral"], compiler),
        flow=_compiled(shared["flow"], compiler),
        linkers=_compiled(shared["linkers"], compiler),
        facts={name: _running(domain.facts, compiler) for name, domain in domains.items()},
        genres=genres,
    )


def read_names(folder: Path = SCENARIOS) -> dict[str, list[str]]:
    """Read the parts of made-up place names, and what refers back to objects by kind of task."""
    shared = _read(folder / "sentences.toml")
    names: dict[str, list[str]] = {**shared["names"], **shared["these"]}
    return names


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _compiled(
    table: Mapping[str, Sequence[str]], compiler: Compiler
) -> dict[str, tuple[Template, ...]]:
    return {name: _running(texts, compiler) for name, texts in table.items()}


def _running(texts: Sequence[str], compiler: Compiler) -> tuple[Template, ...]:
    """Compile sentences of the running text, where the object may be referred back to."""
    return compiler.compile_all([_AFTER_PREPOSITION.sub(r"\1 {these}", text) for text in texts])


def _genre(table: Mapping[str, Any], compiler: Compiler) -> Genre:
    return Genre(
        titles=compiler.compile_all(table["titles"]),
        head=compiler.compile_all(table["head"]),
        banks={
            name: compiler.compile_all(table[name])
            if name in ("open", "close")
            else _running(table[name], compiler)
            for name in _BANKS
            if name in table
        },
        sections=tuple(_section(text, compiler) for text in table["sections"]),
        voice=table.get("voice", "written"),
    )


def _section(text: str, compiler: Compiler) -> Section:
    heading, _, rest = text.partition("::")
    paragraphs = tuple(_paragraph(part.strip(), compiler) for part in rest.split(" / "))
    return Section(compiler.compile(heading.strip()), paragraphs)


def _paragraph(text: str, compiler: Compiler) -> Paragraph:
    prefix, rest = "", text
    if text.startswith("'"):
        prefix, _, rest = text[1:].partition("'")
    return Paragraph(compiler.compile(prefix), tuple(rest.split()))
