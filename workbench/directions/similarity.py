"""How alike directions are: cosines by layer and across layers, each beside what chance gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.directions.algebra import Difference, refuse_other_space
from workbench.directions.container import Directions
from workbench.directions.nulls import Band, Isotropic, Null, band, band_over, draw_all, nulls_named
from workbench.directions.rows import (
    bootstrap_name,
    common_items,
    group_column,
    layers_in_common,
    read_items,
    varying,
)
from workbench.errors import ConfigError, MismatchError
from workbench.linalg import cosine, random_unit, unit
from workbench.stats import cluster_weights, correlations, jackknife, percentiles, t_intervals
from workbench.types import ActivationsLike, ndarray

COSINES = (
    "first", "second", "layer", "cosine", "low", "high", "n", "unit", "interval", "null", "band",
    "null_n", "null_unit", "chance", "beyond",
)  # fmt: skip
"""Columns of ``cosines``: one row for each pair, layer and null."""
DRAWS = 1000
FEWEST = 4
"""Items in common that a correlation is taken over."""
ACROSS = 300
"""Most draws of a null from activations that are kept for every layer at once."""

Measured = Directions | Difference | Sequence[Directions | Difference]
"""One set of directions, a difference with its items, or one of either for each training seed."""


@dataclass(frozen=True)
class Estimate:
    """Numbers with their interval, of one shape; without replicates low and high are NaN."""

    value: ndarray
    low: ndarray
    high: ndarray
    n: int
    unit: str
    interval: str

    @property
    def told(self) -> dict[str, Any]:
        return {"n": self.n, "unit": self.unit, "interval": self.interval}


def cosines(
    first: Measured,
    second: Directions,
    *,
    layers: Sequence[int] | None = None,
    nulls: Sequence[str | Null] = ("isotropic",),
    over_layers: bool = False,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return the cosine of every direction of ``first`` with every one of the bank ``second``.

    A band is the ``level`` quantile, over directions that mean nothing, of the largest |cosine|
    with the bank at that layer; ``chance`` is how often the null reaches the pair's |cosine|.

    Args:
        first: directions; a sequence of the same names, one for each training seed (t interval
            over seeds); or a ``Difference`` (jackknife interval over its items; noise in a mean of
            few items shortens all its cosines, and the interval is around what this many give).
        second: the bank, taken as given: intervals are of ``first``.
        layers: by default those that all hold.
        nulls: "isotropic", "closed form", or objects such as ``SplitHalf(acts)``.
        over_layers: one band for the largest over the bank and all these layers, which a layer
            chosen for its cosine has to pass.
        level: of intervals and bands.

    Returns:
        Rows with the columns ``COSINES``.

    Raises:
        MismatchError: models or sites that do not compare (see ``projection_correlations``), or a
            layer that one lacks.
        ConfigError: a set of means, whose common part would make every cosine large.
    """
    seeds, layers = _checked(first, second, layers)
    drawn = nulls_named(nulls, second.select(layers))
    banks = {layer: second.at(layer) for layer in layers}
    found = {at: _cosines_at(first, seeds, bank, at, level) for at, bank in banks.items()}
    tables = []
    for null in drawn:
        joint = band_over(null, banks, level=level) if over_layers else None
        for layer, bank in banks.items():
            limit = joint or band(null, bank, layer, level=level)
            tables.append(_table(found[layer], limit, seeds[0].names, second.names, layer))
    return pd.concat(tables, ignore_index=True)[list(COSINES)]


def layer_similarity(
    first: Directions | Sequence[Directions],
    second: Directions | None = None,
    *,
    nulls: Sequence[str | Null] = ("isotropic",),
    level: float = 0.95,
) -> pd.DataFrame:
    """Return the cosine of each direction at one layer with the same name at another.

    The residual stream carries whatever it holds from block to block, so neighbors look alike
    whatever a direction means: ``SplitHalf(acts)`` says how much.

    Args:
        first: directions, or one set for each training seed (t interval over seeds).
        second: the other side, with the same names; by default ``first`` itself.
        nulls: as in ``cosines``; the band is for one pair of layers.
        level: of intervals and bands.

    Returns:
        One row for each name, pair of layers and null: direction, layer, other_layer, cosine, low,
        high, n, unit, interval, null, band, null_n, null_unit, beyond.

    Raises:
        MismatchError: models, sites or names that do not compare.
    """
    seeds = [first] if isinstance(first, Directions) else list(first)
    _refuse_unlike_seeds(seeds)
    others = seeds if second is None else [second] * len(seeds)
    if seeds[0].names != others[0].names:
        raise MismatchError(f"names {seeds[0].names} and {others[0].names}; they must be the same")
    refuse_other_space(seeds[0], others[0])
    both = np.stack([_across(a, b) for a, b in zip(seeds, others, strict=True)])
    found = _over_seeds(both, level)
    rows, columns = seeds[0].layers, others[0].layers
    nulls_named(nulls, others[0])
    tables = []
    for null in nulls_named(nulls, seeds[0]):
        name, limits, n, of = _across_band(null, rows, columns, seeds[0].model.width, level)
        told: dict[str, Any] = {**found.told, "null": name, "null_n": n, "null_unit": of}
        for k, direction in enumerate(seeds[0].names):
            grid = _grid({"layer": rows, "other_layer": columns}, found, k)
            tables.append(grid.assign(direction=direction, band=limits.ravel(), **told))
    table = pd.concat(tables, ignore_index=True)
    table["beyond"] = table["cosine"].abs() > table["band"]
    return table[[
        "direction", "layer", "other_layer", "cosine", "low", "high", "n", "unit", "interval",
        "null", "band", "null_n", "null_unit", "beyond",
    ]]  # fmt: skip


