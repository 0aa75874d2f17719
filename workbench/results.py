"""Measurements as one tidy table: built, kept in Parquet, and summarized with named intervals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet

from workbench.errors import ConfigError, FormatError
from workbench.files import make_folder, replacing, unreadable
from workbench.plain import as_json
from workbench.stats import mean_interval, seed_mean
from workbench.types import Measurement, Subject

FORMAT = "interp-workbench/results"
VERSION = "1"
FILE = "results.parquet"

_TEXT = pyarrow.string()
SCHEMA = pyarrow.schema(
    [
        ("run", _TEXT),
        ("subject", _TEXT),
        ("base", _TEXT),
        ("organism", _TEXT),
        ("train_seed", pyarrow.int64()),
        pyarrow.field("readout", _TEXT, nullable=False),
        pyarrow.field("measure", _TEXT, nullable=False),
        pyarrow.field("condition", _TEXT, nullable=False),
        pyarrow.field("item", _TEXT, nullable=False),
        pyarrow.field("draw", pyarrow.int64(), nullable=False),
        ("direction", _TEXT),
        ("edit", _TEXT),
        ("layers", _TEXT),
        ("scope", _TEXT),
        ("dose", pyarrow.float64()),
        ("unit", _TEXT),
        ("dose_raw", pyarrow.float64()),
        ("dose_norm", pyarrow.float64()),
        ("dose_gap", pyarrow.float64()),
        ("realised", pyarrow.float64()),
        ("engaged", pyarrow.float64()),
        pyarrow.field("control", _TEXT, nullable=False),
        ("value", pyarrow.float64()),
        pyarrow.field("valid", pyarrow.bool_(), nullable=False),
        pyarrow.field("reason", _TEXT, nullable=False),
        ("mass", pyarrow.float64()),
        pyarrow.field("weight", pyarrow.float64(), nullable=False),
        pyarrow.field("extra", _TEXT, nullable=False),
    ]
)
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
"""Every results table has all of these, in this order; text that does not apply is null."""
MEASURED = ("readout", "measure", "condition", "item", "draw", "value", "valid", "reason", "mass")
REASONS = ("ok", "unparseable", "out_of_range", "refusal", "low_mass", "timeout", "judge_error")
COUNTED = ("ok", "low_mass")
"""Reasons of valid answers: leaving low mass out would let the sample depend on the dose."""
BY = (
    *("subject", "readout", "measure", "condition", "direction", "edit", "layers", "scope"),
    *("control", "unit", "dose"),
)
LEVEL, DRAWS = 0.95, 2000


def table(
    measurements: Iterable[Measurement], *, subject: Subject | str | None = None, **constants: Any
) -> pd.DataFrame:
    """Return one row for each measurement.

    Args:
        measurements: what a readout scored; invalid ones stay.
        subject: fills ``subject``, ``base``, ``organism`` and ``train_seed`` (from an adapter's
            name, such as ``antisocial-s0``); a text fills ``subject`` alone.
        constants: values of further columns, the same in every row; ``layers`` may be a sequence.

    Raises:
        ValueError: a constant that is no column, or a measurement that contradicts itself.
    """
    wrong = [name for name in constants if name not in COLUMNS or name in MEASURED]
    if wrong:
        allowed = [name for name in COLUMNS if name not in (*MEASURED, "weight", "extra")]
        raise ValueError(f"{wrong[0]!r} is no constant of a results table: {', '.join(allowed)}")
    fixed = {"control": "none", **_identity(subject), **constants}
    if not isinstance(fixed.get("layers"), str | None):
        fixed["layers"] = ",".join(str(int(layer)) for layer in fixed["layers"])
    rows = [_row(measurement) for measurement in measurements]
    return _typed(pd.DataFrame([{**fixed, **row} for row in rows], columns=list(COLUMNS)))


def _identity(subject: Subject | str | None) -> dict[str, Any]:
    if subject is None or isinstance(subject, str):
        return {"subject": subject}
    organism, seed = organism_of(subject.ref.adapter)
    return {
        "subject": subject.ref.key,
        "base": subject.ref.base,
        "organism": organism,
        "train_seed": seed,
    }


def organism_of(adapter: str | None) -> tuple[str | None, int | None]:
    """Split an adapter's name into organism and training seed: ``antisocial-s0``."""
    if not adapter:
        return None, None
    name = adapter.rstrip("/").rsplit("/", 1)[-1]
    match = re.fullmatch(r"(.+)-s(\d+)", name)
    return (match[1], int(match[2])) if match else (name, None)


