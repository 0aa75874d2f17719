"""The trust game: what a model sends to a counterpart, and what it expects to get back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from workbench.data import data_path
from workbench.errors import ConfigError, unknown
from workbench.prompts import PromptSet
from workbench.readouts.candidates import candidate_read, expected_value, terminators
from workbench.readouts.choice import Letters, letter_mass, mass_reason, shares
from workbench.registry import READOUTS
from workbench.types import Measurement, Request, Subject

COLUMNS = ("branch", "frame", "counterpart", "order", "bank_id", "prefix", "values", "fact")
"""What every prompt of an items file says about itself; ``values`` maps answers to dollars."""

Answer = tuple[Request, Sequence[Any]]


@READOUTS.register("trust_game")
class TrustGame:
    """Transfers and expected returns by counterpart, no record of earlier rounds.

    ``transfer`` is the candidate-weighted amount sent, in dollars of ten: the mean of 0..10 under
    the likelihood of each whole answer, after the bank's opening words of the reply.
    ``expected_return`` is the mean of five bucket middles under first-token letter mass, in dollars
    of the thirty that arrived, averaged over the forward and the reversed order. After Xie et al.
    (2024) and the social-priors study's Figures 5 and 43.

    Args:
        counterparts: of person, ai_user, ai_agent, device, dictator; all by default.
        measures: transfer, expected_return; both by default.
        frames: names of frames; all twelve by default.
        items: a file of prompts; bank v0 by default. Banks are never pooled.
    """

    name = "trust_game"

    def __init__(
        self,
        counterparts: Sequence[str] | None = None,
        measures: Sequence[str] | None = None,
        frames: Sequence[str] | None = None,
        items: str | Path | None = None,
    ) -> None:
        found = PromptSet.from_jsonl(items or data_path("trust_game"))
        for column in COLUMNS:
            found.column(column)
        kept = {"counterpart": counterparts, "branch": measures, "frame": frames}
        for column, wanted in kept.items():
            if wanted is not None:
                found = found.where(**{column: _known(column, wanted, found)})
        self.items = found

    def requests(self, subject: Subject) -> list[Request]:
        return list(self._requests(subject))

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        pairs = sorted(zip(requests, answers, strict=True), key=lambda pair: _key(pair[0]))
        found = []
        for (branch, _, _), answered in groupby(pairs, lambda pair: _key(pair[0])):
            group = list(answered)
            found.append(_transfer(group[0]) if branch == "transfer" else _expected_return(group))
        return found

    def _requests(self, subject: Subject) -> Iterator[Request]:
        ends = terminators(subject)
        for row, chat in enumerate(self.items.items):
            column = {name: values[row].item() for name, values in self.items.columns.items()}
            values = _values(column["values"], self.items.ids[row])
            rendered = subject.renderer.render(chat)
            ids = rendered.ids
            extra = {name: column[name] for name in ("branch", "frame", "order", "bank_id")}
            start: tuple[int, ...] = ()
            if column["branch"] == "transfer":
                read: Any
                start, read = candidate_read(
                    subject.tokenizer, ids, list(values), ends, column["prefix"]
                )
            else:
                letters = Letters.of(subject.tokenizer, list(values))
                read, extra["letters"] = letters.read, letters
            yield Request(
                item=column["fact"],
                condition=column["counterpart"],
                ids=ids + start,
                reads=(read,),
                spans=rendered.spans,
                extra={**extra, "values": np.array(list(values.values()), np.float64)},
            )


def _known(column: str, wanted: str | Sequence[str], items: PromptSet) -> list[str]:
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    known = sorted(set(items.column(column).tolist()))
    for name in names:
        if name not in known:
            raise unknown(f"trust-game {column}", str(name), known)
    return names


def _values(text: str, item: str) -> dict[str, float]:
    """Read the dollars that each answer stands for."""
    try:
        return {str(answer): float(dollars) for answer, dollars in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(
            f"trust-game item {item!r}: values = {text!r:.80}; write a table from answers to "
            'numbers, such as {"0": 0, "1": 1}'
        ) from None


def _key(request: Request) -> tuple[str, str, str]:
    return (request.extra["branch"], request.condition, request.item)


def _transfer(pair: Answer) -> Measurement:
    request, (logprobs,) = pair
    value, mass = expected_value(logprobs, request.extra["values"])
    return _measurement(request, value, mass, {"frame": request.extra["frame"]})


def _expected_return(group: Sequence[Answer]) -> Measurement:
    values, masses = [], []
    for request, (answer,) in group:
        logs = request.extra["letters"].log_masses(answer)
        values.append(float(shares(logs) @ request.extra["values"]))
        masses.append(letter_mass(logs))
    request = group[0][0]
    orders = {r.extra["order"]: value for (r, _), value in zip(group, values, strict=True)}
    extra = {"frame": request.extra["frame"], "orders": orders}
    return _measurement(request, float(np.mean(values)), float(np.mean(masses)), extra)


def _measurement(request: Request, value: float, mass: float, extra: dict[str, Any]) -> Measurement:
    return Measurement(
        readout="trust_game",
        measure=request.extra["branch"],
        item=request.item,
        condition=request.condition,
        value=value,
        reason=mass_reason(mass),
        mass=mass,
        extra={**extra, "bank": request.extra["bank_id"]},
    )
