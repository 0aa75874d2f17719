"""What a sweep did by dose: the curve, random directions, other controls, prompts and verdicts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from workbench_apps.catalogue import RESULTS, Entry
from workbench_apps.tables import file_stamp

from workbench.effects import How, judge
from workbench.effects.curves import CURVE, swept
from workbench.results import read_results, summarize

JUDGED = How(draws=1000)
RANDOM, PROMPT = "random:", "prompt:"
ARMS = ("control", "dose", "mean", "low", "high", "n", "unit", "interval", "mass", "invalid")


class Sweep(NamedTuple):
    """A sweep's rows and what `workbench.effects` says of them."""

    rows: pd.DataFrame
    """With ``model`` (an organism where it has training seeds) and ``dose_unit``."""
    changes: pd.DataFrame
    slopes: pd.DataFrame
    controls: pd.DataFrame
    """Slopes of the controls but the random directions."""


def sweep_of(entry: Entry) -> Sweep:
    """Judge a sweep run; shared by all sessions.

    Raises:
        FormatError: the results cannot be read.
        ConfigError: the sweep has no zero dose.
    """
    path = entry.path / RESULTS
    return _sweep(path, *file_stamp(path))


@functools.lru_cache(maxsize=16)
def _sweep(path: Path, size: int, modified: int) -> Sweep:  # noqa: ARG001 (the key)
    frame = read_results(path)
    return Sweep(swept(frame, JUDGED), *judge(frame, how=JUDGED))


def of_curve(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return what a table says of the curve that ``rows`` belong to."""
    first = rows.iloc[0]
    for name in CURVE:
        table = table[table[name] == first[name]]
    return table


def dose_curve(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarize one model, measure, direction and condition by dose.

    Returns:
        Columns ``dose, mean, low, high, n, unit, interval, mass, invalid, n_low_mass, dose_raw,
        realised, engaged``; ``invalid`` names the answers that the mean leaves out.
    """
    own = rows[rows["control"] == "none"]
    found = summarize(own, by=["dose"])
    shifts = own.groupby("dose")[["dose_raw", "realised", "engaged"]].mean()
    found = found.join(shifts, on="dose")
    return found[found["n"] > 0].sort_values("dose", ignore_index=True)


def guarded_doses(changes: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[bool]:
    """Return by dose whether the curve that ``rows`` belong to passes every guard there."""
    own = of_curve(changes[changes["control"] == "none"], rows)
    return own.set_index("dose")["guarded"].astype(bool)


def control_lines(rows: pd.DataFrame, curve: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each random direction by dose; all share the curve's own zero.

    Returns:
        Columns ``control, dose, mean, mass``.
    """
    names = ["control", "dose", "mean", "mass"]
    drawn = rows[rows["control"].str.startswith(RANDOM)]
    if drawn.empty:
        return pd.DataFrame(columns=names)
    lines = summarize(drawn, by=["control", "dose"])[names]
    zero = curve.loc[curve["dose"] == 0, ["dose", "mean", "mass"]]
    at_zero = set(lines.loc[lines["dose"] == 0, "control"])
    shared = [
        zero.assign(control=name) for name in lines["control"].unique() if name not in at_zero
    ]
    return pd.concat([lines, *shared], ignore_index=True)[names].dropna(subset="mean")


def other_arms(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the controls that are no random directions, and the prompts, whose dose is NaN.

    Returns:
        The columns ``ARMS``.
    """
    others = rows[(rows["control"] != "none") & ~rows["control"].str.startswith(RANDOM)]
    if others.empty:
        return pd.DataFrame(columns=list(ARMS))
    found = summarize(others, by=["control", "dose"])
    found = found[found["n"] > 0].sort_values(["control", "dose"], ignore_index=True)
    return found[list(ARMS)]
