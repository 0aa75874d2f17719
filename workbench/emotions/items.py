"""An emotion and a topic as data, and the files that hold those that ship."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from workbench.config import Config, parse, read_toml
from workbench.data import data_path
from workbench.errors import ConfigError, unknown
from workbench.given import several

HOME = data_path("trust_actions").parent
Thing = TypeVar("Thing")
SLOTS = {
    "stories": (("event", "feels"), ("name",)),
    "dialogues": (("subject",), ()),
    "exchanges": (("subject",), ()),
}
"""What a template must have, and what it may have beside."""
BRACES = "a brace that shall stand in the text is written twice, {{ or }}"


@dataclass(frozen=True)
class Emotion:
    """One emotion, how to ask for it, and the words that would give it away."""

    name: str
    """The noun, such as ``anger``."""
    feels: str
    """Completes "The person is ..."."""
    valence: int
    """-2 (unpleasant) to 2 (pleasant), as its author judged it."""
    arousal: int
    """-2 (quiet) to 2 (lively)."""
    forms: tuple[str, ...]
    """Every form of the word; the noun and the adjective are among them."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds the emotion's own word in a text, in whatever form."""
        words = sorted(self.forms, key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Topic:
    """An event that any emotion may go with, and a plain subject beside it."""

    name: str
    area: str
    event: str
    """Completes "In it, ..."."""
    subject: str
    """Completes "a conversation about ..."."""


class EmotionTable(Config):
    """One line of ``emotions.toml``."""

    feels: str = Field(min_length=1)
    valence: int = Field(ge=-2, le=2)
    arousal: int = Field(ge=-2, le=2)
    forms: str
    """Further forms of the word, parted by spaces."""


class AreaTable(Config):
    """One table of ``topics.toml``."""

    lines: str = Field(min_length=1)
    """A topic a line: ``name | event | subject``."""


class Template(Config):
    """A request for a text, with slots."""

    text: str
    person: str = ""
    """Who tells a story: first or third."""


class PromptFile(Config):
    """``prompts.toml``."""

    stories: tuple[Template, ...] = Field(min_length=1)
    dialogues: tuple[Template, ...] = Field(min_length=1)
    exchanges: tuple[Template, ...] = ()
    """Questions whose answers make dialogues too."""


def read_emotions(path: str | Path | None = None) -> dict[str, Emotion]:
    """Read emotions by name, in the order of the file.

    Args:
        path: what ships where it is left out; else a TOML file laid out alike.

    Raises:
        ConfigError: no such file, or one that is not as README.md explains.
    """
    place = HOME / "emotions.toml" if path is None else Path(path)
    return {name: _emotion(name, table, place) for name, table in read_toml(place).items()}


def read_topics(path: str | Path | None = None) -> dict[str, Topic]:
    """Read topics by name, in the order of the file; arguments and errors as `read_emotions`."""
    place = HOME / "topics.toml" if path is None else Path(path)
    topics: dict[str, Topic] = {}
    for area, table in read_toml(place).items():
        for line in parse(AreaTable, _table(area, table, place), f"{place}, [{area}]").lines.split(
            "\n"
        ):
            if line.strip():
                topic = _topic(line, area, place)
                if topic.name in topics:
                    raise ConfigError(f"{place}: two topics are called {topic.name!r}; rename one")
                topics[topic.name] = topic
    return topics


def read_templates(path: str | Path | None = None) -> PromptFile:
    """Read what a model is told to write; arguments and errors as `read_emotions`."""
    place = HOME / "prompts.toml" if path is None else Path(path)
    found = parse(PromptFile, read_toml(place), str(place))
    for kind, (needed, more) in SLOTS.items():
        for number, one in enumerate(getattr(found, kind)):
            _refuse_slots(one.text, needed, (*needed, *more), f"{place}, {kind} {number}")
    return found


def _refuse_slots(text: str, needed: Sequence[str], known: Sequence[str], where: str) -> None:
    try:
        parts = [part for part in Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise ConfigError(f"{where}: {text!r} is no template ({error}); {BRACES}") from None
    for _, slot, form, turned in parts:
        if slot not in known or form or turned:
            said = "".join(["{", str(slot), *(["!", turned] if turned else []),
                            *([":", form] if form else []), "}"])  # fmt: skip
            raise ConfigError(
                f"{where}: {said} is no slot; slots are {{{'}, {'.join(known)}}}, and {BRACES}"
            )
    if missing := [slot for slot in needed if slot not in {part[1] for part in parts}]:
        raise ConfigError(f"{where}: no slot {{{missing[0]}}} in the text; add it")


def choose(
    things: Mapping[str, Thing], wanted: int | Sequence[str] | None, what: str
) -> list[Thing]:
    """Return those named, or so many evenly spread over the file, or all.

    Raises:
        UnknownNameError: no such name.
        ConfigError: more than there are, or fewer than one.
    """
    if wanted is None:
        return list(things.values())
    if isinstance(wanted, int):
        if not 1 <= wanted <= len(things):
            raise ConfigError(f"{what} = {wanted}; there are {len(things)}, ask for 1 to that many")
        rows = np.linspace(0, len(things) - 1, wanted).round().astype(int)
        named = list(things)
        return [things[named[row]] for row in rows]
    wanted = several(wanted)
    if not wanted or len(set(wanted)) < len(wanted):
        raise ConfigError(f"{what} = {list(wanted)}; give at least one name, each once")
    for name in wanted:
        if name not in things:
            raise unknown(what.rstrip("s"), name, things)
    return [things[name] for name in wanted]


def _emotion(name: str, table: Any, place: Path) -> Emotion:
    told = parse(EmotionTable, _table(name, table, place), f"{place}, {name}")
    forms = dict.fromkeys([name, told.feels, *told.forms.split()])
    return Emotion(name, told.feels, told.valence, told.arousal, tuple(forms))


def _topic(line: str, area: str, place: Path) -> Topic:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) != 3 or not all(parts):
        raise ConfigError(f"{place}, [{area}]: {line!r}; write 'name | event | subject'")
    return Topic(parts[0], area, parts[1], parts[2])


def _table(name: str, table: Any, place: Path) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{place}: {name} = {table!r}; a table is expected")
    return table
