"""How long residual states are at each block: what a dose in units of the norm is a fraction of."""

from __future__ import annotations

import weakref

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from workbench.engine.apply import is_edited
from workbench.engine.capture import capture
from workbench.errors import WorkbenchError
from workbench.interventions import Intervention
from workbench.types import Read, Subject, ndarray

TEXTS = (
    "The train left the station ten minutes late because of snow on the line.",
    "Copper conducts electricity better than iron, but silver conducts it better still.",
    "Could you send me the report by Friday? I would like to read it before the meeting.",
    "She had never seen the sea before, and for a while she said nothing at all.",
    "To make the dough, mix flour, water, salt and a little yeast, and let it rest overnight.",
    "A triangle with sides of three, four and five units has a right angle.",
    "I do not think that the plan is wrong; I think that it comes too early.",
    "In autumn many birds fly south, and they return when the days grow longer.",
)
"""What residual norms are measured on where directions bring none: plain sentences, bare."""

_MEASURED: weakref.WeakKeyDictionary[nn.Module, ndarray] = weakref.WeakKeyDictionary()


def residual_norms(subject: Subject, layers: tuple[int, ...]) -> Float[ndarray, " l"]:
    """Return the mean norm of the residual stream after these blocks; measured once for a model.

    Over every token of `TEXTS` but each one's first.

    Raises:
        WorkbenchError: it is not measured yet, and edits of an enclosing ``intervene`` would act.
    """
    if subject.model not in _MEASURED:
        if is_edited(subject):
            raise WorkbenchError(
                'unit "norm" needs the residual norm of the unedited model, which cannot be '
                "measured inside intervene; give all interventions to one intervene, or directions "
                "that hold norms"
            )
        _MEASURED[subject.model] = _measure(subject)
    return _MEASURED[subject.model][list(layers)]


def norms_for(subject: Subject, intervention: Intervention) -> Float[ndarray, " l"] | None:
    """Return measured norms where the dose is a fraction of them and the directions bring none."""
    directions = intervention.directions
    if intervention.unit != "norm" or directions.norms is not None:
        return None
    directions.model.refuse_other(subject.stamp, f"direction {directions.names[0]!r}")
    return residual_norms(subject, tuple(directions.layers))


def _measure(subject: Subject) -> Float[ndarray, " l"]:
    rows = capture(subject, subject.encode(TEXTS), [Read(position="all")])[0]
    lengths = [states[:, 1:].float().norm(dim=-1) for states in rows]
    norms: ndarray = torch.cat(lengths, 1).mean(1).double().cpu().numpy()
    if not np.isfinite(norms).all():
        worst = int(np.flatnonzero(~np.isfinite(norms))[0])
        raise WorkbenchError(
            f"residual states of {subject.ref.key} at block {worst} are not finite in "
            f"{subject.ref.dtype}; load the model in bfloat16 or float32"
        )
    return norms
