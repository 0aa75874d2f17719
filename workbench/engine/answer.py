"""Requests answered for every arm: shared trunk, candidates on a repeated cache, caller's order."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from workbench.engine.apply import is_edited, refuse_idle
from workbench.engine.branch import Branch
from workbench.engine.cache import chosen_rows, fresh_cache, why_plain
from workbench.engine.candidates import ROOT, Step, log_likelihoods, padded_tokens
from workbench.engine.capture import tapping
from workbench.engine.continuation import Continuation, cached_continuations, whole_strings
from workbench.engine.edits import LiveEdits
from workbench.engine.generate import answer_generations
from workbench.engine.plan import Limits, chunks_of, lowest_edited, prompt_batches
from workbench.engine.pool import Tap
from workbench.engine.prompts import Prompts, prompts_of
from workbench.engine.trunk import Trunk, run_trunk
from workbench.errors import ConfigError, WorkbenchError
from workbench.interventions import EditLog, scope_mask
from workbench.types import (
    Answered,
    Arm,
    CandidatesRead,
    GenerateRead,
    LogitsRead,
    Progress,
    Request,
    Subject,
    ndarray,
)

logger = logging.getLogger(__name__)


def answer(
    subject: Subject,
    requests: Sequence[Request],
    arms: Sequence[Arm] = ((),),
    *,
    budget: int = 8192,
    progress: Progress | None = None,
) -> Answered:
    """Answer every request for every arm, in the caller's order.

    Blocks up to the lowest edited one run once for all arms, and arms are rows of the same
    batches, the unedited one with them. Where the family allows neither (see
    `cache.why_plain`), every arm runs in full and candidates are fed behind whole prompts.

    Args:
        subject: the model under study.
        requests: prompts and what is wanted there.
        arms: edits that act together; the empty arm is the unedited model.
        budget: rows x padded length of one forward, arms counted as rows.
        progress: called with (requests done, requests in all).

    Returns:
        ``values[arm][request][read]`` as float32 arrays (lists of texts for a GenerateRead).
        ``realised`` and ``engaged`` count every token of a prompt and of its candidates once:
        the mean of ``(h_after - h_before) . v`` over the tokens in scope at each edited block, and
        the fraction of them that moved by more than 1e-6 of their norm. Both are 0 for the
        unedited arm.

    Raises:
        WorkbenchError: a request without tokens, an unknown block, span or scope, an edit that
            touched no token, or a call inside ``intervene``.
    """
    _check(subject, requests, arms)
    distinct: Sequence[Arm] = arms if any(arms) else ((),)
    job = Job(subject, requests, distinct, budget)
    total = len(job.scored) + len(job.generations)
    start = time.perf_counter()
    done = 0
    with torch.inference_mode():
        for count in job.run():
            done += count
            if progress is not None:
                progress(done, total)
    if requests and job.log.passes:
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
    )


class Job:
    """The answers of one call, filled batch by batch."""

    def __init__(
        self, subject: Subject, requests: Sequence[Request], arms: Sequence[Arm], budget: int
    ) -> None:
        self.subject = subject
        self.requests = requests
        self.arms = arms
        self.log = EditLog()
        self.live = LiveEdits(subject, arms, self.log)
        config = subject.model.config.get_text_config(decoder=True)
        self.limits = Limits(budget, config.vocab_size)
        self.plain = why_plain(subject)
        if self.plain:
            logger.info("%s runs the plain way: %s", subject.ref.key, self.plain)
        self.fork = None if self.plain else lowest_edited(arms)
        self.values: list[list[list[Any]]] = [
            [[None] * len(request.reads) for request in requests] for _ in arms
        ]
        self.scored = [n for n, request in enumerate(requests) if _is_scored(request)]
        self.generations = [
            (n, place)
            for n, request in enumerate(requests)
            for place, read in enumerate(request.reads)
            if isinstance(read, GenerateRead)
        ]
        self._sums: dict[tuple[int, int], Float[ndarray, "a c"]] = {}

    def run(self) -> Any:
        """Answer everything, yielding the number of requests that each step finished."""
        order = sorted(self.scored, key=lambda n: _size(self.requests[n]))
        lengths = [len(self.requests[n].ids) for n in order]
        for batch in prompt_batches(lengths, len(self.arms), self.limits):
            self._answer([order[row] for row in batch])
            yield len(batch)
        yield from answer_generations(
            self.subject,
            self.requests,
            self.generations,
            self.arms,
            self.values,
            self.log,
            self.limits,
        )

    def _answer(self, numbers: Sequence[int]) -> None:
        prompts = prompts_of(self.subject, self.requests, numbers)
        at_once = self.limits.arms_at_once(len(self.arms), prompts.width)
        fed = any(tree.tokens for tree in prompts.trees)
        trunk, trunk_cache = self._trunk(prompts, fed)
        continuations = list(self._continuations(prompts, at_once, trunk_cache)) if fed else []
        del trunk_cache
        for arms in chunks_of(len(self.arms), at_once):
            branch = Branch(self.subject, self.live, arms)
            cache = fresh_cache(self.subject) if fed and not self.plain else None
            self._prompts(branch, prompts, trunk, cache)
            for continuation in continuations:
                self._continue(branch, prompts, continuation, cache)
        for (number, place), sums in self._sums.items():
            for arm, row in enumerate(sums):
                self.values[arm][number][place] = row.astype(np.float32)
        self._sums = {}

    def _trunk(self, prompts: Prompts, fed: bool) -> tuple[Trunk | None, Any]:
        """Run the shared blocks, with the residual reads that lie below the edits."""
        if self.fork is None:
            return None, None
        cache = fresh_cache(self.subject) if fed else None
        layers = {layer for tap in prompts.taps for layer in tap.layers if layer < self.fork}
        with tapping(self.subject, prompts.taps, sorted(layers)):
            return run_trunk(self.subject, prompts.inputs, self.fork, cache), cache

    def _continuations(self, prompts: Prompts, at_once: int, trunk_cache: Any) -> Any:
        if self.plain:
            return whole_strings(self.subject, prompts, at_once, self.limits)
        return cached_continuations(
            self.subject, prompts, at_once, self.limits, trunk_cache, self.fork
        )

    def _prompts(self, branch: Branch, prompts: Prompts, trunk: Trunk | None, cache: Any) -> None:
        """Run the prompts for some arms: residual reads, logits, first tokens of candidates."""
        mask, t = prompts.inputs.mask, prompts.width
        logits = branch.run(
            prompts.inputs,
            lambda name: scope_mask(name, mask, t, t),
            trunk=trunk,
            cache=cache,
            taps=prompts.taps,
            heads=[(row, t - 1) for row in prompts.heads],
        )
        self._keep_taps(branch, prompts, 0 if trunk is None else trunk.layer)
        if logits is not None:
            self._keep_logits(branch, prompts, logits)
            self._score(
                branch, prompts, logits, {(row, ROOT): i for i, row in enumerate(prompts.heads)}
            )

    def _continue(
        self, branch: Branch, prompts: Prompts, continuation: Continuation, cache: Any
    ) -> None:
        """Run some candidates for some arms."""
        heads = sorted(set(continuation.where.values()))
        logits = branch.run(
            continuation.inputs,
            continuation.scope,
            counted=continuation.counted,
            trunk=continuation.trunk,
            cache=self._cache_rows(branch, prompts, continuation, cache),
            heads=heads,
        )
        if logits is not None:
            places = {place: number for number, place in enumerate(heads)}
            where = {node: places[place] for node, place in continuation.where.items()}
            self._score(branch, prompts, logits, where)

    def _cache_rows(
        self, branch: Branch, prompts: Prompts, continuation: Continuation, cache: Any
    ) -> Any:
        if continuation.prompts is None:
            return None
        times = len(branch.arms)
        arms = torch.arange(times, device=continuation.prompts.device)
        rows = (continuation.prompts[:, None] * times + arms).flatten()
        first = 0 if self.fork is None else self.fork + 1
        blocks = range(first, len(self.subject.blocks))
        return chosen_rows(self.subject, cache, rows, blocks, prompts.width)

    def _score(
        self,
        branch: Branch,
        prompts: Prompts,
        logits: Float[Tensor, "p a v"],
        where: dict[tuple[int, int], int],
    ) -> None:
        """Add the factors of candidates whose nodes have logits here."""
        found = [
            (prompts.numbers[row], step, where[row, step.node])
            for row, tree in enumerate(prompts.trees)
            for step in tree.steps
            if (row, step.node) in where
        ]
        if not found:
            return
        places = torch.tensor([place for _, _, place in found], device=logits.device)
        tokens = padded_tokens([step for _, step, _ in found], logits.device)
        factors = log_likelihoods(logits, places, tokens).double().cpu().numpy()
        for (number, step, _), factor in zip(found, factors, strict=True):
            self._sum(number, step)[branch.arms, step.candidate] += factor

    def _sum(self, number: int, step: Step) -> Float[ndarray, "a c"]:
        key = (number, step.read)
        if key not in self._sums:
            read = self.requests[number].reads[step.read]
            assert isinstance(read, CandidatesRead)
            self._sums[key] = np.zeros((len(self.arms), len(read.candidates)))
        return self._sums[key]

    def _keep_logits(
        self, branch: Branch, prompts: Prompts, logits: Float[Tensor, "p a v"]
    ) -> None:
        for place, row in enumerate(prompts.heads):
            for slot, read in enumerate(prompts.requests[row].reads):
                if isinstance(read, LogitsRead):
                    logprobs = logits[place].float().log_softmax(-1)
                    kept = logprobs if read.keep is None else logprobs[:, list(read.keep)]
                    self._put(branch, prompts.numbers[row], slot, kept.cpu().numpy())

    def _keep_taps(self, branch: Branch, prompts: Prompts, first: int) -> None:
        times = len(branch.arms)
        for tap in prompts.taps:
            for slot, row in enumerate(tap.rows.tolist()):
                by_arm = [_tapped(tap, slot, arm, times, first) for arm in range(times)]
                for place, read in enumerate(prompts.requests[row].reads):
                    if read == tap.read:
                        self._put(branch, prompts.numbers[row], place, by_arm)

    def _put(self, branch: Branch, number: int, place: int, by_arm: Iterable[Any]) -> None:
        for arm, value in zip(branch.arms, by_arm, strict=True):
            self.values[arm][number][place] = value


def _tapped(tap: Tap, slot: int, arm: int, times: int, first: int) -> ndarray:
    """Return one row of one arm, layers first; below block ``first`` all arms share a row."""
    rows = [slot if layer < first else slot * times + arm for layer in tap.layers]
    values = [tap.taken[layer][row] for layer, row in zip(tap.layers, rows, strict=True)]
    return np.stack([value.float().cpu().numpy() for value in values])


def _is_scored(request: Request) -> bool:
    return any(not isinstance(read, GenerateRead) for read in request.reads)


def _size(request: Request) -> tuple[int, int]:
    """Sort by prompt, then by the longest candidate, so that batches hold little padding."""
    longest = [
        max(map(len, read.candidates), default=0)
        for read in request.reads
        if isinstance(read, CandidatesRead)
    ]
    return len(request.ids), max(longest, default=0)


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