def projection_correlations(
    first: Directions,
    first_acts: ActivationsLike,
    second: Directions,
    second_acts: ActivationsLike,
    *,
    within: str | None = None,
    groups: str | None = None,
    draws: int = DRAWS,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare directions of any two models by what they read on common items.

    Items are matched by ``id``. The null is the |correlation| of isotropic directions, one drawn in
    each model: items that differ in length or topic correlate along most directions, so this is
    far from 0; ``within`` takes such groups out.

    Args:
        first: directions of the model of ``first_acts``.
        first_acts: its activations.
        second: directions of the other model.
        second_acts: its activations of the same items.
        within: column of ``first_acts`` whose group means are taken off before correlating.
        groups: column of ``first_acts`` resampled together, such as ``fact``.
        draws: of the bootstrap and the null.
        level: of the interval and the band.
        seed: of both.

    Returns:
        Rows first, second, layer, other_layer, correlation, low, high, n, unit, interval, null,
        band, null_n, beyond.

    Raises:
        MismatchError: activations of another model than their directions', or too few common items.
        ConfigError: no column ``id``, an id that occurs twice, or items that are all alike.
    """
    first.refuse_other(first_acts)
    second.refuse_other(second_acts)
    rows = common_items(first_acts, second_acts)
    if len(rows[0]) < FEWEST:
        raise MismatchError(
            f"{len(rows[0])} items in common correlate whatever they mean; capture {FEWEST} or more"
        )
    inner = None if within is None else group_column(first_acts, within)[rows[0]]
    weights, n = cluster_weights(group_column(first_acts, groups)[rows[0]], draws, seed)
    told: dict[str, Any] = {
        "n": n,
        "unit": groups or "item",
        "interval": bootstrap_name(level, groups or "item", n),
        "null": f"isotropic in both models, {level:.0%} of one |correlation|",
        "null_n": draws,
    }
    sides = [
        {
            layer: _readings(d, acts, layer, side, inner, draws, (seed, layer, number))
            for layer in d.layers
        }
        for number, (d, acts, side) in enumerate(
            ((first, first_acts, rows[0]), (second, second_acts, rows[1]))
        )
    ]
    found = []
    for layer, (read, random) in sides[0].items():
        for other, (read_other, random_other) in sides[1].items():
            limit = float(np.quantile(np.abs(_paired(random, random_other)), level))
            grid = _bootstrapped(read, read_other, weights, level if n > 1 else None)
            grid = grid.rename(columns={"row": "first", "column": "second"})
            grid["first"] = np.array(first.names)[grid["first"]]
            grid["second"] = np.array(second.names)[grid["second"]]
            found.append(grid.assign(layer=layer, other_layer=other, band=limit, **told))
    table = pd.concat(found, ignore_index=True)
    table["beyond"] = table["correlation"].abs() > table["band"]
    return table[[
        "first", "second", "layer", "other_layer", "correlation", "low", "high", "n", "unit",
        "interval", "null", "band", "null_n", "beyond",
    ]]  # fmt: skip


def _checked(
    first: Measured, second: Directions, layers: Sequence[int] | None
) -> tuple[list[Directions], tuple[int, ...]]:
    """Return the replicates of ``first`` and the layers, once all may be compared."""
    parts = [first] if isinstance(first, Directions | Difference) else list(first)
    seeds = [one.directions() if isinstance(one, Difference) else one for one in parts]
    _refuse_unlike_seeds(seeds)
    for directions in (*seeds, second):
        if directions.kind == "mean":
            raise ConfigError(
                f"{directions.label} are means, which share a large common part, so their cosines "
                "are large whatever they mean; take a difference, or center them (in "
                "Python wb.centered)"
            )
    refuse_other_space(seeds[0], second)
    return seeds, layers_in_common(layers, *(one.layers for one in (*seeds, second)))


def _refuse_unlike_seeds(seeds: Sequence[Directions]) -> None:
    if not seeds:
        raise ValueError("no directions; give one set, or one for each training seed")
    for other in seeds[1:]:
        refuse_other_space(seeds[0], other)
        if other.names != seeds[0].names or other.layers != seeds[0].layers:
            raise MismatchError(
                f"seeds must have the same names and layers; found {seeds[0]!r} and {other!r}"
            )


def _cosines_at(
    first: Measured,
    seeds: Sequence[Directions],
    bank: Float[ndarray, "k d"],
    layer: int,
    level: float,
) -> Estimate:
    if not isinstance(first, Difference):
        return _over_seeds(np.stack([cosine(one.at(layer), bank) for one in seeds]), level)
    _, member, count = np.unique(first.group, return_inverse=True, return_counts=True)
    pairs = first.at(layer).astype(np.float64)
    sums = np.zeros((len(count), pairs.shape[1]))
    np.add.at(sums, member, pairs)
    value = cosine(sums.sum(axis=0)[None], bank)
    low, high = jackknife(cosine(sums.sum(axis=0) - sums, bank), value[0], level)
    of = first.groups or "item"
    low, high = np.clip(low, -1, 1)[None], np.clip(high, -1, 1)[None]
    return Estimate(value, low, high, len(count), of, f"{level:.0%} jackknife over {of}s")


def _over_seeds(values: Float[ndarray, " r *m"], level: float) -> Estimate:
    if len(values) < 2:
        empty = np.full(values.shape[1:], np.nan)
        return Estimate(values[0], empty, empty, 1, "direction", "none: one direction, no seeds")
    mean, low, high = t_intervals(values, level)
    low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
    return Estimate(mean, low, high, len(values), "seed", f"{level:.0%} t over seeds")


def _table(
    found: Estimate, limit: Band, first: Sequence[str], second: Sequence[str], layer: int
) -> pd.DataFrame:
    pairs = pd.MultiIndex.from_product([first, second], names=["first", "second"])
    size = np.abs(found.value)
    return pairs.to_frame(index=False).assign(
        layer=layer,
        cosine=found.value.ravel(),
        low=found.low.ravel(),
        high=found.high.ravel(),
        **found.told,
        null=limit.null,
        band=limit.value,
        null_n=limit.n,
        null_unit=limit.unit,
        chance=limit.chance(size).ravel(),
        beyond=size.ravel() > limit.value,
    )


def _across(first: Directions, second: Directions) -> Float[ndarray, "k l m"]:
    return np.stack([cosine(a, b) for a, b in zip(first.vectors, second.vectors, strict=True)])


def _across_band(
    null: Null | None, rows: Sequence[int], columns: Sequence[int], width: int, level: float
) -> tuple[str, Float[ndarray, "l m"], int, str]:
    """Return the band of |cosine| for each pair of layers, with its name, n and unit."""
    if null is None or isinstance(null, Isotropic):
        one = band(None, np.ones((1, width)), 0, level=level)
        return one.null, np.full((len(rows), len(columns)), one.value), one.n, one.unit
    drawn = {layer: draw_all(null, layer, width, ACROSS) for layer in {*rows, *columns}}
    sizes = np.abs([[np.einsum("bd,bd->b", drawn[a], drawn[b]) for b in columns] for a in rows])
    few = sizes.shape[-1] < 20
    limits = sizes.max(axis=-1) if few else np.quantile(sizes, level, axis=-1)
    what = f"most of {sizes.shape[-1]}" if few else f"{level:.0%}"
    return f"{null.name}, {what} of one cosine", limits, null.n, null.unit


def _grid(axes: Mapping[str, Sequence[int]], found: Estimate, k: int) -> pd.DataFrame:
    index = pd.MultiIndex.from_product(list(axes.values()), names=list(axes))
    columns = {name: getattr(found, name)[k].ravel() for name in ("value", "low", "high")}
    return index.to_frame(index=False).assign(**columns).rename(columns={"value": "cosine"})


def _readings(
    directions: Directions,
    acts: ActivationsLike,
    layer: int,
    rows: ndarray,
    inner: ndarray | None,
    draws: int,
    seed: tuple[int, int, int],
) -> tuple[Float[ndarray, "n k"], Float[ndarray, "n b"]]:
    """Return what the directions read, and what isotropic ones read, on the common items."""
    X = varying(read_items(acts, layer)[rows], layer, inner)
    return X @ unit(directions.at(layer)).T, X @ random_unit(draws, X.shape[1], seed).T


def _paired(first: Float[ndarray, "n b"], second: Float[ndarray, "n b"]) -> Float[ndarray, " b"]:
    """Return the correlation of each column with the same column of the other."""
    a, b = (x / np.linalg.norm(x, axis=0) for x in (first, second))
    return np.asarray((a * b).sum(axis=0))


def _bootstrapped(
    first: Float[ndarray, "n k"],
    second: Float[ndarray, "n m"],
    weights: Float[ndarray, "b n"],
    level: float | None,
) -> pd.DataFrame:
    """Return each correlation with its interval; NaN where a side reads all items alike."""
    value, found = correlations(first, second)[0], []
    for row in range(first.shape[1]):
        drawn = correlations(first[:, [row]], second, weights)[:, 0]
        for column in range(second.shape[1]):
            low, high = np.nan, np.nan
            if level is not None and not np.isnan(value[row, column]):
                low, high = percentiles(drawn[:, column], level)
            told = {"row": row, "column": column, "correlation": float(value[row, column])}
            found.append({**told, "low": low, "high": high})
    return pd.DataFrame(found)
