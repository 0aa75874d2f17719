"""How far each dose moves a readout from the same curve's zero dose, beside random directions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.effects.arms import Arms, arms_of, intervals
from workbench.effects.curves import CURVE, How, band
from workbench.effects.guards import GUARDS, MIN_MASS, Guard

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
    return told_changes(arms_of(frame, min_mass, guards, how), how)


def told_changes(arms: Arms, how: How) -> pd.DataFrame:
    """Return the columns ``CHANGES`` of arms that are paired already."""
    samples = dict(arms.samples(arms.pairs, ["arm"], "change"))
    nothing = (np.empty(0), 0)
    drawn = [samples.get((arm,), nothing) for arm in arms.told.index]
    told = pd.DataFrame(intervals(drawn, how, "change"), index=arms.told.index)
    found = arms.told.drop(columns="change").join(told)
    return _with_bands(found, how.level)[list(CHANGES)]


def _with_bands(found: pd.DataFrame, level: float) -> pd.DataFrame:
    """Add how far random directions move the same readout at the same dose."""
    random = found[found["control"].str.startswith("random:")]
    drawn = random.groupby(["curve", "dose"])["change"].agg(list)
    reach = {place: band(own, level) for place, own in drawn.items()}
    none, places = band([], level), zip(found["curve"], found["dose"], strict=True)
    bands, names = zip(*(reach.get(place, none) for place in places), strict=True)
    found = found.assign(band=np.array(bands), band_name=names)
    return found.assign(beyond_band=found["change"].abs() > found["band"])
