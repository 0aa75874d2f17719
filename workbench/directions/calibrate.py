"""What stored activations say about doses: thresholds for caps, and mean residual norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from workbench.directions.container import Directions
from workbench.directions.rows import bootstrap_name, group_column, read_rows
from workbench.errors import ConfigError, MismatchError
from workbench.linalg import project
from workbench.stats import cluster_weights, mean_interval, percentiles, weighted_quantiles
from workbench.types import ActivationsLike, ndarray

LEVEL = 0.95
CHUNK_CELLS = 1 << 24
"""Draws times rows that are weighed at a time."""


@dataclass(frozen=True, eq=False)
class Thresholds(Mapping[int, float]):
    """One threshold by layer, in residual-stream units along the unit direction.

    A mapping from layer to number, as ``Intervention.cap(axis, floor=thresholds)`` takes it.
    """

    direction: str
    table: pd.DataFrame
    """Columns: direction, layer, threshold, low, high, n, unit, interval, percentile, along,
    position, mean, sd, n_rows."""

    def __getitem__(self, layer: int) -> float:
        return self._by_layer[layer]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_layer)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        row = self.table.iloc[0]
        return (
            f"Thresholds({self.direction}: {row['percentile']:g}% along {row['along']}, "
            f"{len(self)} layers, n = {row['n']} {row['unit']}s at {row['position']})"
        )

    @property
    def _by_layer(self) -> dict[int, float]:
        pairs = zip(self.table["layer"], self.table["threshold"], strict=True)
        return {int(layer): float(value) for layer, value in pairs}

    def beyond(self, directions: Directions, acts: ActivationsLike) -> pd.DataFrame:
        """Return, by layer, the share of other activations on each side of the threshold.

        A floor moves those below it, a ceiling those above. Thresholds from pooled reads applied
        to single tokens move other shares than their percentile says, so measure on what the cap
        will act on: one that moves few tokens tests nothing, whatever it leaves unchanged.

        Args:
            directions: the direction that the thresholds are of.
            acts: any activations of the same model kind and site.

        Returns:
            Rows layer, below, above, low, high (of ``below``), n, unit, interval, position.

        Raises:
            MismatchError: another direction, model, site, or a missing layer.
        """
        one = directions.select(list(self))
        if one.names != (self.direction,):
            raise MismatchError(f"thresholds are of {self.direction!r}, not of {one.label}")
        one.refuse_other(acts)
        rows = []
        for layer in self:
            found = read_rows(acts, layer)
            along = project(found.values, one.at(layer)[0])
            beyond = (along < self[layer]).astype(np.float64)
            below = mean_interval(beyond, found.item, within=(0.0, 1.0))
            rows.append(
                {
                    "layer": layer, "below": below.value,
                    "above": float((along > self[layer]).mean()), "low": below.low,
                    "high": below.high, "n": below.n, "unit": below.unit, "interval": below.name,
                    "position": acts.position,
                }
            )  # fmt: skip
        return pd.DataFrame(rows)


def thresholds(
    directions: Directions,
    acts: ActivationsLike,
    percentile: float | int,
    *,
    along: str = "direction",
    groups: str | None = None,
    draws: int = 500,
    seed: int = 0,
) -> Thresholds:
    """Return the percentile of the activations' coordinates along a direction, by layer.

    The released Assistant Axis caps are the 25th percentile along role MINUS default, which is
    the 75th along the Assistant Axis: ``percentile=25, along="opposite"`` on the axis gives that
    floor. Either way the number returned is a coordinate along the direction as given.

    Args:
        directions: exactly one name; its layers are calibrated.
        acts: what counts as the distribution; every row counts alike. Of position ``all``, tokens
            without each item's first.
        percentile: in (0, 100).
        along: ``direction``, or ``opposite`` to count from the other end.
        groups: column resampled together for the interval; by default each item.
        draws: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        MismatchError: activations of another model or site, or without a layer.
        ValueError: several directions, no draws, or a percentile outside (0, 100).
    """
    if draws < 1:
        raise ValueError(f"draws {draws}; a bootstrap needs at least one")
    if len(directions) != 1:
        raise ValueError(f"thresholds are for one direction; pick one of {directions.names}")
    if not 0 < percentile < 100 or along not in ("direction", "opposite"):
        raise ValueError(
            f"percentile {percentile} along {along!r}; expected a number in (0, 100) along "
            '"direction" or "opposite"'
        )
    directions.refuse_other(acts)
    share = (percentile if along == "direction" else 100 - percentile) / 100
    group = group_column(acts, groups)
    n = len(np.unique(group))
    told = {
        "n": n,
        "unit": groups or "item",
        "interval": bootstrap_name(LEVEL, groups or "item", n),
        "percentile": percentile,
        "along": along,
        "position": acts.position,
    }
    rows = []
    for layer in directions.layers:
        found = read_rows(acts, layer)
        v = project(found.values, directions.at(layer)[0]).astype(np.float64)
        low, high = np.nan, np.nan
        if n > 1:
            drawn = _quantile_draws(v, group[found.item], share, draws, seed)
            low, high = percentiles(drawn, LEVEL)
        value = float(np.quantile(v, share))
        own = {"direction": directions.names[0], "layer": layer, "threshold": value}
        spread = {"low": low, "high": high, "mean": float(v.mean()), "sd": float(v.std())}
        rows.append({**own, **spread, "n_rows": len(v), **told})
    columns = ["direction", "layer", "threshold", "low", "high", "n", "unit", "interval",
               "percentile", "along", "position", "mean", "sd", "n_rows"]  # fmt: skip
    return Thresholds(directions.names[0], pd.DataFrame(rows)[columns])


def matched(
    limits: Mapping[int, float],
    own: Directions,
    other: Directions,
    acts: ActivationsLike,
    *,
    side: str = "floor",
) -> dict[int, float]:
    """Return thresholds along another direction that move as many of ``acts`` at each layer.

    A percentile of response means says little about the single tokens that a cap acts on, and less
    about how it acts along another direction. These thresholds lie halfway between the two states
    that must differ, so the counts are the same exactly (but for ties).

    Args:
        limits: threshold by layer along ``own``.
        own: one direction.
        other: one direction at the same layers.
        acts: states of the kind that the caps act on; best position ``all`` of the same prompts.
        side: ``floor`` counts states below, ``ceiling`` those above.

    Raises:
        MismatchError: activations of another model or site, or without a layer.
    """
    own.refuse_other(acts)
    sign = 1.0 if side == "floor" else -1.0
    found = {}
    for layer, limit in limits.items():
        states = read_rows(acts, layer).values
        along, across = (sign * project(states, one.at(layer)[0]) for one in (own, other))
        found[layer] = sign * _cut(
            np.sort(across.astype(np.float64)), int((along < sign * limit).sum())
        )
    return found


def _cut(ranked: Float[ndarray, " n"], below: int) -> float:
    """Return a number with so many of the ranked ones under it."""
    if not below:
        return -np.inf
    if below == len(ranked):
        return float(ranked[-1] + 1e-5 * max(1.0, abs(ranked[-1])))  # above it in float32 too
    return float((ranked[below - 1] + ranked[below]) / 2)


def residual_norms(acts: ActivationsLike, *, draws: int = 500, seed: int = 0) -> pd.DataFrame:
    """Return the mean length of the residual stream by layer, each item's first token left out.

    Args:
        acts: single-token reads, or position ``all``; best of ordinary text, for template tokens
            have other norms.
        draws: of the bootstrap over items.
        seed: of the bootstrap.

    Returns:
        Rows layer, norm, low, high, n, unit, interval, n_rows, position.

    Raises:
        ConfigError: a pooled read: the norm of a mean is smaller than the mean of norms.
    """
    if acts.position.startswith("mean"):
        raise ConfigError(
            f"position {acts.position!r} holds means over tokens, which are shorter than the "
            'tokens; capture position="all" or "last" for norms'
        )
    rows = []
    for layer in acts.layers:
        found = read_rows(acts, layer)
        norms = np.linalg.norm(found.values.astype(np.float64), axis=1)
        mean = mean_interval(norms, found.item, draws=draws, seed=seed)
        rows.append(
            {
                "layer": layer, "norm": mean.value, "low": mean.low, "high": mean.high,
                "n": mean.n, "unit": mean.unit, "interval": mean.name, "n_rows": len(norms),
                "position": acts.position,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def with_norms(directions: Directions, acts: ActivationsLike) -> Directions:
    """Store the mean residual norms of ``acts`` in directions, for doses in norm units.

    Raises:
        MismatchError: activations of another model or site, or without a layer.
        ConfigError: a pooled read.
    """
    directions.refuse_other(acts)
    table = residual_norms(acts, draws=1).set_index("layer")["norm"]
    return replace(directions, norms=table.loc[list(directions.layers)].to_numpy())


def _quantile_draws(
    values: Float[ndarray, " n"],
    group: Shaped[ndarray, " n"],
    share: float,
    draws: int,
    seed: int,
) -> Float[ndarray, " b"]:
    """Return the quantile of each bootstrap draw over groups, a few draws at a time."""
    member = np.unique(group, return_inverse=True)[1]
    size, found = max(1, CHUNK_CELLS // len(values)), []
    for start in range(0, draws, size):
        weights, _ = cluster_weights(member, min(size, draws - start), (seed, start))
        found.append(weighted_quantiles(values, weights, share))
    return np.concatenate(found)
