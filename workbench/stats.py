"""From items to numbers with an interval: means, AUC, pairs, seeds, permutations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray
from scipy.special import stdtrit
from scipy.stats import rankdata

MANY = 20
"""Units from which resampling them is wide enough; fewer get a t interval."""


@dataclass(frozen=True)
class Interval:
    """A number, the interval around it, and what the interval is over."""

    value: float
    low: float
    high: float
    n: int
    """How many units the interval rests on."""
    unit: str
    """What was counted: fact, proposition, seed, item."""
    name: str
    """Such as "95% t over facts"."""


def auc(
    scores: Float[ndarray, " n *m"], labels: Bool[ndarray, " n"]
) -> Float[ndarray, " *m"] | float:
    """Return P(a true item scores above a false one), ties counting half, for each column.

    Raises:
        ValueError: the labels are all of one class.
    """
    positive = int(labels.sum())
    if positive in (0, len(labels)):
        raise ValueError(f"an AUC needs both classes; got {positive} true of {len(labels)}")
    columns = np.ascontiguousarray(scores.reshape(len(labels), -1).T)
    found = _column_aucs(columns, np.broadcast_to(labels, columns.shape))
    return float(found[0]) if scores.ndim == 1 else found.reshape(scores.shape[1:])


def paired_aucs(
    scores: Float[ndarray, "n m"], labelings: Bool[ndarray, "n m"]
) -> Float[ndarray, " m"]:
    """Return the AUC of each column of scores under its own column of labels."""
    return _column_aucs(np.ascontiguousarray(scores.T), labelings.T)


def _column_aucs(columns: ndarray, labels: ndarray) -> ndarray:
    """Mann-Whitney from rank sums; only columns with ties pay for averaged ranks."""
    order = np.argsort(columns, axis=1)
    ranked = np.take_along_axis(columns, order, axis=1)
    places = np.arange(1, columns.shape[1] + 1, dtype=np.float64)
    sums = np.take_along_axis(labels, order, axis=1) @ places
    tied = (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    if tied.any():
        sums[tied] = (rankdata(columns[tied], axis=1) * labels[tied]).sum(axis=1)
    sums[np.isnan(ranked[:, -1])] = np.nan  # NaN sorts last; it must not pass for a high score
    return _from_rank_sums(sums, labels.sum(axis=1), columns.shape[1])


def _from_rank_sums(sums: ndarray, positive: ndarray, n: int) -> ndarray:
    wins, pairs = sums - positive * (positive + 1) / 2, positive * (n - positive)
    return np.asarray(np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))


def auc_of_labels(
    scores: Float[ndarray, " n"], labelings: Bool[ndarray, "n m"]
) -> Float[ndarray, " m"]:
    """Return the AUC of the same scores under each column of labels; NaN where a class is empty."""
    return _from_rank_sums(rankdata(scores) @ labelings, labelings.sum(axis=0), len(scores))


def weighted_auc(
    scores: Float[ndarray, " n"], labels: Bool[ndarray, " n"], weights: Float[ndarray, "b n"]
) -> Float[ndarray, " b"]:
    """Return the AUC under each row of item weights; NaN where a row leaves a class empty.

    Raises:
        ValueError: a score is NaN.
    """
    if np.isnan(scores).any():
        raise ValueError(f"{int(np.isnan(scores).sum())} of {len(scores)} scores are NaN")
    order = np.argsort(scores)
    ranked, weights = scores[order], weights[:, order]
    true = labels[order].astype(bool)
    below = np.zeros((len(weights), len(order) + 1))
    np.cumsum(weights * ~true, axis=1, out=below[:, 1:])
    first = np.searchsorted(ranked, ranked[true], "left")
    after = np.searchsorted(ranked, ranked[true], "right")
    wins = (weights[:, true] * (below[:, first] + below[:, after])).sum(axis=1) / 2
    pairs = weights[:, true].sum(axis=1) * below[:, -1]
    return np.asarray(np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))


def cluster_weights(
    groups: Shaped[ndarray, " n"], draws: int, seed: int | Sequence[int]
) -> tuple[Float[ndarray, "b n"], int]:
    """Draw whole groups with replacement: how often each item stands in each draw, and n groups."""
    names, member = np.unique(groups, return_inverse=True)
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    return counts[:, member].astype(np.float64), len(names)


def mean_interval(
    values: Float[ndarray, " n"],
    groups: Shaped[ndarray, " n"] | None = None,
    *,
    weights: Float[ndarray, " n"] | None = None,
    unit: str = "item",
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> Interval:
    """Mean of ``values`` with an interval over groups (items by default), which its name tells.

    Under ``MANY`` groups it is a t interval, from there the percentiles of resampled groups, which
    are too narrow for few. Groups may differ in size or weight. One group alone has no interval:
    NaN, and a name that says so.

    Args:
        values: one a row.
        groups: rows of one group are one unit.
        weights: of the rows, above 0; alike by default.
        unit: what a group is called.
        draws: of the bootstrap.
        level: of the interval.
        seed: of the bootstrap.
        within: ends that the interval is cut at, such as (0, 1) for a share.
    """
    cells = _cells(values, np.zeros(len(values), np.int64), groups, weights)
    return _of_means(*cells, unit, draws, _share(level), seed, within)


def mean_difference(
    values: Float[ndarray, " n"],
    labels: Bool[ndarray, " n"],
    groups: Shaped[ndarray, " n"] | None = None,
    *,
    unit: str = "item",
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Mean of the labelled rows minus that of the others, with an interval as `mean_interval`'s.

    A group may have rows on both sides; it is one unit all the same. Where a side rests on one
    group alone there is no interval: NaN, and a name that says so.

    Raises:
        ValueError: all rows are on one side.
    """
    if labels.all() or not labels.any():
        raise ValueError(
            f"{int(labels.sum())} of {len(labels)} rows are labelled; both sides needed"
        )
    sums, sizes, _ = _cells(values, np.where(labels, 0, 1), groups, None)
    return _of_means(sums, sizes, 0.0, unit, draws, _share(level), seed, (-np.inf, np.inf))


