"""Continuations piece by piece, as they are made: unedited and steered rows side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from workbench.engine.apply import Editing, arm_of
from workbench.engine.cache import fresh_cache
from workbench.engine.forward import (
    Inputs,
    head_at,
    is_out_of_memory,
    pad_id,
    run,
    too_large,
)
from workbench.engine.generate import (
    Draw,
    check_settings,
    draw_of,
    ends_of,
    padded,
    rendered_rows,
    text_of,
)
from workbench.given import refuse_name
from workbench.interventions import Gap, Intervention, SavedIntervention
from workbench.types import LayerEdit, Subject

Several = Sequence[Intervention | SavedIntervention | LayerEdit]
"""Edits that act together."""
BASELINE, STEERED = "baseline", "steered"
_SMALLER = (
    "stream fewer prompts or arms side by side; where one alone is too large, shorten the prompt, "
    "ask for fewer new tokens, or load the model in a smaller dtype"
)


@dataclass(frozen=True)
class Piece:
    """Text that one row has just gained."""

    prompt: int
    arm: str
    text: str
    done: bool
    """Whether the row has ended; its pieces joined are what ``generate`` gives."""


def stream(
    subject: Subject,
    prompts: Sequence[Any],
    interventions: Several | Mapping[str, Several] | None = None,
    *,
    gap: Gap | None = None,
    max_new_tokens: int = 40,
    temperature: float = 0.0,
    seed: int = 0,
    **render: Any,
) -> Iterator[Piece]:
    """Continue texts or chats and yield new text as it comes.

    All rows run in one batch, prompt by prompt, a prompt's arms side by side with the same random
    numbers. The model is edited while a token is made and free between pieces. Edits of an
    enclosing ``intervene`` act too, for as long as its block lasts.

    Args:
        subject: the model under study.
        prompts: texts or chats, or one of them.
        interventions: what the arm ``steered`` has, beside an unedited ``baseline``; or a name and
            interventions for each arm; None streams the model as it is.
        gap: the natural gap, for doses in gap units.
        max_new_tokens: at most so many; a row ends earlier at an end-of-turn token.
        temperature: 0 takes the likeliest token.
        seed: prompt i draws from (seed, i), in every arm, and no global state is touched.
        render: as in ``subject.encode``.

    Raises:
        ValueError: a temperature below 0, no new token or no arm.
        BatchTooLargeError: while streaming, the device has no room for all rows side by side.
        WorkbenchError: a prompt lacks a span that a scope names, or an edit touched no token.
    """
    refuse_name(subject)
    check_settings(max_new_tokens, temperature)
    arms = _named(interventions)
    several = [arm_of(subject, own, gap) for own in arms.values()]
    editing = Editing(subject, several) if any(several) else None
    with editing or nullcontext():  # so that prompts without its spans are refused now
        rendered = rendered_rows(subject, prompts, render)
    places = [(prompt, arm) for prompt in range(len(rendered)) for arm in arms]
    rows = [Row(subject, prompt, arm) for prompt, arm in places]
    if not rows:
        return iter(())
    inputs = padded(subject, [rendered[prompt] for prompt, _ in places])
    seeds = [(seed, prompt) for prompt, _ in places]
    draw = draw_of(seeds, inputs.ids.shape[1], max_new_tokens, temperature)
    return _pieces(Loop(subject, inputs, draw, editing), rows, max_new_tokens)


def _named(interventions: Several | Mapping[str, Several] | None) -> dict[str, Several]:
    if interventions is None:
        return {BASELINE: ()}
    if not interventions:
        raise ValueError("no interventions to stream; give at least one, or None for the model")
    if isinstance(interventions, Mapping):
        return dict(interventions)
    return {BASELINE: (), STEERED: interventions}


def _pieces(loop: Loop, rows: Sequence[Row], max_new_tokens: int) -> Iterator[Piece]:
    for step in range(max_new_tokens):
        tokens = loop.next([row.ended for row in rows]).tolist()
        for row, token in zip(rows, tokens, strict=True):
            if row.ended:
                continue
            text = row.take(token, last=step + 1 == max_new_tokens)
            if text or row.ended:
                yield Piece(row.prompt, row.arm, text, row.ended)
        if all(row.ended for row in rows):
            break
    if loop.editing is not None:
        loop.editing.refuse_idle()


@dataclass
class Loop:
    """One token a row after the other, on the model's own forward and cache."""

    subject: Subject
    inputs: Inputs
    """What runs next."""
    draw: Draw | None
    editing: Editing | None
    _cache: Any = None
    _ids: list[Int[Tensor, "b t"]] = field(default_factory=list)

    def next(self, ended: Sequence[bool]) -> Int[Tensor, " b"]:
        """Make one token for each row; rows that have ended get a pad."""
        self._ids.append(self.inputs.ids)
        with torch.no_grad():
            scores = self._scores()
            if self.draw is not None:
                scores = self.draw(torch.cat(self._ids, 1), scores)
        over = torch.tensor(ended, device=scores.device)
        tokens = scores.argmax(-1).masked_fill(over, pad_id(self.subject))
        self._advance(tokens.to(self.inputs.ids.device))
        return tokens

    def _scores(self) -> Float[Tensor, "b v"]:
        try:
            return self._run()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error)
        self._cache = None
        rows, tokens = self.inputs.mask.shape[0], self.inputs.mask.shape[-1]
        raise too_large(rows, tokens, reason, _SMALLER)

    def _run(self) -> Float[Tensor, "b v"]:
        if self._cache is None:
            self._cache = fresh_cache(self.subject)
        rows, t = self.inputs.ids.shape
        last = torch.full((rows,), t - 1)
        with self.editing or nullcontext(), head_at(self.subject, torch.arange(rows), last):
            logits = run(self.subject, self.inputs, self._cache).logits
        scores: Tensor = logits[0].float()
        return scores

    def _advance(self, tokens: Int[Tensor, " b"]) -> None:
        now = self.inputs
        mask = torch.cat([now.mask, torch.ones_like(now.mask[:, :1])], 1)
        positions = now.positions[:, -1:] + 1
        self.inputs = Inputs(tokens[:, None], mask, positions, full=now.full)


class Row:
    """The text of one row, given out as far as later tokens cannot change it."""

    def __init__(self, subject: Subject, prompt: int, arm: str) -> None:
        self.subject, self.prompt, self.arm = subject, prompt, arm
        self.ended = False
        self._ends = set(ends_of(subject))
        self._tokens: list[int] = []
        self._given = 0

    def take(self, token: int, *, last: bool) -> str:
        """Add a token and return the text that is new and settled."""
        self._tokens.append(token)
        self.ended = last or token in self._ends
        text = text_of(self.subject, self._tokens)
        settled = len(text) if self.ended else self._settled(text)
        new = text[self._given : settled]
        self._given = max(self._given, settled)
        return new

    def _settled(self, text: str) -> int:
        """Return how much of a text stays: half a character may follow, or a space may go."""
        if getattr(self.subject.tokenizer, "clean_up_tokenization_spaces", False):
            return max(0, text.rfind(" "))
        return len(text.rstrip("\N{REPLACEMENT CHARACTER}"))
