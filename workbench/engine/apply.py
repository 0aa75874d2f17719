"""Edits of every forward inside a with-block; what is a pad or the prompt comes from the call."""

from __future__ import annotations

import functools
import inspect
import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workbench.engine.blocks import eager
from workbench.engine.edits import LiveEdits, Pass
from workbench.engine.forward import forward_of
from workbench.errors import WorkbenchError
from workbench.interventions import EditLog, Intervention, scope_mask
from workbench.types import Arm, Subject

_EDITED: weakref.WeakKeyDictionary[nn.Module, list[Calls]] = weakref.WeakKeyDictionary()
"""What follows the forwards of each model inside an ``intervene``, the outermost first."""


@contextmanager
def intervene(
    subject: Subject, arms: Sequence[Arm] | Sequence[Intervention], *, log: EditLog | None = None
) -> Iterator[EditLog]:
    """Edit every forward of ``subject.model`` inside, ``generate`` included.

    Interventions act together, in their order. One arm acts on every row; several arms are rows
    of one batch, prompt-major: rows 0 to a-1 are the arms of the first prompt. Scopes are counted
    in absolute positions: with a cache, in chunks and in beams they mean the same tokens. In
    ``generate`` the prompt is what was given; in a plain forward it is the whole row, or, where a
    cache is passed in, what is cached.

    Raises:
        WorkbenchError: an edit touched no token although forwards ran, rows do not divide into
            arms, or a call gives no attention mask that tells pads apart.
    """
    if not arms:
        raise ValueError("nothing to do; give at least one intervention or arm")
    log = EditLog() if log is None else log
    live = LiveEdits(subject, _arms(subject, arms), log)
    calls = Calls(subject.model, len(arms) if _are_arms(arms) else 1, log)
    _EDITED.setdefault(subject.model, []).append(calls)
    try:
        with calls.followed(), live.acting(subject, calls.current_pass):
            yield log
    finally:
        _EDITED[subject.model].remove(calls)
    if log.passes:
        refuse_idle(log)


def is_edited(subject: Subject) -> bool:
    """Whether the model is inside an ``intervene``."""
    return bool(_EDITED.get(subject.model))


def rows_together(subject: Subject) -> int:
    """Return how many rows must stay in one batch for every enclosing ``intervene``: its arms."""
    return math.lcm(*(calls.n_arms for calls in _EDITED.get(subject.model, [])))


@contextmanager
def undone_on_failure(subject: Subject) -> Iterator[None]:
    """Leave the logs of every enclosing ``intervene`` as they were where the inside fails."""
    logs = [calls.log for calls in _EDITED.get(subject.model, [])]
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
            "row's first token (use 'all+first'), a capture stops after its deepest block, and a "
            "model compiled as a whole hides its blocks (compile block.forward instead)"
        )


