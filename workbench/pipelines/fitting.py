"""One fit as settings say it: which activations, which recipe with what changed, which checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.directions.recipe import FitPart, LayersPart, Recipe, read_recipe, recipe_path
from workbench.errors import ConfigError
from workbench.pipelines.settings import FitConfig
from workbench.registry import METHODS
from workbench.types import Progress

if TYPE_CHECKING:
    import pandas as pd

    from workbench.activations import Activations
    from workbench.directions import Directions
    from workbench.directions.linear_map import LinearMap

COLUMNS = ("y", "groups", "polarity", "facts", "pairs")


def inputs_of(config: FitConfig) -> list[Path]:
    """Return the files and folders that decide what a fit gives."""
    stores = [config.acts, *config.check, *config.renderings.values()]
    return [*map(Path, stores), recipe_path(config.recipe)]


def fit_one(
    config: FitConfig,
    *,
    opened: Callable[[str], Activations] | None = None,
    progress: Progress | None = None,
) -> tuple[Directions, pd.DataFrame]:
    """Fit and check; ``opened`` opens a store by its path.

    Raises:
        WorkbenchError: what ``fit_truth`` refuses.
    """
    from workbench.activations import open_activations
    from workbench.directions import fit_truth

    find = opened or open_activations
    return fit_truth(
        rows_of(config, find(config.acts)),
        recipe_of(config),
        renderings={name: find(path) for name, path in config.renderings.items()},
        checks={set_name(path): find(path) for path in config.check},
        seed=config.seed,
        progress=progress,
    )


def shuffled_of(config: FitConfig) -> Directions:
    """Fit to shuffled labels, on the items that the fit itself takes; nothing is checked.

    Raises:
        ConfigError: there is nothing held out to check or to choose a layer by, so ``check``,
            ``renderings``, ``split`` and ``layer`` say nothing.
    """
    from workbench.activations import open_activations
    from workbench.directions import shuffled_truth

    if config.check or config.renderings or config.split or config.layer is not None:
        raise ConfigError(
            "a fit to shuffled labels is not checked and holds every layer; leave check, "
            "renderings, split and layer out"
        )
    acts = rows_of(config, open_activations(config.acts))
    return shuffled_truth(acts, recipe_of(config), seed=config.shuffle or 0)


def gives_map(config: FitConfig) -> bool:
    """Say whether the method gives a map of hidden states in place of a direction.

    Raises:
        UnknownNameError: no such method.
    """
    factory = METHODS.factory(recipe_of(config).fit.method)
    return bool(getattr(factory, "gives", "direction") == "map")


def map_of(config: FitConfig) -> LinearMap:
    """Fit a map at the layer of the settings, or at all; nothing is held out.

    Raises:
        WorkbenchError: what ``fit_map`` refuses.
    """
    from workbench.activations import open_activations
    from workbench.directions.map_fit import fit_map

    fit = recipe_of(config).fit
    return fit_map(
        rows_of(config, open_activations(config.acts)),
        method=fit.method,
        y=fit.y,
        groups=config.groups,
        polarity=config.polarity,
        pairs=config.pairs,
        layers=None if config.layer is None else [config.layer],
        name=fit.name,
        **fit.params,
    )


def rows_of(config: FitConfig, acts: Activations) -> Activations:
    """Keep the rows that a fit asks for."""
    return acts.where(**config.where) if config.where else acts


def recipe_of(config: FitConfig) -> Recipe:
    """Read the recipe and put the settings' own method, columns and layer in its place."""
    recipe = read_recipe(config.recipe)
    own = {name: getattr(config, name) for name in COLUMNS if getattr(config, name) is not None}
    other = config.method is not None and config.method != recipe.fit.method
    own["params"] = {**({} if other else recipe.fit.params), **config.params}
    own["method"] = config.method or recipe.fit.method
    fit = FitPart.model_validate({**recipe.fit.model_dump(exclude_unset=True), **own})
    recipe = recipe.model_copy(update={"fit": fit})
    if config.split:
        check = recipe.check.model_copy(update={"split": config.split})
        recipe = recipe.model_copy(update={"check": check})
    if config.layer is None:
        return recipe
    return recipe.model_copy(update={"layers": LayersPart(candidates=[config.layer])})


def set_name(path: str) -> str:
    """Name a store by the run folder that it lies in."""
    own = Path(path)
    return own.parent.name if own.name == "acts" else own.stem
