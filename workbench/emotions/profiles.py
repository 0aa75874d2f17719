"""What organisms show of each emotion on decisions to trust: gaps by half, and profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from workbench.directions import Directions
from workbench.directions.fit import column
from workbench.directions.rows import read_items
from workbench.emotions.vectors import label_of
from workbench.errors import ConfigError
from workbench.linalg import random_unit, unit
from workbench.stats import mean_interval, t_intervals
from workbench.types import ActivationsLike, ndarray

HALF, FIRST, SECOND = "half", "first", "second"
PEAK, WINDOW = "peak", "window"
LEVEL = 0.95
DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Reading:
    """One model's states on the items; a reference has no condition."""

    acts: ActivationsLike
    condition: str | None = None
    seed: int | None = None
    store: str = ""
    """Where they lie, for messages."""

    @property
    def label(self) -> str:
        return f"{self.acts.model.key} ({self.store})" if self.store else self.acts.model.key


@dataclass(frozen=True, eq=False)
class Fleet:
    """States of several models on the same items, in the same order.

    Args:
        readings: one reference, and organisms of at least the two conditions.
        high: the condition whose gap is positive, such as A.
        low: the other one, such as P.
    """

    readings: Sequence[Reading]
    high: str
    low: str

    def __post_init__(self) -> None:
        references = [one for one in self.readings if one.condition is None]
        if len(references) != 1:
            raise ConfigError(
                f"{len(references)} of {len(self.readings)} models are no organism; give exactly "
                "one reference, the model that the organisms were made from"
            )
        if self.high == self.low:
            raise ConfigError(f"high and low are both {self.high!r}; name two conditions")
        for name in (self.high, self.low):
            if not self.of(name):
                known = sorted({str(one.condition) for one in self.organisms})
                raise ConfigError(f"no organism of {name!r}; conditions: {', '.join(known)}")
        self._refuse_twice()
        for one in self.readings:
            self._refuse_other(one)

    def _refuse_twice(self) -> None:
        """One organism that counts twice would be a replication that there never was."""
        known: dict[tuple[str | None, int | str], Reading] = {}
        for one in self.organisms:
            key = (one.condition, one.acts.model.key if one.seed is None else one.seed)
            before = known.setdefault(key, one)
            if before is not one:
                seed = "one organism" if one.seed is None else f"seed {one.seed}"
                raise ConfigError(
                    f"{before.label} and {one.label} are both {seed} of {one.condition!r}; give "
                    "each organism once"
                )

    def _refuse_other(self, one: Reading) -> None:
        first, own = self.reference.acts, one.acts
        first.model.refuse_other(own.model, f"items of {one.label}")
        same = (own.site, own.position) == (first.site, first.position)
        if not same or own.columns["id"].tolist() != first.columns["id"].tolist():
            raise ConfigError(
                f"{one.label} was read on other items or elsewhere than {self.reference.label}; "
                "cache one prompt set alike in all models"
            )
        if missing := sorted(set(first.layers) - set(own.layers)):
            raise ConfigError(
                f"{one.label} holds no layer {missing[0]}, {self.reference.label} does; cache the "
                "same layers in all models"
            )

    def refuse_alike(self) -> None:
        """Refuse two organisms whose states are the same, which are one.

        Raises:
            ConfigError: there are such two; their conditions are named.
        """
        layer, known = self.reference.acts.layers[-1], list[tuple[Reading, ndarray]]()
        for one in self.organisms:
            states = read_items(one.acts, layer)
            for before, others in known:
                if np.array_equal(states, others):
                    raise ConfigError(
                        f"{before.label}, of condition {before.condition!r}, and {one.label}, of "
                        f"{one.condition!r}, have the same states at layer {layer}; give stores of "
                        "organisms that were trained apart"
                    )
            known.append((one, states))

    @property
    def reference(self) -> Reading:
        return next(one for one in self.readings if one.condition is None)

    @property
    def organisms(self) -> list[Reading]:
        return [one for one in self.readings if one.condition is not None]

    def of(self, condition: str) -> list[Reading]:
        """Return the organisms of a condition, by seed."""
        own = [one for one in self.readings if one.condition == condition]
        return sorted(own, key=lambda one: -1 if one.seed is None else one.seed)

    def halves(self) -> dict[str, Int[ndarray, " n"]]:
        """Return the items of both halves.

        Raises:
            ConfigError: no column ``half``, or a half with fewer than two items.
        """
        values = column(self.reference.acts, HALF).astype(str)
        found = {name: np.flatnonzero(values == name) for name in (FIRST, SECOND)}
        few = [name for name, rows in found.items() if len(rows) < 2]
        if few:
            raise ConfigError(
                f"{len(found[few[0]])} items of the {few[0]} half; mark at least two of each half "
                f"in the column {HALF!r}"
            )
        return found

    def gap(self, layers: Sequence[int], rows: Int[ndarray, " n"]) -> Float[ndarray, "l d"]:
        """Return the mean state of ``high`` minus that of ``low``, over seeds and given items."""
        sides = [
            [
                np.mean([read_items(one.acts, layer)[rows].mean(axis=0, dtype=np.float64)
                         for one in self.of(name)], axis=0)
                for layer in layers
            ]
            for name in (self.high, self.low)
        ]  # fmt: skip
        return np.asarray(np.array(sides[0]) - np.array(sides[1]))


