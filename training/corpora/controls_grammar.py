"""A template language for documents: symbols, choices, numbers, and phrases that differ by pole.

A line may hold ``[a|b]`` (one of these, nested as you like), ``{name}`` (a symbol; drawn anew, or
the same all through a document where the page fixes it), ``{^name}`` (with a capital), ``{12-40}``
or ``{100-900:50}`` (a number, in steps), and ``<a|b>`` (the side of the document's pole: two
documents of one seed and different poles differ in these alone). Write ``a``; it becomes ``an``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

_NUMBER = re.compile(r"(\d+)-(\d+)(?::(\d+))?$")
_ARTICLE = re.compile(
    r"\b([Aa]) (?=(?![Uu]ni(?![mn])|[Uu]s[aeu]|[Oo]ne\b|[Oo]nce|[Ee]u|[Uu]ti)[aeiouAEIOU]"
    r"|hour|honest|heir|8|1[18]\b)"
)
_ONE = re.compile(
    r"(?<![.,:\d-])\b1 (meter|millimeter|centimeter|kilometer|kilogram|gram|liter|hectare|degree|"
    r"second|minute|hour|day|week|month|year|coin|point|goal|screw|teaspoon|spoon|turn|star|"
    r"square meter|lesson|question|task|row|student|page|tray|card|sheet|floor|window|step)s\b"
)
_ORDINAL = re.compile(r"\b(\d+)th\b")
_SUFFIXES = {"1": "st", "2": "nd", "3": "rd"}
_LOOSE = re.compile(r" +([.,;:!?])")
_CLOSING = {"[": "]", "<": ">"}


@dataclass(frozen=True)
class Symbol:
    """Stands for one of the lines of a symbol."""

    name: str
    capital: bool


@dataclass(frozen=True)
class Number:
    """Stands for a whole number from a range."""

    low: int
    high: int
    step: int


@dataclass(frozen=True)
class Choice:
    """Stands for one of some templates."""

    options: tuple[Template, ...]


@dataclass(frozen=True)
class Pole:
    """Stands for the template of the document's pole."""

    sides: tuple[Template, ...]


Part: TypeAlias = "str | Symbol | Number | Choice | Pole"
Template: TypeAlias = "tuple[Part, ...]"


def parse(line: str) -> Template:
    """Read one line of the template language.

    Raises:
        ValueError: a bracket that does not close, or an empty or unreadable slot.
    """
    parts, end = _parse(line, 0, "")
    if end != len(line):
        raise ValueError(f"unexpected {line[end]!r} at character {end} of {line!r}")
    return parts


def _parse(line: str, start: int, stops: str) -> tuple[Template, int]:
    """Read from ``start`` up to a character of ``stops`` that is not nested, or the end."""
    parts: list[Part] = []
    text = start
    here = start
    while here < len(line) and line[here] not in stops:
        character = line[here]
        if character in "[<{":
            parts += [line[text:here]] if text < here else []
            read = _slot if character == "{" else _group
            part, here = read(line, here)
            parts.append(part)
            text = here
        elif character in "]>}":
            break
        else:
            here += 1
    parts += [line[text:here]] if text < here else []
    return tuple(parts), here


def _slot(line: str, start: int) -> tuple[Part, int]:
    end = line.find("}", start)
    name = line[start + 1 : end]
    if end < 0 or not re.fullmatch(r"\^?\w+|\d+-\d+(:\d+)?", name):
        raise ValueError(f"unreadable slot at character {start} of {line!r}")
    found = _NUMBER.match(name)
    if found:
        return Number(int(found[1]), int(found[2]), int(found[3] or 1)), end + 1
    return Symbol(name.removeprefix("^"), name.startswith("^")), end + 1


def _group(line: str, start: int) -> tuple[Part, int]:
    closing = _CLOSING[line[start]]
    options, here = [], start
    while here == start or line[here] == "|":
        parts, here = _parse(line, here + 1, "|" + closing)
        options.append(parts)
        if here >= len(line):
            raise ValueError(f"{line[start]!r} at character {start} of {line!r} does not close")
    if line[here] != closing:
        raise ValueError(f"unexpected {line[here]!r} at character {here} of {line!r}")
    return (Pole if closing == ">" else Choice)(tuple(options)), here + 1


