"""Directions of a model: fitting, algebra, files and truth. Arrays only, no model needed."""

from workbench.directions.container import Directions, stack
from workbench.directions.fit import fit_layers
from workbench.directions.io import open_directions, save_directions
from workbench.directions.recipe import Recipe, read_recipe, shipped_recipes
from workbench.directions.truth import evaluate, fit_truth

__all__ = [
    "Directions",
    "Recipe",
    "evaluate",
    "fit_layers",
    "fit_truth",
    "open_directions",
    "read_recipe",
    "save_directions",
    "shipped_recipes",
    "stack",
]
