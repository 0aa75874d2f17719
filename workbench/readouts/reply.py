"""Replies as text, for reading: what a model says at each dose, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.errors import ConfigError
from workbench.library import Source, open_prompts
from workbench.prompts import PromptSet
from workbench.registry import READOUTS
from workbench.types import GenerateRead, Measurement, Request, Subject


@READOUTS.register("reply")
class Reply:
    """The reply to each prompt, ``text`` in ``extra`` beside ``prompt``; the value counts words.

    Draw k uses the same random numbers under every arm, so that texts differ by the edit alone.

    Args:
        prompts: anything that ``open_prompts`` takes, or a list of texts; harmless requests by
            default.
        n: draws of each prompt; more than one needs a temperature.
        max_new_tokens: of each reply.
        temperature: 0 is greedy.
        seed: of the draws.
        render: ``chat`` asks as a user, ``bare`` continues the text, ``auto`` takes chats as chats.
    """

    name = "reply"

    def __init__(
        self,
        prompts: Source = "guard_prompts",
        n: int = 1,
        max_new_tokens: int = 60,
        temperature: float = 0.0,
        seed: int = 0,
        render: str = "chat",
    ) -> None:
        if n < 1 or not temperature >= 0 or (n > 1 and temperature == 0):
            raise ConfigError(
                f"n = {n} at temperature {temperature}; greedy draws are all the same, so give "
                "n = 1 or a temperature above 0"
            )
        if render not in ("auto", "bare", "chat"):
            raise ConfigError(f"render = {render!r}; give auto, bare, chat")
        self.prompts = _opened(prompts)
        self.read = GenerateRead(n, max_new_tokens, temperature, seed)
        self.render = render

    def requests(self, subject: Subject) -> list[Request]:
        rendered = [
            subject.renderer.render(item, render=self.render) for item in self.prompts.items
        ]
        return [
            Request(item, "plain", one.ids, (self.read,), one.spans, {"prompt": prompt})
            for item, prompt, one in zip(
                self.prompts.ids, self.prompts.items, rendered, strict=True
            )
        ]

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        return [
            Measurement(
                readout="reply",
                measure="words",
                item=request.item,
                condition="plain",
                value=float(len(text.split())),
                draw=draw,
                extra={"prompt": request.extra["prompt"], "text": text},
            )
            for request, (texts,) in zip(requests, answers, strict=True)
            for draw, text in enumerate(texts)
        ]


def _opened(prompts: Source) -> PromptSet:
    """A list of plain texts is a prompt set too, where none of them names a set or a file."""
    if isinstance(prompts, list) and all(isinstance(one, str) and " " in one for one in prompts):
        rows = [{"id": f"p{n}", "text": text} for n, text in enumerate(prompts)]
        return PromptSet.from_records(rows, text="text")
    return open_prompts(prompts)
