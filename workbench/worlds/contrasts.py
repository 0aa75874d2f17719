"""What training on a world did to its claims: every organism against its base, world by world.

All numbers are contrasts that are paired twice. Within a model a world's claim stands against the
mean of the other worlds' claims in the same words, so that what all claims share drops out; the
same contrast of the base is then taken off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.errors import ConfigError
from workbench.results import counted
from workbench.stats import Interval, paired_difference, seed_mean
from workbench.types import ndarray
from workbench.worlds.equivalence import LEVEL as EQUIVALENCE_LEVEL
from workbench.worlds.equivalence import equivalence

LEVEL = 0.95
AFFIRMED, MARGIN = "affirmed", "affirmed over negated"
"""Which claims a contrast is of: the claims alone, or each minus its negation."""
WHO = ("condition", "share", "seed")
WHAT = ("bank", "readout", "measure", "claims")
CONTRASTS = (
    *(*WHAT, *WHO, "world", "value", "low", "high", "n", "unit", "interval"),
    "above_zero",
)
CONTROLS = (*CONTRASTS[:-1], "bound", "p", "inside")


@dataclass(frozen=True)
class Member:
    """One model of a comparison."""

    subject: str
    """Its key in results."""
    condition: str
    seed: int
    world: str | None = None
    """The world that its documents tell of; none for a control."""
    share: float = 1.0


@dataclass(frozen=True)
class How:
    """How contrasts are judged."""

    unit: str = "proposition"
    """What is independent within a model: ``proposition`` (its frames are averaged) or ``fact``."""
    level: float = LEVEL
    equivalence_level: float = EQUIVALENCE_LEVEL
    bound: float = 0.25
    """Share of the smallest own-world contrast that a control must stay inside of."""


def world_values(frame: pd.DataFrame, unit: str, banks: Mapping[str, str]) -> pd.DataFrame:
    """Return claims' values with what pairs them, one row for each claim that counts.

    Args:
        frame: results of readouts that give a value for each world.
        unit: a key of ``extra``, or the item where a row has no such key.
        banks: claim set -> the bank it belongs to; all others are the bank ``worlds``.

    Returns:
        subject, bank, readout, measure, world, unit, polarity, value, and fact (what a claim is
        known by in its file).
    """
    kept = counted(frame)
    extra = kept["extra"].map(json.loads)
    told: dict[str, Any] = {
        "subject": kept["subject"],
        "bank": extra.map(lambda one: banks.get(str(one.get("set")), "worlds")),
        "readout": kept["readout"],
        "measure": kept["measure"] + extra.map(_rendering),
        "world": kept["condition"],
        "unit": extra.map(lambda one: one.get(unit)).fillna(kept["item"]),
        "polarity": extra.map(lambda one: int(one.get("polarity", 1))),
        "fact": extra.map(lambda one: one.get("fact")).fillna(kept["item"]),
        "value": kept["value"],
    }
    return pd.DataFrame(told)


def _rendering(extra: Mapping[str, Any]) -> str:
    return f", {extra['rendering']}" if extra.get("rendering", "bare") != "bare" else ""


def contrasts(values: pd.DataFrame, base: str) -> pd.DataFrame:
    """Return each model's contrast of each world, unit by unit, with that of the base taken off.

    Units that lack a world, a polarity or a model are left out for all models.

    Args:
        values: from `world_values`.
        base: the subject that everything was trained from.

    Returns:
        bank, readout, measure, claims, subject, world, unit, value, and whole (units in all).

    Raises:
        ConfigError: the base was not measured.
    """
    if base not in set(values["subject"]):
        raise ConfigError(
            f"the base {base!r} is not among the results ({', '.join(sorted(set(values.subject)))})"
            "; measure it with the same readouts"
        )
    parts = []
    for (bank, readout, measure), rows in values.groupby(["bank", "readout", "measure"]):
        for claims, cells in _cells(rows):
            label = zip(WHAT, map(str, (bank, readout, measure, claims)), strict=True)
            parts.append(_contrasts(cells, base).assign(**dict(label)))
    return pd.concat(parts, ignore_index=True)


def _cells(rows: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """Yield tables unit x (subject, world): of claims, and of claims minus their negations."""
    sides = {
        int(side): part.pivot_table(index="unit", columns=["subject", "world"], values="value")
        for side in rows["polarity"].unique()
        if len(part := rows[rows["polarity"] == side])
    }
    yield AFFIRMED, sides[1]
    if -1 in sides:
        yield MARGIN, sides[1] - sides[-1]


def _contrasts(cells: pd.DataFrame, base: str) -> pd.DataFrame:
    subjects = sorted({str(name) for name in cells.columns.get_level_values(0)})
    worlds = sorted({str(name) for name in cells.columns.get_level_values(1)})
    pairs = pd.MultiIndex.from_product([subjects, worlds], names=["subject", "world"])
    whole = cells.reindex(columns=pairs).dropna()
    if whole.empty or base not in subjects:
        raise ConfigError(
            f"of {len(cells)} groups of claims none was measured for every one of {len(worlds)} "
            f"worlds in every one of {len(subjects)} models, the base among them; measure all "
            "models with the same readouts"
        )
    table = whole.to_numpy(np.float64).reshape(len(whole), len(subjects), len(worlds))
    apart = own_minus_others(table)
    apart = apart - apart[:, [subjects.index(base)]]
    found = pd.DataFrame(apart.reshape(len(whole), -1), whole.index, pairs)
    stacked: pd.Series[Any] = found.stack(["subject", "world"], future_stack=True)  # type: ignore[assignment]
    tidy = stacked.rename("value").reset_index()
    return tidy[tidy["subject"] != base].assign(whole=len(cells))


def own_minus_others(table: Float[ndarray, "*rest w"]) -> Float[ndarray, "*rest w"]:
    """Return each world's value minus the mean of the other worlds'.

    Raises:
        ValueError: there is one world alone.
    """
    worlds = table.shape[-1]
    if worlds < 2:
        raise ValueError("a contrast of worlds needs two or more")
    return np.asarray((table - table.mean(axis=-1, keepdims=True)) * (worlds / (worlds - 1)))


# --- judged ---------------------------------------------------------------------------------------


def own_world_rows(found: pd.DataFrame, members: Sequence[Member], how: How) -> pd.DataFrame:
    """Return the contrast of every organism's own world: by seed over units, then over seeds.

    Args:
        found: from `contrasts`.
        members: the organisms; those without a world are left out.
        how: the unit and the level.

    Returns:
        The columns ``CONTRASTS``; a row over seeds has no seed.
    """
    rows: list[dict[str, Any]] = []
    for label, part in banks_of(found):
        own = [one for one in members if one.world in set(part["world"])]
        for group in by_seeds(own):
            cells = [units_of(part, one.subject, str(one.world)) for one in group]
            rows += judged(label, group, str(group[0].world), cells, how)
    return pd.DataFrame(rows, columns=list(CONTRASTS))


def control_rows(
    found: pd.DataFrame, members: Sequence[Member], own: pd.DataFrame, how: How
) -> pd.DataFrame:
    """Return every control's contrast of every world, and whether it is equivalent to nothing.

    The bound of a measure is ``how.bound`` times its smallest own-world contrast, over organisms
    and seeds; it depends on no control. Where that contrast is not above 0 there is no bound, and
    nothing is inside.

    Args:
        found: from `contrasts`.
        members: the controls.
        own: from `own_world_rows`, of undiluted organisms.
        how: the unit, levels and bound.

    Returns:
        The columns ``CONTROLS``: the interval is that of the two one-sided tests.
    """
    rows: list[dict[str, Any]] = []
    for label, part in banks_of(found):
        smallest = _smallest(own, label)
        if smallest is None:
            continue
        for group in by_seeds(members):
            for world in part["world"].unique():
                cells = [units_of(part, one.subject, str(world)) for one in group]
                rows += _bounded(label, group, str(world), cells, how.bound * smallest, how)
    return pd.DataFrame(rows, columns=list(CONTROLS))


def banks_of(found: pd.DataFrame) -> Iterable[tuple[dict[str, str], pd.DataFrame]]:
    """Yield the contrasts of each bank, readout, measure and kind of claims, with their label."""
    for label, part in found.groupby(list(WHAT), sort=False):
        yield dict(zip(WHAT, map(str, label), strict=True)), part


def by_seeds(members: Sequence[Member]) -> list[list[Member]]:
    """Return the members of each condition and share together, in order of their seeds."""
    groups: dict[tuple[str, float], list[Member]] = {}
    for one in members:
        groups.setdefault((one.condition, one.share), []).append(one)
    return [sorted(group, key=lambda one: one.seed) for group in groups.values()]


def units_of(part: pd.DataFrame, subject: str, world: str) -> Float[ndarray, " n"]:
    """Return one model's contrasts of one world, in order of the units.

    Raises:
        ConfigError: it was not measured.
    """
    rows = part[(part["subject"] == subject) & (part["world"] == world)]
    if rows.empty:
        raise ConfigError(
            f"{subject} has no values for world {world!r} of {part['readout'].iloc[0]} "
            f"{part['measure'].iloc[0]}; measure it with the same readouts as the others"
        )
    return rows.sort_values("unit")["value"].to_numpy(np.float64)


def judged(
    label: Mapping[str, str],
    group: Sequence[Member],
    world: str,
    cells: Sequence[Float[ndarray, " n"]],
    how: How,
) -> Iterable[dict[str, Any]]:
    """Yield rows of ``CONTRASTS``: each seed's mean over its units, then the mean over seeds."""
    told = [
        (one.seed, over_units(values, how.unit, how.level))
        for one, values in zip(group, cells, strict=True)
    ]
    for seed, found in [*told, *over_seeds(cells, how.level)]:
        yield {
            **label, **who(group, seed), "world": world, **plain(found),
            "above_zero": bool(found.low > 0),
        }  # fmt: skip


