"""How far each dose moves a readout from the same curve's zero dose, beside random directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.effects.curves import CURVE, How, band, curves, interval, means, pair, swept, zero_of
from workbench.effects.guards import ARM, GUARDS, MIN_MASS, Guard, guarded

CHANGES = (
    *(*CURVE, "control", "dose", "n", "unit", "value", "change", "low", "high", "interval"),
    *("n_lost", "band", "band_name", "beyond_band", "mass", "realised", "realised_gap", "guarded"),
)


def changes(
    frame: pd.DataFrame,
    *,
    min_mass: float = MIN_MASS,
    guards: Sequence[Guard] = GUARDS,
    how: How | None = None,
) -> pd.DataFrame:
    """Return each curve's change from its own zero dose, dose by dose; controls stand beside it.

    Every number is a paired difference. The unit is the training seed where a curve has two or
    more of them (a t interval), else the item (a bootstrap).

    Args:
        frame: a sweep's results table, of one model or of several.
        min_mass: mean probability on allowed answers under which a dose is not guarded.
        guards: further limits; one whose readout is not in the table does nothing.
        how: the unit, level, draws and seed of the intervals.

    Returns:
        The columns ``CHANGES``. ``n`` counts units valid both here and at zero, ``n_lost`` items
        valid on one side alone; ``band`` is the absolute change that random directions reach at
        this dose (NaN without any); ``realised_gap`` is the realised shift in natural gaps.

    Raises:
        ConfigError: no rows with a dose, no such unit, or a curve without its zero dose.
    """
    how = how or How()
    table = swept(frame, how)
    rows: list[dict[str, Any]] = []
    for label, curve in curves(table):
        zero = zero_of(label, curve)
        arms = curve.groupby(["control", "dose"], sort=True, dropna=False)
        own = [
            {**label, "control": control, "dose": dose, **_change(arm, zero, how), **_shift(arm)}
            for (control, dose), arm in arms
        ]
        rows += _with_bands(own, how.level)
    found = pd.DataFrame(rows, columns=[name for name in CHANGES if name != "guarded"])
    kept = guarded(table, min_mass, guards).rename("guarded").reset_index()
    return found.merge(kept, on=list(ARM), how="left", validate="m:1")[list(CHANGES)]


def _change(arm: pd.DataFrame, zero: pd.Series[Any], how: How) -> dict[str, Any]:
    paired = pair(means(arm), zero)
    told = interval(paired.difference, paired.seeds, how, "change")
    return {**told, "value": paired.value, "n_lost": paired.lost}


def _shift(arm: pd.DataFrame) -> dict[str, float]:
    realised = float(arm["realised"].mean())
    gap = float((arm["dose_raw"] / arm["dose_gap"].where(arm["dose_gap"] != 0)).mean())
    return {"mass": float(arm["mass"].mean()), "realised": realised, "realised_gap": realised / gap}


def _with_bands(rows: list[dict[str, Any]], level: float) -> list[dict[str, Any]]:
    """Add how far random directions move the same readout at the same dose."""
    drawn: dict[float, list[float]] = {}
    for row in rows:
        if row["control"].startswith("random:"):
            drawn.setdefault(row["dose"], []).append(row["change"])
    for row in rows:
        reach, row["band_name"] = band(drawn.get(row["dose"], []), level)
        row["band"] = reach
        row["beyond_band"] = bool(np.isfinite(reach) and abs(row["change"]) > reach)
    return rows
