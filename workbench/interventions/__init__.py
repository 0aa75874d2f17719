"""Edits of the residual stream as pure functions, and what to do with them where."""

from workbench.interventions.dose import Gap
from workbench.interventions.intervention import Intervention
from workbench.interventions.io import (
    SavedIntervention,
    load_intervention,
    save_intervention,
)
from workbench.interventions.log import EditLog, EditRow
from workbench.interventions.scope import SCOPES, refuse_absent, scope_mask

__all__ = [
    "SCOPES",
    "EditLog",
    "EditRow",
    "Gap",
    "Intervention",
    "SavedIntervention",
    "load_intervention",
    "refuse_absent",
    "save_intervention",
    "scope_mask",
]
