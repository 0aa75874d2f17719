"""The least work that gives the numbers: what arms and prompts share, in batches by token budget.

Pure: a plan needs token ids, arms and a few facts about the model, and runs no forward.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from workbench.engine.prefixes import shared_prefixes
from workbench.types import Arm

LOGITS = 2**26
"""Logits held at once, a quarter of a gibibyte in float32."""
CACHED = 16
"""Cached columns that one block may repeat at once, in multiples of the token budget."""
HELD = 4
"""Columns of shared beginnings kept over batches, every block's, in multiples of the budget."""
ENOUGH = 2048
"""Tokens of a forward beyond which more of them take hardly less time each."""
SHORTCUTS = frozenset({"trunk", "last", "prefix", "candidates", "stop"})
"""Blocks below the edits once; the prompt's cache kept where only its last token is edited; tokens
that prompts begin with once; candidates on the prompt's cache; no block after the deepest read."""


@dataclass(frozen=True)
class Limits:
    """What one forward may hold.

    Args:
        budget: rows x padded length, arms counted as rows.
        vocabulary: logits a position.
    """

    budget: int
    vocabulary: int

    @property
    def positions(self) -> int:
        """Positions at which the head may run in one forward."""
        return max(1, LOGITS // self.vocabulary)

    def at_once(self, n: int, fed: int, cached: int = 0, heads: int = 1) -> int:
        """How many arms to run at once, each feeding tokens, repeating cached columns, with heads.

        As many as fit, but where a forward is large even with fewer, a divisor of their number:
        then all arms run in batches of one shape, which rounds alike.
        """
        fitting = min(self.budget // max(1, fed), CACHED * self.budget // max(1, cached))
        fitting = max(1, min(n, fitting, self.positions // max(1, heads)))
        even = next(size for size in range(fitting, 0, -1) if n % size == 0)
        runs = -(-n // fitting)
        return even if even * fed >= ENOUGH else -(-n // runs)

    def halved(self) -> Limits:
        return Limits(max(1, self.budget // 2), self.vocabulary)


@dataclass(frozen=True)
class Facts:
    """What a plan must know about a model."""

    key: str
    n_layers: int
    vocabulary: int
    plain: str | None = None
    """Why blocks cannot be skipped and caches not repeated."""
    ragged: str | None = None
    """Why rests of unequal length cannot follow a cached prefix in one batch."""


@dataclass(frozen=True)
class Want:
    """What a plan must know about a request."""

    ids: tuple[int, ...]
    head: bool
    """Whether next-token probabilities are wanted."""
    deepest: int = -1
    """The deepest block that is read."""
    nodes: int = 0
    """Candidate tokens to feed, shared beginnings merged."""
    lines: tuple[int, ...] = ()
    """Lengths of the strings to feed where nothing is merged."""


@dataclass(frozen=True)
class Batch:
    """Requests that go through the model together, by number."""

    numbers: tuple[int, ...]
    prefixes: tuple[int, ...] = ()
    """For each, its row among the unit's prefixes; empty where there are none."""


@dataclass(frozen=True)
class Sharing:
    """What arms and prompts have in common."""

    contexts: int
    """Different edits of the tokens before the last one."""
    arms: int
    trunk: bool
    """Whether blocks up to the lowest edited one run once for all arms."""
    prefix: bool
    """Whether shared beginnings run once."""
    split: bool
    """Whether the last prompt token runs on its own, on the cache of the rest."""

    def packed(self, lengths: Sequence[int], before: int, limits: Limits) -> Iterator[list[int]]:
        """Cut prompts of some lengths, on caches of so many columns, into batches.

        Where blocks are shared a batch fills the budget by itself, and arms run in turn. Batches
        too small for that hold so few prompts that all arms run at once.
        """

        def fits(rows: int, width: int, together: int) -> bool:
            repeated = self.arms if self.split else together
            fed = rows * max(1, width - self.split) * together
            cached = rows * (before + width) * repeated / CACHED
            return max(fed, cached) <= limits.budget and rows * repeated <= limits.positions

        turns = 1 if self.trunk else self.contexts
        for run in packed(lengths, lambda rows, width, _: fits(rows, width, turns)):
            if len(run) * max(lengths[member] for member in run) >= ENOUGH:
                yield run
                continue
            own = [lengths[member] for member in run]
            for part in packed(own, lambda rows, width, _: fits(rows, width, self.contexts)):
                yield [run[place] for place in part]


@dataclass(frozen=True)
class Unit:
    """Batches that share what is kept in memory: none, or the caches of some prefixes."""

    batches: tuple[Batch, ...]
    waves: tuple[tuple[range, ...], ...]
    """Contexts whose prefix caches are held together, and of these the ones that run together."""
    prefixes: tuple[tuple[int, ...], ...] = ()
    split: bool = False
    """Whether the last prompt token runs on its own, on the cache of the rest."""


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
        early = tuple(edit for edit in arm if edit.scope != "last")
        key = tuple(edit.key for edit in early)
        if key not in places:
            places[key] = len(contexts)
            contexts.append(early)
        context_of.append(places[key])
    return contexts, context_of


def units_of(
    wants: Sequence[Want],
    numbers: Sequence[int],
    sharing: Sharing,
    facts: Facts,
    limits: Limits,
) -> list[Unit]:
    """Cut requests into batches.

    Requests that need the last block and those that do not stand apart, and so do prompts of one
    token, which have nothing before the last one. In each pool prompts are sorted by length.

    Args:
        wants: of all requests.
        numbers: the requests to cut.
        sharing: what arms and prompts share.
        facts: of the model.
        limits: of one forward.
    """
    pools: dict[tuple[bool, bool], list[int]] = {}
    for number in numbers:
        want = wants[number]
        if want.head or want.deepest >= 0:
            pools.setdefault((want.head, len(want.ids) == 1), []).append(number)
    units: list[Unit] = []
    for (_, single), pool in sorted(pools.items()):
        own = replace(sharing, contexts=sharing.arms, split=False) if single else sharing
        rest = pool
        if sharing.prefix and not single:
            groups = shared_prefixes([wants[number].ids for number in pool])
            named = [(length, [pool[member] for member in members]) for length, members in groups]
            units += _prefixed(wants, named, own, facts, limits)
            covered = {number for _, members in named for number in members}
            rest = [number for number in pool if number not in covered]
        units += _alone(wants, rest, own, limits)
    return units


def _alone(
    wants: Sequence[Want], numbers: Sequence[int], sharing: Sharing, limits: Limits
) -> Iterator[Unit]:
    order = sorted(numbers, key=lambda n: (len(wants[n].ids), max(wants[n].lines, default=0)))
    for members in sharing.packed([len(wants[n].ids) for n in order], 0, limits):
        batch = Batch(tuple(order[member] for member in members))
        yield Unit((batch,), ((range(sharing.contexts),),), split=sharing.split)


def _prefixed(
    wants: Sequence[Want],
    groups: Sequence[tuple[int, Sequence[int]]],
    sharing: Sharing,
    facts: Facts,
    limits: Limits,
) -> Iterator[Unit]:
    contexts = sharing.contexts
    order = sorted(groups, key=lambda group: group[0])

    def fits(rows: int, width: int, _total: int) -> bool:
        return rows * width * contexts <= limits.budget

    for members in packed([length for length, _ in order], fits):
        chosen = [order[member] for member in members]
        columns = len(chosen) * max(length for length, _ in chosen)
        together = limits.at_once(contexts, columns)
        held = max(together, min(contexts, HELD * limits.budget // columns))
        waves = [
            tuple(wave[piece.start : piece.stop] for piece in chunks_of(len(wave), together))
            for wave in chunks_of(contexts, held)
        ]
        yield Unit(
            tuple(_rests(wants, chosen, replace(sharing, contexts=together), facts, limits)),
            tuple(waves),
            tuple(wants[numbers[0]].ids[:length] for length, numbers in chosen),
            split=sharing.split,
        )


def _rests(
    wants: Sequence[Want],
    groups: Sequence[tuple[int, Sequence[int]]],
    sharing: Sharing,
    facts: Facts,
    limits: Limits,
) -> Iterator[Batch]:
    """Cut what comes after some prefixes; rests of one length only where the family needs it."""
    widest = max(length for length, _ in groups)
    rows = [
        (len(wants[number].ids) - length, max(wants[number].lines, default=0), number, place)
        for place, (length, numbers) in enumerate(groups)
        for number in numbers
    ]
    rows.sort()
    kinds = itertools.groupby(rows, key=lambda row: row[0] if facts.ragged else 0)
    for same in (list(members) for _, members in kinds):
        for chosen in sharing.packed([row[0] for row in same], widest, limits):
            yield Batch(
                tuple(same[member][2] for member in chosen),
                tuple(same[member][3] for member in chosen),
            )


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


def chunks_of(n: int, size: int) -> list[range]:
    """Cut 0..n-1 into runs of at most ``size``."""
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


def packed(costs: Sequence[int], fits: Callable[[int, int, int], bool]) -> Iterator[list[int]]:
    """Cut rows of the given lengths into runs; ``fits(rows, widest, total)`` says when one is full.

    A row that does not fit alone stands alone.
    """
    run: list[int] = []
    widest = total = 0
    for number, cost in enumerate(costs):
        if run and not fits(len(run) + 1, max(widest, cost), total + cost):
            yield run
            run, widest, total = [], 0, 0
        run.append(number)
        widest, total = max(widest, cost), total + cost
    if run:
        yield run