def _cells(
    values: ndarray, sides: ndarray, groups: ndarray | None, weights: ndarray | None
) -> tuple[ndarray, ndarray, float]:
    """Return sums and weights (side, group), and the number that the sums are counted from.

    That is the first value, so that values that are all alike differ by 0 and not by rounding.
    """
    _some(values, 1)
    w = np.ones(len(values)) if weights is None else weights.astype(np.float64)
    if not ((w > 0) & np.isfinite(w)).all():
        raise ValueError(f"weights from {w.min()} to {w.max()}; each must be a number above 0")
    member = np.arange(len(values))
    if groups is not None:
        member = np.unique(groups, return_inverse=True)[1]
    wide = values.astype(np.float64)
    start = float(wide[0])
    size = (int(sides.max()) + 1, int(member.max()) + 1)
    place = sides * size[1] + member
    sums, sizes = (
        np.bincount(place, each, minlength=size[0] * size[1]).reshape(size)
        for each in (w * (wide - start), w)
    )
    return sums, sizes, start


def _of_means(
    sums: ndarray,
    sizes: ndarray,
    start: float,
    unit: str,
    draws: int,
    level: float,
    seed: int,
    within: tuple[float, float],
) -> Interval:
    """Return the mean of one side, or the difference of two, with its interval over groups."""
    signs = np.array([1.0, -1.0])[: len(sums)]
    n, value = sums.shape[1], float(signs @ (sums.sum(1) / sizes.sum(1)))
    if n < 2:
        return _lone(start + value, unit)
    if ((sizes > 0).sum(1) < 2).any():
        name = f"none: 1 {unit} on a side"
        return Interval(start + value, np.nan, np.nan, n, unit, name)
    if n < MANY:
        reach = _t_reach(sums, sizes, signs, level)
        low, high, how = value - reach, value + reach, "t"
    else:
        drawn, _ = cluster_weights(np.arange(n), draws, seed)
        weighed = drawn @ sizes.T
        means = np.divide(
            drawn @ sums.T, weighed, out=np.full(weighed.shape, np.nan), where=weighed > 0
        )
        (low, high), how = percentiles(means @ signs, level), "bootstrap"
    low, high = (float(np.clip(start + end, *within)) for end in (low, high))
    return Interval(start + value, low, high, n, unit, f"{level:.0%} {how} over {unit}s")


