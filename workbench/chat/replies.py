"""What a language model is asked, what it answers, and the ways in which it fails to."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

REASONS = {
    "refused": "the model or its server declined to answer",
    "cut short": "the answer ran into max_tokens",
    "empty": "there was no text",
    "rejected": "the server did not accept the request",
    "timeout": "no answer in time",
    "rate limit": "too many requests",
    "server error": "the server failed",
    "nonsense": "what came back was no chat completion",
}
"""Why a reply has no text that may be used; the last four are worth another try."""
_THOUGHTS = re.compile(r"\A\s*(?:<think>)?(?:(?!<think>).)*?</think>\s*", re.DOTALL)


@dataclass(frozen=True)
class ChatRequest:
    """One conversation to be continued by one turn."""

    messages: tuple[Mapping[str, str], ...]
    """Each with ``role`` and ``content``."""
    max_tokens: int = 1024
    temperature: float = 0.0
    seed: int = 0
    top: int = 0
    """How many of the likeliest first tokens to tell with their log-probabilities."""

    @classmethod
    def of(cls, text: str, *, system: str | None = None, **settings: Any) -> ChatRequest:
        """Return the request of one user turn."""
        head = () if system is None else ({"role": "system", "content": system},)
        return cls((*head, {"role": "user", "content": text}), **settings)

    def key(self, model: str) -> str:
        """Return what tells this request to this model from every other."""
        told = {"model": model, **asdict(self)}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ChatReply:
    """One answer; where ``reason`` is set, ``text`` must not be used."""

    text: str
    reason: str = ""
    """One of `REASONS`, or nothing."""
    detail: str = ""
    """What the server said about it."""
    top: Mapping[str, float] = field(default_factory=dict)
    """Natural log-probability of the likeliest first tokens, by their text."""
    read: int = 0
    """Tokens of the prompt."""
    written: int = 0
    """Tokens of the answer, thoughts included."""

    @property
    def valid(self) -> bool:
        return not self.reason


@runtime_checkable
class ChatModel(Protocol):
    """Whatever answers chat requests."""

    name: str
    """Stands in cards."""
    together: int
    """How many requests at once it is best asked."""
    counts: Counter[str]
    """What became of requests so far: asked, kept, tokens, failures by reason."""

    def ask(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Answer each request, in order."""
        ...


def without_thoughts(text: str) -> str:
    """Return an answer without the reasoning that some models write before it."""
    return _THOUGHTS.sub("", text, count=1).strip()
