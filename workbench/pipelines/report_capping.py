"""A capping run as Markdown: what may be concluded, then its tables, shortened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from workbench.effects.displacement import OWN
from workbench.effects.engagement import CONDITION, CONTRAST, FINAL, GENERATED

if TYPE_CHECKING:
    from workbench.pipelines.capping import CappingConfig

REPORT = "report.md"
OPEN = "A cap that engages says nothing by itself about whether the whole persona came back."
CONTROLS = {
    "random": "along random directions",
    "layers": "the axis's vectors at one another's blocks",
    "noop": "a cap that no state reaches",
}


def report(tables: Mapping[str, pd.DataFrame], config: CappingConfig) -> str:
    """Return the whole as Markdown."""
    parts = [
        f"# Cap at blocks {', '.join(map(str, config.layers))}",
        "\n".join(summary(tables, config)),
        _section("Thresholds", own(tables["thresholds"]), FLOORS),
        _section("Engagement, the axis's cap", own(shares(tables["engagement"])), ENGAGED),
        _section("Displacement", conditions(tables["displacement"]), PLACED),
    ]
    if "behaviour" in tables:
        rows = tables["behaviour"]
        rows = rows[rows["level"].isin([CONDITION, CONTRAST])]
        parts.append(_section("Readouts before and after", rows, READ))
    parts.append(OPEN)
    return "\n\n".join(parts) + "\n"


def read_summary(folder: Path) -> str:
    """Return what a finished run says before its tables."""
    return (folder / REPORT).read_text(encoding="utf-8").partition("\n\n## ")[0]


FLOORS = ("layer", "floor", "low", "high", "below", "default", "apart", "near")
ENGAGED = (
    "model",
    "text",
    "hooked",
    "position",
    "control",
    "engaged",
    "low",
    "high",
    "informative",
)
PLACED = ("model", "text", "control", "dose", "displacement", "low", "high", "band", "beyond_band")
READ = (
    *("model", "readout", "measure", "condition", "control", "before", "after", "effect"),
    *("low", "high", "band", "kept", "engaged_before", "informative"),
)


def summary(tables: Mapping[str, pd.DataFrame], config: CappingConfig) -> list[str]:
    """Say in a few lines what was found, gates and controls with it."""
    return [
        *_floors_told(tables["thresholds"], config),
        *_gates_told(tables["engagement"], config),
        *_places_told(tables["displacement"]),
        *(_gaps_told(tables["behaviour"]) if "behaviour" in tables else []),
        *_controls_told(tables["engagement"], config),
    ]


def own(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the axis itself."""
    return table[table["control"] == "none"]


def conditions(table: pd.DataFrame) -> pd.DataFrame:
    """Keep one row a condition, seeds pooled."""
    return table[table["level"] == CONDITION]


