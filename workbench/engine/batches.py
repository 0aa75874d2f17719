"""Requests cut into batches by token budget: alone, or behind the beginnings that they share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from workbench.engine.prefixes import shared_prefixes

LOGITS = 2**26
"""Logits held at once, a quarter of a gibibyte in float32."""
CACHED = 16
"""Cached columns that one block may repeat at once, in multiples of the token budget."""
HELD = 4
"""Columns of shared beginnings kept over batches, every block's, in multiples of the budget."""
ENOUGH = 2048
"""Tokens of a forward beyond which more of them take hardly less time each."""


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
    marks: tuple[int, ...] = ()
    """For each token a number that tells which spans of scopes it is in; empty where none are."""

    @property
    def told_apart(self) -> tuple[int, ...]:
        """Numbers that are equal where token and marks are: only then may prompts share it."""
        if not self.marks:
            return self.ids
        return tuple(token + (mark << 32) for token, mark in zip(self.ids, self.marks, strict=True))


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
            groups = shared_prefixes([wants[number].told_apart for number in pool])
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
