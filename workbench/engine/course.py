"""One unit of a plan, run to its answers: stages, contexts and arms on each other's caches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from workbench.engine.answers import Answers, Put
from workbench.engine.batches import Limits, Unit, chunks_of
from workbench.engine.branch import Branch
from workbench.engine.cache import chosen_rows, fresh_cache
from workbench.engine.candidates import ROOT
from workbench.engine.continuation import Continuation, cached_continuations, whole_strings
from workbench.engine.edits import LiveEdits
from workbench.engine.ledger import Ledger, fresh_log
from workbench.engine.plan import Plan
from workbench.engine.prompts import Prompts, beginnings_of, prompts_of
from workbench.engine.sites import shared_up_to, tapping
from workbench.engine.stages import TRUNK, Harvest, Stage, beginning, parts_of, stages_of
from workbench.engine.trunk import Trunk, run_trunk
from workbench.interventions import EditLog
from workbench.types import Request, Subject

Past = tuple[range, Any]
"""Contexts that run together, and the cache of the beginnings for them, if there are any."""


class Course:
    """The work of one unit.

    Args:
        subject: the model under study.
        requests: all of the call.
        plan: of the call.
        unit: what to run.
        limits: of one forward.
        live: the edits of all arms.
        put: takes the answers.
    """

    def __init__(
        self,
        subject: Subject,
        requests: Sequence[Request],
        plan: Plan,
        unit: Unit,
        limits: Limits,
        live: LiveEdits,
        put: Put,
    ) -> None:
        self.subject, self.plan, self.unit, self.limits = subject, plan, unit, limits
        self.live = live
        self.contexts = plan.contexts if unit.split else plan.arms
        self.context_of = plan.context_of if unit.split else tuple(range(len(plan.arms)))
        self.answers = Answers(len(plan.arms), self.context_of, put)
        self.beginnings = beginnings_of(subject, requests, unit)
        self.batches = [
            prompts_of(subject, requests, batch, self.beginnings) for batch in unit.batches
        ]
        self.harvests = [Harvest(prompts) for prompts in self.batches]
        self.log = fresh_log(live)
        self.early = LiveEdits(subject, self.contexts, EditLog())
        self.shared = LiveEdits(subject, self.contexts * len(unit.prefixes), EditLog())
        self.deepest = self._deepest()

    @property
    def parts_ways(self) -> bool:
        """Whether any block that runs may differ by arm."""
        return self.plan.fork is None or self.deepest >= self.plan.fork

    def run(self) -> Iterator[int]:
        """Answer, yielding the number of requests that each step finished."""
        trunk, cache = self._begin()
        for number, wave in enumerate(self.unit.waves):
            pasts = self._branch_beginnings(wave, trunk)
            for prompts, harvest in zip(self.batches, self.harvests, strict=True):
                self._batch(prompts, harvest, pasts, cache, first=number == 0)
                if number + 1 == len(self.unit.waves):
                    self.answers.finish(prompts, harvest)
                    yield len(prompts.numbers)

    def credit(self, ledger: Ledger) -> None:
        """Bring what was counted to the ledger: each token once for each request and arm."""
        arms = range(len(self.plan.arms))
        ledger.credit(self.log, {arm: [(arm, 1)] for arm in arms}, False)
        sharing = {
            context: [arm for arm in arms if self.context_of[arm] == context]
            for context in range(len(self.contexts))
        }
        once = {context: [(arm, 1) for arm in members] for context, members in sharing.items()}
        ledger.credit(self.early.log, once, self.unit.split)
        times = Counter(place for batch in self.unit.batches for place in batch.prefixes)
        many = {
            place * len(self.contexts) + context: [(arm, times[place]) for arm in members]
            for place in range(len(self.unit.prefixes))
            for context, members in sharing.items()
        }
        ledger.credit(self.shared.log, many, self.unit.split)

    def _deepest(self) -> int:
        if "stop" not in self.plan.shortcuts or any(prompts.heads for prompts in self.batches):
            return max(self.subject.blocks)
        return max(
            layer for prompts in self.batches for tap in prompts.taps for layer in tap.layers
        )

    def _blocks(self, shared: bool) -> range:
        """Blocks that run once for all arms, or those that run for each."""
        fork = -1 if self.plan.fork is None else self.plan.fork
        if shared:
            return range(min(fork, self.deepest) + 1)
        return range(fork + 1, self.deepest + 1)

    # Shared beginnings

    def _begin(self) -> tuple[tuple[Stage, Trunk | None] | None, Any]:
        """Run the shared blocks of the beginnings."""
        if self.beginnings is None:
            return None, None
        parts = [
            parts_of(prompts.taps, 0, prompts.cut, prompts.prefixes) for prompts in self.batches
        ]
        stage = beginning(self.beginnings, [part for own in parts for part in own])
        cache = fresh_cache(self.subject)
        trunk = self._trunk(stage, cache)
        for harvest, own in zip(self.harvests, parts, strict=True):
            harvest.keep(own, [TRUNK])
        return (stage, trunk), cache

    def _branch_beginnings(
        self, wave: Sequence[range], begun: tuple[Stage, Trunk | None] | None
    ) -> list[Past]:
        """Run the beginnings for each context of a wave."""
        if begun is None or not self.parts_ways:
            return [(piece, None) for piece in wave]
        assert self.beginnings is not None
        stage, trunk = begun
        pasts: list[Past] = []
        for piece in wave:
            numbers = [
                place * len(self.contexts) + context
                for place in range(len(self.unit.prefixes))
                for context in piece
            ]
            parts = [
                parts_of(prompts.taps, 0, prompts.cut, prompts.prefixes) for prompts in self.batches
            ]
            cache = fresh_cache(self.subject)
            Branch(self.subject, self.shared, piece).run(
                stage.inputs,
                stage.scope,
                numbers=numbers,
                trunk=trunk,
                cache=cache,
                taps=[part for own in parts for part in own],
                deepest=self.deepest,
            )
            for harvest, own in zip(self.harvests, parts, strict=True):
                harvest.keep(own, [("context", context) for context in piece])
            pasts.append((piece, cache))
        return pasts

    def _trunk(self, stage: Stage, cache: Any) -> Trunk | None:
        """Run the shared blocks of a stage, with the residual reads that no edit reaches."""
        fork = self.plan.fork
        if fork is None:
            return None
        with tapping(self.subject, stage.parts, where=shared_up_to(fork)):
            return run_trunk(self.subject, stage.inputs, min(fork, self.deepest), cache)

    # Batches

    def _batch(
        self, prompts: Prompts, harvest: Harvest, pasts: list[Past], cache: Any, *, first: bool
    ) -> None:
        fed = any(tree.tokens for tree in prompts.trees)
        stages = stages_of(prompts, self.unit.split)
        cached = "candidates" in self.plan.shortcuts
        keeps = len(stages) > 1 or (fed and cached)
        trunks, cache = self._trunks(prompts, harvest, stages, cache, keeps=keeps, first=first)
        if not self.parts_ways:
            return
        rows, t = len(prompts.numbers), prompts.width
        at_once = self.limits.at_once(len(self.plan.arms), rows, rows * t if keeps else 0, rows)
        continuations: list[Continuation] = []
        if fed and cached:
            continuations = list(
                cached_continuations(
                    self.subject, prompts, at_once, self.limits, cache, self.plan.fork
                )
            )
        elif fed:
            continuations = list(whole_strings(self.subject, prompts, at_once, self.limits))
        del cache
        width = max(1, t - prompts.cut - self.unit.split)
        for piece, past in pasts:
            size = self.limits.at_once(
                len(piece), rows * width, rows * t if keeps else 0, 1 if self.unit.split else rows
            )
            for chunk in chunks_of(len(piece), size):
                own = piece[chunk.start : chunk.stop]
                made = self._own_cache(prompts, piece, own, past, keeps)
                for part in self._contexts(prompts, harvest, stages, trunks, own, made, at_once):
                    branch, made_for = part
                    for continuation in continuations:
                        self._continue(branch, prompts, continuation, made_for)

    def _trunks(
        self,
        prompts: Prompts,
        harvest: Harvest,
        stages: Sequence[Stage],
        cache: Any,
        *,
        keeps: bool,
        first: bool,
    ) -> tuple[list[Trunk | None], Any]:
        """Run the shared blocks of all stages, one on the cache of the other."""
        if self.plan.fork is None:
            return [None for _ in stages], None
        if prompts.prefixes is not None:
            cache = chosen_rows(
                self.subject, cache, prompts.prefixes, self._blocks(True), prompts.cut
            )
        elif keeps:
            cache = fresh_cache(self.subject)
        trunks = []
        for stage in stages:
            trunks.append(self._trunk(stage, cache))
            harvest.keep(stage.parts, [TRUNK] if first else [])
        return trunks, cache

    def _own_cache(self, prompts: Prompts, piece: range, own: range, past: Any, keeps: bool) -> Any:
        """Return the beginnings' cache for each prompt and context, or an empty one, or None."""
        if prompts.prefixes is None:
            return fresh_cache(self.subject) if keeps else None
        device = prompts.prefixes.device
        places = torch.tensor([piece.index(context) for context in own], device=device)
        rows = (prompts.prefixes[:, None] * len(piece) + places).flatten()
        return chosen_rows(self.subject, past, rows, self._blocks(False), prompts.cut)

    def _contexts(
        self,
        prompts: Prompts,
        harvest: Harvest,
        stages: Sequence[Stage],
        trunks: Sequence[Trunk | None],
        contexts: range,
        cache: Any,
        at_once: int,
    ) -> Iterator[tuple[Branch, Any]]:
        """Run prompts for some contexts, then for their arms; yield these with their cache."""
        *before, last = zip(stages, trunks, strict=True)
        if not self.unit.split:
            branch = Branch(self.subject, self.live, contexts)
            self._last(branch, prompts, harvest, *last, cache)
            yield branch, cache
            return
        for stage, trunk in before:
            branch = Branch(self.subject, self.early, contexts)
            branch.run(
                stage.inputs, stage.scope, trunk=trunk, cache=cache, taps=stage.parts,
                deepest=self.deepest,
            )  # fmt: skip
            harvest.keep(stage.parts, [("context", context) for context in contexts])
        members = [arm for arm, context in enumerate(self.context_of) if context in contexts]
        for chunk in chunks_of(len(members), at_once):
            arms = members[chunk.start : chunk.stop]
            branch = Branch(self.subject, self.live, arms)
            places = [contexts.index(self.context_of[arm]) for arm in arms]
            rows = torch.arange(len(prompts.numbers))[:, None] * len(contexts)
            own = chosen_rows(
                self.subject,
                cache,
                (rows + torch.tensor(places)).flatten(),
                self._blocks(False),
                prompts.width - 1,
            )
            self._last(branch, prompts, harvest, *last, own)
            yield branch, own

    def _last(
        self,
        branch: Branch,
        prompts: Prompts,
        harvest: Harvest,
        stage: Stage,
        trunk: Trunk | None,
        cache: Any,
    ) -> None:
        """Run the stage of the last prompt token: logits, first tokens of candidates."""
        end = stage.inputs.ids.shape[1] - 1
        logits = branch.run(
            stage.inputs,
            stage.scope,
            trunk=trunk,
            cache=cache,
            taps=stage.parts,
            heads=[(row, end) for row in prompts.heads],
            deepest=self.deepest,
        )
        harvest.keep(stage.parts, [("arm", arm) for arm in branch.arms])
        if logits is not None:
            self.answers.keep_logits(branch.arms, prompts, logits)
            first = {(row, ROOT): place for place, row in enumerate(prompts.heads)}
            self.answers.score(branch.arms, prompts, logits, first)

    def _continue(
        self, branch: Branch, prompts: Prompts, continuation: Continuation, cache: Any
    ) -> None:
        """Run some candidates for some arms."""
        heads = sorted(set(continuation.where.values()))
        if not heads:
            return
        own = None
        if continuation.prompts is not None:
            times = len(branch.arms)
            arms = torch.arange(times, device=continuation.prompts.device)
            rows = (continuation.prompts[:, None] * times + arms).flatten()
            own = chosen_rows(self.subject, cache, rows, self._blocks(False), prompts.width)
        logits = branch.run(
            continuation.inputs,
            continuation.scope,
            counted=continuation.counted,
            trunk=continuation.trunk,
            cache=own,
            heads=heads,
            deepest=self.deepest,
        )
        assert logits is not None
        places = {place: number for number, place in enumerate(heads)}
        where = {node: places[place] for node, place in continuation.where.items()}
        self.answers.score(branch.arms, prompts, logits, where)
