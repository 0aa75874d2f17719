"""What each forward of a model says about its rows: arms, pads, the prompt and its spans."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from workbench.engine.blocks import eager
from workbench.engine.edits import Pass
from workbench.engine.forward import forward_of
from workbench.errors import ConfigError, MismatchError, WorkbenchError
from workbench.interventions import EditLog, refuse_absent
from workbench.interventions.scope import Tokens, parse_scope, tokens_of
from workbench.models.spans import Spans, spans_of
from workbench.types import Batch

NOTHING = Pass((), lambda _scope: torch.ones(0, 0, dtype=torch.bool))
"""Of a forward in which no row has an arm."""


class Calls:
    """Follows the model's forwards, to know which rows and columns each holds.

    Args:
        model: the whole model.
        n_arms: arms among the rows; 1 acts on all.
        log: counts the forwards.
        spans: named parts of the prompts that will come, where the caller knows them.
        scopes: of the edits, for checks before anything runs.
    """

    def __init__(
        self,
        model: Any,
        n_arms: int,
        log: EditLog,
        spans: Batch | Mapping[str, Tensor] | None = None,
        scopes: frozenset[str] = frozenset(),
    ) -> None:
        self.model = model
        self.n_arms = n_arms
        self.log = log
        self.scopes = scopes
        self._named = None if spans is None else _named(spans)
        self._known: weakref.WeakKeyDictionary[Any, Prompt] = weakref.WeakKeyDictionary()
        """The prompt behind each cache that a forward filled."""
        self._current: Pass | None = None
        self._owner: nn.Module | None = None
        self._prompt: Prompt | None = None
        """Of the ``generate`` that is running."""
        self._running: Prompt | None = None
        """Of the plain forward that is running."""
        self._paused = False

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
            with self.prompted(given, kwargs.get("attention_mask")):
                return original(*args, **kwargs)

        self.model.generate = generate
        try:
            yield
        finally:
            del self.model.generate
            if before is not None:
                self.model.generate = before

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Neither edit nor count the forwards inside."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    @contextmanager
    def prompted(
        self, tokens: Tensor | None, mask: Tensor | None, rows: slice | None = None
    ) -> Iterator[None]:
        """Take a batch, or some rows of it, for the whole prompt of all forwards inside."""
        before = self._prompt
        if tokens is not None:
            prompt = self._given(tokens, mask)
            self._prompt = prompt if rows is None else prompt.part(rows)
        try:
            yield
        finally:
            self._prompt = before

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._owner is None and self._paused:
            self._current, self._owner = NOTHING, module
        elif self._owner is None:
            self._current, self._owner = self._describe(module, args, kwargs), module
            self.log.passes += 1

    def _leave(self, module: nn.Module, _args: Any, output: Any) -> None:
        if self._owner is module:
            cache = getattr(output, "past_key_values", None)
            if self._running is not None and cache is not None:
                self._known[cache] = self._running
            self._current = self._owner = self._running = None

    def _given(self, tokens: Tensor, mask: Tensor | None) -> Prompt:
        """Describe a batch that is the whole prompt.

        Raises:
            MismatchError: the caller's spans are of another batch.
        """
        rows, columns = tokens.shape[:2]
        if self._named is None:
            return Prompt(rows, columns, mask, spans_of(tokens))
        if self._named.columns != columns:
            raise MismatchError(
                f"a prompt of {columns} columns inside intervene, whose spans have "
                f"{self._named.columns}; give spans over the columns of input_ids"
            )
        return Prompt(rows, columns, mask, self._named.spans_for(rows))

    def _prompt_of(self, tokens: Tensor, cache: Any, mask: Any) -> Prompt | None:
        """Find what is the prompt in a plain forward; None where nothing says so."""
        if self._named is not None:
            return self._named
        if cache is not None and cache.get_seq_length():
            return self._known.get(cache)
        spans = spans_of(tokens)
        flat = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
        if spans is None:
            return None
        rows, columns = tokens.shape[:2]
        return Prompt(rows, columns, flat, spans)

    def _describe(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pass:
        call = inspect.signature(forward_of(module)).bind_partial(module, *args, **kwargs)
        given = {**call.arguments.get("kwargs", {}), **call.arguments}
        tokens = given.get("input_ids")
        tokens = given["inputs_embeds"] if tokens is None else tokens
        rows, t = tokens.shape[:2]
        prompt = self._prompt or self._prompt_of(
            tokens, given.get("past_key_values"), given.get("attention_mask")
        )
        self._running = prompt if self._prompt is None else None
        mask = _whole_mask(given, rows, t, tokens.device, self._prompt)
        later = 0 if prompt is None else max(0, prompt.columns - mask.shape[1])
        if prompt is not None and later:
            mask = torch.cat([mask, prompt.mask_of(rows, prompt.columns, mask)[:, -later:]], 1)
        columns = None if prompt is None else prompt.columns

        @functools.cache
        def described() -> Tokens:
            spans = None if prompt is None else prompt.spans_for(rows)
            return tokens_of(mask, t + later, columns, spans)

        def within(scope: str) -> Tensor:
            _check_known(scope, prompt)
            if later and prompt is self._named and "last" in parse_scope(scope).places:
                _check_end(scope, prompt)
            return described().within(scope)[:, :t]

        return Pass(self._arms_of(rows), within)

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


class Prompt:
    """What was given to ``generate``, encoded, or named by the caller; it may run in chunks.

    Args:
        rows: of the batch that was given; beams, arms and sequences repeat them.
        columns: of that batch.
        mask: 1 on its real tokens; None where there are no pads.
        spans: its named parts, where they are known.
    """

    def __init__(
        self, rows: int, columns: int, mask: Tensor | None, spans: Spans | None = None
    ) -> None:
        self.rows, self.columns, self.mask, self.spans = rows, columns, mask, spans
        self._checked: set[str] = set()

    def mask_of(self, rows: int, columns: int, like: Tensor) -> Tensor:
        """Return 1 on real tokens of the prompt and on every new one."""
        whole = torch.ones(rows, columns, dtype=like.dtype, device=like.device)
        if self.mask is not None:
            known = self.mask[:, :columns].to(whole)
            whole[:, : known.shape[1]] = known.repeat_interleave(rows // self.rows, 0)
        return whole

    def part(self, rows: slice) -> Prompt:
        """Return some of the rows."""
        mask = None if self.mask is None else self.mask[rows]
        spans = None if self.spans is None else {n: flags[rows] for n, flags in self.spans.items()}
        return Prompt(len(range(self.rows)[rows]), self.columns, mask, spans)

    def spans_for(self, rows: int) -> dict[str, Bool[Tensor, "b p"]] | None:
        """Return the spans of a batch that repeats the prompt's rows.

        Raises:
            MismatchError: its rows are no multiple of them.
        """
        if self.spans is None:
            return None
        if rows % self.rows:
            raise MismatchError(
                f"a forward of {rows} rows inside intervene, whose spans have {self.rows}; give "
                "spans of the rows that the model gets, or each prompt's row several times"
            )
        times = rows // self.rows
        return {name: flags.repeat_interleave(times, 0) for name, flags in self.spans.items()}

    def check(self, scope: str) -> None:
        """Refuse rows without any of the spans that a scope names; looked at once a scope.

        Raises:
            ConfigError: there is such a row.
        """
        if scope in self._checked or self.spans is None:
            return
        self._checked.add(scope)
        if parse_scope(scope).spans:
            there = {name: flags.any(1).tolist() for name, flags in self.spans.items()}
            for row in range(self.rows):
                present = [name for name, flags in there.items() if flags[row]]
                refuse_absent(scope, present, f"row {row} of the batch")


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


def _named(spans: Batch | Mapping[str, Tensor]) -> Prompt:
    """Return the prompt whose parts a caller named.

    Raises:
        MismatchError: a mask that is not boolean and two-dimensional, or of another shape.
    """
    if isinstance(spans, Batch):
        rows, columns = spans.input_ids.shape
        return Prompt(rows, columns, spans.attention_mask, spans.spans)
    shapes = {name: tuple(flags.shape) for name, flags in spans.items()}
    odd = [name for name, flags in spans.items() if flags.dtype != torch.bool or flags.ndim != 2]
    if not spans or odd or len(set(shapes.values())) > 1:
        raise MismatchError(
            f"spans of shapes {shapes}"
            + (f", {odd[0]!r} of type {spans[odd[0]].dtype}" if odd else "")
            + "; give each name one boolean mask (rows, columns) over the input_ids"
        )
    rows, columns = next(iter(spans.values())).shape
    return Prompt(rows, columns, None, spans)


def _check_known(scope: str, prompt: Prompt | None) -> None:
    """Refuse a scope that a forward does not tell the meaning of.

    Raises:
        ConfigError: it needs the prompt or its spans, and the forward does not say what they are.
    """
    asked = parse_scope(scope)
    if prompt is not None and (prompt.spans is not None or not asked.spans):
        prompt.check(scope)
    elif asked.needs_prompt:
        raise ConfigError(
            f"scope {scope!r} needs to know the prompt"
            + (f" and its {' and '.join(asked.spans)}" if asked.spans else "")
            + ", which this forward does not say; give the model the input_ids of subject.encode "
            "themselves, call subject.generate, or pass spans=batch to wb.intervene "
            "(scopes all, all+first, last and tokens:... need nothing)"
        )


def _check_end(scope: str, prompt: Prompt | None) -> None:
    """Refuse to guess where prompts end that run in chunks, with no mask of the whole.

    Raises:
        ConfigError: nothing says which of the later columns are pads.
    """
    if prompt is not None and prompt.mask is None:
        raise ConfigError(
            f"scope {scope!r} needs to know where each prompt ends, but this forward holds the "
            "first columns alone and spans say nothing of pads; pass the whole batch of "
            "subject.encode, spans=batch, to wb.intervene"
        )
