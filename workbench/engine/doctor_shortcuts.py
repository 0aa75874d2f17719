"""The engine's answers against the plain model, and each of its shortcuts against none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.engine.blocks import hidden_of, watching, with_hidden
from workbench.engine.doctor_probe import Found, Probe, one_row
from workbench.engine.forward import run
from workbench.types import (
    AnyRead,
    Arm,
    CandidatesRead,
    LayerEdit,
    LogitsRead,
    Read,
    Request,
    Runner,
    ndarray,
)

SHARED = 18
"""Tokens that two of the prompts begin with."""


def shortcuts_of(runner: Runner) -> frozenset[str]:
    """Return the shortcuts that an engine takes and can leave."""
    return frozenset(getattr(runner, "shortcuts", ()))


def with_shortcuts(runner: Runner, names: Collection[str]) -> Runner:
    """Return the engine with these shortcuts and no other; as it is where it has no switch."""
    if not hasattr(runner, "shortcuts"):
        return runner
    made: Runner = dataclasses.replace(runner, shortcuts=frozenset(names))  # type: ignore[type-var]
    return made


def check_answers(probe: Probe) -> Found:
    """Compare the engine without shortcuts with one plain forward for each answer."""
    values = _answers(probe, with_shortcuts(probe.runner, ()))
    expected = [
        [plain_answer(probe, request, arm) for request in requests_of(probe)]
        for arm in arms_of(probe)
    ]
    worst = apart(probe, values, expected)
    n = len(values) * len(values[0])
    detail = f"{n} answers are those of plain forwards: logits, candidates, residuals, edits"
    return Found(worst <= probe.limit, worst, probe.limit, detail)


def why_unused(probe: Probe, names: Collection[str]) -> str:
    """Say why the engine takes none of these shortcuts with this model; empty where it does."""
    runner = with_shortcuts(probe.runner, names)
    if not hasattr(runner, "plan"):
        return ""
    plan = runner.plan(probe.subject, requests_of(probe), arms_of(probe))
    unused = [plan.reasons[name] for name in names if name in plan.reasons]
    return unused[0] if len(unused) == len(names) and unused else ""


def try_shortcut(probe: Probe, names: Collection[str], plain: list[list[list[Any]]]) -> Found:
    """Compare the engine with these shortcuts with what it answered without any."""
    worst = apart(probe, _answers(probe, with_shortcuts(probe.runner, names)), plain)
    detail = "as without it" if worst <= probe.limit else "other numbers than without it"
    return Found(worst <= probe.limit, worst, probe.limit, detail)


def plain_answers(probe: Probe) -> list[list[list[Any]]]:
    """Return the engine's answers without any shortcut."""
    return _answers(probe, with_shortcuts(probe.runner, ()))


def _answers(probe: Probe, runner: Runner) -> list[list[list[Any]]]:
    return runner.answer(probe.subject, requests_of(probe), arms_of(probe)).values


def requests_of(probe: Probe) -> list[Request]:
    """Prompts that give every shortcut something to do.

    Two begin with the same eighteen tokens, and one is read at a middle block and no further.
    """
    first, short, third = (probe.rows[place].ids for place in (0, 1, 2))
    long = (*first, *third[1:])
    candidates = CandidatesRead((short[1:4], (long[3],)), (long[4],))
    middle, last = probe.layers[len(probe.layers) // 2], probe.layers[-1]
    wanted: list[tuple[tuple[int, ...], tuple[AnyRead, ...]]] = [
        (long[:20], (candidates, LogitsRead())),
        ((*long[:SHARED], *short[1:4]), (LogitsRead(), Read(layers=(middle, last)))),
        (short, (Read(layers=(middle,)),)),
        (third, (candidates, Read(layers=(last,)))),
    ]
    return [Request(f"prompt {n}", "", ids, reads) for n, (ids, reads) in enumerate(wanted)]


def arms_of(probe: Probe) -> list[Arm]:
    """Return the unedited model, an edit of every token, and two of the last."""
    middle, late = (probe.layers[len(probe.layers) * part // 4] for part in (2, 3))
    return [
        (),
        (probe.edit(middle, strength=0.5),),
        (probe.edit(middle, "last", 0.5), probe.edit(late, "last", 0.5)),
    ]


def plain_answer(probe: Probe, request: Request, arm: Arm) -> list[Any]:
    """Answer one request for one arm by whole unpadded forwards."""
    logits, hidden = _edited(probe, request.ids, arm, len(request.ids))
    answers: list[Any] = []
    for read in request.reads:
        if isinstance(read, CandidatesRead):
            scores = [_score(probe, request.ids, one, read, arm) for one in read.candidates]
            answers.append(np.array(scores))
        elif isinstance(read, Read):
            answers.append(torch.stack([hidden[layer][-1].float() for layer in read.layers]))
        else:
            answers.append(logits[-1].float().log_softmax(-1))
    return answers


def _score(
    probe: Probe, prompt: Sequence[int], tokens: Sequence[int], read: CandidatesRead, arm: Arm
) -> float:
    n = len(prompt)
    logits, _ = _edited(probe, (*prompt, *tokens), arm, n)
    logprobs = logits[n - 1 :].float().log_softmax(-1)
    score = sum(float(logprobs[step, token]) for step, token in enumerate(tokens))
    return score + float(logprobs[-1, list(read.terminators)].logsumexp(0))


def _edited(
    probe: Probe, ids: Sequence[int], arm: Arm, prompt: int
) -> tuple[Tensor, dict[int, Tensor]]:
    """Return logits and edited block outputs of one row; ``add`` is written out again here."""
    hidden: dict[int, Tensor] = {}
    by_layer: dict[int, list[LayerEdit]] = {}
    for edit in arm:
        by_layer.setdefault(edit.layer, []).append(edit)

    def see(layer: int, output: Any) -> Any:
        h = hidden_of(output)
        wide = h.float()
        for edit in by_layer.get(layer, []):
            first = prompt - 1 if edit.scope == "last" else 1
            wide = wide.clone()
            wide[:, first:] += edit.dose * torch.from_numpy(edit.v).to(wide.device)
        made = wide.to(h.dtype)
        hidden[layer] = made[0]
        return with_hidden(output, made) if layer in by_layer else None

    with torch.no_grad(), watching(probe.subject, probe.layers, see):
        logits = run(probe.subject, one_row(probe.subject, ids)).logits[0]
    return logits, hidden


def apart(probe: Probe, values: Sequence[Any], others: Sequence[Any]) -> float:
    """Return the largest difference of answers.

    Logits and candidates count in standard deviations of the logits (a candidate's for each of its
    factors), residuals in root mean squares of their own row.
    """
    worst = 0.0
    for requests, other_requests in zip(values, others, strict=True):
        for request, reads, other_reads in zip(
            requests_of(probe), requests, other_requests, strict=True
        ):
            for read, value, other in zip(request.reads, reads, other_reads, strict=True):
                worst = max(worst, _gap(probe, read, _array(value), _array(other)))
    return worst


def _gap(probe: Probe, read: Any, value: ndarray, other: ndarray) -> float:
    if value.shape != other.shape:
        return math.inf
    if isinstance(read, Read):
        unit: Any = np.sqrt((other**2).mean(-1, keepdims=True)).clip(1e-9)
    elif isinstance(read, CandidatesRead):
        unit = probe.scale * np.array([len(one) + 1 for one in read.candidates])
    else:
        unit = probe.scale
    gap = float((np.abs(value - other) / unit).max())
    return math.inf if math.isnan(gap) else gap


def _array(value: Any) -> ndarray:
    return value.double().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value, float)