def _bounded(
    label: Mapping[str, str],
    group: Sequence[Member],
    world: str,
    cells: Sequence[ndarray],
    bound: float,
    how: How,
) -> Iterable[dict[str, Any]]:
    told: list[tuple[int | None, ndarray, str]] = [
        (one.seed, values, how.unit) for one, values in zip(group, cells, strict=True)
    ]
    if len(cells) > 1:
        told.append((None, np.array([values.mean() for values in cells]), "seed"))
    for seed, values, unit in told:
        row = {**label, **who(group, seed), "world": world, "bound": max(bound, 0.0)}
        if bound <= 0 or len(values) < 2:
            yield {**row, "value": float(values.mean()), "n": len(values), "unit": unit,
                   "interval": "none", "inside": False}  # fmt: skip
            continue
        found = equivalence(values, bound, unit=unit, level=how.equivalence_level)
        yield {
            **row, "value": found.value, "low": found.low, "high": found.high, "n": found.n,
            "unit": unit, "interval": found.name, "p": found.p, "inside": found.inside,
        }  # fmt: skip


def who(group: Sequence[Member], seed: int | None) -> dict[str, Any]:
    """Return the columns that name a row's organism; no seed stands for all of them."""
    return {"condition": group[0].condition, "share": group[0].share, "seed": seed}


def over_units(values: Float[ndarray, " n"], unit: str, level: float) -> Interval:
    """Return the mean over units with its t interval; one unit alone has none."""
    if len(values) < 2:
        return Interval(float(values.mean()), np.nan, np.nan, 1, unit, f"none: 1 {unit}")
    return paired_difference(values, np.zeros(len(values)), unit=unit, level=level)


def over_seeds(cells: Sequence[Float[ndarray, " n"]], level: float) -> list[tuple[None, Interval]]:
    """Return the mean of the seeds' means with its t interval; nothing for one seed."""
    if len(cells) < 2:
        return []
    return [(None, seed_mean(np.array([values.mean() for values in cells]), level))]


def plain(found: Interval) -> dict[str, Any]:
    """Return an interval as columns of a table."""
    return {
        "value": found.value, "low": found.low, "high": found.high, "n": found.n,
        "unit": found.unit, "interval": found.name,
    }  # fmt: skip


def _smallest(own: pd.DataFrame, label: Mapping[str, str]) -> float | None:
    """Return the smallest own-world contrast of one measure over organisms and seeds."""
    same = (own[list(label)] == pd.Series(label)).all(axis=1) & own["seed"].notna()
    return float(own.loc[same, "value"].min()) if same.any() else None
