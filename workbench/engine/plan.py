"""The least work that gives the numbers: what arms and prompts share, and what that costs.

Pure: a plan needs token ids, arms and a few facts about the model, and runs no forward.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from workbench.engine.batches import Facts, Limits, Sharing, Unit, Want, units_of
from workbench.interventions.scope import parse_scope
from workbench.types import Arm

SHORTCUTS = frozenset({"trunk", "last", "prefix", "candidates", "stop"})
"""Blocks below the edits once; the prompt's cache kept where only its last token is edited; tokens
that prompts begin with once; candidates on the prompt's cache; no block after the deepest read."""


@dataclass(frozen=True)
class Plan:
    """What runs, and what it costs beside one full forward for each arm."""

    facts: Facts
    n_requests: int
    arms: tuple[Arm, ...]
    contexts: tuple[Arm, ...]
    """Different edits of the tokens before the last one; arms that share them share the cache."""
    context_of: tuple[int, ...]
    fork: int | None
    """The lowest edited block: up to its output everything is shared by all arms."""
    limits: Limits
    shortcuts: frozenset[str]
    """Those in use."""
    reasons: dict[str, str]
    """Why the others are not."""
    units: tuple[Unit, ...]
    work: int
    """Blocks x real tokens."""
    plain_work: int
    head_tokens: int
    shrunk: list[int] = field(default_factory=list)
    """Token budgets that memory allowed instead, as they were found while running."""

    @property
    def ratio(self) -> float:
        """How many times less work than the plain way."""
        return self.plain_work / self.work if self.work else 1.0

    def explain(self) -> str:
        """Say in a few lines what is shared, why not more, and what it costs."""
        batches = sum(len(unit.batches) for unit in self.units)
        lines = [
            f"{self.facts.key}: {counted(self.n_requests, 'request')} x "
            f"{counted(len(self.arms), 'arm')} in "
            f"{counted(batches, 'batch', 'batches')} of up to {self.limits.budget} tokens"
        ]
        lines += [f"  {name}: {text}" for name, text in self._used().items()]
        lines += [f"  {name}: not used, {why}" for name, why in sorted(self.reasons.items())]
        lines += [f"  out of memory: went on with {size} tokens" for size in self.shrunk]
        lines.append(
            f"  work: {self.work:,} block-tokens, {self.plain_work:,} the plain way "
            f"({self.ratio:.2f} x less); head at {self.head_tokens:,} tokens"
        )
        return "\n".join(lines)

    def _used(self) -> dict[str, str]:
        prefixes = [prefix for unit in self.units for prefix in unit.prefixes]
        covered = sum(
            len(batch.numbers) for unit in self.units if unit.prefixes for batch in unit.batches
        )
        words = {
            "trunk": f"blocks 0 to {self.fork} run once for all arms",
            "last": f"prompts run once for {len(self.contexts)} of {len(self.arms)} arms, then "
            "one token for each arm on their cache",
            "prefix": f"{counted(len(prefixes), 'beginning')} ({sum(map(len, prefixes))} tokens) "
            f"that {covered} prompts share run once",
            "candidates": "candidates are fed on the prompts' caches, shared beginnings once",
            "stop": "no block runs after the deepest one that is read",
        }
        return {name: words[name] for name in sorted(self.shortcuts)}


def counted(n: int, noun: str, nouns: str | None = None) -> str:
    """Write a number with its noun, such as ``1 arm`` or ``2 arms``."""
    return f"{n} {noun}" if n == 1 else f"{n} {nouns or noun + 's'}"


def make_plan(
    wants: Sequence[Want],
    arms: Sequence[Arm],
    facts: Facts,
    budget: int,
    shortcuts: frozenset[str] = SHORTCUTS,
) -> Plan:
    """Plan the prompts and candidates of some requests; a request without either takes no part.

    Args:
        wants: one for each request.
        arms: edits that act together; the empty arm is the unedited model.
        facts: of the model.
        budget: rows x padded length of one forward, arms counted as rows.
        shortcuts: which may be used.

    Raises:
        ValueError: a shortcut that nobody knows.
    """
    if unknown := shortcuts - SHORTCUTS:
        raise ValueError(f"shortcuts {sorted(unknown)}; known: {', '.join(sorted(SHORTCUTS))}")
    reasons = _reasons(wants, arms, facts, shortcuts)
    limits = Limits(budget, facts.vocabulary)
    contexts, context_of = _contexts(arms, "last" not in reasons)
    sharing = _sharing(contexts, arms, {"trunk", "prefix"} - set(reasons))
    units = units_of(wants, range(len(wants)), sharing, facts, limits)
    if "prefix" not in reasons and not any(unit.prefixes for unit in units):
        reasons["prefix"] = "no prompts begin alike for long enough"
    fork = None if "trunk" in reasons else lowest_edited(arms)
    used = SHORTCUTS - set(reasons)
    costs = _costs(wants, units, len(contexts), len(arms), facts, fork, used)
    return Plan(
        facts, len(wants), tuple(arms), tuple(contexts), tuple(context_of), fork, limits, used,
        reasons, tuple(units), *costs,
    )  # fmt: skip


