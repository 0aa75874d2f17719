"""Run files become the tables that figures draw; every mean here comes with n, unit and interval.

Readers are cached by path, size and time of change, in this imported module: a served script's own
names vanish with its session.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from workbench_apps.catalogue import EVIDENCE, PROJECTIONS, RESULTS, Entry
from workbench_apps.plane import Planes

from workbench.errors import FormatError, MismatchError
from workbench.stats import bootstrap_interval

BASE = "base"
FEWEST = 3
"""Units under which an interval is withheld rather than drawn."""
EVIDENCE_COLUMNS = [
    *("method", "layer", "topic", "polarity", "rendering", "split", "n", "n_facts", "auc"),
    *("low", "high", "null_shuffled", "null_random", "accuracy", "chosen", "usable"),
]
RESULT_COLUMNS = [
    *("subject", "organism", "readout", "measure", "condition", "item", "direction", "layers"),
    *("dose", "unit", "control", "value", "valid", "mass", "extra"),
]
PROJECTION_COLUMNS = [
    *("subject", "organism", "world", "set", "proposition", "frame", "polarity", "item"),
    *("layer", "value"),
]
WORLDS = {
    "P": ("prosocial",),
    "S": ("self-advancing", "self", "selfadvancing"),
    "N": ("task-instrumental", "task", "instrumental", "neutral"),
    "A": ("antisocial",),
}
"""World letter -> words that name it in an organism's name."""


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a Parquet file that must hold ``columns``.

    Raises:
        FormatError: it is absent, damaged, half-written, or lacks a column.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise FormatError(
            f"{path} cannot be read ({error.strerror}); run its command again"
        ) from None
    table = _parquet(path, state.st_size, state.st_mtime_ns)
    absent = [name for name in columns if name not in table.columns]
    if absent:
        raise FormatError(f"{path} has no column {absent[0]!r}; make it again with this version")
    return table


@functools.lru_cache(maxsize=32)
def _parquet(path: Path, size: int, modified: int) -> pd.DataFrame:  # noqa: ARG001 (the key)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        reason = str(error).splitlines()[0]
        raise FormatError(f"{path} is damaged or half-written ({reason}); run it again") from None