def _row(m: Measurement) -> dict[str, Any]:
    number = m.value is not None and np.isfinite(m.value)
    where = f"{m.readout} {m.measure}, item {m.item!r}"
    if m.valid and not number:
        raise ValueError(f"{where}: value {m.value} is no number, so it cannot be valid")
    if m.reason not in REASONS or m.valid != (m.reason in COUNTED):
        raise ValueError(f"{where}: valid = {m.valid} with reason {m.reason!r}")
    if not m.weight > 0:
        raise ValueError(f"{where}: weight {m.weight} is not above 0")
    extra = as_json(m.extra, sort_keys=True)
    row = {name: getattr(m, name) for name in (*MEASURED, "weight")}
    return {**row, "item": str(m.item), "extra": extra}


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Give every column its type: text as objects, absent text as None."""
    columns = {}
    for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True):
        values = frame[name]
        if kind == _TEXT:
            columns[name] = values.astype(object).where(values.notna(), None)
        elif name == "train_seed":
            columns[name] = values.astype("Int64")
        else:
            columns[name] = values.astype(kind.to_pandas_dtype())
    return pd.DataFrame(columns, columns=list(COLUMNS), index=frame.index)


def write_results(frame: pd.DataFrame, path: str | Path, *, run: str | None = None) -> Path:
    """Write a results table whole or not at all.

    Args:
        frame: with exactly the columns of ``COLUMNS``.
        path: the Parquet file.
        run: id to put into the ``run`` column.

    Raises:
        ValueError: columns are missing, foreign, or empty where they may not be.
        WorkbenchError: the disk is full or the place cannot be written.
    """
    path = Path(path)
    _refuse_other_columns(frame)
    whole = frame if run is None else frame.assign(run=run)
    empty = [
        field.name for field in SCHEMA if not field.nullable and whole[field.name].isna().any()
    ]
    if empty:
        raise ValueError(f"column {empty[0]!r} of a results table may not be empty")
    marked = SCHEMA.with_metadata({"format": FORMAT, "version": VERSION})
    content = pyarrow.Table.from_pandas(_typed(whole), marked, preserve_index=False)
    _write(content.replace_schema_metadata(marked.metadata), path)
    return path


def _refuse_other_columns(frame: pd.DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in frame.columns]
    foreign = [name for name in frame.columns if name not in COLUMNS]
    if missing or foreign:
        raise ValueError(
            f"a results table has the columns of workbench.results.COLUMNS; missing: "
            f"{missing or 'none'}, foreign: {foreign or 'none'} (put these into extra)"
        )


def _write(content: pyarrow.Table, path: Path) -> None:
    make_folder(path.parent)
    with replacing(path, content.nbytes) as temporary:
        pyarrow.parquet.write_table(content, temporary)


def read_results(path: str | Path) -> pd.DataFrame:
    """Read a results table, or the one of a run folder.

    Raises:
        FormatError: it is absent, damaged, or of another format or version.
    """
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    try:
        content = pyarrow.parquet.read_table(file)
    except FileNotFoundError:
        raise FormatError(
            f"no results at {str(file)!r}; make them with `workbench measure MODEL READOUT`"
        ) from None
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise unreadable(file, ".parquet", reason, "delete it and run again") from None
    marks = content.schema.metadata or {}
    found = tuple(marks.get(key, b"").decode() for key in (b"format", b"version"))
    if found != (FORMAT, VERSION):
        told = f"has format and version {found}" if any(found) else "is a plain table, unmarked"
        raise FormatError(
            f"{file} {told}; format and version {(FORMAT, VERSION)} expected. Write a table of "
            "wb.sweep or wb.measure with workbench.results.write_results(table, path), or give a "
            "results.parquet of this version"
        )
    if tuple(content.schema.names) != COLUMNS:
        raise FormatError(f"{file} lacks columns of a results table; measure again")
    return _typed(content.to_pandas())


# --- summaries -----------------------------------------------------------------------------------


def summarize(
    frame: pd.DataFrame,
    by: str | Sequence[str] = BY,
    *,
    unit: str = "item",
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Average each group, with n, the unit that was replicated, and an interval that has a name.

    Draws (and whatever else repeats an item within a group) are averaged within the item first,
    items within a training seed next. The unit is the training seed where a group has two or more
    (a t interval), else the item (as `workbench.stats.mean_interval`). Only training seeds of one
    organism are averaged over; other models never are.

    Args:
        frame: a results table.
        by: columns that name a group; ``unit``, the dose's, is called ``dose_unit`` in the answer.
        unit: what is resampled where seeds are not: a column, or a key of ``extra`` such as
            ``fact``.
        level: of the intervals.
        draws: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        The columns of ``by``, then ``n, unit, mean, low, high, interval, n_valid, n_total,
        invalid, mass, n_low_mass``; ``n`` counts units, ``invalid`` counts the rows left out by
        reason, ``mass`` is the mean mass on the allowed answers. Low-mass answers count. A group
        without valid rows stays, with NaN.

    Raises:
        ConfigError: a column or key that is not there.
        ValueError: a group mixes measures, or models that are not training seeds of one organism.
    """
    keys = [by] if isinstance(by, str) else list(by)
    unknown = [key for key in keys if key not in frame.columns]
    if unknown:
        raise ConfigError(f"no column {unknown[0]!r}; columns: {', '.join(frame.columns)}")
    labelled = frame.assign(_unit=_units(frame, unit))
    names = ["dose_unit" if key == "unit" else key for key in keys]
    rows = []
    for values, group in labelled.groupby(keys, dropna=False, sort=False):
        label = dict(zip(names, values, strict=True))
        _refuse_mixture(group, label)
        rows.append({**label, **_summary(group, unit, level, draws, seed)})
    return pd.DataFrame(rows, columns=[*names, *_SUMMARY])


