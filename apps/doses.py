"""What a sweep did by dose: the curve, random directions, other controls, prompts and verdicts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from workbench_apps.catalogue import RESULTS, Entry
from workbench_apps.probed import UNITS
from workbench_apps.tables import file_stamp

from workbench.effects import GUARDS, Guard, How, judge
from workbench.effects.curves import CURVE, INTERVENTION, swept
from workbench.effects.guards import ARM, MIN_MASS, guarded
from workbench.pipelines.report_words import one_dose
from workbench.results import read_results, summarize

JUDGED = How(draws=1000)
RANDOM, PROMPT = "random:", "prompt:"
ARMS = ("control", "dose", "mean", "low", "high", "n", "unit", "interval", "mass", "invalid")
LOW_MASS = f"an answer mass under {MIN_MASS:g}"


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


def failures(table: pd.DataFrame, rows: pd.DataFrame) -> dict[tuple[str, float | None], list[str]]:
    """Return why doses of the curve that ``rows`` belong to are left out, by control and dose.

    Args:
        table: all rows of the sweep: a guard is a readout of its own.
        rows: of one curve.
    """
    first = rows.iloc[0]
    for name in INTERVENTION:
        table = table[table[name] == first[name]]
    found: dict[tuple[str, float | None], list[str]] = {}
    for key in _failed(table, MIN_MASS, ()):
        found.setdefault(key, []).append(LOW_MASS)
    for guard in GUARDS:
        own = (table["readout"] == guard.readout) & (table["measure"] == guard.measure)
        valid = table[own & table["valid"].astype(bool)]
        read = {(str(c), dose_key(d)) for c, d in zip(valid["control"], valid["dose"], strict=True)}
        for key in _failed(table, -1.0, (guard,)):
            why = _limit(guard) if key in read else f"no valid {guard.readout}"
            found.setdefault(key, []).append(why)
    return found


def _failed(
    table: pd.DataFrame, min_mass: float, guards: Sequence[Guard]
) -> list[tuple[str, float | None]]:
    passed = guarded(table, min_mass, guards)
    arms = [dict(zip(ARM, told, strict=True)) for told in passed.index[~passed]]
    return [(str(arm["control"]), dose_key(arm["dose"])) for arm in arms]


def _limit(guard: Guard) -> str:
    """Say what a dose that fails a guard has."""
    same = guard.readout == guard.measure
    named = guard.readout if same else f"{guard.readout} ({guard.measure})"
    if np.isfinite(guard.times):
        return f"a {named} over {guard.times:g} times that at dose 0"
    if np.isfinite(guard.drop):
        return f"a {named} more than {guard.drop:g} below that at dose 0"
    return f"a {named} over {guard.most:g}"


def left_out(failed: Mapping[tuple[str, float | None], Sequence[str]], count: int) -> str:
    """Say how many of ``count`` doses are left out and why; empty where none is."""
    why = [
        reasons
        for (control, dose), reasons in failed.items()
        if control == "none" and dose is not None
    ]
    named = list(dict.fromkeys(reason for reasons in why for reason in reasons))
    told = [(sum(reason in reasons for reasons in why), reason) for reason in named]
    parts = [f"{n} of {count} doses {'has' if n == 1 else 'have'} {reason}" for n, reason in told]
    return " and ".join(parts)


def measured(row: Mapping[Any, Any]) -> str:
    """Say what a row of slopes is of, such as "Dollars of ten sent (person) change"."""
    known = UNITS.get(f"{row['readout']}.{row['measure']}")
    words = known or str(row["measure"]).replace("_", " ")
    verb = "change" if words.startswith("dollars") else "changes"
    return f"{words[:1].upper()}{words[1:]} ({row['condition']}) {verb}"


def per_dose(row: Mapping[Any, Any]) -> str:
    """Say what a slope is counted by."""
    return f"for each {one_dose(row['dose_unit'], row['edit'])}"


def judged(row: Mapping[Any, Any]) -> str:
    """Return a verdict without a word for what is told beside it."""
    return str(row["verdict"]).replace("no guarded dose", "every dose but zero left out")


def dose_key(dose: Any) -> float | None:
    """Return a dose that equals itself: a prompt has none, and NaN is not equal to NaN."""
    return None if pd.isna(dose) else float(dose)


def planned(entry: Entry, readout: str, found: Sequence[str]) -> list[str]:
    """Order measures or conditions as the sweep's settings name them, then those not named."""
    asked = entry.run.config.get("readouts") or ()
    own = [one for one in asked if isinstance(one, dict) and one.get("name") == readout]
    lists = [value for one in own for value in one.values() if isinstance(value, list)]
    named = [str(value) for values in lists for value in values]
    place = {name: named.index(name) for name in found if name in named}
    return sorted(found, key=lambda name: place.get(name, len(named)))


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