def _t_reach(sums: ndarray, sizes: ndarray, signs: ndarray, level: float) -> float:
    """Return how far a t interval reaches on each side, from what each group moves the estimate.

    Each contribution is made larger by what the mean itself took from it, and the degrees of
    freedom are those of rows alike in variance (Bell and McCaffrey 2002). Groups of one size give
    the plain t interval of their means.
    """
    totals = sizes.sum(1)
    means = sums.sum(1) / totals
    moves = (signs / totals) @ (sums - means[:, None] * sizes)
    shares = sizes / totals[:, None]
    alone = (shares / totals[:, None]).sum(0)
    spread = np.diag(alone) - (shares / totals[:, None]).T @ shares
    scale = np.sqrt(alone / np.diag(spread))
    spread *= np.outer(scale, scale)
    freedom = np.trace(spread) ** 2 / (spread**2).sum()
    return float(stdtrit(freedom, (1 + level) / 2) * np.linalg.norm(scale * moves))


def bootstrap_auc(
    scores: Float[ndarray, " n"],
    labels: Bool[ndarray, " n"],
    groups: Shaped[ndarray, " n"] | None = None,
    *,
    unit: str = "item",
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """AUC with a percentile interval over resampled groups; draws of one class are left out.

    One group alone has no interval: NaN, and a name that says so.

    Raises:
        ValueError: a score is NaN, or the labels are all of one class.
    """
    weights, n = cluster_weights(np.arange(len(labels)) if groups is None else groups, draws, seed)
    drawn, value = weighted_auc(scores, labels, weights), float(auc(scores, labels))
    if n < 2:
        return _lone(value, unit)
    low, high = percentiles(drawn, level)
    return Interval(value, low, high, n, unit, f"{level:.0%} bootstrap over {unit}s")


def _lone(value: float, unit: str) -> Interval:
    return Interval(value, np.nan, np.nan, 1, unit, f"none: 1 {unit}")


def percentiles(draws: Float[ndarray, " b"], level: float) -> tuple[float, float]:
    """Return the middle ``level`` of the draws that are numbers.

    Raises:
        ValueError: no draw is a number, or a level outside (0, 1).
    """
    _share(level)
    kept = draws[~np.isnan(draws)]
    if not len(kept):
        raise ValueError("no draw gave a number; the groups are too few to resample")
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_difference(
    first: Float[ndarray, " n"],
    second: Float[ndarray, " n"],
    groups: Shaped[ndarray, " n"] | None = None,
    *,
    unit: str = "item",
    level: float = 0.95,
) -> Interval:
    """Mean of ``first - second``, row by row; rows of one group are averaged before the interval.

    Raises:
        ValueError: fewer than two units are left, or a value is not finite.
    """
    differences = first.astype(np.float64) - second.astype(np.float64)
    if groups is not None:
        differences = group_means(differences, groups)
    _some(differences, 2)
    return _t_interval(differences, unit, level)


def seed_mean(values: Float[ndarray, " n"], level: float = 0.95) -> Interval:
    """Mean over training seeds (one value each) with its t interval.

    Raises:
        ValueError: there are fewer than two seeds, so nothing says how far seeds differ.
    """
    _some(values, 2)
    return _t_interval(values.astype(np.float64), "seed", level)


def t_intervals(
    values: Float[ndarray, " r *m"], level: float = 0.95
) -> tuple[Float[ndarray, "*m"], Float[ndarray, "*m"], Float[ndarray, "*m"]]:
    """Return mean, low and high over the first axis, for each column on its own.

    Raises:
        ValueError: there are fewer than two values, or one is not finite.
    """
    _some(values, 2)
    wide = values.astype(np.float64)
    mean, level = np.asarray(wide.mean(axis=0)), _share(level)
    reach = stdtrit(len(wide) - 1, (1 + level) / 2) * wide.std(axis=0, ddof=1) / np.sqrt(len(wide))
    return mean, np.asarray(mean - reach), np.asarray(mean + reach)


def jackknife(
    without: Float[ndarray, " g *m"], value: Float[ndarray, "*m"], level: float = 0.95
) -> tuple[Float[ndarray, "*m"], Float[ndarray, "*m"]]:
    """Return low and high around ``value`` from what each left-out group makes of it (t interval).

    For smooth functions of means, such as a cosine, where resampling would add noise that biases
    them a second time.

    Raises:
        ValueError: there are fewer than two groups.
    """
    _some(without, 2)
    n, level = len(without), _share(level)
    error = np.sqrt((n - 1) * without.astype(np.float64).var(axis=0))
    reach = stdtrit(n - 1, (1 + level) / 2) * error
    return np.asarray(value - reach), np.asarray(value + reach)


def correlations(
    first: Float[ndarray, "n k"],
    second: Float[ndarray, "n m"],
    weights: Float[ndarray, "b n"] | None = None,
) -> Float[ndarray, "b k m"]:
    """Return Pearson's r of every column of ``first`` with every one of ``second``.

    One matrix for each row of item weights (one of equal weights by default); NaN where a column
    does not vary.
    """
    a, b = (x.astype(np.float64) - x.mean(axis=0, dtype=np.float64) for x in (first, second))
    w = np.ones((1, len(a))) if weights is None else weights
    w = w / w.sum(axis=1, keepdims=True)
    mean_a, mean_b = w @ a, w @ b
    products = (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
    both = (w @ products).reshape(len(w), a.shape[1], b.shape[1])
    both = both - mean_a[:, :, None] * mean_b[:, None, :]
    spread_a, spread_b = _spread(w, a, mean_a), _spread(w, b, mean_b)
    size = np.sqrt(np.maximum(spread_a[:, :, None] * spread_b[:, None, :], 0))
    found = np.divide(both, size, out=np.full(both.shape, np.nan), where=size > 0)
    return np.asarray(np.clip(found, -1, 1))


def _spread(weights: ndarray, x: ndarray, mean: ndarray) -> ndarray:
    """Variance of every column under each row of weights; rounding alone counts as none."""
    squares = weights @ x**2
    found = squares - mean**2
    return np.asarray(np.where(found > 1e-12 * squares, found, 0.0))


def weighted_quantiles(
    values: Float[ndarray, " n"], weights: Float[ndarray, "b n"], share: float
) -> Float[ndarray, " b"]:
    """Return the ``share`` quantile under each row of item weights (the lowest value that reaches).

    Values in the order of ``values``; a row whose weights are all zero gives NaN.
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[:, order], axis=1)
    total = reached[:, -1:]
    place = (reached < share * total).sum(axis=1)
    found = values[order][np.minimum(place, len(values) - 1)].astype(np.float64)
    return np.asarray(np.where(total[:, 0] > 0, found, np.nan))


def group_means(values: Float[ndarray, " n"], groups: Shaped[ndarray, " n"]) -> ndarray:
    """Return one mean for each group, in sorted order of the groups."""
    _, member, count = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(member, values) / count)


def permute_within(
    values: Shaped[ndarray, " n"], strata: Int[ndarray, " n"], draws: int, seed: int
) -> Shaped[ndarray, "b n"]:
    """Shuffle ``values`` inside each stratum, ``draws`` times over."""
    keys = strata + np.random.default_rng(seed).random((draws, len(values)))
    shuffled = np.empty((draws, len(values)), values.dtype)
    sorted_values = values[np.argsort(strata, kind="stable")]
    np.put_along_axis(
        shuffled, np.argsort(keys, axis=1), np.broadcast_to(sorted_values, shuffled.shape), axis=1
    )
    return shuffled


def percentile_rank(value: float, null: Float[ndarray, " b"]) -> float:
    """Return the share of the null below ``value``, ties counting half, in 0 to 100.

    Raises:
        ValueError: an empty null, or a number that is NaN.
    """
    if not len(null) or np.isnan(null).any() or np.isnan(value):
        raise ValueError(f"no rank of {value} among {len(null)} draws, or one of them is NaN")
    return float(100 * ((null < value).mean() + (null == value).mean() / 2))


def _t_interval(values: ndarray, unit: str, level: float) -> Interval:
    n, mean, level = len(values), float(values.mean()), _share(level)
    reach = float(stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / np.sqrt(n))
    return Interval(mean, mean - reach, mean + reach, n, unit, f"{level:.0%} t over {unit}s")


def _share(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level {level}; expected a share between 0 and 1, such as 0.95")
    return level


def _some(values: ndarray, least: int) -> None:
    if len(values) < least:
        raise ValueError(f"needs at least {least} values; got {len(values)}")
    if not np.isfinite(values).all():
        raise ValueError(f"{int((~np.isfinite(values)).sum())} of {len(values)} are not finite")