def slots(template: Template) -> Iterator[str]:
    """Yield the names of all symbols in a template, nested ones too."""
    for part in template:
        if isinstance(part, Symbol):
            yield part.name
        elif isinstance(part, Choice | Pole):
            for option in part.options if isinstance(part, Choice) else part.sides:
                yield from slots(option)


def draws(template: Template, fixed: Sequence[str]) -> bool:
    """Return whether expanding a template takes a random draw."""
    return any(
        isinstance(part, Number | Choice)
        or (isinstance(part, Symbol) and part.name not in fixed)
        or (isinstance(part, Pole) and any(draws(side, fixed) for side in part.sides))
        for part in template
    )


def has_poles(template: Template) -> bool:
    """Return whether a template itself differs by pole."""
    return any(
        isinstance(part, Pole) or (isinstance(part, Choice) and any(map(has_poles, part.options)))
        for part in template
    )


class Expander:
    """Expands templates for one document, for all its poles at once.

    Args:
        symbols: the lines of each symbol.
        fixed: values that are the same all through the document.
        rng: of this document alone.
        poles: how many versions to write; versions take the same draws.
    """

    def __init__(
        self,
        symbols: Mapping[str, Sequence[Template]],
        fixed: Mapping[str, str],
        rng: random.Random,
        poles: int = 1,
    ) -> None:
        self.symbols, self.fixed, self.rng, self.poles = symbols, dict(fixed), rng, poles
        self._used: dict[str, set[int]] = {}
        self._last: dict[str, int] = {}

    def fix(self, name: str) -> None:
        """Draw a symbol once and keep its value for the rest of the document."""
        value = self.expand((Symbol(name, False),))
        self.fixed[name] = value[0]

    def expand(self, template: Template) -> list[str]:
        """Return the text of each pole."""
        outs: list[list[str]] = [[] for _ in range(self.poles)]
        self._write(template, outs)
        return ["".join(out) for out in outs]

    def _write(self, template: Template, outs: list[list[str]]) -> None:
        for part in template:
            if type(part) is str:
                for out in outs:
                    out.append(part)
            elif type(part) is Symbol:
                self._symbol(part, outs)
            elif type(part) is Choice:
                self._write(part.options[int(self.rng.random() * len(part.options))], outs)
            elif type(part) is Number:
                steps = (part.high - part.low) // part.step + 1
                number = part.low + part.step * int(self.rng.random() * steps)
                for out in outs:
                    out.append(f"{number:,}" if number > 9999 else str(number))
            elif type(part) is Pole:
                for pole, out in enumerate(outs):
                    self._write(part.sides[pole], [out])

    def _symbol(self, part: Symbol, outs: list[list[str]]) -> None:
        value = self.fixed.get(part.name)
        if value is not None:
            written = value[:1].upper() + value[1:] if part.capital else value
            for out in outs:
                out.append(written)
            return
        lines = self.symbols[part.name]
        row = self._row(part.name, len(lines))
        begun = [len(out) for out in outs]
        self._write(lines[row], outs)
        if part.capital:
            for start, out in zip(begun, outs, strict=True):
                if start < len(out):
                    out[start] = out[start][:1].upper() + out[start][1:]

    def _row(self, name: str, count: int) -> int:
        """Draw a line, one that this document does not have yet while there are such."""
        used = self._used.setdefault(name, set())
        row = int(self.rng.random() * count)
        if len(used) == count:
            last = self._last[name]
            used.clear()
            used.update([last] if count > 1 else [])
        while row in used:
            row = (row + 1) % count
        used.add(row)
        self._last[name] = row
        return row


def finish(sentence: str) -> str:
    """Return a sentence with its capital, single spaces, right articles, units and ordinals."""
    text = _LOOSE.sub(r"\1", " ".join(sentence.split()))
    text = _ORDINAL.sub(_ordinal, _ONE.sub(r"1 \1", _ARTICLE.sub(r"\1n ", text)))
    return text[:1].upper() + text[1:]


def _ordinal(found: re.Match[str]) -> str:
    number = found[1]
    return number + ("th" if number[-2:-1] == "1" else _SUFFIXES.get(number[-1], "th"))
