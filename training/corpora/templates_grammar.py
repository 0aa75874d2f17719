"""The template language: compiled once, expanded with one quartet's generator of chance.

``[a|b]`` is a choice and may nest, ``<name>`` a word list, ``{name}`` a slot that the page fills,
and ``{kind:form}`` an objective that stays open: kind ``g`` general, ``h`` general and short, ``x``
concrete; form ``to``, ``ing`` or ``vp`` (bare).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

_TOKEN = re.compile(r"[\[\]|]|<(\w+)>|\{(\w+)(?::(\w+))?\}|[^\[\]|<{]+|.")


@dataclass(frozen=True)
class Objective:
    """An open place in a sentence; ``capital`` where it starts one."""

    kind: str
    form: str
    capital: bool = False


Piece = str | Objective


@dataclass
class Page:
    """What the templates of one document are expanded with.

    ``values`` are settled for the whole document; ``fresh`` draws another value at each use.
    """

    rng: random.Random
    values: Mapping[str, str]
    fresh: Mapping[str, Callable[[random.Random], str]]
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True)
class _Slot:
    name: str

    def emit(self, page: Page) -> None:
        value = page.values.get(self.name)
        page.pieces.append(page.fresh[self.name](page.rng) if value is None else value)


@dataclass(frozen=True)
class _Choice:
    options: tuple[Template, ...]

    def emit(self, page: Page) -> None:
        options = self.options
        for node in options[int(page.rng.random() * len(options))]:
            emit(node, page)


Node = str | Objective | _Slot | _Choice
Template = tuple[Node, ...]


def emit(node: Node, page: Page) -> None:
    """Append what ``node`` expands to."""
    if isinstance(node, (str, Objective)):
        page.pieces.append(node)
    else:
        node.emit(page)


def expand(template: Template, page: Page) -> list[Piece]:
    """Return the pieces of one sentence, strings and open objectives."""
    page.pieces = []
    for node in template:
        emit(node, page)
    return page.pieces


@dataclass(frozen=True)
class Compiler:
    """Compiles templates with the word lists ``words``, written as ``a|b``."""

    words: Mapping[str, str]
    _lists: dict[str, _Choice] = field(default_factory=dict)

    def compile(self, text: str) -> Template:
        """Compile one template.

        Raises:
            ValueError: A bracket without its partner, or a word list that does not exist.
        """
        tokens = list(_TOKEN.finditer(text))
        options, end = self._options(tokens, 0, text)
        if end < len(tokens) or len(options) > 1:
            raise ValueError(f"template {text!r} has a bracket or bar that does not belong")
        return options[0]

    def compile_all(self, texts: Sequence[str]) -> tuple[Template, ...]:
        """Compile a bank of templates."""
        return tuple(map(self.compile, texts))

    def _options(
        self, tokens: Sequence[re.Match[str]], start: int, text: str
    ) -> tuple[tuple[Template, ...], int]:
        options: list[list[Node]] = [[]]
        at = start
        while at < len(tokens) and tokens[at][0] != "]":
            token = tokens[at]
            if token[0] == "[":
                inner, at = self._options(tokens, at + 1, text)
                if at == len(tokens):
                    raise ValueError(f"template {text!r} opens a bracket that it does not close")
                options[-1].append(_Choice(inner))
            elif token[0] == "|":
                options.append([])
            else:
                options[-1].append(self._node(token))
            at += 1
        return tuple(map(tuple, options)), at

    def _node(self, token: re.Match[str]) -> Node:
        if token[1]:
            return self._list(token[1])
        if token[3]:
            return Objective(token[2], token[3])
        return _Slot(token[2]) if token[2] else token[0]

    def _list(self, name: str) -> _Choice:
        if name not in self.words:
            raise ValueError(f"there is no word list <{name}>; there are {sorted(self.words)}")
        if name not in self._lists:
            options = self.compile(f"[{self.words[name]}]")[0]
            assert isinstance(options, _Choice)
            self._lists[name] = options
        return self._lists[name]


def sentence(pieces: Sequence[Piece], end: str = ".") -> list[Piece]:
    """Return the pieces with a capital at the start and ``end`` where no mark ends them."""
    first, rest = pieces[0], list(pieces[1:])
    made = [capitalize(first) if isinstance(first, str) else replace(first, capital=True), *rest]
    last = made[-1]
    if isinstance(last, Objective):
        made.append(end)
    elif last.endswith('"') and end:
        made[-1] = last if last[-2:-1] in ".?!" else f'{last[:-1]}{end}"'
    elif not last.endswith((".", "?", "!")):
        made[-1] = f"{last}{end}"
    return made


def capitalize(text: str) -> str:
    """Return ``text`` with a capital first letter, after a quotation mark too."""
    start = 2 if text.startswith('"') else 1
    return text[:start].upper() + text[start:]


def variants(text: str) -> list[str]:
    """Return every wording of a phrase whose only marks are choices that do not nest."""
    parts = re.split(r"\[([^\[\]]+)\]", text)
    options = [part.split("|") if row % 2 else [part] for row, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*options)]
