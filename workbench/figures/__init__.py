"""Figures: a results table in, one Bokeh figure out; no Panel, no disk, no state."""

from workbench.figures.capping import cap_displacement, cap_engagement, capped_readout
from workbench.figures.cosine import cosine_matrix, cosine_ranking
from workbench.figures.dose import (
    dose_response,
    engaged_by_dose,
    mass_by_dose,
    realised_by_dose,
)
from workbench.figures.emotion import emotion_curves, emotion_profiles, similarity_matrix
from workbench.figures.layers import cosine_by_layer, layer_similarity_map
from workbench.figures.persona import axis_by_layer, axis_histogram, drift_lines, persona_map
from workbench.figures.probe import known_distances, probe_changes
from workbench.figures.scatter import scatter_map
from workbench.figures.theme import DARK, LIGHT, Theme, theme_named
from workbench.figures.transfer import transfer_grid
from workbench.figures.trust import by_block, item_margins
from workbench.figures.truth import auc_by_layer, world_projections

__all__ = [
    "DARK",
    "LIGHT",
    "Theme",
    "auc_by_layer",
    "axis_by_layer",
    "axis_histogram",
    "by_block",
    "cap_displacement",
    "cap_engagement",
    "capped_readout",
    "cosine_by_layer",
    "cosine_matrix",
    "cosine_ranking",
    "dose_response",
    "drift_lines",
    "emotion_curves",
    "emotion_profiles",
    "engaged_by_dose",
    "item_margins",
    "known_distances",
    "layer_similarity_map",
    "mass_by_dose",
    "persona_map",
    "probe_changes",
    "realised_by_dose",
    "scatter_map",
    "similarity_matrix",
    "theme_named",
    "transfer_grid",
    "world_projections",
]
