"""What an axis run and the runs around it say: roles, floors, the reference band, models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from workbench_apps.catalogue import AXIS, COORDINATES, COSINES, Catalogue, Entry
from workbench_apps.tables import file_stamp, read_table

from workbench.directions import Directions, open_directions
from workbench.directions.similarity import COSINES as COSINE_COLUMNS

ORGANISM, DEFAULT, ROLE = "organism", "default", "role"
PLACED = ["layer", "role", "kind", "axis", "pc1", "pc2"]
PC1, FLOORS, REFERENCE, COUNTS = (
    "pc1.parquet", "thresholds.parquet", "reference.parquet", "counts.parquet",
)  # fmt: skip
DEPTH, WIDTH = 46 / 64, 8 / 64
"""Where a cap's window begins and how wide it is, as shares of the blocks (Lu et al. 2026)."""
Source = tuple[str, str | None]
"""What loads a model: a reference and, of an adapter, its base."""


def coordinates_of(entry: Entry) -> pd.DataFrame:
    """Return where roles, the default and organisms lie, at every layer.

    Raises:
        FormatError: the file is damaged or lacks a column; so for every table here.
    """
    return read_table(entry.path / COORDINATES, PLACED)


def layers_of(entry: Entry) -> list[int]:
    """Return the blocks of an axis run, in order."""
    return sorted(int(layer) for layer in coordinates_of(entry)["layer"].unique())


def pc1_of(entry: Entry) -> pd.DataFrame:
    """Return the cosine of the axis with the first component by layer, and its share."""
    told = ["cosine", "low", "high", "n", "unit", "interval", "control_high", "explained"]
    return read_table(entry.path / PC1, ["layer", *told])


def floors_of(entry: Entry) -> pd.DataFrame:
    """Return a floor along the axis for each layer and percentile, beside the default's place."""
    told = ["low", "high", "n", "unit", "interval", "default"]
    table = read_table(entry.path / FLOORS, ["layer", "percentile", "floor", *told])
    return table.dropna(subset="floor")


def floor_at(entry: Entry, percentile: str, layer: int) -> tuple[float | None, str]:
    """Return one floor, and it in words; None where the run has none there."""
    table = floors_of(entry)
    found = table[(table["percentile"].map("{:g}".format) == percentile)]
    found = found[found["layer"] == layer]
    if found.empty:
        return None, ""
    row = found.iloc[0]
    told = (
        f"Floor {row['floor']:.3g} [{row['low']:.3g}, {row['high']:.3g}] ({row['interval']}, n = "
        f"{row['n']} {row['unit']}s); the default lies at {row['default']:.3g}."
    )
    return float(row["floor"]), told


def reference_at(entry: Entry, layer: int) -> tuple[dict[str, float], str]:
    """Return the band in which default replies lie at a layer, and what it is in words.

    A run without such a table gives the default's mean alone.
    """
    if entry.file(REFERENCE) is not None:
        table = read_table(entry.path / REFERENCE, ["layer", "mean", "low", "high", "n"])
        rows = table[table["layer"] == layer]
        if len(rows):
            row = rows.iloc[0]
            told = str(row.get("interval") or "5% to 95% of default replies")
            band = {name: float(row[name]) for name in ("mean", "low", "high")}
            return band, f"band: {told}, n = {int(row['n'])}; of the base model"
    placed = coordinates_of(entry)
    default = placed[(placed["layer"] == layer) & (placed["kind"] == DEFAULT)]["axis"]
    if default.empty:
        return {}, ""
    return {"mean": float(default.mean())}, "line: mean of the default replies of the base model"


def judged(entry: Entry) -> str:
    """Say in a sentence what the vectors were counted from, and who judged."""
    info = axis_of(entry).info
    judge = str(info.get("judge", "unstated"))
    who = "nobody: every rollout counts" if judge == "none" else judge
    parts = [f"Judged by {who}", f"rule {info.get('rule', 'unstated')}"]
    if entry.file(COUNTS) is not None:
        counts = read_table(entry.path / COUNTS, ["role", "n", "kept"])
        kept = counts[counts["kept"].astype(bool)]
        parts.append(
            f"{len(kept)} of {len(counts)} roles kept, {int(counts['n'].sum()):,} rollouts"
        )
    return "; ".join(parts)


def axis_of(entry: Entry) -> Directions:
    """Return the axis of a run."""
    path = entry.path / AXIS
    return _axis(path, *file_stamp(path))


@functools.lru_cache(maxsize=8)
def _axis(path: Path, size: int, modified: int) -> Directions:  # noqa: ARG001 (the key)
    return open_directions(path)


def cosines_of(catalogue: Catalogue, entry: Entry) -> pd.DataFrame:
    """Return the cosines of organisms' directions with the roles and traits of an axis run.

    Where several runs compare one direction, the newest counts.
    """
    frames, seen = [], set[str]()
    for run in catalogue.usable("cosines"):
        if entry.run.id in inputs_of(run):
            table = read_table(run.path / COSINES, [*COSINE_COLUMNS, "bank"])
            frames.append(table[~table["first"].isin(seen)].assign(run=run.run.id))
            seen |= set(table["first"])
    empty = pd.DataFrame(columns=[*COSINE_COLUMNS, "bank", "run"])
    return pd.concat(frames, ignore_index=True) if frames else empty


def models_of(catalogue: Catalogue, entry: Entry) -> dict[str, Source]:
    """Return the models that an axis can read: the base that it was made with, and organisms."""
    trained = [run for run in catalogue.entries if run.run.verb == "train" and not run.problem]
    base = _base_of(catalogue, entry, trained)
    if base is None:
        return {}
    organisms = [run for run in trained if run.run.config.get("model") == base]
    named = {run.path.name: (str(run.path), base) for run in organisms}
    shown = Path(base).name if Path(base).is_dir() else base
    return {shown: (base, None), **dict(sorted(named.items()))}


def window_of(layers: Sequence[int], n_layers: int) -> tuple[int, int]:
    """Return the first and last block of a cap: those of the paper, at this model's depth."""
    first = round(DEPTH * n_layers)
    last = first + max(1, round(WIDTH * n_layers)) - 1
    inside = [layer for layer in layers if first <= layer <= last]
    if not inside:
        middle = layers[len(layers) // 2]
        return middle, middle
    return inside[0], inside[-1]


def _base_of(catalogue: Catalogue, entry: Entry, trained: Sequence[Entry]) -> str | None:
    """Follow inputs upwards to the first model that is no organism."""
    places = {run.path.resolve() for run in trained}
    queue, seen = [entry], set[str]()
    while queue:
        run = queue.pop(0)
        model: Any = run.run.config.get("model")
        keys = sorted(inputs_of(run) - seen)
        seen.update(keys)
        above = [one for key in keys if (one := catalogue.entry(key)) is not None]
        tuned = any(one.run.verb == "train" for one in above)
        if model and not tuned and Path(str(model)).resolve() not in places:
            return str(model)
        queue += above
    return None


def inputs_of(entry: Entry) -> set[str]:
    """Return the runs that a run was made from."""
    return {str(one["run"]) for one in entry.run.inputs if one.get("run")}
