"""Directions of a model: fitting, algebra, files and truth. Arrays only, no model needed."""

from workbench.directions.algebra import (
    Difference,
    centered,
    combine,
    denoise,
    residualise,
    variance_along,
)
from workbench.directions.calibrate import Thresholds, residual_norms, thresholds, with_norms
from workbench.directions.container import Directions, stack
from workbench.directions.fit import fit_layers
from workbench.directions.io import open_directions, save_directions
from workbench.directions.linear_map import LinearMap
from workbench.directions.map_fit import fit_map
from workbench.directions.map_io import open_map, save_map
from workbench.directions.nulls import CovarianceMatched, Isotropic, SeedPairs, SplitHalf
from workbench.directions.persona import PersonaSpace, check_floor, persona_space
from workbench.directions.persona_map import coordinates, persona_axes, persona_cosines
from workbench.directions.recipe import Recipe, read_recipe, shipped_recipes
from workbench.directions.shifts import finetuning_shift, monitor, projection_difference
from workbench.directions.similarity import cosines, layer_similarity, projection_correlations
from workbench.directions.trait_pairs import TraitVectors, trait_vectors
from workbench.directions.truth import evaluate, fit_truth, shuffled_truth

__all__ = [
    "CovarianceMatched",
    "Difference",
    "Directions",
    "Isotropic",
    "LinearMap",
    "PersonaSpace",
    "Recipe",
    "SeedPairs",
    "SplitHalf",
    "Thresholds",
    "TraitVectors",
    "centered",
    "check_floor",
    "combine",
    "coordinates",
    "cosines",
    "denoise",
    "evaluate",
    "finetuning_shift",
    "fit_layers",
    "fit_map",
    "fit_truth",
    "layer_similarity",
    "monitor",
    "open_directions",
    "open_map",
    "persona_axes",
    "persona_cosines",
    "persona_space",
    "projection_correlations",
    "projection_difference",
    "read_recipe",
    "residual_norms",
    "residualise",
    "save_directions",
    "save_map",
    "shipped_recipes",
    "shuffled_truth",
    "stack",
    "thresholds",
    "trait_vectors",
    "variance_along",
    "with_norms",
]
