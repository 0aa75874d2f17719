"""What the runs around emotion vectors say: likeness, layers, valence, profiles of organisms."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from workbench_apps.catalogue import EMOTIONS, PROFILES, SIMILARITY, Catalogue, Entry
from workbench_apps.tables import file_stamp, read_table

from workbench.directions import Directions, open_directions

CURVES, VALENCE, REFERENCE = "curves.parquet", "valence.parquet", "reference.parquet"
GAPS = "gaps.parquet"
ALL = "all"
"""The emotion that stands for the mean over all."""
CONTROL, PLAIN = "random control", "denoised"
"""Variants: as many random directions removed as neutral components, and those components."""
PEAK = "peak"
"""Stands for the layer that each emotion has of its own."""
HALVES = {
    "all": "all items",
    "first": "first half (the peak is chosen here)",
    "second": "second half (held out)",
}


def similarity_of(entry: Entry) -> pd.DataFrame:
    """Return the cosine of each emotion vector with each other, at every layer.

    Raises:
        FormatError: the file is damaged or lacks a column; so for every table here.
    """
    return read_table(entry.path / SIMILARITY, ["layer", "first", "second", "cosine"])


def layers_of(entry: Entry) -> list[int]:
    """Return the blocks at which likeness is known, in order."""
    return sorted(int(layer) for layer in similarity_of(entry)["layer"].unique())


def emotions_of(entry: Entry) -> list[str]:
    """Return the emotions in the order of the table."""
    return [str(name) for name in similarity_of(entry)["first"].unique()]


def curves_of(entry: Entry, variant: str = PLAIN) -> pd.DataFrame:
    """Return how well each layer tells each emotion from the others; empty without such a file.

    Args:
        entry: an ``emotions`` run.
        variant: which treatment of the vectors, where the file has several.
    """
    columns = ["emotion", "layer", "auc", "low", "high", "n", "unit", "interval"]
    if entry.file(CURVES) is None:
        return pd.DataFrame(columns=columns)
    table = read_table(entry.path / CURVES, columns)
    if "variant" not in table:
        return table if variant == PLAIN else table.iloc[:0]
    return table[table["variant"] == variant]


def window_of(entry: Entry) -> list[int]:
    """Return the blocks that the run's rule chose, in order."""
    table = curves_of(entry)
    if "chosen" not in table:
        return []
    return sorted(int(layer) for layer in table.loc[table["chosen"].astype(bool), "layer"].unique())


def valence_of(entry: Entry) -> pd.DataFrame:
    """Return the correlations of the first components with valence and arousal by layer."""
    columns = ["layer", "component", "against", "r", "p", "n"]
    if entry.file(VALENCE) is None:
        return pd.DataFrame(columns=columns)
    return read_table(entry.path / VALENCE, columns)


def reference_of(entry: Entry) -> pd.DataFrame:
    """Return where reference texts lie along each emotion: the zero and the unit of own text."""
    columns = ["emotion", "layer", "mean", "sd", "n", "unit"]
    if entry.file(REFERENCE) is None:
        return pd.DataFrame(columns=columns)
    return read_table(entry.path / REFERENCE, columns)


def profile_runs(catalogue: Catalogue, entry: Entry) -> dict[str, Entry]:
    """Return the runs that read organisms with the vectors of an emotions run, newest first."""
    own = [
        run
        for run in catalogue.usable("profiles")
        if entry.run.id in {str(one["run"]) for one in run.run.inputs if one.get("run")}
    ]
    return {run.run.id: run for run in own}


def profiles_of(entry: Entry) -> pd.DataFrame:
    """Return where each model lies along each emotion."""
    return read_table(
        entry.path / PROFILES,
        ["emotion", "model", "half", "window", "value", "low", "high", "n", "unit", "interval"],
    )


def gaps_of(entry: Entry) -> pd.DataFrame:
    """Return the standardized gaps between two conditions with what random directions reach."""
    columns = ["emotion", "window", "layer", "half", "zgap", "low", "high", "n", "unit", "interval"]
    if entry.file(GAPS) is None:
        return pd.DataFrame(columns=columns)
    return read_table(entry.path / GAPS, columns)


def apart(table: pd.DataFrame) -> list[str]:
    """Return the emotions of a table of profiles by how far the models lie apart."""
    wide = table.pivot_table(index="emotion", columns="model", values="value", sort=False)
    spread = (wide.max(axis=1) - wide.min(axis=1)).sort_values(ascending=False, kind="stable")
    return [str(name) for name in spread.index]


def vectors_path(entry: Entry) -> str:
    """Return the file of the vectors."""
    return str(entry.path / EMOTIONS)


def vector_names(entry: Entry) -> tuple[str, ...]:
    """Return the emotions in the order of the vectors' file."""
    return _vectors(entry).names


def vector_layers(entry: Entry) -> list[int]:
    """Return the blocks in the order of the vectors' file."""
    return list(_vectors(entry).layers)


def _vectors(entry: Entry) -> Directions:
    path = entry.path / EMOTIONS
    return _open(path, *file_stamp(path))


@functools.lru_cache(maxsize=4)
def _open(path: Path, size: int, modified: int) -> Directions:  # noqa: ARG001 (the key)
    return open_directions(path)


def near_and_far(table: pd.DataFrame, emotion: str) -> Mapping[str, str]:
    """Return the emotions most and least like one, at one layer; empty where there is no other."""
    others = table[(table["first"] == emotion) & (table["second"] != emotion)]
    if others.empty:
        return {}
    ordered = others.sort_values("cosine", kind="stable")
    return {"far": str(ordered["second"].iloc[0]), "near": str(ordered["second"].iloc[-1])}
