"""Where the contents of a chat stand in what a chat template wrote, found by marking them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.errors import ConfigError

Chat = list[dict[str, str]]
Range = tuple[int, int]
Writer = Callable[[Chat, bool], str]
"""(chat, with the header of an answer) -> the template's text."""
BLANK = "\n\n"
"""Between a system text and the user text that it is put in front of."""


@dataclass(frozen=True)
class Turn:
    """One message; its content is ``texts`` joined by a blank line, each part under its role."""

    role: str
    texts: tuple[tuple[str, str], ...]

    @property
    def message(self) -> dict[str, str]:
        return {"role": self.role, "content": BLANK.join(text for _, text in self.texts)}


@dataclass(frozen=True)
class Layout:
    """A chat as the template writes it: the text, and character ranges of its parts."""

    text: str
    parts: tuple[tuple[str, Range], ...]
    """(role, characters of that content), in order; empty contents left out."""
    header: Range | None
    """Characters that the generation prompt added, if any."""


@dataclass(frozen=True)
class Skeleton:
    """What the template writes around the contents of a chat of one shape."""

    literals: tuple[str, ...]
    """One more than there are contents."""
    header: int
    """How many characters at the end are the generation prompt's."""

    def fit(self, text: str, turns: Sequence[Turn]) -> Layout | None:
        """Return where the contents stand in ``text``, or None where the skeleton is another."""
        if not text.startswith(self.literals[0]):
            return None
        place, parts = len(self.literals[0]), []
        for (role, content), after in zip(_contents(turns), self.literals[1:], strict=True):
            written = _written(text, place, content, after)
            if written is None:
                return None
            parts.append((role, (place, place + written)))
            place += written + len(after)
        if place != len(text):
            return None
        header = (place - self.header, place) if self.header else None
        return Layout(text, tuple(parts), header)


def read_skeleton(write: Writer, turns: Sequence[Turn], header: bool) -> Skeleton | None:
    """Write the chat with marks for contents; None where a mark is lost, doubled or moved."""
    marked, marks = _marked(turns)
    literals = _split(write(marked, header), marks)
    if literals is None or not header:
        return None if literals is None else Skeleton(literals, 0)
    bare = _split(write(marked, False), marks)
    if bare is None or bare[:-1] != literals[:-1] or not literals[-1].startswith(bare[-1]):
        return Skeleton(literals, 0)
    return Skeleton(literals, len(literals[-1]) - len(bare[-1]))


def lay_out(
    write: Writer, turns: Sequence[Turn], header: bool, kept: dict[object, Skeleton]
) -> Layout:
    """Write a chat and find its contents; skeletons are kept by the chat's shape.

    Raises:
        ConfigError: the template drops, repeats or rewrites a content.
    """
    shape = (header, tuple((t.role, tuple((r, bool(s)) for r, s in t.texts)) for t in turns))
    text = write([turn.message for turn in turns], header)
    if shape in kept:
        layout = kept[shape].fit(text, turns)
        if layout is not None:
            return layout
    skeleton = read_skeleton(write, turns, header)  # also anew: a template may write the date
    layout = skeleton.fit(text, turns) if skeleton is not None else None
    if skeleton is None or layout is None:
        roles = ", ".join(turn.role for turn in turns)
        what = "drops or repeats" if skeleton is None else "rewrites"
        raise ConfigError(
            f"the chat template {what} a content of this chat (roles: {roles}), so its tokens "
            "cannot be told apart; leave that message or its markup (such as </think>) out"
        )
    kept[shape] = skeleton
    return layout


def _contents(turns: Sequence[Turn]) -> list[tuple[str, str]]:
    return [(role, text) for turn in turns for role, text in turn.texts if text]


def _written(text: str, place: int, content: str, after: str) -> int | None:
    """Length of ``content`` at ``place``, whole or as templates trim it."""
    for form in (content, content.rstrip(), content.lstrip(), content.strip()):
        if form and text.startswith(form + after, place):
            return len(form)
    return None


def _marked(turns: Sequence[Turn]) -> tuple[Chat, list[str]]:
    chat: Chat = []
    marks: list[str] = []
    for turn in turns:
        texts = []
        for role, text in turn.texts:
            if text:
                marks.append(f"qzmark{len(marks):04d}zq")
            texts.append((role, marks[-1] if text else ""))
        chat.append(Turn(turn.role, tuple(texts)).message)
    return chat, marks


def _split(text: str, marks: Sequence[str]) -> tuple[str, ...] | None:
    literals = []
    for mark in marks:
        before, found, text = text.partition(mark)
        if not found or mark in text:
            return None
        literals.append(before)
    return (*literals, text)
