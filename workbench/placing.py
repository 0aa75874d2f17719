"""Where a checkpoint lies among known organisms, along directions that none of them was fitted on.

Every model's coordinates are its projections of the same prompts onto the same frozen directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.errors import ConfigError
from workbench.results import counted, models_of
from workbench.stats import percentiles
from workbench.types import ndarray

PLACES = (
    *("known", "distance", "low", "high", "interval", "nearest", "n", "unit", "n_seeds"),
    *("directions", "left_out"),
)
LEVEL, DRAWS = 0.95, 2000
READOUT = "projection"

Cell = tuple[str, str]
"""A direction (the projection's measure) and a condition."""


@dataclass(frozen=True)
class Cloud:
    """One model's projections in one cell."""

    items: tuple[str, ...]
    values: Float[ndarray, "s n"]
    """Training seeds x items."""


Clouds = Mapping[Cell, Cloud]


@dataclass(frozen=True)
class Scale:
    """One natural gap along a direction: how far the two farthest known models lie apart."""

    value: float
    standard_error: float

    @property
    def holds(self) -> bool:
        """Whether it is at least two standard errors."""
        return self.value > 0 and self.value >= 2 * self.standard_error


def place(
    probed: pd.DataFrame,
    known: pd.DataFrame,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the distance of one model from every known one, nearest first.

    Along a direction two models lie apart by the root mean square, over conditions, of the
    difference of their mean projections; in units of the largest such distance between two known
    models (the natural gap); directions add up as squares. Items are resampled within conditions,
    the same for all models, and training seeds within a model that has several. A distance is never
    below zero, so of two models that do not differ the interval lies above zero all the same:
    compare it with the distances to the others.

    Args:
        probed: rows of the readout ``projection``, of one subject.
        known: the same of two or more models; seeds of one organism count as one model, and rows of
            the probed subject itself are left out.
        level: of the intervals.
        draws: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        The columns ``PLACES``: ``nearest`` is the share of draws in which this one is the nearest,
        ``n`` counts items, ``directions`` are those that count, ``left_out`` those along which the
        known models lie less than two standard errors apart.

    Raises:
        ConfigError: no projections, fewer than two known models, other items than the known models
            were measured on, or no direction that tells the known models apart.
    """
    if draws < 2:
        raise ValueError(f"draws {draws}; a bootstrap needs at least two")
    own = clouds_of(probed, "the probed model")
    if len(own) != 1:
        raise ConfigError(f"one model is placed at a time, found {len(own)}: {', '.join(own)}")
    ((name, mine),) = own.items()
    subjects = probed["subject"].unique()
    others = clouds_of(known[~known["subject"].isin(subjects)], "the known models")
    if len(others) < 2:
        raise ConfigError(
            f"placing needs two known models beside {name}, found {len(others)}: "
            f"{', '.join(others) or 'none'}; measure their projections of the same prompts too"
        )
    for label, clouds in others.items():
        _refuse_other_items(name, mine, label, clouds)
    if all(len(cloud.items) < 2 for cloud in mine.values()):
        raise ConfigError(
            f"{name} was measured on one prompt a condition, which says nothing about how far "
            "prompts differ; measure all models on several"
        )
    means = _resampled([mine, *others.values()], draws, seed)
    scales = {one: _scale(means[one][1:]) for one in means}
    used = [one for one, scale in scales.items() if scale.holds]
    if not used:
        told = "; ".join(f"{k}: {v.value:.3g} +- {v.standard_error:.2g}" for k, v in scales.items())
        raise ConfigError(
            f"no direction tells the known models apart by two standard errors ({told}); give "
            "other directions or more prompts"
        )
    distances = _distances(means, {one: scales[one].value for one in used})
    table = _table(distances, list(others), level).assign(
        n=len({item for cloud in mine.values() for item in cloud.items}),
        n_seeds=[len(next(iter(clouds.values())).values) for clouds in others.values()],
        directions=", ".join(used),
        left_out=", ".join(one for one in scales if one not in used),
    )
    return table.sort_values("distance", ignore_index=True)[list(PLACES)]


def clouds_of(frame: pd.DataFrame, what: str) -> dict[str, dict[Cell, Cloud]]:
    """Return each model's projections by cell; a model is an organism where it has seeds.

    Raises:
        ConfigError: there are none, some are not sound (see `workbench.results.counted`), or a
            model's seeds were measured on different items.
    """
    rows = counted(frame[(frame["readout"] == READOUT) & frame["dose"].isna()])
    if rows.empty:
        raise ConfigError(
            f"{what}: no rows of the readout projection; measure it with "
            "{ name = 'projection', directions = ..., prompts = ... }"
        )
    rows = rows.assign(
        _model=models_of(rows),
        _seed=rows["train_seed"].astype("float64").fillna(-1),
        item=rows["item"].astype(str),
    )
    found: dict[str, dict[Cell, Cloud]] = {}
    keys = ["_model", "measure", "condition"]
    for (model, measure, condition), cell in rows.groupby(keys, dropna=False):
        wide = cell.pivot_table(index="_seed", columns="item", values="value")
        if wide.isna().any(axis=None):
            raise ConfigError(
                f"{model}: its seeds were measured on different items ({condition!r})"
            )
        cloud = Cloud(tuple(wide.columns), wide.to_numpy(np.float64))
        found.setdefault(str(model), {})[str(measure), str(condition)] = cloud
    return found


def _refuse_other_items(name: str, mine: Clouds, label: str, clouds: Clouds) -> None:
    for cell, cloud in mine.items():
        other = clouds.get(cell)
        if other is None:
            raise ConfigError(
                f"{label} has no projections on {cell[0]!r} for condition {cell[1]!r}, which "
                f"{name} has; measure it with the same directions, layers and prompts"
            )
        if other.items != cloud.items:
            alone = sorted(set(other.items) ^ set(cloud.items))
            raise ConfigError(
                f"{label} and {name} were measured on different items of {cell[1]!r} "
                f"({alone[0]!r} is in one alone); measure both with the same prompts"
            )


def _resampled(
    models: Sequence[Clouds], draws: int, seed: int
) -> dict[str, Float[ndarray, "m c b"]]:
    """Return for each direction the mean projections: model x condition x draw, draw 0 the data."""
    rng = np.random.default_rng(seed)
    items: dict[tuple[str, tuple[str, ...]], ndarray] = {}
    seeds = [_weights(len(next(iter(clouds.values())).values), draws, rng) for clouds in models]
    found: dict[str, list[ndarray]] = {}
    for cell in models[0]:
        direction, condition = cell
        drawn = condition, models[0][cell].items
        if drawn not in items:
            items[drawn] = _weights(len(drawn[1]), draws, rng)
        column = [
            np.einsum("bs,sn,bn->b", own, clouds[cell].values, items[drawn])
            for own, clouds in zip(seeds, models, strict=True)
        ]
        found.setdefault(direction, []).append(np.stack(column))
    return {direction: np.stack(columns, 1) for direction, columns in found.items()}


def _weights(n: int, draws: int, rng: np.random.Generator) -> Float[ndarray, "b n"]:
    """Shares of n units in each draw; draw 0 counts each alike."""
    even = np.full((1, n), 1 / n)
    return np.concatenate([even, rng.multinomial(n, even[0], size=draws) / n])


def _scale(means: Float[ndarray, "m c b"]) -> Scale:
    apart = _apart(means[:, None], means[None, :])
    first, second = np.unravel_index(int(apart[..., 0].argmax()), apart.shape[:2])
    values = apart[first, second]
    return Scale(float(values[0]), float(values[1:].std(ddof=1)))


def _apart(a: ndarray, b: ndarray) -> ndarray:
    """Root mean square over conditions, the last axis but one."""
    return np.asarray(np.sqrt(((a - b) ** 2).mean(axis=-2)))


def _distances(
    means: Mapping[str, Float[ndarray, "m c b"]], scales: Mapping[str, float]
) -> Float[ndarray, "k b"]:
    """Return the distance of the first model from each other one, in every draw."""
    squares = [(_apart(means[k][1:], means[k][:1]) / scale) ** 2 for k, scale in scales.items()]
    return np.asarray(np.sqrt(np.sum(squares, axis=0)))


def _table(distances: Float[ndarray, "k b"], names: Sequence[str], level: float) -> pd.DataFrame:
    nearest = np.bincount(distances[:, 1:].argmin(axis=0), minlength=len(names))
    rows: list[dict[str, Any]] = []
    for name, values, first in zip(names, distances, nearest, strict=True):
        low, high = percentiles(values[1:], level)
        rows.append(
            {
                "known": name, "distance": float(values[0]), "low": low, "high": high,
                "interval": f"{level:.0%} bootstrap over items and seeds",
                "nearest": float(first / (len(values) - 1)), "unit": "item",
            }
        )  # fmt: skip
    return pd.DataFrame(rows)
