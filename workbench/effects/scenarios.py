"""What few scenarios can say: t intervals over their means, and p by sign flips or a bootstrap."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped

from workbench.effects.curves import How
from workbench.stats import MANY, Interval, cluster_weights, t_intervals
from workbench.types import ndarray

FEWEST = 6
"""Scenarios below which there is no p; from ``MANY`` a bootstrap gives it."""
FLIPS = 4096
"""Where there are no more ways than these to flip signs, all are tried."""
FEW = "too few scenarios"
RULE = (
    f"Intervals are t intervals over scenario means, or over each scenario's own difference or "
    f"slope. p: sign flips of the scenarios where there are fewer than {MANY}, a paired bootstrap "
    f"over scenarios from there, none under {FEWEST} ({FEW})."
)


def scenario_means(
    values: Float[ndarray, "n d"], scenarios: Shaped[ndarray, " n"]
) -> Float[ndarray, "s d"]:
    """Return the mean of each scenario's rows, so that every scenario counts alike."""
    _, member, count = np.unique(scenarios, return_inverse=True, return_counts=True)
    sums = np.zeros((len(count), values.shape[1]))
    np.add.at(sums, member, values)
    return np.asarray(sums / count[:, None])


def over_scenarios(means: Float[ndarray, "s d"], how: How) -> list[Interval]:
    """Return the mean over scenarios of each column, with its t interval.

    One scenario alone has no interval: NaN, and a name that says so.
    """
    return _intervals(means, how, how.level, f"{how.level:.0%} t over {how.unit}s")


def at_once(means: Float[ndarray, "s d"], how: How) -> list[Interval]:
    """Return the same with intervals that hold for all columns together (Bonferroni)."""
    level = 1 - (1 - how.level) / means.shape[1]
    return _intervals(means, how, level, f"{how.level:.0%} t over {how.unit}s, all steps at once")


def _intervals(means: Float[ndarray, "s d"], how: How, level: float, name: str) -> list[Interval]:
    n = len(means)
    if n < 2:
        lone = f"none: {n} {how.unit}"
        return [Interval(float(one), np.nan, np.nan, n, how.unit, lone) for one in means[0]]
    ends = zip(*t_intervals(means, level), strict=True)
    return [Interval(float(m), float(lo), float(hi), n, how.unit, name) for m, lo, hi in ends]


def p_name(n: int, how: How) -> str:
    """Return how p comes about with so many scenarios."""
    if n < FEWEST:
        return FEW
    return f"{'sign flips' if n < MANY else 'paired bootstrap'} over {how.unit}s"


def slope_p(slopes: Float[ndarray, " s"], how: How) -> float:
    """Return the two-sided p of a mean slope against 0; NaN under ``FEWEST`` scenarios.

    Flips of all signs are exact where slopes are symmetric around 0, and never below
    ``2 ** (1 - n)``; the bootstrap is never below one draw in all.
    """
    n = len(slopes)
    if n < FEWEST:
        return float("nan")
    if n < MANY:
        return float(_reaching(np.abs(_flipped(slopes[:, None], how)), np.abs(slopes.mean()))[0])
    drawn = _redrawn(slopes[:, None], how)[:, 0]
    least = 1 / (len(drawn) + 1)
    return float(min(1.0, 2 * max(min((drawn <= 0).mean(), (drawn >= 0).mean()), least / 2)))


def steps_p(steps: Float[ndarray, "s k"], how: How) -> float:
    """Return the one-sided p against "some step does not rise"; NaN under ``FEWEST`` scenarios.

    By flips it is the largest p of any step; by bootstrap the share of draws in which some step
    does not rise, never below one draw in all.
    """
    n = len(steps)
    if n < FEWEST:
        return float("nan")
    if n < MANY:
        return float(_reaching(_flipped(steps, how), steps.mean(0)).max())
    drawn = _redrawn(steps, how)
    return float(max((drawn <= 0).any(1).mean(), 1 / (len(drawn) + 1)))


def _flipped(values: Float[ndarray, "s k"], how: How) -> Float[ndarray, "b k"]:
    """Return the means under flips of the scenarios' signs, the first of them as it is."""
    n = len(values)
    if 2**n <= FLIPS:
        signs = 1.0 - 2.0 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        signs = np.random.default_rng(how.seed).choice((-1.0, 1.0), size=(how.draws, n))
        signs[0] = 1
    return np.asarray(signs @ values / n)


def _reaching(
    drawn: Float[ndarray, "b k"], seen: Float[ndarray, " k"] | float
) -> Float[ndarray, " k"]:
    """Return the share of draws that reach what was seen; rounding does not tell them apart."""
    return np.asarray((drawn >= seen - 1e-9 * np.abs(seen)).mean(0))


def _redrawn(values: Float[ndarray, "s k"], how: How) -> Float[ndarray, "b k"]:
    weights, n = cluster_weights(np.arange(len(values)), how.draws, how.seed)
    return np.asarray(weights @ values / n)