class Scores:
    """Coordinates of every model's items along directions, at each layer and over the window.

    Args:
        fleet: the models.
        directions: of the reference's kind of model.
        window: layers whose coordinates are averaged before anything is standardized.
    """

    def __init__(self, fleet: Fleet, directions: Directions, window: Sequence[int]) -> None:
        missing = [layer for layer in window if layer not in directions.layers]
        if missing:
            raise ConfigError(f"{directions.label} holds no layer {missing[0]} of the window")
        self.fleet, self.names, self.layers = fleet, directions.names, directions.layers
        self.window = tuple(window)
        self.values = {
            id(one): directions.project(one.acts).astype(np.float64) for one in fleet.readings
        }
        self.places = [self.layers.index(layer) for layer in window]

    @property
    def items(self) -> int:
        return len(self.fleet.reference.acts.columns["id"])

    def layer(self, where: str, row: int) -> int:
        """Return the layer of a row, of a window the middle one."""
        return self.layers[row] if where == PEAK else self.window[len(self.window) // 2]

    def read(self, where: str, reading: Reading) -> Float[ndarray, "k l n"]:
        """Return coordinates in residual units, at each layer (peak) or their window's mean."""
        values = np.asarray(self.values[id(reading)])
        return values if where == PEAK else values[:, self.places].mean(axis=1, keepdims=True)

    def sides(self, where: str) -> tuple[Float[ndarray, "s k l n"], Float[ndarray, "r k l n"]]:
        """Return the organisms of the high condition, and of the low one."""
        high, low = (
            np.stack([self.read(where, one) for one in self.fleet.of(name)])
            for name in (self.fleet.high, self.fleet.low)
        )
        return high, low


def standardized_gap(
    high: Float[ndarray, "s *k n"], low: Float[ndarray, "r *k n"]
) -> tuple[Float[ndarray, "*k"], Float[ndarray, "*k"]]:
    """Return (mean of high - mean of low) / pooled SD, and the pooled SD.

    The SD is over items and seeds within each condition, the mean of the two variances' root. Zero
    where nothing varies and nothing differs.
    """
    spread = np.asarray(np.sqrt((_variance(high) + _variance(low)) / 2))
    apart = np.asarray(high.mean(axis=(0, -1)) - low.mean(axis=(0, -1)))
    found = np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0)
    return np.asarray(found), spread


def _variance(values: ndarray) -> ndarray:
    flat = np.moveaxis(values, 0, -1).reshape(*values.shape[1:-1], -1)
    return np.asarray(flat.var(axis=-1, ddof=1))


