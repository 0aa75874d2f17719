"""Which written texts may be read: long enough, and without the word that gives them away."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from workbench.emotions.items import Emotion
from workbench.emotions.requests import DIALOGUE, EXCHANGE, STORY
from workbench.errors import ConfigError, UnknownNameError, unknown
from workbench.prompts import PromptSet
from workbench.transcripts import Transcripts

NAMED = "names the emotion"
SHORT = "short"
REFUSED = "refused"
NO_TURNS = "no turns"
_SORRY = r"(?:i['\u2019]?m sorry|i am sorry|i apologi[sz]e|sorry|unfortunately)?[,.]?\s*(?:but )?"
_UNABLE = (
    r"(?:as an ai\b|i(?:['\u2019]m| am) (?:unable|not able)\b|"
    r"i (?:can['\u2019]?t|cannot|will not|won['\u2019]t)"
    r" (?:write|help|assist|do|provide|create|fulfill)\b)"
)
_REFUSAL = re.compile(_SORRY + _UNABLE, re.IGNORECASE)
"""At the start of an answer to a question."""
_CANNOT = (
    r"i(?: (?:can['\u2019]?t|can ?not|will not|won['\u2019]t)(?: be able to)?"
    r"|(?:['\u2019]m| am) (?:unable|not able) to)"
)
_WRITTEN = r"(?:story|stories|paragraph|passage|text|content|material|request|prompt)"
_ASKED = (
    rf"(?:(?:write|create|provide|generate|produce|compose|continue|fulfill?|complete|accommodate)"
    rf" (?:(?:\w+ ){{0,6}}?{_WRITTEN}\b|th(?:is|at)(?= for you|[.,;!]|$))"
    r"|help (?:you|with)\b|assist\b|comply\b|do th(?:is|at) for you\b)"
)
_NO_STORY = re.compile(
    rf"{_SORRY}(?:as an (?:ai|artificial intelligence)(?: (?:language )?model| assistant)?,? i\b"
    rf"|{_CANNOT} {_ASKED})",
    re.IGNORECASE,
)
"""At the start of a story; of what its writer was asked for, since a character too may be unable.
"""
_HEADING = re.compile(
    r"(?:#+(?: .*)?|\*\*[^*]+\*\*:?|title:.*"
    r"|[*_]*(?:\w+[!,.] )*here(?:['\u2019]s| is| are)\b.{0,120}:[*_]*"
    r"|.{0,60}\b(?:story|paragraph)\b.{0,60}:)",
    re.IGNORECASE,
)
_TURN = re.compile(
    r"(?m)^[ \t]*[*_]*(Person|AI|Human|Assistant)[*_]*[ \t]*:[*_]*[ \t]*", re.IGNORECASE
)
_RENAMED = {"person": "Human", "ai": "Assistant", "human": "Human", "assistant": "Assistant"}


@dataclass(frozen=True)
class Sifted:
    """What is left, and what became of every text."""

    texts: PromptSet
    """Bare texts with the columns of their requests and ``tokens``."""
    outcomes: tuple[str, ...]
    """A reason for each transcript; empty where its text is kept."""

    @property
    def counts(self) -> Counter[str]:
        """Outcomes counted; "kept" are those without a reason."""
        return Counter(outcome or "kept" for outcome in self.outcomes)


def sift(
    written: Transcripts,
    count: Callable[[str], int],
    emotions: Mapping[str, Emotion],
    *,
    least: int,
) -> Sifted:
    """Keep the texts that may be read, as bare texts.

    A heading and lines before the text are taken off. Of a dialogue the turns are renamed "Human:"
    and "Assistant:"; one without a turn of each is dropped. An exchange is its question and answer.

    Args:
        written: answers to requests for stories or dialogues; column ``kind`` says which.
        count: tokens of a text.
        emotions: by name; a story in which a form of its emotion's word stands is dropped.
        least: tokens that a text must have.

    Raises:
        ConfigError: no column ``kind`` or another kind, or nothing is left.
        UnknownNameError: an emotion whose forms are not known.
    """
    kinds = _column(written, "kind")
    outcomes, texts, tokens = [], [], []
    for row, (kind, reason) in enumerate(zip(kinds, written.reasons, strict=True)):
        text = body(written.answer(row))
        if kind == DIALOGUE:
            text = renamed(text)
        elif kind == EXCHANGE and text:
            text = f"Human: {_question(written, row)}\nAssistant: {text}"
        told = reason if reason != "cut short" else ""
        told = told or _fault(text, kind, _emotion(written, row, kind, emotions))
        size = count(text) if not told else 0
        outcomes.append(told or (SHORT if size < least else ""))
        texts.append(text)
        tokens.append(size)
    kept = [row for row, outcome in enumerate(outcomes) if not outcome]
    if not kept:
        counted = ", ".join(f"{n} {reason}" for reason, n in Counter(outcomes).most_common())
        raise ConfigError(
            f"none of {len(written)} texts is left ({counted}); ask for longer texts, lower "
            f"min_tokens = {least}, or let a larger model write"
        )
    rows = np.array(kept)
    columns = {name: values[rows] for name, values in written.columns.items()}
    columns["tokens"] = np.array(tokens)[rows]
    names = tuple(written.ids[row] for row in kept)
    chosen = tuple(texts[row] for row in kept)
    return Sifted(PromptSet(names, chosen, columns, "sifted texts"), tuple(outcomes))


def body(text: str) -> str:
    """Return a text without a heading, or a line such as "Here is the story:", before it.

    What merely ends in a colon, or is a quotation, may be the text's own first line.
    """
    lines = text.strip().split("\n")
    while len(lines) > 1 and (not lines[0].strip() or _HEADING.fullmatch(lines[0].strip())):
        if _TURN.match(lines[0]):
            break
        lines = lines[1:]
    return "\n".join(lines).strip()


def renamed(text: str) -> str:
    """Return a dialogue with its speakers called Human and Assistant, from its first turn on."""
    found = _TURN.search(text)
    if found is None:
        return text
    return _TURN.sub(lambda turn: f"{_RENAMED[turn[1].lower()]}: ", text[found.start() :]).strip()


def _fault(text: str, kind: str, emotion: Emotion | None) -> str:
    if not text:
        return "empty"
    refusal = _NO_STORY if kind == STORY else _REFUSAL
    if refusal.match(text.rpartition("\nAssistant: ")[2] if kind == EXCHANGE else text):
        return REFUSED
    if emotion is not None and emotion.pattern.search(text):
        return NAMED
    lacks = not all(re.search(rf"(?m)^{name}: ", text) for name in ("Human", "Assistant"))
    return NO_TURNS if kind == DIALOGUE and lacks else ""


def _emotion(
    written: Transcripts, row: int, kind: str, emotions: Mapping[str, Emotion]
) -> Emotion | None:
    if kind in (DIALOGUE, EXCHANGE):
        return None
    if kind != STORY:
        raise ConfigError(
            f"transcript {written.ids[row]!r} is a {kind!r}; sift takes story, dialogue, exchange"
        )
    name = str(_column(written, "emotion")[row])
    if name not in emotions:
        raise _unknown(name, emotions)
    return emotions[name]


def _question(written: Transcripts, row: int) -> str:
    """Return what the answer is to."""
    return written.chats[row][-2]["content"]


def _unknown(name: str, emotions: Mapping[str, Emotion]) -> UnknownNameError:
    return unknown("emotion", name, emotions, "Or give the file that it stands in.")


def _column(written: Transcripts, name: str) -> list[str]:
    if name not in written.columns:
        known = ", ".join(written.columns) or "none"
        raise ConfigError(
            f"transcripts have no column {name!r} (columns: {known}); give those of a rollout of "
            'kind = "stories" or "dialogues"'
        )
    return [str(value) for value in written.columns[name]]
