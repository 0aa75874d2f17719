"""Truth by its recipe: the directions, and a table of what they read where they were not fitted."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from workbench.data import item_sets
from workbench.directions.cells import cells
from workbench.directions.container import Directions
from workbench.directions.evidence import (
    ALL_TOPICS,
    TRANSFER,
    UNSEEN,
    Cell,
    Fold,
    Items,
    Settings,
    check_fits,
    check_frozen,
    lay_fold,
    make_folds,
    shuffled_labels,
)
from workbench.directions.evidence_table import EVIDENCE, LEVEL, evidence_table
from workbench.directions.fit import (
    Columns,
    column,
    fit_layers,
    layers_of,
    read_columns,
    read_layer,
    refuse_missing,
)
from workbench.directions.layer_choice import choice_items, choose_layers, held_out_aucs
from workbench.directions.leakage import polarity_leakage
from workbench.directions.recipe import FitPart, Recipe, read_recipe
from workbench.directions.views import aligned, keep
from workbench.errors import ConfigError, MismatchError, unknown
from workbench.prompts import read_prompts
from workbench.registry import METHODS
from workbench.types import ActivationsLike, Progress, ndarray

logger = logging.getLogger(__name__)

__all__ = ["EVIDENCE", "evaluate", "fit_truth", "fitted_items", "read_items"]


@dataclass(frozen=True)
class Checked:
    """What a fit is checked on: the items to fit on by rendering, its own first."""

    acts: Mapping[str, ActivationsLike]
    items: Items
    folds: Sequence[Fold]
    layers: tuple[int, ...]
    settings: Settings


def fit_truth(
    acts: ActivationsLike,
    recipe: Recipe | str = "truth",
    *,
    renderings: Mapping[str, ActivationsLike] | None = None,
    checks: Mapping[str, ActivationsLike] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Directions, pd.DataFrame]:
    """Fit on all items but the held-out facts, choose the layer by rule, check what was left out.

    Args:
        acts: activations of the recipe's prompts, with its columns.
        recipe: a recipe, its name, or a TOML file.
        renderings: the same items, by id, rendered otherwise, such as ``{"chat": ...}``: what was
            fitted on ``acts`` is checked on these too; they take no part in fit or choice.
        checks: further activations, by name, that the frozen directions are scored on; they take
            no part in the fit or in the choice of the layer.
        seed: of the splits, the bootstrap and the nulls.
        progress: called with (steps done, steps in all), two steps a layer.

    Returns:
        The directions at every candidate layer (``info["layer"]`` is the chosen one), and one row
        for each split, topic, rendering, layer and polarity with the columns ``EVIDENCE``.

    Raises:
        ConfigError: too few topics and facts to choose a layer, a missing column, labels of one
            class.
        MismatchError: the activations are of another site or position than the recipe's.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    _refuse_other_read(acts, recipe)
    n, acts = len(column(acts, recipe.fit.y)), fitted_items(acts, recipe)
    layers = layers_of(
        acts, None if recipe.layers.candidates == "all" else recipe.layers.candidates
    )
    items, settings = read_items(acts, recipe.fit), _settings(recipe, seed)
    named = {name: aligned(acts, other, name) for name, other in (renderings or {}).items()}
    folds = make_folds(items, recipe.check.split, settings)
    checked = Checked({recipe.prompts.render: acts, **named}, items, folds, layers, settings)
    chosen, told = _choose(checked, recipe, progress)
    found = _check_layers(checked, recipe, chosen, progress)
    directions = _fit_all(acts, recipe, items.columns, layers)
    told = {**told, "n_held_out": n - len(items.facts)}
    directions = _described(directions, recipe, chosen, found, seed, told)
    leakage = polarity_leakage(acts, directions, items)
    directions = replace(directions, info={**directions.info, **_by_layer(leakage, layers)})
    about = _about(directions, recipe, settings, acts.model.key, items.unit)
    tables = [evidence_table(found, chosen, leakage, about)] + [
        evaluate(directions, other, recipe, name=name, seed=seed)
        for name, other in (checks or {}).items()
    ]
    return directions, pd.concat(tables, ignore_index=True)


