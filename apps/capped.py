"""The tables of a capping run, with the columns that a page needs."""

from __future__ import annotations

import pandas as pd
from workbench_apps.catalogue import BEHAVIOR, DISPLACEMENT, ENGAGEMENT, Entry
from workbench_apps.tables import read_table

COLUMNS = {
    ENGAGEMENT: (
        *("level", "model", "text", "hooked", "position", "control", "layer", "engaged", "low"),
        *("high", "n", "unit", "interval", "least", "informative"),
    ),
    DISPLACEMENT: (
        *("level", "model", "text", "control", "dose", "layer", "displacement", "low", "high"),
        *("n", "unit", "interval", "band", "band_name", "beyond_band"),
    ),
    BEHAVIOR: (
        *("level", "model", "readout", "measure", "condition", "control", "dose", "before"),
        *("before_low", "before_high", "after", "after_low", "after_high", "effect", "low", "high"),
        *("n", "unit", "interval", "band", "band_name", "beyond_band", "informative"),
    ),
}


def table_of(entry: Entry, name: str) -> pd.DataFrame:
    """Return one table of a capping run.

    Raises:
        FormatError: it is damaged or lacks a column.
    """
    return read_table(entry.path / name, COLUMNS[name])


def readouts_of(table: pd.DataFrame) -> pd.Series:
    """Return for each row which readout, measure and condition it is, as one text."""
    parts = [table[name].fillna("").astype(str) for name in ("readout", "measure", "condition")]
    return (parts[0] + " · " + parts[1] + " · " + parts[2]).str.removesuffix(" · ")