class Calls:
    """Follows the model's forwards, to know which rows and columns each holds.

    Args:
        model: the whole model.
        n_arms: arms among the rows; 1 acts on all.
        log: counts the forwards.
    """

    def __init__(self, model: Any, n_arms: int, log: EditLog) -> None:
        self.model = model
        self.n_arms = n_arms
        self.log = log
        self._current: Pass | None = None
        self._owner: nn.Module | None = None
        self._prompt: Prompt | None = None

    def current_pass(self) -> Pass:
        """Describe the forward that is running.

        Raises:
            WorkbenchError: a block was called outside the model's forward.
        """
        if self._current is None:
            raise WorkbenchError(
                "a block ran outside the model's forward, so pads and prompts cannot be told; "
                "call subject.model(...) or subject.generate(...) inside intervene"
            )
        return self._current

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Watch the model and its decoder, whichever is called first, and ``generate``."""
        with ExitStack() as stack:
            modules = dict.fromkeys([self.model, self.model.get_decoder()])
            for module in modules:
                handles = (
                    module.register_forward_pre_hook(eager(self._enter), with_kwargs=True),
                    module.register_forward_hook(eager(self._leave), always_call=True),
                )
                for handle in handles:
                    stack.callback(handle.remove)
            stack.enter_context(self._generate_followed())
            yield

    @contextmanager
    def _generate_followed(self) -> Iterator[None]:
        before = self.model.__dict__.get("generate")
        original = self.model.generate

        @functools.wraps(original)
        def generate(*args: Any, **kwargs: Any) -> Any:
            given = kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None))
            if given is not None:
                rows, columns = given.shape[:2]
                self._prompt = Prompt(rows, columns, kwargs.get("attention_mask"))
            try:
                return original(*args, **kwargs)
            finally:
                self._prompt = None

        self.model.generate = generate
        try:
            yield
        finally:
            del self.model.generate
            if before is not None:
                self.model.generate = before

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._owner is None:
            self._current, self._owner = self._describe(module, args, kwargs), module
            self.log.passes += 1

    def _leave(self, module: nn.Module, *_: Any) -> None:
        if self._owner is module:
            self._current = self._owner = None

    def _describe(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pass:
        call = inspect.signature(forward_of(module)).bind_partial(module, *args, **kwargs)
        given = {**call.arguments.get("kwargs", {}), **call.arguments}
        tokens = given.get("input_ids")
        tokens = given["inputs_embeds"] if tokens is None else tokens
        rows, t = tokens.shape[:2]
        prompt = self._prompt
        mask = _whole_mask(given, rows, t, tokens.device, prompt)
        later = 0 if prompt is None else max(0, prompt.columns - mask.shape[1])
        if prompt is not None and later:
            mask = torch.cat([mask, prompt.mask_of(rows, prompt.columns, mask)[:, -later:]], 1)
        columns = None if prompt is None else prompt.columns
        return Pass(
            self._arms_of(rows), lambda scope: scope_mask(scope, mask, t + later, columns)[:, :t]
        )

    def _arms_of(self, rows: int) -> tuple[int, ...]:
        if self.n_arms == 1:
            return (0,) * rows
        copies = rows // self._prompt.rows if self._prompt is not None else 1
        if rows % (self.n_arms * copies):
            raise WorkbenchError(
                f"{rows // copies} rows for {self.n_arms} arms; several arms need one row for each "
                "prompt and arm, the arms of a prompt side by side"
            )
        return tuple(row // copies % self.n_arms for row in range(rows))


@dataclass(frozen=True)
class Prompt:
    """What was given to ``generate``; it runs the prompt at once or in chunks."""

    rows: int
    columns: int
    mask: Tensor | None

    def mask_of(self, rows: int, columns: int, like: Tensor) -> Tensor:
        """Return 1 on real tokens of the prompt and on every new one; beams repeat rows."""
        whole = torch.ones(rows, columns, dtype=like.dtype, device=like.device)
        if self.mask is not None:
            known = self.mask[:, :columns].to(whole)
            whole[:, : known.shape[1]] = known.repeat_interleave(rows // self.rows, 0)
        return whole


def _whole_mask(
    given: dict[str, Any], rows: int, t: int, device: torch.device, prompt: Prompt | None
) -> Tensor:
    """Return 1 on real tokens over cached and new columns."""
    cache = given.get("past_key_values")
    width = t + (0 if cache is None else int(cache.get_seq_length()))
    mask = given.get("attention_mask")
    if mask is None:
        return torch.ones(rows, width, dtype=torch.long, device=device)
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        if prompt is not None and prompt.mask is not None:  # a static cache comes with 4-D masks
            return prompt.mask_of(rows, width, torch.ones((), dtype=torch.long, device=device))
        raise WorkbenchError(
            "inside intervene a forward needs a two-dimensional attention_mask (1 on real tokens), "
            f"found {type(mask).__name__}"
            + (f" of {mask.ndim} dimensions" if isinstance(mask, Tensor) else "")
            + ("" if prompt is None else "; give generate the attention_mask of its input_ids")
        )
    if mask.shape[1] != width:
        raise WorkbenchError(
            f"attention_mask has {mask.shape[1]} columns, but {width - t} cached and {t} new "
            f"tokens make {width}; give the mask of cached and new tokens together"
        )
    return mask


def _are_arms(arms: Sequence[Any]) -> bool:
    return not any(isinstance(arm, Intervention) for arm in arms)


def _arms(subject: Subject, arms: Sequence[Arm] | Sequence[Intervention]) -> list[Arm]:
    if _are_arms(arms):
        return [tuple(arm) for arm in arms]  # type: ignore[arg-type]
    from workbench.engine.norms import norms_for

    made = [
        one.arm(subject.stamp, norms=norms_for(subject, one))  # type: ignore[union-attr, arg-type]
        for one in arms
    ]
    return [tuple(edit for arm in made for edit in arm)]
