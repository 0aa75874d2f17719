"""Is a difference near enough to nothing? Two one-sided tests against a bound named beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import stdtr, stdtrit

LEVEL = 0.90
"""Of the interval that must lie inside the bound: each of the two tests is then at 5%."""


@dataclass(frozen=True)
class Equivalence:
    """A mean, its interval, and whether that lies inside the bound."""

    value: float
    low: float
    high: float
    n: int
    unit: str
    name: str
    """Of the interval and its tests."""
    bound: float
    p: float
    """The larger p of the two one-sided tests; small where the mean is inside the bound."""

    @property
    def inside(self) -> bool:
        """Whether both tests reject; the same as the interval lying inside the bound."""
        return -self.bound < self.low and self.high < self.bound


def equivalence(
    values: Float[ndarray, " n"], bound: float, *, unit: str, level: float = LEVEL
) -> Equivalence:
    """Test that the mean of independent ``values`` lies between ``-bound`` and ``bound``.

    A failure to show a difference is no equivalence; this shows one, at (1 - level) / 2 a side
    (Schuirmann 1987). A claim about several such means needs all of them inside, and then no
    correction for their number.

    Args:
        values: one for each unit.
        bound: above 0, and not chosen from ``values``.
        unit: what was counted.
        level: of the interval.

    Raises:
        ValueError: fewer than two values, one that is not finite, a bound that is not above 0, or a
            level outside (0, 1).
    """
    if len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(f"an equivalence test needs two finite values or more, got {values}")
    if not (np.isfinite(bound) and bound > 0 and 0 < level < 1):
        raise ValueError(f"bound {bound} and level {level}; above 0 and between 0 and 1 expected")
    n, wide = len(values), values.astype(np.float64)
    mean, error = float(wide.mean()), float(wide.std(ddof=1) / np.sqrt(n))
    reach = float(stdtrit(n - 1, (1 + level) / 2)) * error
    nearest = bound - abs(mean)
    p = float(stdtr(n - 1, -nearest / error)) if error > 0 else float(nearest <= 0)
    name = f"{level:.0%} t over {unit}s, two one-sided tests at {(1 - level) / 2:.1%}"
    return Equivalence(mean, mean - reach, mean + reach, n, unit, name, bound, p)