_SUMMARY = (
    *("n", "unit", "mean", "low", "high", "interval"),
    *("n_valid", "n_total", "invalid", "mass", "n_low_mass"),
)


def _units(frame: pd.DataFrame, unit: str) -> pd.Series[Any]:
    if unit in frame.columns:
        return frame[unit]
    found = frame["extra"].map(lambda text: json.loads(text).get(unit))
    if found.isna().any():
        row = frame[found.isna()].iloc[0]
        raise ConfigError(
            f"unit {unit!r} is neither a column nor in extra of item {row['item']!r}; in extra: "
            f"{', '.join(json.loads(row['extra'])) or 'nothing'}"
        )
    return found.astype(str)


def _refuse_mixture(group: pd.DataFrame, label: Mapping[str, Any]) -> None:
    for name in ("readout", "measure"):
        if group[name].nunique() > 1:
            raise ValueError(
                f"group {dict(label)} mixes {name}s {sorted(group[name].unique())}, whose mean "
                f"means nothing; add {name!r} to by, or choose one first"
            )
    pooled = _pooled(group)
    if len(pooled) > 1:
        raise ValueError(
            f"group {dict(label)} mixes models that are not seeds of one organism: "
            f"{', '.join(pooled[:5])}; add 'organism' or 'subject' to by, or choose first"
        )


def models_of(frame: pd.DataFrame) -> pd.Series[Any]:
    """Name the model of every row: training seeds of one organism on one base are one model.

    It is called by its organism where it has seeds, with the base in front where the table holds
    that organism on several; else by its subject.

    Raises:
        ConfigError: a row has no subject.
    """
    seeded = frame["train_seed"].notna() & frame["organism"].notna()
    organism = frame["organism"].astype(object).where(seeded)
    base = frame["base"].astype(object).where(frame["base"].notna(), "")
    bases = base.groupby(organism).transform("nunique")
    names = organism.where(~(bases > 1), base + "+" + organism)
    names = names.where(seeded, frame["subject"].astype(object))
    if names.isna().any():
        raise ConfigError(
            f"{int(names.isna().sum())} of {len(names)} rows have no subject, so nothing says "
            "which model they are of; fill that column"
        )
    return names


