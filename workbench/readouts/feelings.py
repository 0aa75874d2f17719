"""Feelings: which emotion's word a reply goes on with after "He feels" or "I feel"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.emotions.items import choose, read_emotions
from workbench.errors import ConfigError, unknown
from workbench.given import several
from workbench.readouts.candidates import candidate_read
from workbench.registry import READOUTS
from workbench.types import Measurement, Request, Subject

PROMPTS = {
    "he": ("How does he feel?", "He feels "),
    "she": ("How does she feel?", "She feels "),
    "they": ("How do they feel?", "They feel "),
    "you": ("How do you feel?", "I feel "),
}
"""By item: what the user asks, and how the reply begins."""


@READOUTS.register("feelings")
class Feelings:
    """Log-likelihood of each emotion's word where a reply names a feeling, one condition a word.

    ``word`` is in nats, less the mean over all words asked about: what moves every word alike drops
    out. It checks an emotion vector: steered along it, its own word must gain on the others, and
    more than along random directions (Sofroniew et al. 2026). Words are not closed: "proud of it"
    counts as proud. The words' log-likelihood as it is stands in ``extra``.

    The reply's first words are the span ``assistant``, so that the scope ``assistant+generated`` is
    the assistant's turn, where the paper adds its vectors.

    Args:
        emotions: names, or how many; all of the shipped list by default.
        items: of he, she, they, you; all by default.
    """

    name = "feelings"

    def __init__(
        self, emotions: int | Sequence[str] | None = None, items: Sequence[str] | None = None
    ) -> None:
        self.emotions = choose(read_emotions(), emotions, "emotions")
        if len(self.emotions) < 2:
            raise ConfigError("feelings are told apart by their words; give two emotions or more")
        self.items = tuple(PROMPTS if items is None else several(items))
        for item in self.items:
            if item not in PROMPTS:
                raise unknown("item of feelings", item, PROMPTS)

    def requests(self, subject: Subject) -> list[Request]:
        return [self._request(subject, item) for item in self.items]

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        found = []
        for request, (logprobs,) in zip(requests, answers, strict=True):
            mean = float(np.mean(logprobs))
            for emotion, value in zip(self.emotions, map(float, logprobs), strict=True):
                extra = {"word": emotion.feels, "logprob": value}
                found.append(
                    Measurement(
                        self.name, "word", request.item, emotion.name, value - mean, extra=extra
                    )
                )
        return found

    def _request(self, subject: Subject, item: str) -> Request:
        asked, begins = PROMPTS[item]
        rendered = subject.renderer.render(asked, render="chat", add_generation_prompt=True)
        words = [emotion.feels for emotion in self.emotions]
        start, read = candidate_read(subject.tokenizer, rendered.ids, words, (), begins)
        n = len(rendered.ids)
        return Request(
            item=item,
            condition="feelings",
            ids=rendered.ids + start,
            reads=(read,),
            spans={**rendered.spans, "assistant": ((n, n + len(start)),)},
        )
