"""Every arm of a sweep beside its curve's own zero dose, unit by unit, in whole columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.effects.curves import CURVE, How, interval, no_zero, swept
from workbench.effects.guards import ARM, Guard, guarded
from workbench.stats import cluster_weights, group_means, percentiles
from workbench.types import ndarray

Sample = tuple[Float[ndarray, " n"], int]
"""One value a unit, and how many training seeds these are; 0 where they are items."""
_UNIT = ["seed", "_unit"]


@dataclass(frozen=True)
class Arms:
    """The arms of a sweep, and what each of their units changes."""

    told: pd.DataFrame
    """A row an arm, by curve, control and dose: ``CURVE``, curve, control, dose, mass, realised,
    realised_gap, value, change, n_lost, guarded; curves are counted as they come in the table."""
    pairs: pd.DataFrame
    """A row for each unit that is valid both in an arm and at zero: arm, curve, seed, _unit,
    change."""
    seeded: Mapping[int, bool]
    """By curve, whether its zero dose has several training seeds, which are the unit then. An arm
    that one seed alone survived has one seed; it does not turn to items."""

    def samples(
        self, values: pd.DataFrame, keys: Sequence[str], name: str
    ) -> Iterator[tuple[tuple[object, ...], Sample]]:
        """Yield the sample of each group of rows that hold a curve, a seed and a value ``name``."""
        found, seeds = values[name].to_numpy(np.float64), values["seed"].to_numpy()
        curves = values["curve"].to_numpy()
        for key, rows in values.groupby(list(keys)).indices.items():
            own, named = found[rows], key if isinstance(key, tuple) else (key,)
            if self.seeded[int(curves[rows[0]])]:
                own = group_means(own, seeds[rows])
                yield named, (own, len(own))
            else:
                yield named, (own, 0)


def arms_of(frame: pd.DataFrame, min_mass: float, guards: Sequence[Guard], how: How) -> Arms:
    """Pair every arm with its zero dose; the arguments are those of `workbench.effects.changes`.

    Raises:
        ConfigError: no rows with a dose, no such unit, or a curve without its zero dose.
    """
    table = swept(frame, how)
    rows = table.assign(
        curve=table.groupby(list(CURVE), sort=False).ngroup(),
        seed=table["train_seed"].astype("float64").fillna(-1),
        gap=table["dose_raw"] / table["dose_gap"].where(table["dose_gap"] != 0),
    )
    rows["arm"] = rows.groupby(["curve", "control", "dose"], dropna=False).ngroup()
    told = rows.drop_duplicates("arm").set_index("arm").sort_index()
    told = told[[*CURVE, "curve", "control", "dose"]]
    means = rows.groupby("arm")[["mass", "realised", "gap"]].mean().astype("float64")
    told[["mass", "realised"]] = means[["mass", "realised"]]
    told["realised_gap"] = means["realised"] / means["gap"]
    units = _units(rows)
    zero = _zero(units, told)
    both = units.merge(zero, on=["curve", *_UNIT], suffixes=("", "_zero"))
    both["change"] = both["value"] - both["value_zero"]
    told["value"] = both.groupby("arm")["value"].mean()
    told["change"] = both.groupby(["arm", "seed"])["change"].mean().groupby("arm").mean()
    counts = [_counted(one, told.index) for one in (units["arm"], both["arm"])]
    at_zero = told["curve"].map(zero["curve"].value_counts()).fillna(0).astype(np.int64)
    told["n_lost"] = counts[0] + at_zero - 2 * counts[1]
    kept = guarded(table, min_mass, guards).rename("guarded").reset_index()
    told = told.merge(kept, on=list(ARM), how="left", validate="m:1")
    seeds = zero.groupby("curve")["seed"].nunique()
    seeded = {int(curve): bool(seeds.get(curve, 0) > 1) for curve in told["curve"].unique()}
    return Arms(told, both[["arm", "curve", *_UNIT, "change"]], seeded)


def intervals(samples: Sequence[Sample], how: How, name: str) -> list[dict[str, Any]]:
    """Return what `workbench.effects.curves.interval` does, of many samples.

    Those of one size are resampled alike, so that they share their draws.
    """
    sizes = [0 if seeds else len(values) for values, seeds in samples]
    told: list[dict[str, Any]] = [{}] * len(samples)
    order = sorted(range(len(samples)), key=sizes.__getitem__)
    for n, same in itertools.groupby(order, key=sizes.__getitem__):
        first, *rest = same
        told[first] = interval(*samples[first], how, name)
        if "bootstrap" not in told[first]["interval"]:
            for place in rest:
                told[place] = interval(*samples[place], how, name)
        elif rest:
            weights, _ = cluster_weights(np.arange(n), how.draws, how.seed)
            for place in rest:
                values, _ = samples[place]
                low, high = percentiles(weights @ values / n, how.level)
                ends = {name: float(values.mean()), "low": low, "high": high}
                told[place] = {**told[first], **ends}
    return told


def _units(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the weighted mean of the valid values of each arm, training seed and unit, sorted."""
    valid = rows[rows["valid"].astype(bool)]
    valid = valid.assign(value=valid["value"].astype("float64") * valid["weight"])
    sums = valid.groupby(["arm", "curve", *_UNIT])[["value", "weight"]].sum()
    return (sums["value"] / sums["weight"]).rename("value").reset_index()


def _zero(units: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """Return the units of every curve's own zero dose."""
    zeros = told[(told["control"] == "none") & (told["dose"] == 0)]
    lacking = told[~told["curve"].isin(zeros["curve"])]
    if len(lacking):
        raise no_zero(lacking.sort_values("curve").iloc[0])
    return units[units["arm"].isin(zeros.index)].drop(columns="arm")


def _counted(arms: pd.Series[int], index: pd.Index[int]) -> pd.Series[int]:
    return arms.value_counts().reindex(index, fill_value=0)