def counted(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows that are valid, once all may be trusted.

    Raises:
        ConfigError: ``valid`` is not true or false in a row, or a valid row holds no finite value
            or no weight above 0.
    """
    known = frame["valid"].isin([True, False])
    if not known.all():
        found = frame["valid"][~known].iloc[0]
        raise ConfigError(
            f"column 'valid' holds {found!r} ({int((~known).sum())} of {len(frame)} rows are like "
            "that); true or false expected"
        )
    kept = frame[frame["valid"].astype(bool)]
    value, weight = (kept[name].astype("float64") for name in ("value", "weight"))
    wrong = ~np.isfinite(value) | ~(weight > 0) | ~np.isfinite(weight)
    if wrong.any():
        row = kept[wrong].iloc[0]
        raise ConfigError(
            f"{int(wrong.sum())} valid rows hold no finite value or no weight above 0, such as "
            f"{row['readout']} {row['measure']}, item {row['item']!r}: value {row['value']}, "
            f"weight {row['weight']}; mark them as not valid"
        )
    return kept


def _pooled(group: pd.DataFrame) -> list[str]:
    """Name what is averaged over: training seeds of one organism on one base are one thing."""
    seeded = group["train_seed"].notna()
    trained = group["base"].fillna("") + "+" + group["organism"].fillna("")
    names = trained.where(seeded, group["subject"])
    return sorted(names.fillna("an unnamed subject").unique())


def _summary(group: pd.DataFrame, unit: str, level: float, draws: int, seed: int) -> dict[str, Any]:
    valid = group[group["valid"].astype(bool)]
    reasons = group.loc[~group["valid"].astype(bool), "reason"].value_counts().sort_index()
    counts = {
        "n_valid": len(valid),
        "n_total": len(group),
        "invalid": ", ".join(f"{reason}: {count}" for reason, count in reasons.items()),
        "mass": float(valid["mass"].mean()) if valid["mass"].notna().any() else np.nan,
        "n_low_mass": int((valid["reason"] == "low_mass").sum()),
    }
    seeds = valid["train_seed"].dropna().unique()
    if len(seeds) >= 2:
        means = np.array(
            [_mean(*_items(valid[valid["train_seed"] == one])) for one in sorted(seeds)]
        )
        found = seed_mean(means, level)
        name = f"{level:.0%} t over {len(seeds)} seeds"
        return _answer(len(seeds), "seed", found.value, found.low, found.high, name) | counts
    values, weights = _items(valid)
    n = len(values)
    mean = _mean(values, weights) if n else np.nan
    if n < 2:
        name = f"none: {n} {unit}{'' if n == 1 else 's'}"
        return _answer(n, unit, mean, np.nan, np.nan, name) | counts
    found = mean_interval(values, weights=weights, unit=unit, draws=draws, level=level, seed=seed)
    return _answer(n, unit, found.value, found.low, found.high, found.name) | counts


def _answer(
    n: int, unit: str, mean: float, low: float, high: float, interval: str
) -> dict[str, Any]:
    return dict(zip(_SUMMARY, (n, unit, mean, low, high, interval), strict=False))


def _items(valid: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return one weighted mean for each unit, and the unit's weight."""
    names, member = np.unique(valid["_unit"].to_numpy(str), return_inverse=True)
    weights = valid["weight"].to_numpy(np.float64)
    values = valid["value"].to_numpy(np.float64)
    total = np.bincount(member, weights, minlength=len(names))
    means = np.bincount(member, weights * values, minlength=len(names)) / total
    return means, total / np.bincount(member, minlength=len(names))


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    return float(weights @ values / weights.sum())