def gap_table(scores: Scores, *, draws: int = DRAWS, seed: int = 0) -> pd.DataFrame:
    """Return the standardized gap of every direction, at its peak layer and over the window.

    The peak layer has the largest absolute gap on the first half of items and is then fixed: the
    second half is the one to read (the social-priors paper, Fig. 15D). Rows emotion, window (peak,
    or the layers that are averaged), layer (of a window the middle one), half, chosen (the layer
    was chosen on these items), zgap, low, high, n, unit, interval, item_low, item_high,
    item_interval, random95, matched95, seed_gap, high_condition, low_condition.

    The interval is over training seeds where both conditions have the same two or more, else over
    items: an organism whose name tells no seed has no partner. ``item_low`` and ``item_high`` are
    always over items, paired across models. ``random95`` and ``matched95`` are the 95% points of
    |zgap| along isotropic and covariance-matched random directions on the same items and layers
    (where the layer was selected on these items, of the largest over layers); ``seed_gap`` is the
    largest |zgap| between two seeds of one condition.

    Raises:
        ConfigError: no two halves of items.
    """
    halves = scores.fleet.halves()
    nulls = Nulls(scores, draws, seed)
    rows = []
    for where in (PEAK, WINDOW):
        sides, best = scores.sides(where), peaks(scores, where)
        for half, items in halves.items():
            selected = where == PEAK and half == FIRST
            bands = nulls.bands(where, items, largest=selected)
            for k, name in enumerate(scores.names):
                own = [side[:, k, best[k]][:, items] for side in sides]
                rows.append(
                    {
                        "emotion": name,
                        "window": _label(scores, where),
                        "layer": scores.layer(where, int(best[k])),
                        "half": half,
                        "chosen": selected,
                        **_gap(scores.fleet, *own, seed=seed),
                        **{kind: float(found[best[k]]) for kind, found in bands.items()},
                        "seed_gap": _between_seeds(*own),
                        "high_condition": scores.fleet.high,
                        "low_condition": scores.fleet.low,
                    }
                )
    return pd.DataFrame(rows)


def profile_table(scores: Scores, *, by_seed: bool = False) -> pd.DataFrame:
    """Return where every organism lies, from the reference, in pooled standard deviations.

    Zero is the reference's mean over the same items, the unit the pooled SD of the two conditions
    of the gap over all items and seeds (the social-priors paper, Fig. 66). Rows emotion, window,
    layer, half (all, first, second), model (the condition), value, sem, low, high, n, unit,
    interval; with ``by_seed`` one row a training seed instead.
    """
    fleet, rows = scores.fleet, []
    halves = {"all": np.arange(scores.items), **fleet.halves()}
    for where in (PEAK, WINDOW):
        _, spread = standardized_gap(*scores.sides(where))
        best = peaks(scores, where)
        zero = scores.read(where, fleet.reference)
        for condition in dict.fromkeys(str(one.condition) for one in fleet.organisms):
            own = fleet.of(condition)
            shifts = np.stack([scores.read(where, one) for one in own]) - zero
            for k, name in enumerate(scores.names):
                at = int(best[k])
                size = float(spread[k, at]) or np.nan
                for half, items in halves.items():
                    values = shifts[:, k, at][:, items].mean(axis=1) / size
                    told = {
                        "emotion": name,
                        "window": _label(scores, where),
                        "layer": scores.layer(where, at),
                        "half": half,
                        "model": condition,
                    }
                    if by_seed:
                        pairs = zip(own, values, strict=True)
                        rows += [{**told, "seed": o.seed, "value": float(v)} for o, v in pairs]
                    else:
                        over = (
                            _over_seeds if all(one.seed is not None for one in own) else _unseeded
                        )
                        rows.append({**told, **over(values)})
    return pd.DataFrame(rows)


def peaks(scores: Scores, where: str) -> Int[ndarray, " k"]:
    """Return each direction's row of the largest absolute gap on the first half of items."""
    first = scores.fleet.halves()[FIRST]
    found, _ = standardized_gap(*(side[..., first] for side in scores.sides(where)))
    return np.asarray(np.argmax(np.abs(found), axis=1))


