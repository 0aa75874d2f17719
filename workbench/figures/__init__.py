"""Figures: a results table in, one Bokeh figure out; no Panel, no disk, no state."""

from workbench.figures.dose import dose_response, mass_by_dose
from workbench.figures.scatter import scatter_map
from workbench.figures.theme import DARK, LIGHT, Theme, theme_named
from workbench.figures.truth import auc_by_layer, world_projections

__all__ = [
    "DARK",
    "LIGHT",
    "Theme",
    "auc_by_layer",
    "dose_response",
    "mass_by_dose",
    "scatter_map",
    "theme_named",
    "world_projections",
]
