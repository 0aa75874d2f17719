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
from workbench_apps.catalogue import EVIDENCE, RESULTS, Entry
from workbench_apps.plane import Planes

from workbench.directions.own_world import own_world_table
from workbench.errors import FormatError, MismatchError
from workbench.results import read_results
from workbench.stats import mean_interval

BASE = "base"
CONTRASTS = {
    "own_world_advantage_minus_base": "own minus others, minus base",
    "own_change_minus_other_change": "change under negation, own minus others",
}
"""Contrasts that are shown, in words; a belief makes the first positive, the second negative."""
FEWEST = 3
"""Units under which an interval is withheld rather than drawn."""
EVIDENCE_COLUMNS = [
    *("method", "layer", "topic", "polarity", "rendering", "split", "n", "n_facts", "auc"),
    *("low", "high", "interval", "null_shuffled", "null_random", "accuracy", "chosen", "usable"),
    *("gate",),
]
TRANSFER = "transfer"
LIKELIHOOD = "log-likelihood a token"
"""Stands where a direction's name does for claims read by their likelihood."""
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
    table = _parquet(path, *file_stamp(path))
    absent = [name for name in columns if name not in table.columns]
    if absent:
        raise FormatError(f"{path} has no column {absent[0]!r}; make it again with this version")
    return table


def file_stamp(path: Path) -> tuple[int, int]:
    """Return size and time of change: a file that changes is read again."""
    try:
        state = path.stat()
    except OSError as error:
        reason = error.strerror
        raise FormatError(f"{path} cannot be read ({reason}); run its command again") from None
    return state.st_size, state.st_mtime_ns


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
    """Return the evidence rows of a fit run, but for those from topic to topic.

    Raises:
        FormatError: as ``read_table``.
    """
    table = read_table(entry.path / EVIDENCE, EVIDENCE_COLUMNS)
    return table[table["split"] != TRANSFER]


def grid_of(entry: Entry) -> pd.DataFrame:
    """Return the rows of a fit run's transfer grid; empty where none was asked for.

    Raises:
        FormatError: as ``read_table``.
    """
    table = read_table(entry.path / EVIDENCE, EVIDENCE_COLUMNS)
    return table[table["split"] == TRANSFER]


def projections_of(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return one row for each claim, model, direction and layer; the base model is ``base``.

    Args:
        entries: newest first; a subject that several of them measured is taken from the newest.

    Raises:
        FormatError: a file is damaged or lacks a column.
    """
    frames, seen = [], set[str]()
    for entry in entries:
        path = entry.path / RESULTS
        frame = _projections(path, *file_stamp(path))
        frames.append(frame[~frame["subject"].isin(seen)])
        seen |= set(frame["subject"])
    table = pd.concat(frames, ignore_index=True)
    return table.assign(organism=model_names(table))


@functools.lru_cache(maxsize=32)
def _projections(path: Path, size: int, modified: int) -> pd.DataFrame:
    """Pick the claims' projections and likelihoods out of a results table."""
    results = _results(path, size, modified)
    likelihood = (results["readout"] == "claims") & (results["measure"] == "loglik")
    wanted = (results["readout"] == "projection") | likelihood
    rows = results[wanted & results["valid"].astype(bool)]
    extra = pd.DataFrame([json.loads(text) for text in rows["extra"]], index=rows.index)
    absent = [name for name in ("set", "fact", "polarity") if name not in extra]
    if absent:
        raise FormatError(
            f"the projections lack {absent[0]!r}: measure them on the claims item set"
        )
    extra = extra.reindex(columns=[*extra.columns.difference(["layer"]), "layer"])
    kept = rows[["subject", "organism", "train_seed", "item", "value"]].assign(
        world=rows["condition"],
        direction=rows["measure"].where(rows["readout"] == "projection", LIKELIHOOD),
    )
    found = kept.join(extra[[name for name in extra.columns if name not in kept.columns]])
    turn = found["rendering"].fillna("bare") if "rendering" in found else "bare"
    layer = found["layer"].map(lambda at: "all" if pd.isna(at) else str(int(at)))
    return found.assign(layer=layer, turn=turn)


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


def poolable(table: pd.DataFrame) -> bool:
    """Say whether claims are of several sets of the same worlds, each naming its proposition."""
    if "proposition" not in table or table["proposition"].isna().any():
        return False
    worlds = table.groupby("set")["world"].unique().map(lambda names: tuple(sorted(names)))
    return len(worlds) > 1 and worlds.nunique() == 1


def by_proposition(table: pd.DataFrame) -> pd.DataFrame:
    """Pool the sets: the frames of a proposition are averaged, as in the headline of a study."""
    return table.assign(fact=table["proposition"])


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


def own_contrasts(table: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Return what each organism's own world gained, paired by fact, with t intervals.

    Empty where there is no base model or no organism of a world.
    """
    models = [str(name) for name in table["organism"].unique()]
    own = {name: world for name in models if (world := own_world(name)) and name != BASE}
    if BASE not in models or not own:
        return pd.DataFrame()
    found = own_world_table(
        table["value"].to_numpy(np.float64),
        model=table["organism"].to_numpy(str),
        world=table["world"].to_numpy(str),
        item=table["fact"].to_numpy(str),
        polarity=table["polarity"].to_numpy(np.int64),
        own=own,
        base=BASE,
        unit=unit,
    )
    return found[found["contrast"].isin(CONTRASTS)]


def _interval(values: np.ndarray, unit: str) -> dict[str, Any]:
    if len(values) < FEWEST:
        nothing = {"low": np.nan, "high": np.nan, "interval": f"withheld: under {FEWEST} {unit}s"}
        return {"mean": float(values.mean()), "n": len(values), "unit": unit, **nothing}
    found = mean_interval(values, unit=unit)
    return {
        "mean": found.value,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "unit": found.unit,
        "interval": found.name,
    }


@functools.lru_cache(maxsize=32)
def _results(path: Path, size: int, modified: int) -> pd.DataFrame:  # noqa: ARG001 (the key)
    return read_results(path)
