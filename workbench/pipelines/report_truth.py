"""What a study says of fits: held-out AUC, the gate in every model, and what is believed.

Of truth and of whatever else a recipe tells apart, in the words of its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.pipelines.report_words import Fitted, fitted_of

if TYPE_CHECKING:
    import pandas as pd

ALL_TOPICS = "all"
TRANSFER = "transfer"
SPLITS = {
    "within:topic": "{unit}s held out",
    "unseen topic": "unseen {group}s",
    "held out": "held-out items of all {group}s",
}
SIDES = {1: "affirmed", -1: "negated"}
BELIEFS = {
    "own_world_advantage_minus_base": "own minus others, minus base",
    "own_change_minus_other_change": "change under negation, own minus others",
    "negated_own_minus_negated_other": "negated own minus negated others",
}
"""Contrasts of frozen directions in a headline, in words."""


@dataclass(frozen=True)
class Row:
    """One answer."""

    question: str
    model: str
    value: float
    low: float
    high: float
    n: int
    unit: str
    interval: str
    control: str
    stage: str = ""
    """The study's stages that it comes from."""
    planned: bool = True
    """Whether it is told whatever it shows; else it was picked by what it shows."""


def truth_rows(evidence: pd.DataFrame, fitted: Fitted | None = None) -> Iterator[Row]:
    """Held-out AUC at the chosen block, by polarity, beside the null of the best block."""
    fitted = fitted or Fitted()
    chosen = evidence[evidence["chosen"] & (evidence["polarity"] != 0)]
    chosen = chosen[chosen["split"] != TRANSFER]  # a grid, not an answer
    sided = (chosen["polarity"] < 0).any()
    for split, topic, words in _readings(chosen, fitted):
        part = chosen[(chosen["split"] == split) & (chosen["topic"] == topic)]
        part = part.sort_values(["rendering", "polarity"], ascending=[True, False])
        several = part["rendering"].nunique() > 1
        for row in part.to_dict("records"):
            usable = "" if row["usable"] else f"; not usable (gate {row['gate']:g})"
            nulls = f"nulls {row['null_shuffled']:.2f} shuffled, {row['null_random']:.2f} random"
            turn = f", {row['rendering']}" if several else ""
            side = f", {SIDES[row['polarity']]}" if sided else ""
            what = row.get("direction", "truth")
            yield Row(
                question=f"{what} AUC, block {row['layer']}, {words}{turn}{side}",
                model=row["model"],
                value=row["auc"],
                low=row["low"],
                high=row["high"],
                n=row["n_facts"],
                unit=fitted.unit_of(row["interval"]),
                interval=fitted.interval(row["interval"]),
                control=nulls + usable,
            )


def _readings(chosen: pd.DataFrame, fitted: Fitted) -> Iterator[tuple[str, str, str]]:
    """Yield split, topic and words: topics together where held out, apart in a further set."""
    for split in chosen["split"].unique():
        if split in SPLITS:
            words = SPLITS[split].format(unit=fitted.unit, group=fitted.group)
            yield split, ALL_TOPICS, words
            continue
        for topic in chosen.loc[chosen["split"] == split, "topic"].unique():
            if topic != ALL_TOPICS:
                yield split, topic, f"frozen on {topic}"


def evidence_text(evidence: pd.DataFrame, fitted: Fitted | None = None) -> str:
    """Lay held-out AUC out by layer and polarity, one block of lines for each split and topic."""
    fitted = fitted or Fitted()
    kept = evidence[evidence["polarity"] != 0]
    sided, lines = (kept["polarity"] < 0).any(), []
    for (split, topic, turn), part in kept[kept["split"] != TRANSFER].groupby(
        ["split", "topic", "rendering"], sort=False
    ):
        sides = [part[part["polarity"] == side].set_index("layer") for side in SIDES]
        known = [one for one in sides if len(one)]
        interval = str(part["interval"].iloc[0])
        unit = fitted.unit_of(interval)
        where = str(split).replace("topic", fitted.group)
        lines.append(f"{where}, {topic}, {turn}: {fitted.interval(interval)}")
        for one, side in zip(sides, SIDES.values(), strict=True):
            if len(one):
                top, name = one.iloc[0], side if sided else "held out"
                lines.append(
                    f"  {name}: n = {top['n']} ({top['n_facts']} {unit}s), null of the best layer "
                    f"{top['null_shuffled']:.2f} shuffled, {top['null_random']:.2f} random"
                )
        for layer in sorted(part["layer"].unique()):
            cells = [one.loc[layer] for one in known]
            mark = " *" if bool(cells[0]["chosen"]) else ""
            numbers = [f"{c['auc']:.3f} [{c['low']:.3f}, {c['high']:.3f}]" for c in cells]
            lines.append(f"  block {layer:>2}  {'  '.join(numbers)}{mark}")
    return "\n".join(lines)


def frozen_rows(run: Path) -> Iterator[Row]:
    """Return what a frozen direction read in other models: the gate, then beliefs beside nulls."""
    import pandas as pd

    gate, beliefs = run / "evidence.parquet", run / "beliefs.parquet"
    if gate.exists():
        for model, part in pd.read_parquet(gate).groupby("model", sort=False):
            rows = truth_rows(part, fitted_of(run))
            yield from (replace(row, model=str(model)) for row in rows)
    if not beliefs.exists():
        return
    table = pd.read_parquet(beliefs)
    for row in table[table["contrast"].isin(BELIEFS)].to_dict("records"):
        yield Row(
            question=f"own claims, {row['set']}, {row['rendering']}: {BELIEFS[row['contrast']]}",
            control=_nulls(row),
            **{key: row[key] for key in ("model", "value", "low", "high", "n", "unit", "interval")},
        )


def _nulls(row: Mapping[Any, Any]) -> str:
    """Say where a contrast stands among directions that know nothing of truth."""
    told = [
        f"percentile {row[f'percentile_{name}']:.0f} of {row[f'n_{name}']} {words} directions"
        for name, words in (("random", "random"), ("shuffled", "label-shuffled"))
        if f"percentile_{name}" in row
    ]
    if row.get("usable") is False:
        told.append(f"not usable: truth is read at {row['gate_auc']:.2f} there")
    return ", ".join(told)
