"""An interpretability workbench: what does a model represent, and does that drive what it does?

Public names resolve on first use, so that ``import workbench`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "workbench.activations": ("Activations", "open_activations", "save_embedding"),
    "workbench.api": (
        "capture",
        "contrast",
        "doctor",
        "fit",
        "gap",
        "intervene",
        "load",
        "measure",
    ),
    "workbench.directions": (
        "Directions",
        "LinearMap",
        "centered",
        "combine",
        "cosines",
        "denoise",
        "fit_map",
        "layer_similarity",
        "open_directions",
        "open_map",
        "persona_axes",
        "persona_cosines",
        "persona_space",
        "residualise",
        "save_directions",
        "save_map",
        "thresholds",
        "trait_vectors",
    ),
    "workbench.directions.exchange": ("export_directions", "import_directions"),
    "workbench.engine.preview": ("preview",),
    "workbench.engine.stream": ("stream",),
    "workbench.errors": (
        "ConfigError",
        "DoctorError",
        "FormatError",
        "MismatchError",
        "UnknownNameError",
        "WorkbenchError",
    ),
    "workbench.interventions": (
        "EditLog",
        "Intervention",
        "load_intervention",
        "save_intervention",
    ),
    "workbench.personas": ("read_roles", "read_traits", "rollout_prompts", "trait_prompts"),
    "workbench.pipelines.probe": ("probe",),
    "workbench.prompts": ("PromptSet", "read_prompts"),
    "workbench.registry": ("EDITS", "ENGINES", "METHODS", "READOUTS"),
    "workbench.results": ("summarize",),
    "workbench.sweeps": ("sweep",),
    "workbench.transcripts": ("Transcripts", "read_transcripts", "write_transcripts"),
    "workbench.types": ("LayerEdit", "Measurement", "ModelRef", "Read", "Request", "Subject"),
    "workbench.worlds": ("equivalence",),
    "workbench_training.pair_fit": ("fit_trained",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME), "__version__"]

if TYPE_CHECKING:
    from workbench_training.pair_fit import fit_trained as fit_trained

    from workbench.activations import Activations as Activations
    from workbench.activations import open_activations as open_activations
    from workbench.activations import save_embedding as save_embedding
    from workbench.api import capture as capture
    from workbench.api import contrast as contrast
    from workbench.api import doctor as doctor
    from workbench.api import fit as fit
    from workbench.api import gap as gap
    from workbench.api import intervene as intervene
    from workbench.api import load as load
    from workbench.api import measure as measure
    from workbench.directions import Directions as Directions
    from workbench.directions import LinearMap as LinearMap
    from workbench.directions import centered as centered
    from workbench.directions import combine as combine
    from workbench.directions import cosines as cosines
    from workbench.directions import denoise as denoise
    from workbench.directions import fit_map as fit_map
    from workbench.directions import layer_similarity as layer_similarity
    from workbench.directions import open_directions as open_directions
    from workbench.directions import open_map as open_map
    from workbench.directions import persona_axes as persona_axes
    from workbench.directions import persona_cosines as persona_cosines
    from workbench.directions import persona_space as persona_space
    from workbench.directions import residualise as residualise
    from workbench.directions import save_directions as save_directions
    from workbench.directions import save_map as save_map
    from workbench.directions import thresholds as thresholds
    from workbench.directions import trait_vectors as trait_vectors
    from workbench.directions.exchange import export_directions as export_directions
    from workbench.directions.exchange import import_directions as import_directions
    from workbench.engine.preview import preview as preview
    from workbench.engine.stream import stream as stream
    from workbench.errors import ConfigError as ConfigError
    from workbench.errors import DoctorError as DoctorError
    from workbench.errors import FormatError as FormatError
    from workbench.errors import MismatchError as MismatchError
    from workbench.errors import UnknownNameError as UnknownNameError
    from workbench.errors import WorkbenchError as WorkbenchError
    from workbench.interventions import EditLog as EditLog
    from workbench.interventions import Intervention as Intervention
    from workbench.interventions import load_intervention as load_intervention
    from workbench.interventions import save_intervention as save_intervention
    from workbench.personas import read_roles as read_roles
    from workbench.personas import read_traits as read_traits
    from workbench.personas import rollout_prompts as rollout_prompts
    from workbench.personas import trait_prompts as trait_prompts
    from workbench.pipelines.probe import probe as probe
    from workbench.prompts import PromptSet as PromptSet
    from workbench.prompts import read_prompts as read_prompts
    from workbench.registry import EDITS as EDITS
    from workbench.registry import ENGINES as ENGINES
    from workbench.registry import METHODS as METHODS
    from workbench.registry import READOUTS as READOUTS
    from workbench.results import summarize as summarize
    from workbench.sweeps import sweep as sweep
    from workbench.transcripts import Transcripts as Transcripts
    from workbench.transcripts import read_transcripts as read_transcripts
    from workbench.transcripts import write_transcripts as write_transcripts
    from workbench.types import LayerEdit as LayerEdit
    from workbench.types import Measurement as Measurement
    from workbench.types import ModelRef as ModelRef
    from workbench.types import Read as Read
    from workbench.types import Request as Request
    from workbench.types import Subject as Subject
    from workbench.worlds import equivalence as equivalence


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