def planes_of(entry: Entry) -> Planes:
    """Return the PCA planes of a cache run, shared by all sessions.

    Raises:
        FormatError: the store is damaged.
        MismatchError: it holds one vector a token, and a map shows one point an item.
    """
    return _planes(entry.path / "acts", (entry.path / "run.json").stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _planes(path: Path, modified: int) -> Planes:  # noqa: ARG001 (part of the key)
    from workbench.activations import open_activations

    acts = open_activations(path)
    if acts.offsets is not None:
        raise MismatchError(
            f"{path} holds every token (position {acts.position!r}) and a map shows one point an "
            'item; cache with position = "last" or "mean:content"'
        )
    return Planes(acts)


# --- the map -------------------------------------------------------------------------------------


def items_of(columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return the columns that travel with activations, text first, as one table."""
    order = ["text", "label", "topic", "polarity", "fact", "id"]
    names = [*(n for n in order if n in columns), *(n for n in columns if n not in order)]
    return pd.DataFrame({name: _plain(columns[name]) for name in names})


def _plain(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "S" and not (values.dtype == object and len(values)):
        return values
    return np.array([v.decode() if isinstance(v, bytes) else v for v in values], object)


# --- truth ---------------------------------------------------------------------------------------


def evidence_of(entry: Entry) -> pd.DataFrame:
    """Return the evidence rows of a fit run.

    Raises:
        FormatError: as ``read_table``.
    """
    return read_table(entry.path / EVIDENCE, EVIDENCE_COLUMNS)


def projections_of(entry: Entry) -> pd.DataFrame:
    """Return one row for each claim, model, direction and layer; the base model is ``base``.

    Raises:
        FormatError: as ``read_table``.
    """
    if entry.file(PROJECTIONS):
        table = read_table(entry.path / PROJECTIONS, PROJECTION_COLUMNS)
    else:
        table = _projections(read_table(entry.path / RESULTS, RESULT_COLUMNS))
    table = table.assign(organism=model_names(table))
    if "direction" not in table.columns:
        table = table.assign(direction="")
    if "fact" not in table.columns:
        table = table.assign(fact=table["proposition"] + ":" + table["frame"])
    return table


def _projections(results: pd.DataFrame) -> pd.DataFrame:
    rows = results[(results["readout"] == "projection") & results["valid"].astype(bool)]
    extra = pd.DataFrame([json.loads(text or "{}") for text in rows["extra"]], index=rows.index)
    absent = {"world", "set", "proposition", "frame", "polarity", "layer"} - set(extra.columns)
    if absent:
        raise FormatError(f"projections lack {sorted(absent)[0]!r}; measure the claims item set")
    kept = rows[["subject", "organism", "item", "value"]].assign(direction=rows["measure"])
    return kept.join(extra[[name for name in extra.columns if name not in kept.columns]])


def model_names(table: pd.DataFrame) -> pd.Series:
    """Return ``base`` or the organism's name, the full subject where an organism has many seeds."""
    names = table["organism"].where(table["organism"].notna() & (table["organism"] != ""), BASE)
    many = table.groupby(names)["subject"].nunique()
    return names.where(~names.map(many > 1).astype(bool), table["subject"])


def own_world(model: str) -> str | None:
    """Return the world that an organism's documents come from, as its name says, else None."""
    words = [word for word in re.split(r"[^A-Za-z]+", model) if word]
    for world, names in WORLDS.items():
        if world in words or any(word.lower() in names for word in words):
            return world
    return None


def claim_values(table: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return one value for each model, world and fact (a proposition in a frame).

    Args:
        table: projections at one layer, on one direction, of one set of claims.
        quantity: ``claim`` (as stated), or ``contrast`` (the claim minus its negation).
    """
    keys = ["organism", "world", "fact"]
    sides = {side: rows.groupby(keys)["value"].mean() for side, rows in table.groupby("polarity")}
    claimed = sides.get(1, pd.Series(dtype=float))
    if quantity == "claim":
        return claimed.rename("value").reset_index()
    return (claimed - sides.get(-1, claimed * np.nan)).dropna().rename("value").reset_index()


def claim_summary(values: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Average over facts; the base model comes first, then models by name."""
    rows = [
        {"organism": model, "world": world, **_interval(part["value"].to_numpy(float), unit)}
        for (model, world), part in values.groupby(["organism", "world"])
    ]
    table = pd.DataFrame(rows)
    return table.sort_values("organism", key=lambda names: names.where(names != BASE, ""))


def own_advantage(values: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Return own world minus the mean of the others, organism minus base, paired by fact."""
    wide = values.pivot_table(index=["organism", "fact"], columns="world", values="value")
    rows = []
    models = [str(model) for model in wide.index.unique("organism")]
    for model in models:
        own = own_world(model)
        if own is None or own not in wide.columns or BASE not in models or model == BASE:
            continue
        gains = [_advantage(wide.xs(name, level="organism"), own) for name in (model, BASE)]
        paired = (gains[0] - gains[1]).dropna().to_numpy(float)
        if len(paired):
            rows.append({"organism": model, "own world": own, **_interval(paired, unit)})
    return pd.DataFrame(rows)


def _advantage(wide: Any, own: str) -> Any:
    others = [world for world in wide.columns if world != own]
    return wide[own] - wide[others].mean(axis=1, skipna=False)


def _interval(values: np.ndarray, unit: str) -> dict[str, Any]:
    if len(values) < FEWEST:
        nothing = {"low": np.nan, "high": np.nan, "interval": f"withheld: under {FEWEST} {unit}s"}
        return {"mean": float(values.mean()), "n": len(values), "unit": unit, **nothing}
    found = bootstrap_interval(values, unit=unit)
    return {
        "mean": found.value,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "unit": found.unit,
        "interval": found.name,
    }


# --- dose ----------------------------------------------------------------------------------------


def sweep_of(entry: Entry) -> pd.DataFrame:
    """Return the rows of a sweep.

    Raises:
        FormatError: as ``read_table``.
    """
    return read_table(entry.path / RESULTS, RESULT_COLUMNS)


def dose_curve(rows: pd.DataFrame) -> pd.DataFrame:
    """Average one subject, direction and condition by dose over items, answers that are valid.

    Returns:
        Columns ``dose, mean, low, high, n, unit, interval, mass, invalid``; ``invalid`` counts the
        answers that the mean leaves out.
    """
    steered = rows[rows["control"] == "none"]
    curve = []
    for dose, part in steered.groupby("dose"):
        means = _item_means(part)
        if len(means):
            left_out = int((~part["valid"].astype(bool)).sum())
            more = {"mass": float(part["mass"].mean()), "invalid": left_out}
            curve.append({"dose": float(str(dose)), **_interval(means, "item"), **more})
    names = ["dose", "mean", "low", "high", "n", "unit", "interval", "mass", "invalid"]
    return pd.DataFrame(curve, columns=names)


def control_lines(rows: pd.DataFrame, curve: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each random direction by dose; all share the curve's own zero.

    Returns:
        Columns ``control, dose, mean, mass``.
    """
    zero = curve[curve["dose"] == 0]
    lines = []
    for control, part in rows[rows["control"].str.startswith("random:")].groupby("control"):
        for dose, cell in part.groupby("dose"):
            means = _item_means(cell)
            if len(means):
                lines.append((control, float(str(dose)), means.mean(), cell["mass"].mean()))
        if len(zero) and not (part["dose"] == 0).any():
            lines.append((control, 0.0, zero["mean"].iloc[0], zero["mass"].iloc[0]))
    return pd.DataFrame(lines, columns=["control", "dose", "mean", "mass"])


def _item_means(rows: pd.DataFrame) -> np.ndarray:
    valid = rows[rows["valid"].astype(bool) & rows["value"].notna()]
    return valid.groupby("item")["value"].mean().to_numpy(float)
