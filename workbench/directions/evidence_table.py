"""From cells to the evidence table: intervals, both nulls of the maximum over layers, the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.directions.evidence import Cell
from workbench.stats import percentiles

EVIDENCE = (
    "model", "method", "direction", "split", "fitted_on", "topic", "rendering", "layer", "polarity",
    "n", "n_facts", "auc", "low", "high", "interval", "null_shuffled", "null_random", "beats_nulls",
    "accuracy", "auc_classifier", "leakage", "chosen", "usable", "gate", "seed",
)  # fmt: skip
"""Columns of the evidence table; ``polarity`` is +1, -1, or 0 for the mean of the two.

``fitted_on`` is a topic, "other topics", "own topic" (the mean of fits on each topic) or "all" (a
frozen direction). ``leakage`` is the cosine of the direction of all items with the polarity
direction at that layer.
"""
LEVEL = 0.95
NULL_POINT = 0.975

Key = tuple[str, str, str, str, int]


def evidence_table(
    found: Mapping[int, Sequence[Cell]],
    chosen: Mapping[str, int | None],
    leakage: Mapping[int, float],
    told: Mapping[str, Any],
) -> pd.DataFrame:
    """Turn the cells of every layer into rows with the columns ``EVIDENCE``.

    A null is one number for a split, topic, rendering and polarity: the 97.5% point of its maximum
    over the layers.

    Args:
        found: cells by layer.
        chosen: the layer that each topic is read at.
        leakage: by layer.
        told: what is the same in every row, ``gate`` among it.
    """
    nulls, lowest = _null_points(found), _lowest_sides(found)
    rows = [
        {
            **told,
            **_row(cell, nulls[_key(cell)]),
            "layer": layer,
            "leakage": leakage.get(layer, np.nan),
            "chosen": layer == chosen[cell.topic],
            "usable": lowest[(layer, *_key(cell)[:4])] >= told["gate"],
        }
        for layer, cells in found.items()
        for cell in cells
    ]
    return pd.DataFrame(rows)[list(EVIDENCE)]


def _row(cell: Cell, null: Mapping[str, float]) -> dict[str, Any]:
    low, high = percentiles(cell.boot, LEVEL) if len(cell.boot) else (np.nan, np.nan)
    drawn = [value for value in null.values() if not np.isnan(value)]
    return {
        "split": cell.split,
        "fitted_on": cell.fitted_on,
        "topic": cell.topic,
        "rendering": cell.rendering,
        "polarity": cell.polarity,
        "n": cell.n,
        "n_facts": cell.n_facts,
        "auc": cell.auc,
        "low": low,
        "high": high,
        "null_shuffled": null["shuffled"],
        "null_random": null["random"],
        "beats_nulls": bool(drawn) and cell.auc > max(drawn),
        "accuracy": cell.accuracy,
        "auc_classifier": cell.auc_classifier,
    }


def _key(cell: Cell) -> Key:
    return cell.split, cell.fitted_on, cell.topic, cell.rendering, cell.polarity


def _null_points(found: Mapping[int, Sequence[Cell]]) -> dict[Key, dict[str, float]]:
    """Return the 97.5% point of each null's maximum over layers; NaN where it was not drawn."""
    draws: dict[Key, list[Cell]] = {}
    for cells in found.values():
        for cell in cells:
            draws.setdefault(_key(cell), []).append(cell)
    return {
        key: {name: _null_point([getattr(c, name) for c in own]) for name in ("shuffled", "random")}
        for key, own in draws.items()
    }


def _null_point(by_layer: Sequence[np.ndarray]) -> float:
    largest = np.stack(by_layer).max(axis=0)
    return float(np.quantile(largest, NULL_POINT)) if len(largest) else np.nan


def _lowest_sides(
    found: Mapping[int, Sequence[Cell]],
) -> dict[tuple[int, str, str, str, str], float]:
    """Return the lower AUC of the polarities present, for the gate."""
    lowest: dict[tuple[int, str, str, str, str], float] = {}
    for layer, scored in found.items():
        for cell in scored:
            if cell.polarity:
                key = (layer, *_key(cell)[:4])
                lowest[key] = min(cell.auc, lowest.get(key, np.inf))
    return lowest
