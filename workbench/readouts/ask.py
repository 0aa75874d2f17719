"""Ask several readouts under several arms in one go, so that their prompts share the work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.config import refuse_twice
from workbench.errors import ConfigError, NoTemplateError
from workbench.given import several
from workbench.registry import READOUTS, check_parameters
from workbench.types import (
    Answered,
    Arm,
    Measurement,
    Progress,
    Read,
    Readout,
    Request,
    Subject,
    ndarray,
)

ReadoutLike = str | Mapping[str, Any] | Readout
Readouts = ReadoutLike | Sequence[ReadoutLike]
BARE = (
    'perplexity, capability, claims with measures = ["loglik"], reply with render = "bare", and '
    "projection of texts"
)
"""What can be asked of a model without a chat template."""


@dataclass(frozen=True)
class Outcome:
    """What one arm gave."""

    measurements: list[Measurement]
    realised: float
    engaged: float
    states: Float[ndarray, "n l d"] | None = None
    """What was watched beside the readouts: requests x layers x width."""


def make_readout(readout: ReadoutLike) -> Readout:
    """Return a readout from its name, from ``{name, **parameters}``, or as it is.

    Raises:
        UnknownNameError: no such readout.
        ConfigError: a parameter that the readout does not take, or a table without ``name``.
    """
    if isinstance(readout, str):
        return _create(readout, {})
    if isinstance(readout, Mapping):
        params = dict(readout)
        name = params.pop("name", None)
        if not isinstance(name, str):
            raise ConfigError(f"readout {params!r} has no name; write {{ name = ..., ... }}")
        return _create(name, params)
    if not isinstance(readout, Readout):
        raise ConfigError(f"readout {readout!r}; give a name, or a table {{ name = ..., ... }}")
    return readout


def _requests(readout: Readout, subject: Subject) -> Sequence[Request]:
    """Let a readout write its requests.

    Raises:
        NoTemplateError: it asks in a chat, and the model has no chat template.
    """
    try:
        return readout.requests(subject)
    except NoTemplateError:
        raise NoTemplateError(
            f"readout {readout.name!r} asks in a chat, but the tokenizer of {subject.ref.key} has "
            f"no chat template, as base models have none. Without one work {BARE}; in a sweep set "
            "guards = false, since drift and repetition ask in a chat. Or put a "
            "chat_template.jinja beside its tokenizer.json"
        ) from None


@dataclass(frozen=True)
class Asked:
    """What several readouts want to know, in one list of requests."""

    readouts: tuple[Readout, ...]
    requests: tuple[Request, ...]
    counts: tuple[int, ...]
    """How many of them are each readout's, in order."""
    watched: tuple[int, ...] = ()
    """Requests whose last read is not a readout's."""
    watched_layers: tuple[int, ...] = ()

    @classmethod
    def of(cls, subject: Subject, readouts: Readouts) -> Asked:
        """Make the readouts, or the one, and let them write their requests.

        Raises:
            ConfigError: none, or a readout that stands twice, whose items would count twice.
        """
        readouts = several(readouts, Mapping, Readout)
        if not readouts:
            raise ConfigError("no readouts; give at least one, such as readouts=['trust_game']")
        refuse_twice([_told(readout) for readout in readouts], "readouts")
        made = tuple(make_readout(readout) for readout in readouts)
        asked = [_requests(readout, subject) for readout in made]
        every = tuple(request for requests in asked for request in requests)
        return cls(made, every, tuple(map(len, asked)))

    def watching(self, read: Read, rows: Sequence[int]) -> Asked:
        """Return the same with one more read of some requests, which no readout sees."""
        chosen = set(rows)
        requests = tuple(
            replace(request, reads=(*request.reads, read)) if number in chosen else request
            for number, request in enumerate(self.requests)
        )
        return replace(
            self, requests=requests, watched=tuple(sorted(chosen)), watched_layers=read.layers
        )

    def outcomes(self, answered: Answered) -> list[Outcome]:
        """Score every readout once for each arm, its measurements in the order of readouts."""
        arms = zip(answered.values, answered.realised, answered.engaged, strict=True)
        return [
            Outcome(self._score(self._own(values)), realised, engaged, self._states(values))
            for values, realised, engaged in arms
        ]

    def _own(self, values: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Leave out what the readouts did not ask for."""
        own = list(values)
        for number in self.watched:
            own[number] = own[number][:-1]
        return own

    def _states(self, values: Sequence[Sequence[Any]]) -> Float[ndarray, "n l d"] | None:
        if not self.watched:
            return None
        return np.stack([np.asarray(values[number][-1], np.float32) for number in self.watched])

    def _score(self, values: Sequence[Sequence[Any]]) -> list[Measurement]:
        found: list[Measurement] = []
        first = 0
        for readout, count in zip(self.readouts, self.counts, strict=True):
            own = slice(first, first + count)
            found += map(_settled, readout.score(list(self.requests[own]), values[own]))
            first += count
        return found


def ask(
    subject: Subject,
    readouts: Readouts,
    arms: Sequence[Arm] = ((),),
    *,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Answer every readout under every arm, in one call of the engine.

    Returns:
        One outcome for each arm, its measurements in the order of ``readouts``. A value that is no
        finite number is there as invalid, ``out_of_range``.
    """
    return ask_all(subject, Asked.of(subject, readouts), arms, progress=progress)


def ask_all(
    subject: Subject,
    asked: Asked,
    arms: Sequence[Arm] = ((),),
    *,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Answer what is asked under every arm; one outcome for each."""
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    return asked.outcomes(subject.runner.answer(subject, asked.requests, arms, progress=progress))


def _settled(measurement: Measurement) -> Measurement:
    """Mark a value that is no number as invalid: an edit may drive a model past all floats."""
    value = measurement.value
    if value is None or math.isfinite(value):
        return measurement
    return replace(measurement, value=None, valid=False, reason="out_of_range")


def _told(readout: ReadoutLike) -> dict[str, Any] | int:
    """Return what a readout was asked for by: a name and its parameters, or which object it is."""
    if isinstance(readout, str):
        return {"name": readout}
    return dict(sorted(readout.items())) if isinstance(readout, Mapping) else id(readout)


def _create(name: str, params: dict[str, Any]) -> Readout:
    factory = READOUTS.factory(name)
    check_parameters(f"readout {name!r}", factory, params)
    try:
        made: Readout = factory(**params)
    except TypeError as error:  # a value of another kind
        raise ConfigError(f"readout {name!r} with {params!r}: {error}") from None
    return made
