"""What a study says of truth: held-out AUC by topic, the gate in every model, and beliefs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

ALL_TOPICS = "all"
TRANSFER = "transfer"
SPLITS = {
    "within:topic": "facts held out",
    "unseen topic": "unseen topics",
    "held out": "held-out items of all topics",
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


def truth_rows(evidence: pd.DataFrame) -> Iterator[Row]:
    """Held-out AUC at the chosen block, by polarity, beside the null of the best block."""
    chosen = evidence[evidence["chosen"] & (evidence["polarity"] != 0)]
    chosen = chosen[chosen["split"] != TRANSFER]  # a grid, not an answer
    for split, topic, words in _readings(chosen):
        part = chosen[(chosen["split"] == split) & (chosen["topic"] == topic)]
        part = part.sort_values(["rendering", "polarity"], ascending=[True, False])
        several = part["rendering"].nunique() > 1
        for row in part.to_dict("records"):
            usable = "" if row["usable"] else f"; not usable (gate {row['gate']:g})"
            nulls = f"nulls {row['null_shuffled']:.2f} shuffled, {row['null_random']:.2f} random"
            side, block = SIDES[row["polarity"]], row["layer"]
            turn = f", {row['rendering']}" if several else ""
            yield Row(
                question=f"truth AUC, block {block}, {words}{turn}, {side}",
                model=row["model"],
                value=row["auc"],
                low=row["low"],
                high=row["high"],
                n=row["n_facts"],
                unit="fact",
                interval=row["interval"],
                control=nulls + usable,
            )


def _readings(chosen: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield split, topic and words: topics together where held out, apart in a further set."""
    for split in chosen["split"].unique():
        if split in SPLITS:
            yield split, ALL_TOPICS, SPLITS[split]
            continue
        for topic in chosen.loc[chosen["split"] == split, "topic"].unique():
            if topic != ALL_TOPICS:
                yield split, topic, f"frozen on {topic}"


def evidence_text(evidence: pd.DataFrame) -> str:
    """Lay held-out AUC out by layer and polarity, one block of lines for each split and topic."""
    kept = evidence[evidence["polarity"] != 0]
    lines = []
    for (split, topic, turn), part in kept[kept["split"] != TRANSFER].groupby(
        ["split", "topic", "rendering"], sort=False
    ):
        sides = [part[part["polarity"] == side].set_index("layer") for side in SIDES]
        known = [one for one in sides if len(one)]
        lines.append(f"{split}, {topic}, {turn}: {part['interval'].iloc[0]}")
        for one, name in zip(sides, SIDES.values(), strict=True):
            if len(one):
                top = one.iloc[0]
                lines.append(
                    f"  {name}: n = {top['n']} ({top['n_facts']} facts), null of the best layer "
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
            yield from (replace(row, model=str(model)) for row in truth_rows(part))
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
