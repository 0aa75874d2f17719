"""Changes, slopes and control slopes of a sweep the plain way: arm by arm, one at a time."""

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from workbench.effects.changes import CHANGES
from workbench.effects.curves import CURVE, band, by_seed, curves, interval, means, swept, zero_of
from workbench.effects.guards import ARM, GUARDS, MIN_MASS, guarded
from workbench.effects.slopes import CONTROL_SLOPES, SLOPES, _verdict


def plain_changes(frame, how):
    """Return what `workbench.effects.changes` must."""
    table, rows = swept(frame, how), []
    for label, curve in curves(table):
        zero, own = zero_of(label, curve), []
        for (control, dose), arm in curve.groupby(["control", "dose"], dropna=False):
            found = means(arm)
            both = found.index.intersection(zero.index)
            lost = len(found.index.union(zero.index)) - len(both)
            moved = (found[both] - zero[both]).to_numpy(float)
            gap = (arm["dose_raw"] / arm["dose_gap"].where(arm["dose_gap"] != 0)).mean()
            own.append({
                **label, "control": control, "dose": dose,
                **interval(*by_seed(moved, both, zero), how, "change"),
                "value": found[both].mean() if len(both) else np.nan, "n_lost": lost,
                "mass": arm["mass"].mean(), "realised": arm["realised"].mean(),
                "realised_gap": arm["realised"].mean() / gap,
            })  # fmt: skip
        for row in own:
            drawn = [
                other["change"]
                for other in own
                if other["control"].startswith("random:") and other["dose"] == row["dose"]
            ]
            row["band"], row["band_name"] = band(drawn, how.level)
            row["beyond_band"] = bool(abs(row["change"]) > row["band"])
        rows += own
    found = pd.DataFrame(rows)
    kept = guarded(table, MIN_MASS, GUARDS).rename("guarded").reset_index()
    return found.merge(kept, on=list(ARM), how="left")[list(CHANGES)]


def unit_slopes(curve, zero, control, doses):
    """Return one slope a unit over the doses that it has."""
    changes = {
        dose: (
            means(curve[(curve["control"] == control) & (curve["dose"] == dose)]) - zero
        ).dropna()
        for dose in doses
    }
    units = sorted({unit for change in changes.values() for unit in change.index})
    if not units:
        return np.empty(0), 0
    slopes = []
    for unit in units:
        own = {dose: change[unit] for dose, change in changes.items() if unit in change.index}
        squares = sum(dose * dose for dose in own)
        slopes.append(sum(change * dose for dose, change in own.items()) / squares)
    return by_seed(np.array(slopes), pd.MultiIndex.from_tuples(units), zero)


def plain_slopes(frame, how):
    """Return what `workbench.effects.slopes` must, and what `control_slopes` must."""
    steps, rows, others = plain_changes(frame, how), [], []
    for label, curve in curves(swept(frame, how)):
        mine = (steps[list(CURVE)] == pd.Series(label)).all(axis=1) & (steps["control"] == "none")
        own = steps[mine & steps["dose"].notna()].sort_values("dose")
        kept, zero = own[own["guarded"]], zero_of(label, curve)
        doses = [dose for dose in kept["dose"] if dose]
        found = {
            control: unit_slopes(curve, zero, control, doses)
            for control in sorted(curve["control"].unique())
        }
        told = {**label, **interval(*found["none"], how, "slope")}
        told["doses"] = ", ".join(f"{dose:g}" for dose in kept["dose"])
        told["n_unguarded"], told["share_of_gap"] = len(own) - len(kept), np.nan
        drawn = [found[name][0].mean() for name in found if name.startswith("random:") and doses]
        told["band"], told["band_name"] = band(drawn, how.level)
        if not doses:
            told["band_name"] = "none: no guarded dose"
        told["beyond_band"] = bool(abs(told["slope"]) > told["band"])
        rising = np.diff(kept["change"].to_numpy(float)) * np.sign(told["slope"]) > 0
        told["monotone"] = bool(len(rising) and rising.all())
        bends = len(kept) >= 3 and kept["change"].nunique() > 1
        told["rho"] = spearmanr(kept["dose"], kept["change"]).statistic if bends else np.nan
        rows.append({**told, "verdict": _verdict(told, bool(doses))})
        others += [
            {**label, "control": control, **interval(*one, how, "slope")}
            for control, one in found.items()
            if control != "none" and not control.startswith(("random:", "prompt:"))
        ]
    return (
        pd.DataFrame(rows, columns=list(SLOPES)),
        pd.DataFrame(others, columns=list(CONTROL_SLOPES)),
    )
