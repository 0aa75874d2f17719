"""Readouts asked in units that are kept on disk: resumed after a kill, shared by processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from workbench.readouts.ask import Asked, Outcome, ReadoutLike
from workbench.runs import OpenRun, Units
from workbench.types import (
    Answered,
    Arm,
    CandidatesRead,
    GenerateRead,
    LayerEdit,
    Progress,
    Request,
    Subject,
)

BUDGET = 8192
"""Tokens of one forward, arms counted as rows; less where memory ran out before."""
PROMPT_TOKENS = 8192
"""A unit has at most so many tokens of prompts (or is one prompt) ..."""
ARM_TOKENS = 131072
"""... and at most so many over all arms."""


@dataclass(frozen=True)
class Piece:
    """One unit: some requests under all arms of one set, which a batch compares."""

    arms: int
    """Which set of arms."""
    first: int
    stop: int


def ask_in_units(
    subject: Subject,
    readouts: Sequence[ReadoutLike] | Asked,
    sets: Sequence[Sequence[Arm]],
    run: OpenRun,
    *,
    progress: Progress | None = None,
) -> list[list[Outcome]] | None:
    """Answer readouts under several sets of arms, unit by unit, this process's share of them.

    The units are a function of requests and arms alone, so that what comes out does not depend on
    who did which of them. Where memory runs out the engine goes on with smaller batches; the size
    is kept with the unit, and a resumed run begins with it.

    Returns:
        For each set one outcome for each arm, as ``ask``; None where other shares are not done.
    """
    asked = readouts if isinstance(readouts, Asked) else Asked.of(subject, readouts)
    pieces = list(cut(asked.requests, sets))
    units = Units(run, len(pieces), _digest(asked.requests, sets))
    _answer(subject, asked, sets, pieces, units, progress)
    with units.joining() as complete:
        found = [units.load(number) for number in range(len(pieces))] if complete else None
    if found is None:
        return None
    return [
        asked.outcomes(_joined([one for one, piece in zip(found, pieces, strict=True)
                                if piece.arms == number], len(arms)))
        for number, arms in enumerate(sets)
    ]  # fmt: skip


def cut(requests: Sequence[Request], sets: Sequence[Sequence[Arm]]) -> Iterator[Piece]:
    """Cut the requests of every set of arms into runs of neighbors of limited size."""
    for number, arms in enumerate(sets):
        most = min(PROMPT_TOKENS, ARM_TOKENS // len(arms))
        first = tokens = 0
        for place, request in enumerate(requests):
            own = _tokens(request)
            if place > first and tokens + own > most:
                yield Piece(number, first, place)
                first, tokens = place, 0
            tokens += own
        yield Piece(number, first, len(requests))


def _tokens(request: Request) -> int:
    """Count the tokens of a prompt and of what is tried or written behind it."""
    total = len(request.ids)
    for read in request.reads:
        if isinstance(read, CandidatesRead):
            total += sum(map(len, read.candidates))
        elif isinstance(read, GenerateRead):
            total += read.n * read.max_new_tokens
    return total


def _answer(
    subject: Subject,
    asked: Asked,
    sets: Sequence[Sequence[Arm]],
    pieces: Sequence[Piece],
    units: Units,
    progress: Progress | None,
) -> None:
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    lacking, own = units.lacking(), units.own()
    budget = min([BUDGET, *(units.load(unit)["budget"] for unit in own if unit not in lacking)])
    total = sum(pieces[unit].stop - pieces[unit].first for unit in own)
    done = total - sum(pieces[unit].stop - pieces[unit].first for unit in lacking)
    for unit in lacking:
        piece = pieces[unit]
        answered = subject.runner.answer(
            subject,
            asked.requests[piece.first : piece.stop],
            sets[piece.arms],
            budget=budget,
            progress=_after(progress, done, total),
        )
        budget = answered.budget or budget
        units.keep(unit, {**_tree(answered), "budget": budget})
        done += piece.stop - piece.first
        if progress is not None:
            progress(done, total)


def _after(progress: Progress | None, before: int, total: int) -> Progress | None:
    if progress is None:
        return None

    def report(done: int, _: int) -> None:
        assert progress is not None
        progress(min(before + done, total), total)

    return report


def _tree(answered: Answered) -> dict[str, Any]:
    names = ("values", "realised", "engaged", "counted")
    return {name: getattr(answered, name) for name in names}


def _joined(found: Sequence[dict[str, Any]], arms: int) -> Answered:
    """Put the answers of one set of arms together; means weigh by what they were taken over."""
    counted = np.array([one["counted"] for one in found], np.float64)
    total = counted.sum(axis=0)
    means = {
        name: (np.array([one[name] for one in found]) * counted).sum(axis=0) / np.maximum(total, 1)
        for name in ("realised", "engaged")
    }
    return Answered(
        values=[[answer for one in found for answer in one["values"][arm]] for arm in range(arms)],
        realised=means["realised"].tolist(),
        engaged=means["engaged"].tolist(),
        counted=total.astype(int).tolist(),
    )


def _digest(requests: Sequence[Request], sets: Sequence[Sequence[Arm]]) -> str:
    """Return a hash of all that decides what the units are and what they answer."""
    asked = [[r.item, r.condition, r.ids, repr(r.reads), repr(r.spans)] for r in requests]
    edits = [[[_edit(edit) for edit in arm] for arm in arms] for arms in sets]
    limits = [PROMPT_TOKENS, ARM_TOKENS]
    return sha256(json.dumps([asked, edits, limits]).encode()).hexdigest()


def _edit(edit: LayerEdit) -> list[Any]:
    arrays = {"": edit.v, **edit.weights}
    hashes = [[name, _hash(array)] for name, array in sorted(arrays.items())]
    kind = [edit.name, type(edit.edit).__name__]
    return [edit.layer, kind, hashes, edit.dose, edit.scope, sorted(edit.rows.items())]


def _hash(array: np.ndarray) -> str:
    return sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
