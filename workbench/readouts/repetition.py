"""Repetition in greedy replies: an edit that is too strong makes a model go round in circles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.errors import ConfigError
from workbench.library import Source, open_prompts
from workbench.registry import READOUTS
from workbench.types import GenerateRead, Measurement, Request, Subject

GRAM = 3


@READOUTS.register("repetition")
class Repetition:
    """Share of a reply's three-word runs that stood in it before; 0 never repeats, 1 is one word.

    A reply of fewer than four words is invalid (``refusal`` where it is empty).

    Args:
        prompts: anything that ``open_prompts`` takes; harmless requests by default.
        max_new_tokens: of each greedy reply.
    """

    name = "repetition"

    def __init__(self, prompts: Source = "guard_prompts", max_new_tokens: int = 40) -> None:
        if max_new_tokens < 8:
            raise ConfigError(f"max_new_tokens = {max_new_tokens}; a reply needs at least 8")
        self.prompts = open_prompts(prompts)
        self.read = GenerateRead(max_new_tokens=max_new_tokens)

    def requests(self, subject: Subject) -> list[Request]:
        rendered = [subject.renderer.render(item, render="chat") for item in self.prompts.items]
        return [
            Request(item, "plain", prompt.ids, (self.read,), prompt.spans)
            for item, prompt in zip(self.prompts.ids, rendered, strict=True)
        ]

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        return [
            _measure(request.item, texts[0])
            for request, (texts,) in zip(requests, answers, strict=True)
        ]


def repeated_share(text: str, gram: int = GRAM) -> float | None:
    """Return the share of word runs of length ``gram`` that are not new; None with under two."""
    words = text.lower().split()
    runs = [tuple(words[start : start + gram]) for start in range(len(words) - gram + 1)]
    return None if len(runs) < 2 else 1 - len(set(runs)) / len(runs)


def _measure(item: str, text: str) -> Measurement:
    value = repeated_share(text)
    reason = "ok" if value is not None else "unparseable" if text.strip() else "refusal"
    return Measurement(
        "repetition", "repetition", item, "plain", value, value is not None, reason,
        extra={"text": text},
    )  # fmt: skip
