"""Truth by its recipe: the directions, and a table of what they read where they were not fitted."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from workbench.directions.cells import cells
from workbench.directions.container import Directions
from workbench.directions.evidence import (
    ALL_TOPICS,
    UNSEEN,
    Cell,
    Items,
    Settings,
    check_fits,
    check_frozen,
    choice_items,
    held_out_aucs,
    lay_fold,
    make_folds,
    shuffled_labels,
)
from workbench.directions.fit import (
    Columns,
    column,
    fit_layers,
    layers_of,
    read_columns,
    read_layer,
    refuse_missing,
)
from workbench.directions.recipe import FitPart, Recipe, read_recipe
from workbench.errors import ConfigError, MismatchError
from workbench.registry import METHODS
from workbench.stats import percentiles
from workbench.types import ActivationsLike, Progress, ndarray

logger = logging.getLogger(__name__)

EVIDENCE = (
    "model", "method", "direction", "split", "topic", "rendering", "layer", "polarity", "n",
    "n_facts", "auc", "low", "high", "interval", "null_shuffled", "null_random", "beats_nulls",
    "accuracy", "auc_classifier", "chosen", "usable", "gate", "seed",
)  # fmt: skip
"""Columns of the evidence table; ``polarity`` is +1, -1, or 0 for the mean of the two."""
LEVEL = 0.95
NULL_POINT = 0.975


def fit_truth(
    acts: ActivationsLike,
    recipe: Recipe | str = "truth",
    *,
    checks: Mapping[str, ActivationsLike] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Directions, pd.DataFrame]:
    """Fit on all items, choose the layer by the recipe's rule, and check on what was held out.

    Args:
        acts: activations of the recipe's prompts, with its columns.
        recipe: a recipe, its name, or a TOML file.
        checks: further activations, by name, that the frozen directions are scored on; they take
            no part in the fit or in the choice of the layer.
        seed: of the splits, the bootstrap and the nulls.
        progress: called with (layers done, layers in all).

    Returns:
        The directions at every candidate layer (``info["layer"]`` is the chosen one), and one row
        for each split, topic, layer and polarity with the columns ``EVIDENCE``.

    Raises:
        ConfigError: too few topics and facts to choose a layer, a missing column, labels of one
            class.
        MismatchError: the activations are of another site or position than the recipe's.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    _refuse_other_read(acts, recipe)
    layers = layers_of(
        acts, None if recipe.layers.candidates == "all" else recipe.layers.candidates
    )
    items, settings = read_items(acts, recipe.fit), _settings(recipe, seed)
    choice = items if len(layers) == 1 else choice_items(items, seed)
    found, held_out = _check_layers(acts, recipe, items, choice, layers, settings, progress)
    chosen = dict.fromkeys((*items.topics, ALL_TOPICS), layers[0])
    if len(layers) > 1:
        by_group = choose_layers(held_out, choice.topics, layers, recipe.layers.rule)
        same = choice is items
        chosen = {name: by_group[name if same else ALL_TOPICS] for name in chosen}
    directions = _fit_all(acts, recipe, items.columns, layers)
    held_out_by = "topic" if choice is items else items.unit
    told = {"layer_chosen_on": f"held-out {held_out_by}s" if len(layers) > 1 else "fixed"}
    directions = _described(directions, recipe, chosen, found, seed, told)
    table = _table(found, chosen, recipe, directions, settings, acts.model.key, items.unit)
    tables = [table] + [
        evaluate(directions, other, recipe, name=name, seed=seed)
        for name, other in (checks or {}).items()
    ]
    return directions, pd.concat(tables, ignore_index=True)


