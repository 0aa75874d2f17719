"""A small capability probe: does the model still know how plain sentences end?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.errors import ConfigError
from workbench.library import Source, open_prompts
from workbench.readouts.candidates import continuation
from workbench.registry import READOUTS
from workbench.types import CandidatesRead, Measurement, Request, Subject


@READOUTS.register("capability")
class Capability:
    """Accuracy (1 or 0 a stem) of the likeliest of four endings, by summed log-likelihood, bare.

    ``margin`` is the right ending's log-likelihood over the best wrong one's, in nats. A guard to
    compare with the own zero dose, not a benchmark: endings differ in length.

    Args:
        probes: anything that ``open_prompts`` takes, with ``text, right, wrong`` (a JSON list); the
            shipped ones by default.
    """

    name = "capability"

    def __init__(self, probes: Source = "guard_probes") -> None:
        self.probes = open_prompts(probes)
        right, wrong = self.probes.column("right"), self.probes.column("wrong")
        self.endings = [
            _endings(*row)
            for row in zip(self.probes.ids, right.tolist(), wrong.tolist(), strict=True)
        ]

    def requests(self, subject: Subject) -> list[Request]:
        return [
            _request(subject, item, stem, endings)
            for item, stem, endings in zip(
                self.probes.ids, self.probes.items, self.endings, strict=True
            )
        ]

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        return [
            one
            for request, (logs,) in zip(requests, answers, strict=True)
            for one in _measures(request.item, np.asarray(logs, np.float64))
        ]


def _endings(item: str, right: str, wrong: str) -> tuple[str, ...]:
    """Return the right ending and the wrong ones."""
    try:
        others = json.loads(wrong)
    except ValueError:
        others = None
    if not isinstance(others, list) or not others or right in others:
        raise ConfigError(
            f"probe {item!r}: wrong = {wrong!r:.80}; give a list of endings without the right one"
        )
    return (right, *map(str, others))


def _request(subject: Subject, item: str, stem: Any, endings: Sequence[str]) -> Request:
    prompt = subject.renderer.render(stem, render="bare")
    own = tuple(continuation(subject.tokenizer, f" {end}", prompt.ids) for end in endings)
    return Request(item, "plain", prompt.ids, (CandidatesRead(own),), prompt.spans)


def _measures(item: str, logs: Any) -> list[Measurement]:
    margin = float(logs[0] - logs[1:].max())
    right = np.nan if np.isnan(margin) else float(margin > 0)
    values = {"accuracy": right, "margin": margin}
    return [Measurement("capability", name, item, "plain", value) for name, value in values.items()]
