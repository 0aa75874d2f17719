"""The curves of a sweep's table, and paired differences from each curve's own zero dose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.errors import ConfigError
from workbench.results import counted, models_of
from workbench.stats import group_means, mean_interval, seed_mean
from workbench.types import ndarray

NEEDED = (
    *("subject", "base", "organism", "train_seed", "readout", "measure", "condition", "item"),
    *("direction", "edit", "layers", "scope", "dose", "unit", "dose_raw", "dose_gap", "realised"),
    *("control", "value", "valid", "mass", "weight"),
)
INTERVENTION = ("model", "direction", "edit", "layers", "scope", "dose_unit")
"""What names an intervention but for its dose; the model is an organism's name where it has
training seeds, else the subject's."""
CURVE = (*INTERVENTION, "readout", "measure", "condition")
FEW = 40
"""With fewer random directions than this, their band is the largest absolute value."""


@dataclass(frozen=True)
class How:
    """How intervals are made."""

    unit: str = "item"
    """What is resampled where there are no training seeds: a column of the table."""
    level: float = 0.95
    draws: int = 2000
    seed: int = 0


def swept(frame: pd.DataFrame, how: How) -> pd.DataFrame:
    """Keep the rows of a sweep, with its ``model`` and ``_unit``; the dose's unit is ``dose_unit``.

    Raises:
        ConfigError: no row has a dose, a column is missing or holds what it may not, or there is no
            such unit column.
    """
    if lacking := [name for name in NEEDED if name not in frame.columns]:
        raise ConfigError(
            f"no column {lacking[0]!r}; give the results table of a sweep, with all its columns"
        )
    if how.unit not in frame.columns:
        raise ConfigError(
            f"no column {how.unit!r} to resample; columns: {', '.join(frame.columns)}"
        )
    if frame["control"].isna().any():
        raise ConfigError(
            f"column 'control' is empty in {int(frame['control'].isna().sum())} rows; it is 'none' "
            "where the direction itself acts"
        )
    table = frame.assign(dose=_numbers(frame["dose"]), control=frame["control"].astype(str))
    table = table[table["dose"].notna() | table["control"].str.startswith("prompt")]
    counted(table)
    if table["dose"].isna().all():
        raise ConfigError("no row has a dose; give the results table of a sweep")
    units = table[how.unit].astype(str)
    table = table.assign(model=models_of(table), _unit=units)
    table = table.rename(columns={"unit": "dose_unit"})
    named = {name: table[name].astype(object).where(table[name].notna(), "") for name in CURVE}
    return table.assign(**named)


def _numbers(doses: pd.Series[Any]) -> pd.Series[Any]:
    try:
        return pd.to_numeric(doses).astype("float64")
    except (ValueError, TypeError) as error:
        raise ConfigError(f"column 'dose' holds no numbers ({error})") from None


def curves(table: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield what names each curve, and its rows, controls included."""
    for values, rows in table.groupby(list(CURVE), sort=False):
        yield dict(zip(CURVE, values, strict=True)), rows


def zero_of(label: Mapping[str, Any], curve: pd.DataFrame) -> pd.Series[Any]:
    """Return the curve's values at its own zero dose, as `means` does.

    Raises:
        ConfigError: the zero dose is missing.
    """
    zero = curve[(curve["control"] == "none") & (curve["dose"] == 0)]
    if zero.empty:
        raise no_zero(label)
    return means(zero)


def no_zero(label: Mapping[str, Any] | pd.Series[Any]) -> ConfigError:
    """Return the error of a curve without its zero dose."""
    told = ", ".join(f"{name} {label[name]!r}" for name in CURVE)
    return ConfigError(f"no zero dose to compare with in the curve of {told}; sweep dose 0 too")


def means(rows: pd.DataFrame) -> pd.Series[Any]:
    """Return the weighted mean of valid values for each (training seed or -1, unit)."""
    valid = rows[rows["valid"].astype(bool)]
    keys = [valid["train_seed"].astype("float64").fillna(-1), valid["_unit"]]
    total = (valid["value"] * valid["weight"]).groupby(keys).sum()
    return total / valid["weight"].groupby(keys).sum()


def by_seed(
    values: Float[ndarray, " n"], index: pd.Index[Any], zero: pd.Series[Any]
) -> tuple[Float[ndarray, " m"], int]:
    """Return one value a seed and their number where ``zero`` has several, else as given and 0.

    That is asked of the zero dose, so that an arm which one seed alone survived does not turn to
    items: it has one seed.
    """
    if zero.index.get_level_values(0).nunique() < 2:
        return values, 0
    found = group_means(values, index.get_level_values(0).to_numpy())
    return found, len(found)


def interval(values: Float[ndarray, " n"], seeds: int, how: How, name: str) -> dict[str, Any]:
    """Return ``n, unit, {name}, low, high, interval`` of a mean."""
    n, unit = len(values), "seed" if seeds else how.unit
    told = {"n": n, "unit": unit, name: float(values.mean()) if n else np.nan}
    if n < 2:
        nothing = f"none: {n} {unit}{'' if n == 1 else 's'}"
        return {**told, "low": np.nan, "high": np.nan, "interval": nothing}
    if seeds:
        found = seed_mean(values, how.level)
        return {**told, "low": found.low, "high": found.high,
                "interval": f"{how.level:.0%} t over {seeds} seeds"}  # fmt: skip
    found = mean_interval(values, unit=unit, draws=how.draws, level=how.level, seed=how.seed)
    return {**told, "low": found.low, "high": found.high, "interval": found.name}


def band(drawn: Sequence[float], level: float) -> tuple[float, str]:
    """Return how far random directions reach in absolute value, and what that number is."""
    values = np.array([abs(value) for value in drawn if np.isfinite(value)])
    if not len(values):
        return np.nan, "none: no random directions"
    if len(values) == 1:
        return float(values[0]), "the one random direction"
    if len(values) < FEW:
        return float(values.max()), f"largest of {len(values)} random directions"
    return float(np.quantile(values, level)), f"{level:.0%} of {len(values)} random directions"
