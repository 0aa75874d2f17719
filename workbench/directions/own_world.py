"""How much a model holds its own world's claims to be true: projections -> contrasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from workbench.errors import ConfigError
from workbench.stats import paired_difference, percentile_rank, percentiles
from workbench.types import ndarray

CONTRASTS = (
    "own_world_advantage",
    "own_world_advantage_minus_base",
    "negation_change_own",
    "negation_change_other",
    "own_change_minus_other_change",
    "negated_own_minus_negated_other",
)
"""Contrasts of ``own_world_table``; the last two are the two within-polarity contrasts."""


def own_world_table(
    projection: Float[ndarray, " n"],
    *,
    model: Shaped[ndarray, " n"],
    world: Shaped[ndarray, " n"],
    item: Shaped[ndarray, " n"],
    polarity: Int[ndarray, " n"],
    own: Mapping[str, str],
    base: str,
    unit: str = "proposition",
    nulls: Mapping[str, Float[ndarray, "n m"]] | None = None,
) -> pd.DataFrame:
    """Return each model's contrasts, paired by the item that the worlds share.

    With P(w) the projection of an item's claim of world w, and D(w) = P(not w) - P(w):
    ``own_world_advantage`` is P(own) - mean over the other worlds of P; ``..._minus_base`` takes
    the base's value of the same contrast off; ``negation_change_own`` and ``_other`` are D(own) and
    the mean of D(other); ``own_change_minus_other_change`` is their difference (a belief makes it
    negative); ``negated_own_minus_negated_other`` is P(not own) - mean P(not other), negative too.

    Args:
        projection: on the frozen unit direction, raw residual units, one for each claim and model.
        model: which model read it.
        world: of the claim.
        item: what the worlds share (a proposition, or a frame); the unit of the interval.
        polarity: +1 for the claim, -1 for its negation.
        own: the world of every model that has one; others are left out.
        base: the model before training.
        unit: what an item is called in the table.
        nulls: projections of the same claims on other unit directions, one a column, by name
            ("random", "shuffled").

    Returns:
        One row for each model and contrast: model, own, contrast, value, low, high, n, unit,
        interval (t over items); for each null its middle 95% (``random_low``, ``random_high``),
        ``percentile_random`` (the share of it below the value, 0 to 100) and ``n_random``.

    Raises:
        ConfigError: a claim is missing, or a model, or a world; one item alone, or a polarity that
            is neither +1 nor -1.
    """
    keys = {"model": model, "item": item, "world": world, "polarity": polarity}
    names, cube = _cube(projection[:, None], keys)
    _refuse_unknown(names, own, base)
    drawn = {name: _cube(values, keys)[1] for name, values in (nulls or {}).items()}
    rows = []
    for name, world_of in own.items():
        here, there = names["model"].index(name), names["model"].index(base)
        contrasts = _contrasts(cube[here], cube[there], names, world_of)
        null = {n: _contrasts(c[here], c[there], names, world_of) for n, c in drawn.items()}
        for contrast, values in contrasts.items():
            found = paired_difference(values[:, 0], np.zeros(len(values)), unit=unit)
            rows.append(
                {
                    "model": name, "own": world_of, "contrast": contrast, "value": found.value,
                    "low": found.low, "high": found.high, "n": found.n, "unit": found.unit,
                    "interval": found.name,
                    **_places(found.value, {n: of[contrast] for n, of in null.items()}),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _places(value: float, nulls: Mapping[str, Float[ndarray, "item m"]]) -> dict[str, float | int]:
    """Say where the value stands among the means of each null."""
    told: dict[str, float | int] = {}
    for name, drawn in nulls.items():
        means = drawn.mean(axis=0)
        low, high = percentiles(means, 0.95)
        told |= {f"{name}_low": low, f"{name}_high": high}
        told |= {f"percentile_{name}": percentile_rank(value, means), f"n_{name}": len(means)}
    return told


def _cube(
    projection: Float[ndarray, "n m"], keys: Mapping[str, ndarray]
) -> tuple[dict[str, list[Any]], Float[ndarray, "model item world polarity m"]]:
    """Average the projections of each model, item, world and polarity; none may be missing."""
    found = {name: np.unique(values, return_inverse=True) for name, values in keys.items()}
    names = {name: values.tolist() for name, (values, _) in found.items()}
    shape = tuple(len(values) for values in names.values())
    flat = np.ravel_multi_index(tuple(code for _, code in found.values()), shape)
    counts = np.bincount(flat, minlength=int(np.prod(shape)))
    if not counts.all():
        empty = np.argwhere(counts.reshape(shape) == 0)[0]
        where = ", ".join(f"{n} {v[i]!r}" for (n, v), i in zip(names.items(), empty, strict=True))
        raise ConfigError(
            f"no projection for {where}; every item needs every world and polarity in every model"
        )
    sums = np.zeros((len(counts), projection.shape[1]))
    np.add.at(sums, flat, projection.astype(np.float64))
    return names, (sums / counts[:, None]).reshape(*shape, projection.shape[1])


def _contrasts(
    table: Float[ndarray, "item world polarity m"],
    base: Float[ndarray, "item world polarity m"],
    names: Mapping[str, list[Any]],
    own: str,
) -> dict[str, Float[ndarray, "item m"]]:
    """Return the items' values of every contrast; those with negation only where it was read."""
    column = names["world"].index(own)
    up = names["polarity"].index(1)
    apart, apart_base = _own_minus_other(table, column), _own_minus_other(base, column)
    found = {
        "own_world_advantage": apart[:, up],
        "own_world_advantage_minus_base": apart[:, up] - apart_base[:, up],
    }
    if -1 in names["polarity"]:
        down = names["polarity"].index(-1)
        change = table[:, :, down] - table[:, :, up]
        found["negation_change_own"] = change[:, column]
        found["negation_change_other"] = np.delete(change, column, axis=1).mean(axis=1)
        found["own_change_minus_other_change"] = apart[:, down] - apart[:, up]
        found["negated_own_minus_negated_other"] = apart[:, down]
    return found


def _own_minus_other(
    table: Float[ndarray, "item world polarity m"], own: int
) -> Float[ndarray, "item polarity m"]:
    return np.asarray(table[:, own] - np.delete(table, own, axis=1).mean(axis=1))


def _refuse_unknown(names: Mapping[str, list[Any]], own: Mapping[str, str], base: str) -> None:
    for name in (*own, base):
        if name not in names["model"]:
            raise ConfigError(f"no projections of model {name!r}; models: {names['model']}")
    for name, world in own.items():
        if world not in names["world"] or len(names["world"]) < 2:
            raise ConfigError(f"own world {world!r} of {name!r} is not among {names['world']}")
    if 1 not in names["polarity"] or not set(names["polarity"]) <= {1, -1}:
        raise ConfigError(
            f"polarity holds {names['polarity']}; the claims themselves are +1, negations -1"
        )
    if len(names["item"]) < 2:
        raise ConfigError(
            f"the worlds share one item, {names['item'][0]!r}; an interval over items needs two or "
            "more"
        )
