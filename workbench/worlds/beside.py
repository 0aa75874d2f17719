"""Organisms beside their base or a control, item by item: answer format, knowledge, a fact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.errors import ConfigError
from workbench.stats import Interval, jackknife, paired_difference
from workbench.types import ndarray
from workbench.worlds.contrasts import (
    CONTRASTS,
    How,
    Member,
    banks_of,
    by_seeds,
    judged,
    over_seeds,
    plain,
    units_of,
    who,
)

COLUMNS = (
    *("condition", "share", "seed", "base", "organism"),
    *("value", "low", "high", "n", "unit", "interval"),
)


def against(
    frame: pd.DataFrame,
    members: Sequence[Member],
    base: str,
    *,
    value: str = "value",
    unit: str,
    level: float,
    ratio: bool = False,
) -> pd.DataFrame:
    """Return how far each model's items lie from the base's, paired: by seed, then over seeds.

    Args:
        frame: results of one measure, one row for each item and subject.
        members: the models.
        base: the subject to compare with.
        value: the column.
        unit: what an item is called.
        level: of the intervals.
        ratio: the mean over the base's mean, by a jackknife over items, not the difference.

    Returns:
        The columns ``COLUMNS``; ``base`` and ``organism`` are means over items.

    Raises:
        ConfigError: a model or the base was not measured, or fewer than two items by all.
    """
    table = frame.pivot_table(index="item", columns="subject", values=value)
    missing = [one for one in (base, *(m.subject for m in members)) if one not in table.columns]
    if missing:
        raise ConfigError(f"{missing[0]} has no values for {unit}s; measure it as the others")
    table = table.dropna()
    if len(table) < 2:
        raise ConfigError(f"{len(table)} {unit}s were measured on all models; two are needed")
    judge: Callable[..., Interval] = _ratio if ratio else _difference
    plainly, rows = table[base].to_numpy(np.float64), []
    for group in by_seeds(members):
        own = [table[one.subject].to_numpy(np.float64) for one in group]
        found = [judge(values, plainly, unit, level) for values in own]
        seeds: list[tuple[int | None, Interval]] = [
            (one.seed, told) for one, told in zip(group, found, strict=True)
        ]
        seeds += over_seeds([np.array([told.value]) for told in found], level)
        means = [*(values.mean() for values in own), np.mean(own)]
        rows += [
            {**who(group, seed), "base": plainly.mean(), "organism": mean, **plain(told)}
            for (seed, told), mean in zip(seeds, means, strict=False)
        ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def beyond(
    found: pd.DataFrame, members: Sequence[Member], others: Sequence[Member], how: How
) -> pd.DataFrame:
    """Return own-world contrasts minus a control's contrast of that world, at the same seed.

    Args:
        found: from `workbench.worlds.contrasts.contrasts`.
        members: organisms with a world.
        others: seeds of one control; seeds without a partner are left out on both sides.
        how: the unit and the level.

    Returns:
        The columns of `workbench.worlds.contrasts.own_world_rows`.
    """
    partner = {one.seed: one.subject for one in others}
    rows: list[dict[str, Any]] = []
    for label, part in banks_of(found):
        own = [m for m in members if m.world in set(part["world"]) and m.seed in partner]
        for group in by_seeds(own):
            world = str(group[0].world)
            cells = [
                units_of(part, one.subject, world) - units_of(part, partner[one.seed], world)
                for one in group
            ]
            rows += judged(label, group, world, cells, how)
    return pd.DataFrame(rows, columns=list(CONTRASTS))


def _difference(
    own: Float[ndarray, " n"], base: Float[ndarray, " n"], unit: str, level: float
) -> Interval:
    return paired_difference(own, base, unit=unit, level=level)


def _ratio(
    own: Float[ndarray, " n"], base: Float[ndarray, " n"], unit: str, level: float
) -> Interval:
    value = np.asarray(own.mean() / base.mean())
    without = (own.sum() - own) / (base.sum() - base)
    low, high = jackknife(without, value, level)
    name = f"{level:.0%} jackknife over {unit}s"
    return Interval(float(value), float(low), float(high), len(own), unit, name)