def evaluate(
    directions: Directions,
    acts: ActivationsLike,
    recipe: Recipe | str = "truth",
    *,
    name: str = "other",
    seed: int = 0,
) -> pd.DataFrame:
    """Score frozen directions on other items or on another model of the same kind, as they are.

    Nothing is fitted or centered here. The shuffled null is of these scores under labels shuffled
    by fact; without a column of topics all items are one topic, without one of facts each row is
    its own fact.

    Args:
        directions: one name; its layers are scored wherever ``acts`` holds them all.
        acts: activations with the recipe's label and polarity columns.
        recipe: names the columns, the gate and the rendering.
        name: of the set, kept in ``split`` as "check:NAME".
        seed: of the bootstrap and the nulls.

    Raises:
        MismatchError: activations of another model, site, or without a layer.
        ConfigError: no such column, or a topic and polarity with labels of one class.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    directions.refuse_other(acts)
    if len(directions) != 1:
        raise ValueError(f"one direction is scored at a time; pick one of {directions.names}")
    items, settings = read_items(acts, recipe.fit), _settings(recipe, seed)
    labelings = shuffled_labels(items, settings.draws if settings.shuffled else 0, seed)
    nothing = np.zeros(len(items.facts), bool)
    folds = [
        lay_fold(items, f"check:{name}", topic, nothing, items.rows_of(topic), settings)
        for topic in items.topics
    ]
    centers = np.zeros_like(directions.vectors) if directions.center is None else directions.center
    found = {
        layer: check_frozen(
            read_layer(acts, layer), layer, directions.vectors[0, row], centers[0, row],
            folds, labelings, settings,
        )
        for row, layer in enumerate(directions.layers)
    }  # fmt: skip
    chosen = dict.fromkeys((*items.topics, ALL_TOPICS), directions.info.get("layer"))
    return _table(found, chosen, recipe, directions, settings, acts.model.key, items.unit)


def choose_layers(
    held_out: Mapping[int, Float[ndarray, "k k s"]],
    topics: Sequence[str],
    layers: Sequence[int],
    rule: str,
) -> dict[str, int]:
    """Choose a layer from all topics (ALL_TOPICS), and one for each topic without that topic.

    ``held_out[layer][a, b]`` are the two polarities' AUCs on topic b of a fit without a and b. For
    all topics they are averaged over the diagonal (fits without b alone), for topic a over b != a.
    A layer is worth the lower of the two means (rule lowest_polarity) or their mean (balanced).
    """
    combine = np.nanmin if rule == "lowest_polarity" else np.nanmean
    every = np.arange(len(topics))
    pairs = {
        topic: (np.full(len(topics) - 1, a), every[every != a]) for a, topic in enumerate(topics)
    }
    chosen = {}
    read = ~np.isnan(np.stack([held_out[layer] for layer in layers])).all(axis=(0, 1, 2))
    for name, (a, b) in {**pairs, ALL_TOPICS: (every, every)}.items():
        worth = [combine(np.nanmean(held_out[layer][a, b][:, read], axis=0)) for layer in layers]
        chosen[name] = int(layers[int(np.argmax(worth))])
    return chosen


def read_items(acts: ActivationsLike, fit: FitPart) -> Items:
    """Look up and check the recipe's columns.

    Topics, polarity and facts may be absent unless the recipe names their columns itself: all items
    are then one topic, affirmed, or each its own fact.
    """
    parts = {"groups": fit.groups, "polarity": fit.polarity, "facts": fit.facts}
    named = fit.model_fields_set
    given = {part: name for part, name in parts.items() if part in named or name in acts.columns}
    columns = read_columns(
        acts, y=fit.y, groups=given.get("groups"), polarity=given.get("polarity")
    )
    if columns.groups is not None and ALL_TOPICS in columns.groups:
        raise ConfigError(f"a topic may not be called {ALL_TOPICS!r}, the word for their mean")
    n = len(columns.y)
    facts = column(acts, given["facts"]) if "facts" in given else np.arange(n)
    unit = "fact" if "facts" in given else "item"
    return Items(columns, cells(columns.groups, facts, n), unit)


def _check_layers(
    acts: ActivationsLike,
    recipe: Recipe,
    items: Items,
    choice: Items,
    layers: Sequence[int],
    settings: Settings,
    progress: Progress | None,
) -> tuple[dict[int, list[Cell]], dict[int, ndarray]]:
    start = time.perf_counter()
    estimator = METHODS.create(recipe.fit.method, **recipe.fit.params)
    refuse_missing(estimator, items.columns, recipe.fit.method)
    folds = make_folds(items, recipe.check.split, settings)
    labelings = shuffled_labels(items, settings.draws if settings.shuffled else 0, settings.seed)
    found, held_out = {}, {}
    with threadpool_limits(1, "blas"):  # many small products: two threads only wait for each other
        for done, layer in enumerate(layers, 1):
            X = read_layer(acts, layer)
            found[layer] = check_fits(X, layer, estimator, items, folds, labelings, settings)
            if len(layers) > 1:
                held_out[layer] = held_out_aucs(X, estimator, choice)
            if progress is not None:
                progress(done, len(layers))
    logger.info(
        "%s: %d layers x %d folds checked on %d items in %.1f s",
        recipe.fit.name, len(layers), len(folds), len(items.facts), time.perf_counter() - start,
    )  # fmt: skip
    return found, held_out


def _fit_all(
    acts: ActivationsLike, recipe: Recipe, columns: Columns, layers: Sequence[int]
) -> Directions:
    fit = recipe.fit
    return fit_layers(
        acts,
        method=fit.method,
        y=fit.y,
        groups=None if columns.groups is None else fit.groups,
        polarity=None if columns.polarity is None else fit.polarity,
        layers=layers,
        names=[fit.name],
        **fit.params,
    )


def _described(
    directions: Directions,
    recipe: Recipe,
    chosen: Mapping[str, int],
    found: Mapping[int, Sequence[Cell]],
    seed: int,
    more: Mapping[str, Any],
) -> Directions:
    """Add the chosen layer and the held-out AUC there to what the directions say of themselves."""
    unseen = {
        str(cell.polarity): round(cell.auc, 4)
        for cell in found[chosen[ALL_TOPICS]]
        if (cell.split, cell.topic) == (UNSEEN, ALL_TOPICS)
    }
    told = {
        "layer": chosen[ALL_TOPICS],
        "layer_rule": recipe.layers.rule,
        "layer_without_topic": {k: v for k, v in chosen.items() if k != ALL_TOPICS},
        "auc_unseen_topic": unseen,
        "rendering": recipe.prompts.render,
        "seed": seed,
        **more,
    }
    return replace(directions, info={**directions.info, **told})


def _table(
    found: Mapping[int, Sequence[Cell]],
    chosen: Mapping[str, int | None],
    recipe: Recipe,
    directions: Directions,
    settings: Settings,
    model: str,
    unit: str,
) -> pd.DataFrame:
    """Turn cells into rows; a null is one number for a topic and polarity, over all layers."""
    nulls = _null_points(found)
    lowest = _lowest_sides(found)
    told = {
        "model": model,
        "method": recipe.fit.method,
        "direction": directions.names[0],
        "rendering": recipe.prompts.render,
        "interval": f"{LEVEL:.0%} bootstrap over {unit}s",
        "gate": recipe.check.gate,
        "seed": settings.seed,
    }
    rows = [
        {
            **told,
            **_row(cell, nulls[_key(cell)]),
            "layer": layer,
            "chosen": layer == chosen[cell.topic],
            "usable": lowest[(layer, cell.split, cell.topic)] >= recipe.check.gate,
        }
        for layer, cells in found.items()
        for cell in cells
    ]
    return pd.DataFrame(rows)[list(EVIDENCE)]


def _row(cell: Cell, null: Mapping[str, float]) -> dict[str, Any]:
    low, high = percentiles(cell.boot, LEVEL)
    drawn = [value for value in null.values() if not np.isnan(value)]
    return {
        "split": cell.split,
        "topic": cell.topic,
        "polarity": cell.polarity,
        "n": cell.n,
        "n_facts": cell.n_facts,
        "auc": cell.auc,
        "low": low,
        "high": high,
        "null_shuffled": null["shuffled"],
        "null_random": null["random"],
        "beats_nulls": bool(drawn) and cell.auc > max(drawn),
        "accuracy": cell.accuracy,
        "auc_classifier": cell.auc_classifier,
    }


def _key(cell: Cell) -> tuple[str, str, int]:
    return cell.split, cell.topic, cell.polarity


def _null_points(
    found: Mapping[int, Sequence[Cell]],
) -> dict[tuple[str, str, int], dict[str, float]]:
    """Return the 97.5% point of each null's maximum over layers; NaN where it was not drawn."""
    points: dict[tuple[str, str, int], dict[str, float]] = {}
    for cell in next(iter(found.values())):
        key = _key(cell)
        own = [c for cells in found.values() for c in cells if _key(c) == key]
        points[key] = {}
        for name in ("shuffled", "random"):
            draws = np.stack([getattr(c, name) for c in own]).max(axis=0)
            points[key][name] = float(np.quantile(draws, NULL_POINT)) if len(draws) else np.nan
    return points


def _lowest_sides(found: Mapping[int, Sequence[Cell]]) -> dict[tuple[int, str, str], float]:
    """Return the lower AUC of the polarities present, for the gate."""
    lowest: dict[tuple[int, str, str], float] = {}
    for layer, scored in found.items():
        for cell in scored:
            if cell.polarity:
                key = (layer, cell.split, cell.topic)
                lowest[key] = min(cell.auc, lowest.get(key, np.inf))
    return lowest


def _settings(recipe: Recipe, seed: int) -> Settings:
    check = recipe.check
    return Settings(
        check.draws, check.bootstrap, "shuffled" in check.controls, "random" in check.controls, seed
    )


def _refuse_other_read(acts: ActivationsLike, recipe: Recipe) -> None:
    for name in ("site", "position"):
        found, wanted = getattr(acts, name), getattr(recipe.read, name)
        if found != wanted:
            raise MismatchError(
                f"the recipe reads {name} {wanted!r}, these activations are of {found!r}; capture "
                "them again or change [read] in the recipe"
            )