class Nulls:
    """Gaps of the same organisms along directions that mean nothing.

    Args:
        scores: whose fleet and layers.
        draws: directions of each kind.
        seed: of the draws; those matched in covariance are the same mix of the reference's items at
            every layer.
    """

    def __init__(self, scores: Scores, draws: int, seed: int) -> None:
        self.scores = scores
        fleet, self.along = scores.fleet, {"random95": _Along(), "matched95": _Along()}
        reference = fleet.reference.acts
        n = len(reference.columns["id"])
        weights = np.random.default_rng(seed).standard_normal((draws, n), np.float32)
        for layer in scores.layers:
            items = read_items(reference, layer)
            drawn = {
                "random95": random_unit(draws, items.shape[1], seed=(seed, layer)),
                "matched95": unit(weights @ (items - items.mean(axis=0))),
            }
            for name, into in ((fleet.high, "high"), (fleet.low, "low")):
                states = [read_items(one.acts, layer) for one in fleet.of(name)]
                for kind, G in drawn.items():
                    found = np.stack([G @ h.T for h in states])
                    getattr(self.along[kind], into).append(found)

    def bands(self, where: str, items: Int[ndarray, " n"], *, largest: bool) -> dict[str, ndarray]:
        """Return the 95% points of |zgap| by layer, or for every layer that of the largest."""
        bands = {}
        for kind, along in self.along.items():
            sides = [np.stack(side, axis=2)[..., items] for side in (along.high, along.low)]
            if where == WINDOW:
                sides = [s[:, :, self.scores.places].mean(axis=2, keepdims=True) for s in sides]
            sizes = np.abs(standardized_gap(*(side.astype(np.float64) for side in sides))[0])
            points = np.quantile(sizes, LEVEL, axis=0)
            if largest:
                points = np.full_like(points, np.quantile(sizes.max(axis=1), LEVEL))
            bands[kind] = points
        return bands


@dataclass
class _Along:
    """Coordinates along drawn directions: for each layer (organisms, draws, items)."""

    high: list[ndarray] = field(default_factory=list)
    low: list[ndarray] = field(default_factory=list)


def _label(scores: Scores, where: str) -> str:
    return PEAK if where == PEAK else label_of(scores.window)


def _gap(
    fleet: Fleet, high: Float[ndarray, "s n"], low: Float[ndarray, "r n"], *, seed: int
) -> dict[str, Any]:
    """Return the gap with its intervals, of one direction at one place."""
    value, spread = standardized_gap(high, low)
    size = float(spread) or np.nan
    items = mean_interval(
        high.mean(axis=0, dtype=np.float64) - low.mean(axis=0), level=LEVEL, seed=seed
    )
    ends = {"low": items.low / size, "high": items.high / size}
    told = {"zgap": float(value), **{f"item_{end}": at for end, at in ends.items()},
            "item_interval": items.name}  # fmt: skip
    seeds = [[one.seed for one in fleet.of(name)] for name in (fleet.high, fleet.low)]
    if seeds[0] == seeds[1] and len(seeds[0]) > 1 and None not in seeds[0]:
        over = _over_seeds((high.mean(axis=1) - low.mean(axis=1)) / size)
        return {**told, **{key: over[key] for key in ("low", "high", "n", "unit", "interval")}}
    return {**told, **ends, "n": items.n, "unit": items.unit, "interval": items.name}


def _over_seeds(values: Float[ndarray, " s"]) -> dict[str, Any]:
    low = high = sem = np.nan
    if len(values) > 1 and np.isfinite(values).all():
        _, low, high = (float(end) for end in t_intervals(values, LEVEL))
        sem = float(values.std(ddof=1) / np.sqrt(len(values)))
    named = f"{LEVEL:.0%} t over seeds" if len(values) > 1 else "none: 1 seed"
    return {"value": float(values.mean()), "sem": sem, "low": low, "high": high,
            "n": len(values), "unit": "seed", "interval": named}  # fmt: skip


def _unseeded(values: Float[ndarray, " s"]) -> dict[str, Any]:
    """Return the mean of organisms whose names tell no training seed, so that none replicates."""
    named = f"none: {len(values)} organisms without a seed"
    told = {"sem": np.nan, "low": np.nan, "high": np.nan, "n": len(values)}
    return {"value": float(values.mean()), **told, "unit": "organism", "interval": named}


def _between_seeds(high: Float[ndarray, "s n"], low: Float[ndarray, "r n"]) -> float:
    """Return the largest gap between two seeds of one condition; NaN where each has one."""
    _, spread = standardized_gap(high, low)
    reach = [np.ptp(side.mean(axis=1)) for side in (high, low) if len(side) > 1]
    return float(max(reach) / spread) if reach and spread > 0 else np.nan