def shuffled_truth(
    acts: ActivationsLike, recipe: Recipe | str = "truth", *, seed: int = 0
) -> Directions:
    """Fit a recipe to shuffled labels on the items that `fit_truth` fits: its null direction.

    Raises:
        ConfigError: a missing column, labels of one class.
        MismatchError: the activations are of another site or position than the recipe's.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    _refuse_other_read(acts, recipe)
    acts = fitted_items(acts, recipe)
    return _fit_all(acts, recipe, read_items(acts, recipe.fit).columns, acts.layers, seed)


def evaluate(
    directions: Directions,
    acts: ActivationsLike,
    recipe: Recipe | str = "truth",
    *,
    name: str = "other",
    rendering: str | None = None,
    together: bool = False,
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
        rendering: of these items, by default the recipe's.
        together: take all topics as one, called "all".
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
    if together:
        items = replace(items, columns=replace(items.columns, groups=None))
    rendering = rendering or recipe.prompts.render
    labelings = shuffled_labels(items, settings.draws if settings.shuffled else 0, seed)
    nothing = np.zeros(len(items.facts), bool)
    folds = [
        lay_fold(items, f"check:{name}", topic, nothing, items.rows_of(topic), settings, "all")
        for topic in items.topics
    ]
    centers = np.zeros_like(directions.vectors) if directions.center is None else directions.center
    found = {
        layer: check_frozen(
            read_layer(acts, layer), layer, directions.vectors[0, row], centers[0, row],
            folds, labelings, settings, rendering,
        )
        for row, layer in enumerate(directions.layers)
    }  # fmt: skip
    chosen = dict.fromkeys((*items.topics, ALL_TOPICS), directions.info.get("layer"))
    about = _about(directions, recipe, settings, acts.model.key, items.unit)
    leakage = directions.info.get("polarity_leakage", np.full(len(directions.layers), np.nan))
    by_layer = dict(zip(directions.layers, map(float, leakage), strict=True))
    return evidence_table(found, chosen, by_layer, about)


def fitted_items(acts: ActivationsLike, recipe: Recipe) -> ActivationsLike:
    """Return the items that are not of a held-out fact; all of them where no facts are known.

    Raises:
        UnknownNameError: the recipe names no item set.
    """
    name = recipe.check.held_out
    if name is None or recipe.fit.facts not in acts.columns:
        return acts
    if name not in item_sets():
        raise unknown("held-out item set", name, item_sets())
    facts = read_prompts(item_sets()[name]).column("fact")
    return keep(acts, ~np.isin(column(acts, recipe.fit.facts), facts))


def read_items(acts: ActivationsLike, fit: FitPart) -> Items:
    """Look up and check the recipe's columns.

    Topics, polarity and facts may be absent unless the recipe names their columns itself: all items
    are then one topic, affirmed, or each its own fact.
    """
    names = ("groups", "polarity", "facts", "pairs")
    parts = {name: str(getattr(fit, name)) for name in names}
    named = fit.model_fields_set
    given = {part: name for part, name in parts.items() if part in named or name in acts.columns}
    named_columns = {part: given.get(part) for part in ("groups", "polarity", "pairs")}
    columns = read_columns(acts, y=fit.y, **named_columns)
    if columns.groups is not None and ALL_TOPICS in columns.groups:
        raise ConfigError(f"a topic may not be called {ALL_TOPICS!r}, the word for their mean")
    n = len(columns.y)
    facts = column(acts, given["facts"]) if "facts" in given else np.arange(n)
    unit = given.get("facts", "item")
    return Items(columns, cells(columns.groups, facts, n), unit)


def _choose(
    checked: Checked, recipe: Recipe, progress: Progress | None
) -> tuple[dict[str, int], dict[str, Any]]:
    """Choose the layer for every topic without it, and one from all; say on what."""
    items, layers = checked.items, checked.layers
    names = (*items.topics, ALL_TOPICS)
    estimator = METHODS.create(recipe.fit.method, **recipe.fit.params)
    refuse_missing(estimator, items.columns, recipe.fit.method)
    if len(layers) == 1:
        return dict.fromkeys(names, layers[0]), {"layer_chosen_on": "fixed"}
    choice = choice_items(items, checked.settings.seed)
    acts, held_out = next(iter(checked.acts.values())), {}
    with threadpool_limits(1, "blas"):
        for done, layer in enumerate(layers, 1):
            held_out[layer] = held_out_aucs(read_layer(acts, layer), estimator, choice)
            if progress is not None:
                progress(done, 2 * len(layers))
    by_group = choose_layers(held_out, choice.topics, layers, recipe.layers.rule)
    same = choice is items
    told = {"layer_chosen_on": f"held-out {'topic' if same else items.unit}s"}
    return {name: by_group[name if same else ALL_TOPICS] for name in names}, told


def _check_layers(
    checked: Checked, recipe: Recipe, chosen: Mapping[str, int], progress: Progress | None
) -> dict[int, list[Cell]]:
    start = time.perf_counter()
    estimator = METHODS.create(recipe.fit.method, **recipe.fit.params)
    items, settings, layers = checked.items, checked.settings, checked.layers
    folds = [
        replace(f, bootstrapped_at=chosen[f.topic]) if f.split == TRANSFER else f
        for f in checked.folds
    ]
    labelings = shuffled_labels(items, settings.draws if settings.shuffled else 0, settings.seed)
    found = {}
    with threadpool_limits(1, "blas"):  # many small products: two threads only wait for each other
        for done, layer in enumerate(layers, 1):
            Xs = {name: read_layer(acts, layer) for name, acts in checked.acts.items()}
            found[layer] = check_fits(Xs, layer, estimator, items, folds, labelings, settings)
            if progress is not None:
                progress(len(layers) + done, 2 * len(layers))
    logger.info(
        "%s: %d layers x %d folds checked on %d items in %.1f s",
        recipe.fit.name, len(layers), len(folds), len(items.facts), time.perf_counter() - start,
    )  # fmt: skip
    return found


def _fit_all(
    acts: ActivationsLike,
    recipe: Recipe,
    columns: Columns,
    layers: Sequence[int],
    shuffle: int | None = None,
) -> Directions:
    fit = recipe.fit
    return fit_layers(
        acts,
        method=fit.method,
        y=fit.y,
        groups=None if columns.groups is None else fit.groups,
        polarity=None if columns.polarity is None else fit.polarity,
        pairs=None if columns.pairs is None else fit.pairs,
        layers=layers,
        names=[fit.name],
        shuffle=shuffle,
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
        and cell.rendering == recipe.prompts.render
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


def _by_layer(
    leakage: Mapping[int, float], layers: Sequence[int]
) -> dict[str, Float[ndarray, " l"]]:
    found = np.array([leakage.get(layer, np.nan) for layer in layers], np.float32)
    return {} if np.isnan(found).any() else {"polarity_leakage": found}


def _about(
    directions: Directions, recipe: Recipe, settings: Settings, model: str, unit: str
) -> dict[str, Any]:
    """Return what is the same in every row of an evidence table."""
    return {
        "model": model,
        "method": recipe.fit.method,
        "direction": directions.names[0],
        "interval": f"{LEVEL:.0%} bootstrap over {unit}s",
        "gate": recipe.check.gate,
        "seed": settings.seed,
    }


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
