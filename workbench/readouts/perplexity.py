"""Perplexity of fixed plain texts: does the model still predict ordinary English?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.errors import ConfigError
from workbench.library import Source, open_prompts
from workbench.registry import READOUTS
from workbench.types import CandidatesRead, Measurement, Request, Subject


@READOUTS.register("perplexity")
class Perplexity:
    """exp of the mean negative log-likelihood per token of each text, bare, its first token given.

    Under scope ``last`` an edit acts on every predicted token, as it would while decoding.

    Args:
        texts: anything that ``open_prompts`` takes; the shipped paragraphs by default.
    """

    name = "perplexity"

    def __init__(self, texts: Source = "guard_texts") -> None:
        self.texts = open_prompts(texts)

    def requests(self, subject: Subject) -> list[Request]:
        return [
            _request(subject, item, text)
            for item, text in zip(self.texts.ids, self.texts.items, strict=True)
        ]

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        return [
            Measurement(
                readout="perplexity",
                measure="perplexity",
                item=request.item,
                condition="plain",
                value=float(np.exp(-float(total[0]) / request.extra["tokens"])),
                extra={"tokens": request.extra["tokens"]},
            )
            for request, (total,) in zip(requests, answers, strict=True)
        ]


def _request(subject: Subject, item: str, text: Any) -> Request:
    ids = subject.renderer.render(text, render="bare").ids
    if len(ids) < 2:
        raise ConfigError(f"text {item!r} is one token, of which nothing is predicted")
    read = CandidatesRead((ids[1:],))
    return Request(item, "plain", ids[:1], (read,), extra={"tokens": len(ids) - 1})
