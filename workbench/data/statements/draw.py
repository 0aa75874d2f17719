"""Drawing false values and number pairs so that no word of a statement gives its label away."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

_ATTEMPTS = 10_000
_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_UNITS = _WORDS.split()
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def permute_values(
    values: Sequence[str], forbidden: Sequence[AbstractSet[str]], rng: random.Random
) -> list[str]:
    """Return ``values`` in an order where none stands at a position that forbids it.

    The false values are the true ones of other facts, each used as often as it is true.

    Raises:
        ValueError: no such order was found.
    """
    drawn = list(values)
    rng.shuffle(drawn)
    for _ in range(_ATTEMPTS):
        wrong = [i for i, value in enumerate(drawn) if value in forbidden[i]]
        if not wrong:
            return drawn
        i = wrong[0]
        fits = [
            j
            for j, value in enumerate(drawn)
            if value not in forbidden[i] and drawn[i] not in forbidden[j]
        ]
        j = rng.choice(fits) if fits else rng.randrange(len(drawn))
        drawn[i], drawn[j] = drawn[j], drawn[i]
    raise ValueError(f"no order of {len(drawn)} values avoids what is forbidden")


def spell(number: int) -> str:
    """Return a number from 0 to 99 in words."""
    if number < len(_UNITS):
        return _UNITS[number]
    tens, units = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_UNITS[units]}" if units else "")


def draw_comparisons(
    seconds: Sequence[int], gaps: Sequence[int], relations: int, rng: random.Random
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (relation, a number above, a number below, second number), no pair of numbers twice."""
    used: set[frozenset[int]] = set()
    for second in range(seconds[0], seconds[1] + 1):
        for relation in range(relations):
            above, below = (_draw_partner(second, sign, gaps, used, rng) for sign in (1, -1))
            yield relation, above, below, second


def _draw_partner(
    second: int, sign: int, gaps: Sequence[int], used: set[frozenset[int]], rng: random.Random
) -> int:
    options = [second + sign * gap for gap in range(gaps[0], gaps[1] + 1)]
    partner = rng.choice([n for n in options if frozenset((n, second)) not in used])
    used.add(frozenset((partner, second)))
    return partner
