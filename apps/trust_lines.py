"""The trust page's tables in words: one list of cells for each row that is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from workbench_apps import trusts

from workbench.figures.dose import LOW_MASS

RISES = {
    "slope": "slope",
    "slope_minus_random": "over random",
    "slope_minus_shuffled": "over shuffled",
    "steps": "steps that rise",
    "smallest_step": "smallest step",
}
"""Statistics of monotonicity, in words and in order."""
SIDES = {"chosen": "trusting reply", "rejected": "distrusting reply"}
Line = tuple[object, ...]


def facet_words(facet: str) -> str:
    """Return a facet as it is shown."""
    return "all facets" if facet == trusts.ALL else facet


def method_words(method: object) -> str:
    """Return a method as it is shown."""
    return str(method).replace("_", " ")


def arm(control: object) -> str:
    """Return a control as it is shown."""
    return "—" if control == trusts.OWN else str(control)


def bracket(low: Any, high: Any, form: str = "+.3f") -> str:
    """Return an interval in brackets."""
    return "(no interval)" if pd.isna(low) else f"[{low:{form}}, {high:{form}}]"


def rises(table: pd.DataFrame, method: str) -> tuple[list[str], list[Line]]:
    """Return heads and rows: every method over all facets, and the method on show by facet.

    Controls have rows of their own without the comparisons with themselves; random ones are left
    out.
    """
    drawn = table["control"].str.startswith(trusts.RANDOM)
    shown = table[~drawn & ((table["facet"] == trusts.ALL) | (table["method"] == method))]
    names = [name for name in RISES if (shown["statistic"] == name).any()]
    lines: list[Line] = []
    for (one, control, facet), rows in shown.groupby(["method", "control", "facet"], sort=False):
        at = {str(row["statistic"]): row for row in rows.to_dict("records")}
        told = [_rise(at[name]) if name in at else "—" for name in names]
        n = int(rows["n"].iloc[0])
        lines.append((method_words(one), arm(control), facet_words(str(facet)), *told, n))
    unit = f"{shown['unit'].iloc[0]}s" if len(shown) else "n"
    return ["method", "control", "facet", *(RISES[name] for name in names), unit], lines


def _rise(row: Mapping[Any, Any]) -> str:
    """Write a statistic with its interval; a share of steps with its p, or why there is none."""
    if row["statistic"] != "steps":
        return f"{row['value']:+.2g} {bracket(row['low'], row['high'], '+.2g')}"
    p = row.get("p")
    none = f", {row['test']}" if row.get("test") else ""
    told = none if p is None or pd.isna(p) else f", p {p:.2g}" if p >= 0.001 else ", p < 0.001"
    return f"{row['value']:.0%}{told}"


def verdict(table: pd.DataFrame, method: str) -> str:
    """Say whether the slope over all facets lies beyond random matrices and shuffled labels.

    Beyond random matrices means beyond their mean by the interval, and beyond each of them.
    """
    whole = table[(table["method"] == method) & (table["facet"] == trusts.ALL)]
    own = whole[whole["control"] == trusts.OWN]
    at = {str(row["statistic"]): row for row in own.to_dict("records")}
    if "slope" not in at:
        return ""
    slope, said = at["slope"], []
    for name, words in (("random", "random matrices"), ("shuffled", "shuffled labels")):
        row = at.get(f"slope_minus_{name}")
        if row is not None and not pd.isna(row["low"]):
            drawn = whole["control"].str.partition(":")[0] == name
            others = whole.loc[drawn & (whole["statistic"] == "slope"), "value"]
            above = row["low"] > 0 and (others < slope["value"]).all()
            below = row["high"] < 0 and (others > slope["value"]).all()
            side = "above" if above else "below" if below else "not beyond"
            said.append(f"{side} {words}")
    span = bracket(slope["low"], slope["high"], "+.2g")
    told = f"Slope {slope['value']:+.2g} {span} nats a token and dose"
    return f"{told}; {', '.join(said)}." if said else f"{told}; nothing stands beside it."


def accuracies(table: pd.DataFrame, facets: Sequence[str]) -> list[Line]:
    """Return a row for each method, control and dose, and a column for each facet."""
    lines: list[Line] = []
    for (method, control, dose), rows in table.groupby(["method", "control", "dose"], sort=False):
        at = {str(row["facet"]): row for row in rows.to_dict("records")}
        told = [_share(at[facet]) if facet in at else "none" for facet in facets]
        lines.append((method_words(method), arm(control), f"{dose:g}", *told))
    return lines


def _share(row: Mapping[Any, Any]) -> str:
    if pd.isna(row["low"]):
        return f"{row['accuracy']:.2f}"
    return f"{row['accuracy']:.2f} {bracket(row['low'], row['high'], '.2f')}"


def counts(table: pd.DataFrame, facets: Sequence[str]) -> str:
    """Return how many units stand behind each facet."""
    first = table.drop_duplicates("facet")
    n = dict(zip(first["facet"].astype(str), first["n"].astype(int), strict=True))
    told = [f"{facet_words(facet)} {n[facet]}" for facet in facets]
    return f"{first['unit'].iloc[0]}s: {', '.join(told)}"


def displacements(table: pd.DataFrame, method: str) -> tuple[list[str], list[Line]]:
    """Return heads and rows: how far a dose moves each reply's likelihood, beside shuffled labels.

    The facet ``neutral`` is text without a pole, which a dose should leave alone.
    """
    wanted = table["facet"].isin([trusts.ALL, trusts.NEUTRAL]) & (table["method"] == method)
    shown = table[wanted & ~table["control"].str.startswith(trusts.RANDOM)]
    lines: list[Line] = []
    columns = [
        (side, facet)
        for facet in (trusts.ALL, trusts.NEUTRAL)
        for side in SIDES
        if ((shown["side"] == side) & (shown["facet"] == facet)).any()
    ]
    for (control, dose), rows in shown.groupby(["control", "dose"], sort=False):
        at = {(row["side"], row["facet"]): row for row in rows.to_dict("records")}
        told = [_change(at[key]) if key in at else "none" for key in columns]
        n = ", ".join(str(one) for one in dict.fromkeys(rows["n"].astype(int)))
        lines.append((arm(control), f"{dose:+g}", *told, n))
    heads = [
        SIDES[side] if facet == trusts.ALL else "text without a pole" for side, facet in columns
    ]
    unit = f"{shown['unit'].iloc[0]}s" if len(shown) else "n"
    return ["control", "dose", *heads, unit], lines


def transfers(table: pd.DataFrame, method: str) -> tuple[list[str], list[Line]]:
    """Return heads and rows: how far each dose moves the trust game, beside shuffled labels.

    Random matrices stand as the farthest of them. Where the mass is low the answers are not in the
    asked form, and a change is no more than of them.
    """
    wanted = (table["method"] == method) & (table["dose"] != 0)
    shown = table[wanted & ~table["control"].str.startswith(trusts.RANDOM)]
    lines: list[Line] = []
    for row in shown.to_dict("records"):
        band = row["band"]
        beyond = "beyond" if row["beyond_band"] else "within"
        reached = "none" if pd.isna(band) else f"±{band:.3f} ({beyond})"
        asked = f"{str(row['measure']).replace('_', ' ')}, {row['condition']}"
        n = f"{int(row['n'])} {row['unit']}s"
        head = (asked, arm(row["control"]), f"{row['dose']:+g}")
        lines.append((*head, _change(row), reached, _mass(row["mass"]), n))
    return ["trust game", "control", "dose", "change", "random matrices", "mass", "n"], lines


def _mass(mass: Any) -> str:
    low = " (low)" if mass < LOW_MASS else ""
    return "—" if pd.isna(mass) else f"{mass:.2f}{low}"


def _change(row: Mapping[Any, Any]) -> str:
    return f"{row['change']:+.3f} {bracket(row['low'], row['high'])}"


def pair_words(found: Mapping[str, Any]) -> str:
    """Return what a pair is, in one line."""
    extra = [str(found[name]) for name in ("scenario", "family", "style") if found.get(name)]
    return " · ".join([str(found["item"]), str(found["facet"]), *extra])
