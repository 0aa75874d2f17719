"""What an apply run says of the models that it read: the gate, and beliefs beside their nulls."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from workbench_apps.catalogue import EVIDENCE, Entry
from workbench_apps.tables import model_names, read_table

BELIEFS = "beliefs.parquet"
GATE_COLUMNS = ["model", "rendering", "polarity", "topic", "n", "auc", "low", "high", "usable"]
BELIEF_COLUMNS = [
    *("model", "own", "contrast", "rendering", "set", "value", "low", "high", "n", "unit"),
    *("interval", "percentile_random", "n_random", "gate_auc", "usable"),
]
CONTRASTS = {
    "own_world_advantage": "own minus others",
    "own_world_advantage_minus_base": "own minus others, minus base",
    "negation_change_own": "change under negation, own",
    "negation_change_other": "change under negation, others",
    "own_change_minus_other_change": "change under negation, own minus others",
    "negated_own_minus_negated_other": "negated own minus negated others",
}
"""Contrasts in words; a belief makes the first two positive, the last two negative."""


def gate_of(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return the held-out rows of the newest apply run, at the frozen layer; empty without one.

    Raises:
        FormatError: the file is damaged or lacks a column.
    """
    for entry in entries:
        if entry.run.verb == "apply" and entry.file(EVIDENCE) is not None:
            table = read_table(entry.path / EVIDENCE, [*GATE_COLUMNS, "gate", "interval"])
            return table[table["topic"] == "all"]
    return pd.DataFrame(columns=[*GATE_COLUMNS, "gate", "interval"])


def beliefs_of(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return the contrasts of the newest apply run; empty without one.

    Raises:
        FormatError: the file is damaged or lacks a column.
    """
    for entry in entries:
        if entry.run.verb == "apply" and entry.file(BELIEFS) is not None:
            return read_table(entry.path / BELIEFS, BELIEF_COLUMNS)
    return pd.DataFrame(columns=BELIEF_COLUMNS)


def reads_of(gate: pd.DataFrame, turn: str, projections: pd.DataFrame) -> dict[str, float]:
    """Return the worse polarity's held-out AUC by model, under the names that figures show."""
    names = dict(zip(projections["subject"], model_names(projections), strict=True))
    rows = gate[(gate["rendering"] == turn) & (gate["polarity"] != 0)]
    lowest = rows.groupby("model", sort=False)["auc"].min()
    return {str(names[m]): float(auc) for m, auc in lowest.items() if m in names}


def gate_rows(gate: pd.DataFrame) -> list[tuple[object, ...]]:
    """Return one row for each model and rendering: the verdict, AUCs with intervals."""
    found = []
    for (model, turn), rows in gate.groupby(["model", "rendering"], sort=False):
        sides = {int(row["polarity"]): row for row in rows.to_dict("records")}
        told = [
            f"{s['auc']:.2f} [{s['low']:.2f}, {s['high']:.2f}]" if (s := sides.get(p)) else "none"
            for p in (1, -1)
        ]
        verdict = "usable" if bool(rows["usable"].all()) else "not usable"
        found.append((model, verdict, *told, turn, sides[max(sides)]["n"]))
    return found


def belief_rows(beliefs: pd.DataFrame, turn: str) -> list[tuple[object, ...]]:
    """Return one row for each organism, claim set and contrast of a rendering."""
    rows = beliefs[beliefs["rendering"] == turn]
    return [
        (
            row["model"],
            f"{row['value']:+.2f}",
            CONTRASTS.get(row["contrast"], row["contrast"]),
            f"{row['low']:+.2f} to {row['high']:+.2f}",
            row["set"],
            f"{row['percentile_random']:.0f}",
            _percentile(row.get("percentile_shuffled")),
            f"{row['n']} {row['unit']}s",
        )
        for row in rows.to_dict("records")
    ]


def _percentile(value: float | None) -> str:
    return "not drawn" if value is None or pd.isna(value) else f"{value:.0f}"
