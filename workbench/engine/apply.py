"""Edits of every forward inside a with-block; what is a pad or the prompt comes from the call."""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from workbench.engine.calls import Calls
from workbench.engine.edits import LiveEdits
from workbench.errors import ConfigError, WorkbenchError
from workbench.interventions import (
    EditLog,
    Gap,
    Intervention,
    SavedIntervention,
    refuse_absent,
)
from workbench.types import Arm, Batch, LayerEdit, Subject

One = Intervention | SavedIntervention | LayerEdit
_EDITED: weakref.WeakKeyDictionary[nn.Module, list[Editing]] = weakref.WeakKeyDictionary()
"""What edits each model inside an ``intervene``, the outermost first."""


@contextmanager
def intervene(
    subject: Subject,
    arms: Sequence[Arm] | Sequence[Intervention],
    *,
    log: EditLog | None = None,
    spans: Batch | Mapping[str, Tensor] | None = None,
) -> Iterator[EditLog]:
    """Edit every forward of ``subject.model`` inside, ``generate`` included.

    Interventions act together, in their order. One arm acts on every row; several arms are rows
    of one batch, prompt-major: rows 0 to a-1 are the arms of the first prompt. Scopes are counted
    in absolute positions: with a cache, in chunks and in beams they mean the same tokens. In
    ``generate`` the prompt is what was given; in a plain forward it is the whole row, or, where a
    cache is passed in, what is cached.

    Scopes that need the prompt or its spans know them in ``generate``, in a forward of the very
    ``input_ids`` that ``subject.encode`` gave, in what continues that forward's cache, and where
    ``spans`` says.

    Args:
        subject: the model under study.
        arms: interventions that act together, or several arms.
        log: where the counts go; a fresh one by default.
        spans: the encoded batch that will be run, or its named parts alone, one mask (rows,
            columns) each; these columns then are the prompt.

    Raises:
        WorkbenchError: an edit touched no token although forwards ran, rows do not divide into
            arms, a call gives no attention mask that tells pads apart, or a scope names spans that
            the forward does not tell, or that one of its rows lacks.
    """
    if not arms:
        raise ValueError("nothing to do; give at least one intervention or arm")
    several = _arms(subject, arms)
    editing = Editing(subject, several, log, spans)
    with editing:
        yield editing.log
    editing.refuse_idle()


class Editing:
    """Edits of a model that are on inside ``with editing`` and off between, as often as wanted.

    Args:
        subject: the model under study.
        arms: one that acts on every row, or several that are rows of one batch.
        log: where the counts go.
        spans: as in `intervene`.
    """

    def __init__(
        self,
        subject: Subject,
        arms: Sequence[Arm],
        log: EditLog | None = None,
        spans: Batch | Mapping[str, Tensor] | None = None,
    ) -> None:
        self.log = EditLog() if log is None else log
        self._subject = subject
        self.live = LiveEdits(subject, arms, self.log)
        scopes = frozenset(key.scope for key in self.live.keys)
        self.calls = Calls(subject.model, len(arms), self.log, spans, scopes)
        self._stack: ExitStack | None = None

    def __enter__(self) -> Editing:
        with ExitStack() as stack:
            _EDITED.setdefault(self._subject.model, []).append(self)
            stack.callback(_EDITED[self._subject.model].remove, self)
            stack.enter_context(self.calls.followed())
            stack.enter_context(self.live.acting(self._subject, self.calls.current_pass))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure: Any) -> None:
        assert self._stack is not None
        self._stack.__exit__(*failure)
        self._stack = None

    def refuse_idle(self) -> None:
        """Refuse an edit that never touched a token, once forwards ran."""
        if self.log.passes:
            refuse_idle(self.log)


def edits_on(subject: Subject) -> list[Editing]:
    """Return what edits the model now, the outermost first."""
    return list(_EDITED.get(subject.model, []))


def is_edited(subject: Subject) -> bool:
    """Whether the model is inside an ``intervene``."""
    return bool(edits_on(subject))


def rows_together(subject: Subject) -> int:
    """Return how many rows must stay in one batch for every enclosing ``intervene``: its arms."""
    return math.lcm(*(editing.calls.n_arms for editing in edits_on(subject)))


def refuse_lacking(subject: Subject, prompts: Sequence[Collection[str]]) -> None:
    """Refuse prompts without a span that an edit of an enclosing ``intervene`` needs.

    Args:
        subject: the model under study.
        prompts: for each, the names of its spans.

    Raises:
        ConfigError: there is such a prompt; its number is told.
    """
    for scope in sorted({s for editing in edits_on(subject) for s in editing.calls.scopes}):
        for number, present in enumerate(prompts):
            refuse_absent(scope, present, f"prompt {number}")


@contextmanager
def undone_on_failure(subject: Subject) -> Iterator[None]:
    """Leave the logs of every enclosing ``intervene`` as they were where the inside fails."""
    logs = [editing.log for editing in edits_on(subject)]
    states = [log.state() for log in logs]
    try:
        yield
    except BaseException:
        for log, state in zip(logs, states, strict=True):
            log.restore(state)
        raise


def refuse_idle(log: EditLog) -> None:
    """Refuse a result in which an edit never touched a token.

    Raises:
        WorkbenchError: there is such an edit.
    """
    idle = log.idle()
    if idle:
        row = idle[0]
        raise WorkbenchError(
            f"{row.edit} at block {row.layer} (arm {row.arm}, scope {row.scope!r}) touched no "
            f"token in {log.passes} forwards, so it changed nothing; scope 'all' leaves out each "
            "row's first token (use 'all+first'), 'generated' the prompt's last token, which gives "
            "the first new one (use 'last'), a capture stops after its deepest block, and a "
            "model compiled as a whole hides its blocks (compile block.forward instead)"
        )


def _are_arms(arms: Sequence[Any]) -> bool:
    return not any(isinstance(arm, Intervention) for arm in arms)


def _arms(subject: Subject, arms: Sequence[Arm] | Sequence[Intervention]) -> list[Arm]:
    if _are_arms(arms):
        return [tuple(arm) for arm in arms]  # type: ignore[arg-type]
    return [arm_of(subject, arms)]  # type: ignore[arg-type]


def arm_of(
    subject: Subject,
    interventions: One | Sequence[One],
    gap: Gap | None = None,
) -> Arm:
    """Return interventions that act together, or one, as one arm in raw units.

    Raises:
        ConfigError: what is no intervention, such as directions.
        MismatchError: directions of another model.
        WorkbenchError: a vector is zero or not finite, or a norm or gap is missing.
    """
    from workbench.engine.norms import norms_for

    edits: list[LayerEdit] = []
    listed = interventions if isinstance(interventions, (list, tuple)) else [interventions]
    for one in listed:
        if isinstance(one, LayerEdit):
            edits.append(one)
        elif isinstance(one, Intervention):
            edits += one.arm(subject.stamp, norms=norms_for(subject, one), gap=gap)
        elif isinstance(one, SavedIntervention):
            edits += one.arm(subject.stamp, gap=gap)
        else:
            raise ConfigError(
                f"{one!r:.80} ({type(one).__name__}) is no intervention; say what to do with "
                "directions, as in wb.Intervention.add(directions, layers=[14], dose=0.1, "
                'unit="norm"), and open a file of one with wb.load_intervention(path)'
            )
    return tuple(edits)
