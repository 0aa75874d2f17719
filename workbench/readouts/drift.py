"""Drift: how far an edit moves the next-token distribution of ordinary prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.errors import ConfigError
from workbench.library import Source, open_prompts
from workbench.models.prompted import Prompted
from workbench.registry import READOUTS
from workbench.types import LogitsRead, Measurement, Renderer, Request, Subject, ndarray


@READOUTS.register("drift")
class Drift:
    """KL(unedited || edited) in nats over the whole vocabulary, at the first token of the reply.

    The unedited distribution is read once, when the requests are made, from the same subject. Of a
    prompting baseline it is that of the model without its prompt: what the prompt itself does.

    Args:
        prompts: anything that ``open_prompts`` takes; harmless requests by default.
    """

    name = "drift"

    def __init__(self, prompts: Source = "guard_prompts") -> None:
        self.prompts = open_prompts(prompts)
        self._plain: Mapping[str, ndarray] = {}

    def requests(self, subject: Subject) -> list[Request]:
        assert subject.runner is not None, "a subject gets its runner in wb.load"
        told = subject.renderer
        plain = self._requests(told.renderer if isinstance(told, Prompted) else told)
        answered = subject.runner.answer(subject, plain).values[0]
        self._plain = {
            request.item: np.asarray(values[0], np.float64)
            for request, values in zip(plain, answered, strict=True)
        }
        return self._requests(told)

    def _requests(self, renderer: Renderer) -> list[Request]:
        rendered = [renderer.render(item, render="chat") for item in self.prompts.items]
        return [
            Request(item, "plain", prompt.ids, (LogitsRead(),), prompt.spans)
            for item, prompt in zip(self.prompts.ids, rendered, strict=True)
        ]

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        return [
            _measure(request.item, self._plain[request.item], np.asarray(edited, np.float64))
            for request, (edited,) in zip(requests, answers, strict=True)
        ]


def divergence(plain: Float[ndarray, " v"], edited: Float[ndarray, " v"]) -> float:
    """Return KL(plain || edited) in nats from log-probabilities; infinite where edited lacks."""
    if plain.shape != edited.shape:
        raise ConfigError(f"{len(plain)} and {len(edited)} tokens; both are of one vocabulary")
    held = plain > -np.inf
    weights = np.exp(plain[held])
    return float(np.maximum(weights @ (plain[held] - edited[held]), 0.0))


def _measure(item: str, plain: ndarray, edited: ndarray) -> Measurement:
    return Measurement("drift", "kl", item, "plain", divergence(plain, edited))
