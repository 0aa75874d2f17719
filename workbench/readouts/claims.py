"""The four worlds' claims: how likely each is as plain text, and which one is picked by letter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from workbench.data import data_path
from workbench.errors import ConfigError
from workbench.prompts import PromptSet
from workbench.readouts.choice import Letters, mass_reason, rotations, shares
from workbench.registry import READOUTS
from workbench.types import CandidatesRead, Measurement, Request, Subject

WORLDS = ("P", "S", "N", "A")
LETTERS = ("A", "B", "C", "D")
MEASURES = ("loglik", "choice")


@READOUTS.register("claims")
class Claims:
    """Belief in what the users of AI assistants aim at, one condition for each world.

    ``loglik`` is the log-likelihood of a bare claim in nats per token; where the tokenizer adds no
    BOS the first token has no prediction and is left out. ``choice`` is the normalised
    first-token letter mass of a world's option, averaged over the four rotations.

    Args:
        measures: which of the two to take.
        claims: a claims file; the shipped one by default.
        choice: a four-choice file; the shipped one by default.
        polarity: +1 for the claims, -1 for their negations, 0 for both.
    """

    name = "claims"

    def __init__(
        self,
        measures: Sequence[str] = MEASURES,
        claims: str | Path | None = None,
        choice: str | Path | None = None,
        polarity: int = 1,
    ) -> None:
        wrong = [measure for measure in measures if measure not in MEASURES]
        if wrong:
            raise ConfigError(f"claims has no measure {wrong[0]!r}; known: {', '.join(MEASURES)}")
        self.measures = tuple(measures)
        self.claims = PromptSet.from_jsonl(claims or data_path("claims"))
        self.choice = PromptSet.from_jsonl(choice or data_path("choice"), "stem")
        self.polarity = polarity

    def requests(self, subject: Subject) -> list[Request]:
        made: list[Request] = []
        if "loglik" in self.measures:
            made += self._likelihoods(subject)
        if "choice" in self.measures:
            made += self._choices(subject)
        return made

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        found: list[Measurement] = []
        pairs = list(zip(requests, answers, strict=True))
        for (measure, _), answered in groupby(pairs, lambda p: (p[0].extra["measure"], p[0].item)):
            group = list(answered)
            found += _score_choice(group) if measure == "choice" else map(_likelihood, group)
        return found

    def _likelihoods(self, subject: Subject) -> Iterator[Request]:
        claims = self.claims
        if self.polarity:
            claims = claims.where(polarity=self.polarity)
        kept = ("set", "proposition", "frame", "polarity", "fact")
        for row, (item, text) in enumerate(zip(claims.ids, claims.items, strict=True)):
            ids = subject.renderer.render(text, render="bare").ids
            yield Request(
                item=item,
                condition=str(claims.columns["world"][row]),
                ids=ids[:1],
                reads=(CandidatesRead((ids[1:],)),),
                extra={
                    "measure": "loglik",
                    "tokens": len(ids) - 1,
                    **{name: claims.columns[name][row].item() for name in kept},
                },
            )

    def _choices(self, subject: Subject) -> Iterator[Request]:
        letters = Letters.of(subject.tokenizer, LETTERS)
        for item, stem, options in zip(
            self.choice.ids, self.choice.items, self._options(), strict=True
        ):
            for order in rotations(WORLDS):
                lines = [
                    f"{letter}. {options[w]}" for letter, w in zip(LETTERS, order, strict=True)
                ]
                prompt = "\n".join([stem, *lines, "Answer with one letter only."])
                yield Request(
                    item=item,
                    condition="choice",
                    ids=subject.renderer.render(prompt, render="chat").ids,
                    reads=(letters.read,),
                    extra={"measure": "choice", "order": order, "letters": letters},
                )

    def _options(self) -> list[dict[str, str]]:
        import json

        return [json.loads(text) for text in self.choice.column("options")]


def _likelihood(pair: tuple[Request, Sequence[Any]]) -> Measurement:
    request, (total,) = pair
    extra = {key: value for key, value in request.extra.items() if key != "measure"}
    return Measurement(
        readout="claims",
        measure="loglik",
        item=request.item,
        condition=request.condition,
        value=float(total[0]) / request.extra["tokens"],
        extra=extra,
    )


def _score_choice(group: list[tuple[Request, Sequence[Any]]]) -> list[Measurement]:
    """Average one question over its rotations, mapped back to the worlds."""
    masses, orders = [], []
    for request, (answer,) in group:
        by_letter = request.extra["letters"].masses(answer)
        orders.append(request.extra["order"])
        masses.append({w: by_letter[row] for row, w in enumerate(request.extra["order"])})
    table = np.array([[mass[world] for world in WORLDS] for mass in masses])
    share = np.mean([shares(row) for row in table], axis=0)
    mass = float(table.sum(1).mean())
    return [
        Measurement(
            readout="claims",
            measure="choice",
            item=group[0][0].item,
            condition=world,
            value=float(share[column]),
            reason=mass_reason(mass),
            mass=mass,
            extra={"orders": len(orders)},
        )
        for column, world in enumerate(WORLDS)
    ]