def replan(plan: Plan, wants: Sequence[Want], numbers: Sequence[int], limits: Limits) -> list[Unit]:
    """Cut what is left of a plan's requests again, within other limits."""
    sharing = _sharing(plan.contexts, plan.arms, plan.shortcuts)
    return units_of(wants, numbers, sharing, plan.facts, limits)


def _sharing(contexts: Sequence[Arm], arms: Sequence[Arm], used: Collection[str]) -> Sharing:
    split = len(contexts) < len(arms)
    return Sharing(len(contexts), len(arms), "trunk" in used, "prefix" in used, split)


def lowest_edited(arms: Sequence[Arm]) -> int | None:
    """Return the block after whose output the arms may differ; None where nothing is edited."""
    layers = [edit.layer for arm in arms for edit in arm]
    return min(layers) if layers else None


def _reasons(
    wants: Sequence[Want], arms: Sequence[Arm], facts: Facts, shortcuts: frozenset[str]
) -> dict[str, str]:
    """Say why each shortcut that is not used is not."""
    reasons = dict.fromkeys(SHORTCUTS - shortcuts, "switched off")
    if facts.plain:
        reasons |= dict.fromkeys(("trunk", "last", "prefix", "candidates"), facts.plain)
    if lowest_edited(arms) is None:
        reasons.setdefault("trunk", "nothing is edited")
    if len(_contexts(arms, True)[0]) == len(arms):
        reasons.setdefault("last", "no two arms have the same edits before the last token")
    if not any(want.nodes for want in wants):
        reasons.setdefault("candidates", "no candidate has a token to feed")
    if all(want.head for want in wants):
        reasons.setdefault("stop", "every request needs the last block")
    return reasons


def _contexts(arms: Sequence[Arm], late: bool) -> tuple[list[Arm], list[int]]:
    """Return the different edits of tokens before the last, and for each arm which it has."""
    if not late:
        return list(arms), list(range(len(arms)))
    contexts: list[Arm] = []
    places: dict[object, int] = {}
    context_of = []
    for arm in arms:
        early = tuple(edit for edit in arm if parse_scope(edit.scope).touches_prompt)
        key = tuple(edit.key for edit in early)
        if key not in places:
            places[key] = len(contexts)
            contexts.append(early)
        context_of.append(places[key])
    return contexts, context_of


def _costs(
    wants: Sequence[Want],
    units: Sequence[Unit],
    contexts: int,
    arms: int,
    facts: Facts,
    fork: int | None,
    used: frozenset[str],
) -> tuple[int, int, int]:
    """Return the work, the plain work (both blocks x real tokens) and tokens at the head."""

    def blocks(depth: int, copies: int) -> int:
        if fork is None:
            return depth * copies
        return min(depth, fork + 1) + max(0, depth - fork - 1) * copies

    work = plain = head = 0
    for unit in units:
        numbers = [number for batch in unit.batches for number in batch.numbers]
        depths = {number: _depth(wants[number], facts, used) for number in numbers}
        early = contexts if unit.split else arms
        work += sum(map(len, unit.prefixes)) * blocks(max(depths.values()), early)
        for batch in unit.batches:
            for place, number in enumerate(batch.numbers):
                want, depth = wants[number], depths[number]
                done = len(unit.prefixes[batch.prefixes[place]]) if unit.prefixes else 0
                rest = len(want.ids) - done
                last = 1 if unit.split else 0
                strings = sum(len(want.ids) + line for line in want.lines)
                merged = "candidates" in used
                work += (rest - last) * blocks(depth, early) + last * blocks(depth, arms)
                work += want.nodes * blocks(depth, arms) if merged else strings * depth * arms
                plain += (len(want.ids) + strings) * facts.n_layers * arms
                fed = want.nodes if merged else sum(want.lines)
                head += (1 + fed) * arms if want.head else 0
    return work, plain, head


def _depth(want: Want, facts: Facts, used: frozenset[str]) -> int:
    return want.deepest + 1 if "stop" in used and not want.head else facts.n_layers
