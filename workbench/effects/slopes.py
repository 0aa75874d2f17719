"""One row a curve: its slope inside the guarded range, beside random directions, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import spearmanr

from workbench.effects.changes import changes
from workbench.effects.curves import (
    CURVE,
    INTERVENTION,
    How,
    band,
    by_seed,
    curves,
    interval,
    means,
    swept,
    zero_of,
)
from workbench.effects.guards import GUARDS, MIN_MASS, Guard, guarded
from workbench.types import ndarray

SLOPES = (
    *(*CURVE, "n", "unit", "slope", "low", "high", "interval", "doses", "n_unguarded"),
    *("rho", "monotone", "band", "band_name", "beyond_band", "share_of_gap", "verdict"),
)
CONTROL_SLOPES = (*CURVE, "control", "n", "unit", "slope", "low", "high", "interval")
HALF = 0.5
Gaps = Mapping[tuple[str, str, str], float]


def slopes(
    frame: pd.DataFrame,
    *,
    gaps: Gaps | None = None,
    min_mass: float = MIN_MASS,
    guards: Sequence[Guard] = GUARDS,
    how: How | None = None,
) -> pd.DataFrame:
    """Return the slope of each curve over its guarded doses, and what may be said of it.

    The slope is by least squares of the change on the dose, through the zero dose, within each unit
    and then averaged. ``rho`` is Spearman's between doses and mean changes; ``monotone`` says that
    every step goes the slope's way.

    Args:
        frame: a sweep's results table.
        gaps: by (readout, measure, condition), how far the organisms' own means lie apart;
            ``share_of_gap`` is the largest share that a guarded dose closes whose realised shift
            is at most one natural gap.
        min_mass: as in `changes`.
        guards: as in `changes`.
        how: as in `changes`.

    Returns:
        The columns ``SLOPES``; ``verdict`` is one of "not judged: no guarded dose", "not judged: no
        random directions", "no reliable change", "not beyond random directions", "beyond random
        directions, not monotone", "beyond random directions", "closes half of the gap".

    Raises:
        ConfigError: as in `changes`.
    """
    how = how or How()
    steps = dict(
        iter(changes(frame, min_mass=min_mass, guards=guards, how=how).groupby(list(CURVE)))
    )
    rows = [
        _row(label, curve, steps[tuple(label.values())], gaps or {}, how)
        for label, curve in curves(swept(frame, how))
    ]
    return pd.DataFrame(rows, columns=list(SLOPES))


def control_slopes(
    frame: pd.DataFrame,
    *,
    min_mass: float = MIN_MASS,
    guards: Sequence[Guard] = GUARDS,
    how: How | None = None,
) -> pd.DataFrame:
    """Return the slope of every control but the random directions, over its curve's guarded doses.

    Args:
        frame: a sweep's results table.
        min_mass: as in `changes`.
        guards: as in `changes`.
        how: as in `changes`.

    Returns:
        The curve's columns, control, n, unit, slope, low, high, interval; no rows where a sweep
        has no sign, shuffled, layers or noop control.

    Raises:
        ConfigError: as in `changes`.
    """
    how = how or How()
    table = swept(frame, how)
    zeros = [(label, curve, zero_of(label, curve)) for label, curve in curves(table)]
    kept = guarded(table, min_mass, guards).rename("guarded").reset_index()
    rows = []
    for label, curve, zero in zeros:
        here = (kept[list(INTERVENTION)] == [label[name] for name in INTERVENTION]).all(axis=1)
        own = kept[here & (kept["control"] == "none") & kept["guarded"]]
        doses = [float(dose) for dose in own["dose"] if dose]
        for control in sorted(curve["control"].unique()):
            if control == "none" or control.startswith(("random:", "prompt:")):
                continue
            found = _unit_slopes(curve, zero, control, doses)
            rows.append({**label, "control": control, **interval(*found, how, "slope")})
    return pd.DataFrame(rows, columns=list(CONTROL_SLOPES))


def _row(
    label: dict[str, Any], curve: pd.DataFrame, steps: pd.DataFrame, gaps: Gaps, how: How
) -> dict[str, Any]:
    own = steps[(steps["control"] == "none") & steps["dose"].notna()].sort_values("dose")
    kept = own[own["guarded"]]
    doses = [float(dose) for dose in kept["dose"] if dose]
    told = {
        **label,
        "doses": ", ".join(f"{dose:g}" for dose in kept["dose"]),
        "n_unguarded": len(own) - len(kept),
        "share_of_gap": _share_of_gap(
            kept, gaps.get((label["readout"], label["measure"], label["condition"]))
        ),
    }
    zero = zero_of(label, curve)
    told |= interval(*_unit_slopes(curve, zero, "none", doses), how, "slope")
    randoms = [name for name in curve["control"].unique() if name.startswith("random:")]
    drawn = [float(_unit_slopes(curve, zero, name, doses)[0].mean()) for name in randoms if doses]
    told["band"], told["band_name"] = band(drawn, how.level)
    if not doses:
        told["band_name"] = "none: no guarded dose"
    told["beyond_band"] = bool(np.isfinite(told["band"]) and abs(told["slope"]) > told["band"])
    told["rho"], told["monotone"] = _order(kept, told["slope"])
    return {**told, "verdict": _verdict(told, bool(doses))}


def _unit_slopes(
    curve: pd.DataFrame, zero: pd.Series[Any], control: str, doses: Sequence[float]
) -> tuple[Float[ndarray, " n"], int]:
    """Return a slope for each unit over the doses it has, and the number of seeds."""
    products, squares = [], []
    for dose in doses:
        own = means(curve[(curve["control"] == control) & (curve["dose"] == dose)])
        change = (own - zero).dropna()
        products.append(change * dose)
        squares.append(pd.Series(dose * dose, index=change.index))
    if not products:
        return np.empty(0), 0
    levels = list(range(zero.index.nlevels))
    top = pd.concat(products).groupby(level=levels).sum()
    bottom = pd.concat(squares).groupby(level=levels).sum()
    return by_seed((top / bottom).to_numpy(np.float64), top.index, zero)


def _order(kept: pd.DataFrame, slope: float) -> tuple[float, bool]:
    steps = np.diff(kept["change"].to_numpy(np.float64)) * np.sign(slope)
    monotone = bool(len(steps) and (steps > 0).all())
    if len(kept) < 3 or kept["change"].nunique() < 2:
        return np.nan, monotone
    return float(spearmanr(kept["dose"], kept["change"]).statistic), monotone


def _share_of_gap(kept: pd.DataFrame, gap: float | None) -> float:
    within = kept[(kept["realised_gap"].abs() <= 1) & (kept["dose"] != 0)]
    if not gap or within.empty:
        return np.nan
    return float((within["change"] / gap).max())


def _verdict(told: Mapping[str, Any], judged: bool) -> str:
    if not judged:
        return "not judged: no guarded dose"
    if np.isnan(told["band"]):
        return "not judged: no random directions"
    if not (told["low"] > 0 or told["high"] < 0):
        return "no reliable change"
    if not told["beyond_band"]:
        return "not beyond random directions"
    if told["share_of_gap"] >= HALF:
        return "closes half of the gap"
    return "beyond random directions" + ("" if told["monotone"] else ", not monotone")
