"""From activations with columns to a ``LinearMap``: one fit a layer, one layer read at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from workbench.directions.container import Directions
from workbench.directions.fit import (
    Columns,
    create,
    fit_one,
    layers_of,
    mean_norms,
    read_columns,
    read_layer,
    refuse_missing,
    stacked,
)
from workbench.directions.linear_map import LinearMap
from workbench.directions.map_check import explained
from workbench.errors import ConfigError
from workbench.types import ActivationsLike, ndarray

logger = logging.getLogger(__name__)


def fit_map(
    acts: ActivationsLike,
    *,
    method: str = "reduced_rank",
    y: str = "label",
    groups: str | None = None,
    polarity: str | None = None,
    pairs: str | None = None,
    layers: Sequence[int] | None = None,
    name: str | None = None,
    target: Directions | None = None,
    folds: int = 0,
    seed: int = 0,
    **params: Any,
) -> LinearMap:
    """Fit one map at every layer; positive doses move items of label 0 towards label 1.

    A whole matrix takes 4 d^2 bytes a layer (105 MB at width 5,120): name few layers there, or a
    method of low rank.

    Args:
        acts: activations whose columns hold the labels.
        method: a registered method that gives a map.
        y: column of 0/1 labels.
        groups: column of topics, roles or the like.
        polarity: column of +1 (affirmed) and -1 (negated).
        pairs: column that names matched items, one of each label, at the same position.
        layers: block indices; by default all of ``acts``.
        name: of the map, by default that of the label column.
        target: one direction, whose vector at each layer is the ``target`` of a method that has
            one, such as ``null_space``.
        folds: fit also without each of so many parts of the pairs (of the groups, where they are
            given) and keep in ``info["explained"]`` how much of the left-out differences' variance
            the map foresees; 0 leaves that out.
        seed: of the draw of parts.
        params: of the method.

    Raises:
        UnknownNameError: no such method.
        ConfigError: a method that gives directions, no such column or layer, labels of one class, a
            column the method needs, items that no pair matches, or a fit that cannot be made.
        MismatchError: a target of another model or site.
        FormatError: activations that are not finite.
    """
    estimator = create(method, params, gives="map")
    columns = read_columns(acts, y=y, groups=groups, polarity=polarity, pairs=pairs)
    refuse_missing(estimator, columns, method)
    chosen = layers_of(acts, layers)
    targets = _targets(estimator, acts, method, target, chosen)
    arrays: dict[str, Any] = {}
    check = {"folds": folds, "seed": seed}
    infos = []
    for row, layer in enumerate(chosen):
        start = time.perf_counter()
        own = clone(estimator).set_params(**targets.get(layer, {}))
        fitted = fit_one(own, acts, layer, columns, method)
        for part, value in _arrays(fitted).items():
            arrays.setdefault(part, np.empty((len(chosen), *value.shape), np.float32))[row] = value
        infos.append(
            {**getattr(fitted, "info_", {}), **_held_out(own, acts, layer, columns, check)}
        )
        logger.info("%s: layer %d in %.1f s", method, layer, time.perf_counter() - start)
    return LinearMap(
        name=name or y,
        layers=chosen,
        model=acts.model,
        norms=mean_norms(acts, chosen),
        site=acts.site,
        position=acts.position,
        info={
            "method": method,
            "params": params,
            "columns": {"y": y, "groups": groups, "polarity": polarity, "pairs": pairs},
            "n": len(columns.y),
            "n_true": int(columns.y.sum()),
            **({} if target is None else {"target": target.label}),
            **(check if folds else {}),
            **stacked(infos),
        },
        **arrays,
    )


def _held_out(
    estimator: Any, acts: ActivationsLike, layer: int, columns: Columns, check: dict[str, int]
) -> dict[str, float]:
    if not check["folds"]:
        return {}
    try:
        return {"explained": explained(estimator, read_layer(acts, layer), columns, **check)}
    except ValueError as error:
        raise ConfigError(f"left-out parts at layer {layer}: {error}") from error


def _arrays(fitted: Any) -> dict[str, ndarray]:
    whole = getattr(fitted, "left_", None) is None
    parts = ("W", "b", "axis") if whole else ("left", "right", "b", "axis")
    return {name: getattr(fitted, f"{name}_") for name in parts}


def _targets(
    estimator: Any,
    acts: ActivationsLike,
    method: str,
    target: Directions | None,
    layers: Sequence[int],
) -> dict[int, dict[str, Any]]:
    """Return the parameters that differ by layer."""
    if target is None:
        return {}
    if "target" not in estimator.get_params():
        raise ConfigError(f"method {method!r} has no target; leave it out")
    if len(target) != 1:
        raise ConfigError(f"{target.label}: a target is one direction; pick directions[name]")
    kept = target.select(layers)
    kept.refuse_other(acts)
    return {layer: {"target": kept.at(layer)[0]} for layer in layers}
