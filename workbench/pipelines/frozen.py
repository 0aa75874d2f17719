"""A fit's direction in other models: their stores opened, the tables of what it reads there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.directions import Directions, Recipe, open_directions, read_recipe
from workbench.errors import ConfigError
from workbench.pipelines.settings import ApplyConfig
from workbench.types import Measurement, Progress

if TYPE_CHECKING:
    import pandas as pd

    from workbench.activations import Activations
    from workbench.directions.frozen import Reading

STEPS = 3


@dataclass(frozen=True)
class Applied:
    """What a frozen direction read in other models."""

    layer: int
    models: list[str]
    gate: pd.DataFrame
    beliefs: pd.DataFrame
    projections: pd.DataFrame


def apply_frozen(config: ApplyConfig, *, progress: Progress | None = None) -> Applied:
    """Ask every model and rendering for truth on held-out items, and for the worlds' claims.

    Raises:
        ConfigError: nothing to apply to, no chosen layer, or claims without those of the base.
        MismatchError: another kind of model.
    """
    import pandas as pd

    from workbench.directions.frozen import belief_table, gate_table, null_directions

    directions, layer = _chosen(config)
    recipe = recipe_of(config, directions)
    held_out, claims = _readings(config.held_out), _readings(config.claims)
    gate, beliefs = pd.DataFrame(), pd.DataFrame()
    if held_out:
        gate = gate_table(directions.select([layer]), held_out, recipe, seed=config.seed)
    _tell(progress, 1)
    if claims:
        shuffled = None
        if config.acts is not None:
            (fitted,) = _readings([config.acts])
            shuffled = null_directions(fitted.acts, recipe, layer, config.draws, config.seed)
        _tell(progress, 2)
        base = _base(directions, claims)
        beliefs = belief_table(
            directions, claims, own_worlds(claims), base, layer=layer, draws=config.draws,
            shuffled=shuffled, seed=config.seed,
        )  # fmt: skip
        beliefs = gated(beliefs, gate)
    parts = [_projections(directions, reading, layer) for reading in claims]
    _tell(progress, STEPS)
    models = sorted({reading.model for reading in (*held_out, *claims)})
    return Applied(layer, models, gate, beliefs, pd.concat(parts) if parts else pd.DataFrame())


def _tell(progress: Progress | None, done: int) -> None:
    if progress is not None:
        progress(done, STEPS)


def preview(config: ApplyConfig) -> Mapping[str, Any]:
    """Say which models and renderings would be read, and at which layer."""
    _, layer = _chosen(config)
    stores = _readings([*config.held_out, *config.claims])
    return {"layer": layer, "readings": [f"{r.model}, {r.rendering}" for r in stores]}


def recipe_of(config: ApplyConfig, directions: Directions) -> Recipe:
    """Read the recipe, and put the method that the directions were fitted with in its place."""
    recipe, info = read_recipe(config.recipe), directions.info
    own = {"method": info.get("method", recipe.fit.method), "params": dict(info.get("params", {}))}
    return recipe.model_copy(update={"fit": recipe.fit.model_copy(update=own)})


def own_worlds(claims: Sequence[Reading]) -> dict[str, str]:
    """Return the world of every organism that has one: what its name says before ``-s0``."""
    from workbench.directions.fit import column
    from workbench.results import organism_of

    worlds = {str(world) for reading in claims for world in column(reading.acts, "world")}
    named = {r.model: organism_of(r.model.partition("+")[2])[0] for r in claims}
    return {model: organism for model, organism in named.items() if organism in worlds}


def gated(beliefs: pd.DataFrame, gate: pd.DataFrame) -> pd.DataFrame:
    """Add how well truth is read in the same model and rendering: the lower polarity's AUC."""
    keys = ["model", "rendering"]
    if gate.empty:
        return beliefs.assign(gate_auc=float("nan"), usable=None)
    sides = gate[(gate["polarity"] != 0) & (gate["topic"] == "all")]
    found = sides.groupby(keys).agg(gate_auc=("auc", "min"), usable=("usable", "all"))
    return beliefs.merge(found.reset_index(), on=keys, how="left")


def _chosen(config: ApplyConfig) -> tuple[Directions, int]:
    if not config.held_out and not config.claims:
        raise ConfigError("apply has nothing to read: name stores in held_out or in claims")
    directions = open_directions(config.directions)
    if directions.info.get("layer") is None or len(directions) != 1:
        raise ConfigError(
            f"{config.directions} holds {len(directions)} names and no layer that a fit chose for "
            "them; give the directions of one fit run"
        )
    return directions, int(directions.info["layer"])


def _readings(paths: Sequence[str]) -> list[Reading]:
    from workbench.activations import open_activations
    from workbench.directions.frozen import Reading

    stores = [open_activations(Path(path)) for path in paths]
    return [Reading(acts, _rendering(acts)) for acts in stores]


def _rendering(acts: Activations) -> str:
    """Return bare or chat; of prompts rendered as they are, chats are JSON lists of messages."""
    render = str(acts.manifest.config.get("render", "auto"))
    if render != "auto":
        return render
    return "chat" if str(acts.columns["text"][0]).startswith("[{") else "bare"


def _base(directions: Directions, claims: Sequence[Reading]) -> str:
    """Return the model with the weights that the directions were fitted on."""
    for reading in claims:
        if reading.acts.model.fingerprint == directions.model.fingerprint:
            return reading.model
    names = ", ".join(reading.model for reading in claims)
    raise ConfigError(
        f"the claims are of {names}; those of {directions.model.key}, on which {directions.label} "
        "was fitted, are needed beside them"
    )


def _projections(directions: Directions, reading: Reading, layer: int) -> pd.DataFrame:
    """Return the claims' projections as results, like those of the readout of that name."""
    from workbench.results import organism_of, table

    base, _, adapter = reading.model.partition("+")
    organism, seed = organism_of(adapter)
    return table(
        _measured(directions, reading, layer),
        subject=reading.model,
        base=base,
        organism=organism,
        train_seed=seed,
    )


def _measured(directions: Directions, reading: Reading, layer: int) -> Iterator[Measurement]:
    values = directions.select([layer]).project(reading.acts)[0, 0]
    columns = {name: reading.acts.columns[name].tolist() for name in reading.acts.columns}
    for row, value in enumerate(values.tolist()):
        extra = {name: found[row] for name, found in columns.items() if name not in ("id", "text")}
        yield Measurement(
            readout="projection",
            measure=directions.names[0],
            item=f"{columns['id'][row]}:{reading.rendering}",
            condition=str(columns["world"][row]),
            value=value,
            extra={**extra, "layer": layer, "rendering": reading.rendering},
        )
