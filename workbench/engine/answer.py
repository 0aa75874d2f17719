"""Requests answered for every arm, in the caller's order, by the least work that gives them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from workbench.engine.apply import is_edited, refuse_idle
from workbench.engine.batches import Facts, Unit, Want
from workbench.engine.blocks import check_layers
from workbench.engine.cache import why_even, why_plain
from workbench.engine.candidates import grow, wants_logits
from workbench.engine.course import Course
from workbench.engine.edits import LiveEdits
from workbench.engine.forward import is_out_of_memory
from workbench.engine.generate import answer_generations
from workbench.engine.ledger import Ledger
from workbench.engine.plan import SHORTCUTS, Plan, make_plan, replan
from workbench.engine.pool import SITES, layers_of
from workbench.errors import ConfigError, WorkbenchError
from workbench.interventions import EditLog, refuse_absent
from workbench.interventions.scope import parse_scope
from workbench.models.families import refuse_long
from workbench.types import (
    Answered,
    AnyRead,
    Arm,
    CandidatesRead,
    GenerateRead,
    Progress,
    Read,
    Request,
    Subject,
)

logger = logging.getLogger(__name__)


def answer(
    subject: Subject,
    requests: Sequence[Request],
    arms: Sequence[Arm] = ((),),
    *,
    budget: int = 8192,
    progress: Progress | None = None,
    shortcuts: frozenset[str] = SHORTCUTS,
    plan: Plan | None = None,
) -> Answered:
    """Answer every request for every arm, in the caller's order.

    Arms are rows of the same batches, the unedited one with them, and what they and the prompts
    have in common runs once: see `plan.SHORTCUTS`, and `Plan.explain` for one call. Where the
    family allows none of it (see `cache.why_plain`), every arm runs in full and candidates are fed
    behind whole prompts. A batch that does not fit into memory is tried again with half the budget,
    and so is all that follows.

    Args:
        subject: the model under study.
        requests: prompts and what is wanted there.
        arms: edits that act together; the empty arm is the unedited model.
        budget: rows x padded length of one forward, arms counted as rows.
        progress: called with (requests done, requests in all).
        shortcuts: which the plan may use.
        plan: from `plan_for` with the same requests and arms; it notes where memory ran out.

    Returns:
        ``values[arm][request][read]`` as float32 arrays (lists of texts for a GenerateRead).
        ``realised`` and ``engaged`` count every token of a prompt and of its candidates once:
        the mean of ``(h_after - h_before) . v`` over the tokens in scope at each edited block, and
        the fraction of them that moved by more than 1e-6 of their norm. Both are 0 for the
        unedited arm.

    Raises:
        WorkbenchError: a request without tokens, or without a span that a scope names, an unknown
            block, span or scope, an edit that touched no token, or a call inside ``intervene``.
    """
    plan = plan or plan_for(subject, requests, arms, budget=budget, shortcuts=shortcuts)
    job = Job(subject, requests, arms if any(arms) else ((),), plan)
    logger.info("%s", plan.explain())
    start = time.perf_counter()
    shown = 0
    with torch.inference_mode():
        for done in job.run():
            if progress is not None and done > shown:
                progress(done, job.total)
                shown = done
    if any(row.layer <= job.reached for row in job.log.idle()):
        refuse_idle(job.log)
    logger.info(
        "answered %d requests x %d arms in %.1f s",
        len(requests),
        len(arms),
        time.perf_counter() - start,
    )
    rows = range(len(arms)) if any(arms) else [0] * len(arms)
    return Answered(
        [job.values[row] for row in rows],
        [job.log.realised(row) for row in rows],
        [job.log.engaged(row) for row in rows],
        [sum(entry.n for entry in job.log.rows if entry.arm == row) for row in rows],
        job.limits.budget,
    )


def plan_for(
    subject: Subject,
    requests: Sequence[Request],
    arms: Sequence[Arm] = ((),),
    *,
    budget: int = 8192,
    shortcuts: frozenset[str] = SHORTCUTS,
) -> Plan:
    """Plan what `answer` would run, without a forward.

    Raises:
        WorkbenchError: a request without tokens or without a span that a scope names, an unknown
            block, site or scope.
    """
    _check(subject, requests, arms)
    plain = why_plain(subject)
    facts = Facts(
        key=subject.ref.key,
        n_layers=len(subject.blocks),
        vocabulary=subject.model.config.get_text_config(decoder=True).vocab_size,
        plain=plain,
        ragged=None if plain else why_even(subject),
    )
    wants = _wants(subject, requests, arms)
    return make_plan(wants, arms if any(arms) else ((),), facts, budget, shortcuts)


class Job:
    """The answers of one call, filled unit by unit."""

    def __init__(
        self, subject: Subject, requests: Sequence[Request], arms: Sequence[Arm], plan: Plan
    ) -> None:
        self.subject = subject
        self.requests = requests
        self.arms = arms
        self.plan = plan
        self.limits = plan.limits
        self.log = EditLog()
        self.live = LiveEdits(subject, arms, self.log)
        self.ledger = Ledger(self.log, self.live, arms)
        self.reached = -1
        """The deepest block that ran."""
        self.values: list[list[list[Any]]] = [
            [[None] * len(request.reads) for request in requests] for _ in arms
        ]
        self.generations = [
            (n, place)
            for n, request in enumerate(requests)
            for place, read in enumerate(request.reads)
            if isinstance(read, GenerateRead)
        ]
        self.total = len(self.generations) + sum(map(_is_scored, requests))

    def run(self) -> Iterator[int]:
        """Answer everything, yielding the number of requests done so far."""
        done = 0
        units = deque(self.plan.units)
        while units:
            unit, part = units.popleft(), 0
            course = self._course(unit)
            for count in self._tried(course.run()):
                part += count
                yield done + part
            if part < len(_numbers(unit)):
                numbers = [number for one in (unit, *units) for number in _numbers(one)]
                units = deque(self._shrunk(numbers))
                continue
            done += part
            course.credit(self.ledger)
            if course.parts_ways:
                self.reached = max(self.reached, course.deepest)
        yield from self._generate(done)

    def _course(self, unit: Unit) -> Course:
        return Course(
            self.subject, self.requests, self.plan, unit, self.limits, self.live, self._put
        )

    def _put(self, arm: int, number: int, place: int, value: Any) -> None:
        self.values[arm][number][place] = value

    def _tried(self, steps: Iterator[int]) -> Iterator[int]:
        """Go through the steps, and end early where memory runs out.

        Raises:
            RuntimeError: something else went wrong, or not even one token fits.
        """
        try:
            yield from steps
            return
        except (RuntimeError, MemoryError) as error:
            if self.limits.budget == 1 or not is_out_of_memory(error):
                raise
        if torch.cuda.is_available():  # here, since the handled error held the batch's tensors
            torch.cuda.empty_cache()

    def _shrunk(self, numbers: Sequence[int]) -> list[Unit]:
        """Plan what is left again with half the budget."""
        self._halve()
        wants = _wants(self.subject, self.requests, self.arms)
        return replan(self.plan, wants, numbers, self.limits)

    def _halve(self) -> None:
        self.limits = self.limits.halved()
        self.plan.shrunk.append(self.limits.budget)
        logger.warning("out of memory; going on with %d tokens a forward", self.limits.budget)

    def _generate(self, done: int) -> Iterator[int]:
        steps = answer_generations(
            self.subject, self.requests, self.generations, self.arms, self.values, self.log,
            lambda: self.limits, self._halve,
        )  # fmt: skip
        for count in steps:
            done += count
            yield done
        if self.generations:
            self.reached = max(self.subject.blocks)


def _wants(subject: Subject, requests: Sequence[Request], arms: Sequence[Arm]) -> list[Want]:
    """Sum up for the planner what requests need; generation is not planned."""
    blocks = tuple(sorted(subject.blocks))
    spans = sorted({name for scope in _scopes(arms) for name in parse_scope(scope).spans})
    wants = []
    for request in requests:
        tree = grow(request.reads)
        reads = [read for read in request.reads if isinstance(read, Read)]
        layers = [layer for read in reads for layer in layers_of(read, blocks, SITES)]
        check_layers(subject, layers)
        wants.append(
            Want(
                ids=tuple(request.ids),
                head=wants_logits(request.reads),
                deepest=max(layers, default=-1),
                nodes=len(tree.tokens),
                lines=tuple(len(line) for line in tree.lines()),
                marks=_marks(request, spans),
            )
        )
    return wants


def _marks(request: Request, spans: Sequence[str]) -> tuple[int, ...]:
    """Return for each token which of the spans it is in, one bit each."""
    if not spans:
        return ()
    marks = [0] * len(request.ids)
    for bit, name in enumerate(spans):
        for start, stop in request.spans.get(name, ()):
            for place in range(start, min(stop, len(marks))):
                marks[place] |= 1 << bit
    return tuple(marks)


def _scopes(arms: Sequence[Arm]) -> list[str]:
    return sorted({edit.scope for arm in arms for edit in arm})


def _numbers(unit: Unit) -> list[int]:
    return [number for batch in unit.batches for number in batch.numbers]


def _is_scored(request: Request) -> bool:
    return any(not isinstance(read, GenerateRead) for read in request.reads)


def _check(subject: Subject, requests: Sequence[Request], arms: Sequence[Arm]) -> None:
    if not arms:
        raise ValueError("no arms; give ((),) for the unedited model")
    if is_edited(subject):
        raise WorkbenchError(
            "answer was called inside intervene, whose edits would act on shared blocks twice; "
            "give the edits as arms, or leave the with-block"
        )
    vocabulary = subject.model.config.get_text_config(decoder=True).vocab_size
    for request in requests:
        if not request.ids:
            raise ConfigError(
                f"item {request.item!r} ({request.condition}) has no tokens; a prompt needs at "
                "least one, so start it with a BOS token or with the text's first token"
            )
        if not 0 <= min(request.ids) <= max(request.ids) < vocabulary:
            raise ConfigError(
                f"item {request.item!r} has token {max(request.ids)}, but the vocabulary of "
                f"{subject.ref.key} ends at {vocabulary - 1}; encode it with subject.tokenizer"
            )
        where = f"item {request.item!r} ({request.condition})"
        refuse_long(subject.model, len(request.ids) + _longest(request.reads), where)
        present = [name for name, ranges in request.spans.items() if ranges]
        for scope in _scopes(arms):
            refuse_absent(scope, present, where)


def _longest(reads: Sequence[AnyRead]) -> int:
    """Return the most tokens that a read puts behind a prompt."""
    more = [
        read.max_new_tokens
        if isinstance(read, GenerateRead)
        else max(map(len, read.candidates), default=0)
        for read in reads
        if isinstance(read, GenerateRead | CandidatesRead)
    ]
    return max(more, default=0)
