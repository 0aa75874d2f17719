"""Frozen directions applied, unchanged, to other models: is truth read, and what is believed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.directions.container import Directions
from workbench.directions.evidence import shuffled_labels
from workbench.directions.fit import column, fit_many, layers_of, read_layer
from workbench.directions.own_world import own_world_table
from workbench.directions.recipe import Recipe
from workbench.directions.truth import evaluate, fitted_items, read_items
from workbench.errors import ConfigError
from workbench.linalg import random_unit, unit
from workbench.registry import METHODS
from workbench.types import ActivationsLike, ndarray

HELD_OUT = "held out"
SETS = {"frames": "frame", "propositions": "proposition"}
"""Claim sets, and what their items are called; an item is what the four worlds share."""


@dataclass(frozen=True)
class Reading:
    """Activations of one model in one rendering."""

    acts: ActivationsLike
    rendering: str

    @property
    def model(self) -> str:
        return self.acts.model.key


def gate_table(
    directions: Directions,
    held_out: Sequence[Reading],
    recipe: Recipe,
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Score the frozen direction on the held-out items of every model and rendering.

    The items are one topic: as for claims, nothing takes the offset of a topic off. ``usable`` says
    whether the lower of the two polarities' AUCs reaches the gate. Rows are those of the evidence
    table, split "held out".

    Raises:
        ConfigError: items of one class.
        MismatchError: another kind of model.
    """
    tables = []
    for part in held_out:
        found = evaluate(
            directions, part.acts, recipe, name=HELD_OUT, rendering=part.rendering, seed=seed,
            together=True,
        )  # fmt: skip
        tables.append(found.assign(split=HELD_OUT))
    return pd.concat(tables, ignore_index=True)


def null_directions(
    acts: ActivationsLike, recipe: Recipe, layer: int, draws: int, seed: int
) -> Float[ndarray, "m d"]:
    """Return unit directions that the recipe's method fits to labels shuffled by fact.

    On the same items as the recipe's own fit.
    """
    acts = fitted_items(acts, recipe)
    items = read_items(acts, recipe.fit)
    labelings = shuffled_labels(items, draws, seed)
    estimator = METHODS.create(recipe.fit.method, **recipe.fit.params)
    columns = items.columns.take(slice(None))
    return unit(fit_many(estimator, read_layer(acts, layer), labelings, columns))


def belief_table(
    directions: Directions,
    claims: Sequence[Reading],
    own: Mapping[str, str],
    base: str,
    *,
    layer: int,
    draws: int = 200,
    shuffled: Float[ndarray, "m d"] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return every organism's contrasts, by rendering and claim set, beside the nulls.

    Args:
        directions: one name, frozen.
        claims: of the base and of the organisms, in each rendering.
        own: model -> the world that its documents come from.
        base: the model that the direction was fitted on.
        layer: block to read.
        draws: random unit directions.
        shuffled: directions fitted to shuffled labels, if they are a null too.
        seed: of the random directions.

    Returns:
        The columns of ``own_world_table`` with ``rendering``, ``set`` and ``layer``.

    Raises:
        ConfigError: a model, world or claim is missing in one rendering.
        MismatchError: another kind of model.
    """
    v = unit(directions.at(layer))[0]
    nulls = {"random": random_unit(draws, len(v), (seed, layer))}
    if shuffled is not None:
        nulls["shuffled"] = unit(shuffled)
    tables = []
    for rendering in dict.fromkeys(part.rendering for part in claims):
        parts = [part for part in claims if part.rendering == rendering]
        for part in parts:
            directions.model.refuse_other(part.acts.model, directions.label)
        X = np.concatenate([_states(part, layer) for part in parts])
        keys = {name: np.concatenate([_text(part, name) for part in parts]) for name in _COLUMNS}
        keys["model"] = np.repeat([p.model for p in parts], [len(_text(p, "fact")) for p in parts])
        for name, item in SETS.items():
            rows = keys["set"] == name
            if not rows.any():
                continue
            found = own_world_table(
                X[rows] @ v,
                model=keys["model"][rows],
                world=keys["world"][rows],
                item=keys["fact"][rows],
                polarity=keys["polarity"][rows].astype(np.int64),
                own=own,
                base=base,
                unit=item,
                nulls={null: X[rows] @ drawn.T for null, drawn in nulls.items()},
            )
            tables.append(found.assign(rendering=rendering, set=name, layer=layer))
    if not tables:
        raise ConfigError(f"no claims of the sets {', '.join(SETS)}; cache the item set claims")
    return pd.concat(tables, ignore_index=True)


_COLUMNS = ("set", "world", "fact", "polarity")


def _states(part: Reading, layer: int) -> Float[ndarray, "n d"]:
    layers_of(part.acts, [layer])
    return read_layer(part.acts, layer)


def _text(part: Reading, name: str) -> ndarray:
    return column(part.acts, name).astype(str)