def shares(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows over all capped layers together, one a condition."""
    return conditions(table[table["layer"].isna()])


def _floors_told(floors: pd.DataFrame, config: CappingConfig) -> Iterator[str]:
    rows = own(floors)
    side = "role minus default" if config.along == "opposite" else "the axis"
    yield (
        f"- Floor: percentile {config.percentile:g} along {side}, so {rows['below'].mean():.0%} of "
        f"{rows['n'].iloc[0]} calibration {rows['unit'].iloc[0]}s lie under it."
    )
    if rows["default"].notna().all():
        far = rows[~rows["near"]]
        yield (
            f"- The floor lies {rows['apart'].min():+.2f} to {rows['apart'].max():+.2f} standard "
            "deviations of the rollouts from the default Assistant"
            + (": near it." if far.empty else f"; not near it at {len(far)} of {len(rows)} blocks.")
        )
    else:
        yield "- Where the default Assistant lies was not given, so the floor is not checked."


def _gates_told(engaged: pd.DataFrame, config: CappingConfig) -> Iterator[str]:
    before = shares(engaged)
    before = before[~before["hooked"] & (before["control"] == "none")]
    for text, rows in before[before["position"].isin([FINAL, GENERATED])].groupby("text"):
        for position, part in rows.groupby("position", sort=False):
            failed = part[~part["informative"]]["model"].tolist()
            gate = f"under the gate of {config.least:.0%} (uninformative): {', '.join(failed)}"
            yield (
                f"- Engaged before the cap, {position} positions, {_named(str(text))}: "
                f"{_range(part['engaged'])} over {len(part)} models; "
                + (gate if failed else f"all reach the gate of {config.least:.0%}")
                + "."
            )


def _named(text: str) -> str:
    return "own replies" if text == OWN else f"prompts of {text.removeprefix('readout:')}"


def _places_told(placed: pd.DataFrame) -> Iterator[str]:
    rows = own(conditions(placed))
    for (model, text), part in rows.groupby(["model", "text"], sort=False):
        told = [
            f"{row['displacement']:+.3g} {_ends(row)} "
            + ("on capped text, read without hooks" if row["dose"] else "uncapped")
            + f" ({'beyond' if row['beyond_band'] else 'within'} the band of {row['band']:.2g})"
            for row in part.to_dict("records")
        ]
        word = "own replies" if text == OWN else "the reference's replies"
        yield f"- {model} from the reference, on {word}: {', '.join(told)}."


def verdict(row: Mapping[Any, Any]) -> str:
    """Say in a few words what a row of the readouts' table shows."""
    if not row["informative"]:
        return "UNINFORMATIVE, the cap engages too little"
    if not (row["low"] > 0 or row["high"] < 0):  # NaN is neither
        return "no reliable change"
    return f"a change {'beyond' if row['beyond_band'] else 'not beyond'} random caps"


def _gaps_told(behaviour: pd.DataFrame) -> Iterator[str]:
    rows = own(behaviour[behaviour["level"] == CONTRAST])
    for row in rows.to_dict("records"):
        what = " ".join(filter(None, (row["readout"], row["measure"], row["condition"])))
        yield (
            f"- {row['model']}, {what}: {row['before']:+.3g} before, {row['after']:+.3g} after, "
            f"change {row['effect']:+.3g} {_ends(row)}, n = {row['n']} "
            f"{row['unit']}{'s' * (row['n'] != 1)}; random caps reach {row['band']:.2g}: "
            f"{verdict(row)}."
        )


def _controls_told(engaged: pd.DataFrame, config: CappingConfig) -> Iterator[str]:
    before = shares(engaged)
    before = before[~before["hooked"] & (before["position"] == GENERATED)]
    before = before[before["text"] == OWN]
    kinds = before["control"].str.partition(":")[0]
    by = "the calibration's percentile" if config.match is None else "engagement on the match"
    share = _range(own(before)["engaged"])
    yield f"- Random and moved caps are set by {by}; the axis's would move {share} of own tokens."
    for kind, words in CONTROLS.items():
        rows = before[kinds == kind]
        if len(rows):
            yield f"- Control {kind} ({words}) would move {_range(rows['engaged'])} of own tokens."


def _ends(row: Mapping[Any, Any]) -> str:
    if np.isnan(row["low"]):
        return "(no interval)"
    return f"[{row['low']:.3g}, {row['high']:.3g}]"


def _range(values: pd.Series[Any]) -> str:
    low, high = f"{values.min():.0%}", f"{values.max():.0%}"
    return low if low == high else f"{low} to {high}"


def _section(title: str, table: pd.DataFrame, columns: Sequence[str]) -> str:
    shared = [
        f"{name} {table[name].iloc[0]}"
        for name in ("n", "unit", "interval", "band_name")
        if name in table and table[name].nunique() == 1
    ]
    more = [name for name in ("n", "unit") if table[name].nunique() > 1]
    body = table[[*columns, *more]].to_string(index=False, float_format=_short, na_rep="-")
    head = [f"## {title}", *([", ".join(shared)] if shared else [])]
    return "\n\n".join([*head, f"```\n{body}\n```"])


def _short(value: float) -> str:
    return f"{value:.3g}"
