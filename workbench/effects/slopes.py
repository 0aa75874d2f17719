"""One row a curve: its slope inside the guarded range, beside random directions, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from workbench.effects.arms import Arms, Sample, arms_of, intervals
from workbench.effects.changes import told_changes
from workbench.effects.curves import CURVE, How, band
from workbench.effects.guards import GUARDS, MIN_MASS, Guard

SLOPES = (
    *(*CURVE, "n", "unit", "slope", "low", "high", "interval", "doses", "n_unguarded"),
    *("rho", "monotone", "band", "band_name", "beyond_band", "share_of_gap", "verdict"),
)
CONTROL_SLOPES = (*CURVE, "control", "n", "unit", "slope", "low", "high", "interval")
HALF = 0.5
NONE: Sample = (np.empty(0), 0)
Gaps = Mapping[tuple[str, str, str], float]
Drawn = Mapping[tuple[object, ...], Sample]
"""By (curve, control), one slope a unit."""


class Judged(NamedTuple):
    """What is said of a sweep."""

    changes: pd.DataFrame
    slopes: pd.DataFrame
    controls: pd.DataFrame


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
    arms = arms_of(frame, min_mass, guards, how)
    return _slopes(arms, _unit_slopes(arms), gaps or {}, how)


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
    arms = arms_of(frame, min_mass, guards, how)
    return _control_slopes(arms, _unit_slopes(arms), how)


def judge(
    frame: pd.DataFrame,
    *,
    gaps: Gaps | None = None,
    min_mass: float = MIN_MASS,
    guards: Sequence[Guard] = GUARDS,
    how: How | None = None,
) -> Judged:
    """Return `changes`, `slopes` and `control_slopes` of one table, which is read once.

    Raises:
        ConfigError: as in `changes`.
    """
    how = how or How()
    arms = arms_of(frame, min_mass, guards, how)
    drawn = _unit_slopes(arms)
    return Judged(
        told_changes(arms, how),
        _slopes(arms, drawn, gaps or {}, how),
        _control_slopes(arms, drawn, how),
    )


def _unit_slopes(arms: Arms) -> Drawn:
    """Return each unit's slope through its zero, over those guarded doses that the unit has."""
    told = arms.told
    own = told[(told["control"] == "none") & told["guarded"] & (told["dose"].fillna(0) != 0)]
    at = arms.pairs.join(told[["control", "dose"]], on="arm").merge(own[["curve", "dose"]])
    at = at.assign(top=at["change"] * at["dose"], bottom=at["dose"] ** 2)
    keys = ["curve", "control"]
    sums = at.groupby([*keys, "seed", "_unit"])[["top", "bottom"]].sum()
    slopes = (sums["top"] / sums["bottom"]).rename("slope").reset_index()
    return dict(arms.samples(slopes, keys, "slope"))


def _slopes(arms: Arms, drawn: Drawn, gaps: Gaps, how: How) -> pd.DataFrame:
    told = arms.told
    own = told[(told["control"] == "none") & told["dose"].notna()]
    curves = [(number, steps) for number, steps in own.groupby("curve")]
    found = intervals([drawn.get((curve, "none"), NONE) for curve, _ in curves], how, "slope")
    random: dict[object, list[float]] = {}
    for (curve, control), (values, _) in drawn.items():
        if str(control).startswith("random:"):
            random.setdefault(curve, []).append(float(values.mean()))
    rows = [
        _row(steps, slope, band(random.get(curve, []), how.level), gaps)
        for (curve, steps), slope in zip(curves, found, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(SLOPES))


def _control_slopes(arms: Arms, drawn: Drawn, how: How) -> pd.DataFrame:
    told = arms.told.drop_duplicates(["curve", "control"])
    told = told[
        (told["control"] != "none") & ~told["control"].str.startswith(("random:", "prompt:"))
    ]
    places = zip(told["curve"], told["control"], strict=True)
    found = intervals([drawn.get(place, NONE) for place in places], how, "slope")
    labels = told[[*CURVE, "control"]].to_dict("records")
    rows = [{**label, **slope} for label, slope in zip(labels, found, strict=True)]
    return pd.DataFrame(rows, columns=list(CONTROL_SLOPES))


def _row(
    own: pd.DataFrame, slope: Mapping[str, Any], reach: tuple[float, str], gaps: Gaps
) -> dict[str, Any]:
    """Judge one curve by the arms of its own direction, in the order of their doses."""
    kept = own[own["guarded"]]
    judged = bool((kept["dose"] != 0).any())
    label = {name: own[name].iat[0] for name in CURVE}
    what = [str(label[name]) for name in ("readout", "measure", "condition")]
    told = {
        **label,
        **slope,
        "doses": ", ".join(f"{dose:g}" for dose in kept["dose"]),
        "n_unguarded": len(own) - len(kept),
        "share_of_gap": _share_of_gap(kept, gaps.get((what[0], what[1], what[2]))),
        "band": reach[0],
        "band_name": reach[1] if judged else "none: no guarded dose",
    }
    told["beyond_band"] = bool(np.isfinite(told["band"]) and abs(told["slope"]) > told["band"])
    told["rho"], told["monotone"] = _order(kept, told["slope"])
    return {**told, "verdict": _verdict(told, judged)}


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
