"""The forwards behind a capping run: replies under every cap, and their states without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int

from workbench.effects.engagement import FINAL, GENERATED, POSITIONS, PROMPT, beyond_floor
from workbench.errors import MismatchError
from workbench.interventions import EditLog
from workbench.readouts.candidates import continuation
from workbench.types import Arm, Read, Rendered, Request, Subject, ndarray

BUDGET = 8192
"""Tokens of one forward, pads counted."""


@dataclass(frozen=True)
class Cap:
    """One cap as it is carried out, and what tables call it."""

    control: str
    dose: float
    """0 for the model without a cap."""
    arm: Arm


@dataclass(frozen=True)
class Lines:
    """Caps as vectors and floors, so that one pass tells which tokens each would move."""

    layers: tuple[int, ...]
    vectors: Float[ndarray, "a l d"]
    floors: Float[ndarray, "a l"]

    @classmethod
    def of(cls, caps: Sequence[Cap]) -> Lines:
        """Read them off the edits; all caps are of one window."""
        arms = [sorted(cap.arm, key=lambda edit: edit.layer) for cap in caps]
        return cls(
            tuple(edit.layer for edit in arms[0]),
            np.stack([[edit.v for edit in arm] for arm in arms]).astype(np.float32),
            np.array([[edit.rows["floor"] for edit in arm] for arm in arms]),
        )

    def beyond(self, states: Float[ndarray, "l t d"]) -> Int[ndarray, "a l"]:
        """Count the tokens that each cap would move, by layer."""
        along = np.einsum("ltd,ald->atl", states, self.vectors)
        pairs = zip(along, self.floors, strict=True)
        return np.stack([beyond_floor(one, floors) for one, floors in pairs])


def write_replies(
    subject: Subject, requests: Sequence[Request], caps: Sequence[Cap], budget: int
) -> list[list[str]]:
    """Return each cap's reply to each request; a prompt's draws are the same under all."""
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    answered = subject.runner.answer(subject, requests, [cap.arm for cap in caps], budget=budget)
    return [[answers[0][0] for answers in of_arm] for of_arm in answered.values]


def answered(subject: Subject, request: Request, text: str = "") -> Rendered:
    """Return a prompt with a reply behind it, and the spans that engagement is counted over.

    The spans are ``final``, ``generated`` and ``prompt``, the rest of the prompt but its first
    token. A reply whose tokens cannot be told from its text is as good as none.
    """
    ids = tuple(request.ids)
    try:
        written = continuation(subject.tokenizer, text, ids) if text else ()
    except MismatchError:
        written = ()
    n, stop = len(ids), len(ids) + len(written)
    ranges = {PROMPT: (1, n - 1), FINAL: (max(1, n - 1), n), GENERATED: (n, stop)}
    spans = {name: (span,) for name, span in ranges.items() if span[0] < span[1]}
    return Rendered((*ids, *written), spans)


def totals(rows: Sequence[Rendered]) -> Int[ndarray, "n p"]:
    """Return how many tokens of each row stand at each of ``POSITIONS``."""
    return np.array(
        [[sum(b - a for a, b in row.spans.get(name, ())) for name in POSITIONS] for row in rows]
    )


def beyond_unhooked(
    subject: Subject, rows: Sequence[Rendered], lines: Lines
) -> Int[ndarray, "n p a l"]:
    """Count what each cap would move in the model as it is, by row and position."""
    found = np.zeros((len(rows), len(POSITIONS), *lines.floors.shape), np.int64)
    for place, row, states in _states(subject, rows, Read("resid_post", lines.layers, "all")):
        for number, name in enumerate(POSITIONS):
            for first, stop in row.spans.get(name, ()):
                found[place, number] += lines.beyond(states[:, first:stop])
    return found


def beyond_hooked(subject: Subject, rows: Sequence[Rendered], cap: Cap) -> Int[ndarray, "n p l"]:
    """Count what one cap moves while it acts, so that each block sees what those before it left.

    The cap acts on all tokens but each row's first, cut into the spans that are counted.
    """
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    layers = sorted(edit.layer for edit in cap.arm)
    found = np.zeros((len(rows), len(POSITIONS), len(layers)), np.int64)
    for places in _alike(rows):
        log, part = EditLog(), [rows[place] for place in places]
        arms = [_split(cap.arm, row) for row in part]
        batch = subject.renderer.collate(part)
        with subject.runner.intervene(subject, arms, log=log, spans=batch):
            subject.runner.capture(subject, batch, [Read("resid_post", (layers[-1],), "last")])
        for entry in log.rows:
            position = POSITIONS.index(entry.scope.removeprefix("span:"))
            moved = round(entry.engaged * entry.n)
            found[places[entry.arm], position, layers.index(entry.layer)] += moved
    return found


def mean_states(subject: Subject, rows: Sequence[Rendered], layer: int) -> Float[ndarray, "n d"]:
    """Return each row's mean over its reply's tokens, in the model as it is; NaN without one."""
    found = np.full((len(rows), subject.width), np.nan, np.float32)
    kept = [place for place, row in enumerate(rows) if GENERATED in row.spans]
    read = Read("resid_post", (layer,), f"mean:{GENERATED}")
    for place, _, states in _states(subject, [rows[place] for place in kept], read):
        found[kept[place]] = states[0]
    return found


def _alike(rows: Sequence[Rendered]) -> Iterator[list[int]]:
    """Yield batches of rows with the same spans, which an edit of a span asks of all its rows."""
    for names in dict.fromkeys(frozenset(row.spans) for row in rows):
        own = [place for place, row in enumerate(rows) if frozenset(row.spans) == names]
        for first, part in _batches([rows[place] for place in own]):
            yield own[first : first + len(part)]


def _split(arm: Arm, row: Rendered) -> Arm:
    return tuple(replace(edit, scope=f"span:{name}") for edit in arm for name in row.spans)


def _states(
    subject: Subject, rows: Sequence[Rendered], read: Read
) -> Iterator[tuple[int, Rendered, ndarray]]:
    """Yield each row's number, the row and its states, float32: l t d of all tokens, else l d."""
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    for first, part in _batches(rows):
        (values,) = subject.runner.capture(subject, subject.renderer.collate(part), [read])
        each = values if isinstance(values, list) else list(values.unbind(1))
        for place, (row, states) in enumerate(zip(part, each, strict=True)):
            yield first + place, row, cast("Any", states).float().cpu().numpy()


def _batches(rows: Sequence[Rendered]) -> Iterator[tuple[int, Sequence[Rendered]]]:
    """Cut the rows, in their order, into batches within the budget."""
    first = 0
    while first < len(rows):
        stop, longest = first, 0
        while stop < len(rows):
            longest = max(longest, len(rows[stop].ids))
            if stop > first and longest * (stop + 1 - first) > BUDGET:
                break
            stop += 1
        yield first, rows[first:stop]
        first = stop
