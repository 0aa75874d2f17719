"""Claims that exclude each other: how likely each is as plain text, and which letter is picked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from workbench.data import data_path
from workbench.errors import ConfigError
from workbench.library import locate
from workbench.prompts import PromptSet
from workbench.readouts.choice import Letters, letter_mass, mass_reason, rotations, shares
from workbench.registry import READOUTS
from workbench.types import CandidatesRead, Measurement, Rendered, Request, Subject

WORLDS = ("P", "S", "N", "A")
LETTERS = ("A", "B", "C", "D")
MEASURES = ("loglik", "choice")
"""Taken by default; ``advantage`` on top."""
ADVANTAGE = "advantage"
KEPT = ("set", "proposition", "frame", "polarity", "fact")
"""Columns of a claim that stand with its likelihood."""


@READOUTS.register("claims")
class Claims:
    """Belief in what the users of AI assistants aim at, one condition for each world.

    Another claims file may hold other conditions in its ``world`` column, such as the values that
    a made-up fact could have (``claims/planted``); ``choice`` asks about the four worlds alone.

    ``loglik`` is the log-likelihood of a bare claim's own tokens in nats per token; where the
    tokenizer adds no BOS the first token has no prediction and is left out. ``choice`` is the
    normalised first-token letter mass of a world's option, averaged over the four rotations.
    ``advantage`` is a claim's ``loglik`` minus the mean of the other worlds' claims in the same
    words, so that a change that all claims share drops out.

    Args:
        measures: which of the three to take.
        claims: a claims file or an item set's name; the four worlds' by default.
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
        measures = (measures,) if isinstance(measures, str) else tuple(measures)
        known = (*MEASURES, ADVANTAGE)
        wrong = [measure for measure in measures if measure not in known]
        if wrong:
            raise ConfigError(f"claims has no measure {wrong[0]!r}; known: {', '.join(known)}")
        if polarity not in (1, 0, -1):
            raise ConfigError(f"claims has no polarity {polarity!r}; give 1, -1 or 0 (both)")
        self.measures = measures
        self.claims = PromptSet.from_jsonl(locate(claims or "claims"))
        for column in ("world", *KEPT):
            self.claims.column(column)
        self.worlds = tuple(dict.fromkeys(map(str, self.claims.column("world"))))
        if ADVANTAGE in self.measures and len(self.worlds) < 2:
            raise ConfigError(
                f"the claims are all of world {self.worlds[0]!r}; an advantage is over the claims "
                "of other worlds, so give a file with two or more"
            )
        self.choice = PromptSet.from_jsonl(choice or data_path("choice"), "stem")
        self.options = [_options(text) for text in self.choice.column("options")]
        self.polarity = polarity

    def requests(self, subject: Subject) -> list[Request]:
        made: list[Request] = []
        if {"loglik", ADVANTAGE} & set(self.measures):
            made += self._likelihoods(subject)
        if "choice" in self.measures:
            made += self._choices(subject)
        return made

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        found: list[Measurement] = []
        claims: list[Measurement] = []
        pairs = list(zip(requests, answers, strict=True))
        for (measure, _), answered in groupby(pairs, lambda p: (p[0].extra["measure"], p[0].item)):
            group = list(answered)
            if measure == "choice":
                found += _score_choice(group)
            else:
                claims += map(_likelihood, group)
        if ADVANTAGE in self.measures:
            found = [*_advantages(claims, len(self.worlds)), *found]
        return [*claims, *found] if "loglik" in self.measures else found

    def _likelihoods(self, subject: Subject) -> Iterator[Request]:
        claims = self.claims
        if self.polarity:
            claims = claims.where(polarity=self.polarity)
        for row, (item, text) in enumerate(zip(claims.ids, claims.items, strict=True)):
            start, ids = _own_tokens(subject.renderer.render(text, render="bare"), text)
            yield Request(
                item=item,
                condition=str(claims.columns["world"][row]),
                ids=start,
                reads=(CandidatesRead((ids,)),),
                extra={
                    "measure": "loglik",
                    "tokens": len(ids),
                    **{name: claims.columns[name][row].item() for name in KEPT},
                },
            )

    def _choices(self, subject: Subject) -> Iterator[Request]:
        letters = Letters.of(subject.tokenizer, LETTERS)
        for item, stem, options in zip(
            self.choice.ids, self.choice.items, self.options, strict=True
        ):
            for order in rotations(WORLDS):
                lines = [
                    f"{letter}. {options[w]}" for letter, w in zip(LETTERS, order, strict=True)
                ]
                prompt = "\n".join([stem, *lines, "Answer with one letter only."])
                rendered = subject.renderer.render(prompt, render="chat")
                yield Request(
                    item=item,
                    condition="choice",
                    ids=rendered.ids,
                    reads=(letters.read,),
                    spans=rendered.spans,
                    extra={"measure": "choice", "order": order, "letters": letters},
                )


def _own_tokens(rendered: Rendered, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what stands before a claim's predicted tokens (a BOS, or the first one), and these.

    Tokens that the tokenizer adds behind a text are no part of the claim.
    """
    spans = rendered.spans["content"]
    first, last = max(1, spans[0][0]), spans[-1][1]
    if last <= first:
        raise ConfigError(
            f"claim {text!r} is one token, of which nothing is predicted; give it more words"
        )
    return rendered.ids[:first], rendered.ids[first:last]


def _options(text: str) -> dict[str, str]:
    """Read one question's option for each world."""
    try:
        found = {world: str(json.loads(text)[world]) for world in WORLDS}
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"options = {text!r:.80}; a table with an option for each of {', '.join(WORLDS)} is "
            "expected"
        ) from None
    return found


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


def _advantages(claims: Sequence[Measurement], worlds: int) -> Iterator[Measurement]:
    """Subtract from each claim the mean of the other worlds' claims in the same words."""
    by_words: dict[tuple[Any, ...], list[Measurement]] = {}
    for claim in claims:
        words = tuple(claim.extra[name] for name in ("proposition", "frame", "polarity"))
        by_words.setdefault(words, []).append(claim)
    for same in by_words.values():
        for claim in same:
            others = [c.value for c in same if c.condition != claim.condition]
            values = [value for value in (claim.value, *others) if value is not None]
            if len(values) == worlds:
                value = values[0] - float(np.mean(values[1:]))
                item = claim.extra["fact"] + (":negated" if claim.extra["polarity"] < 0 else "")
                yield replace(claim, measure=ADVANTAGE, item=item, value=value)


def _score_choice(group: list[tuple[Request, Sequence[Any]]]) -> list[Measurement]:
    """Average one question over its rotations, mapped back to the worlds."""
    logs = [request.extra["letters"].log_masses(answer) for request, (answer,) in group]
    orders = [request.extra["order"] for request, _ in group]
    by_world = [
        [row[order.index(world)] for world in WORLDS]
        for row, order in zip(map(shares, logs), orders, strict=True)
    ]
    share = np.mean(by_world, axis=0)
    mass = float(np.mean([letter_mass(row) for row in logs]))
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
