"""Continuations: greedy or sampled, each row's draws its own whatever stands beside it."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from workbench.engine.apply import (
    intervene,
    refuse_lacking,
    rows_together,
    undone_on_failure,
)
from workbench.engine.batches import Limits, packed
from workbench.engine.forward import (
    Inputs,
    device_of,
    is_out_of_memory,
    pad_id,
    pad_left,
    too_large,
)
from workbench.engine.prefill import prefilled
from workbench.engine.prompts import placed_spans
from workbench.given import prompts_of
from workbench.interventions import EditLog
from workbench.models.families import refuse_long
from workbench.models.spans import remember_spans
from workbench.types import Arm, GenerateRead, Rendered, Request, Subject, ndarray

logger = logging.getLogger(__name__)


class Draw(LogitsProcessor):
    """Turns scores into one drawn token a row, by inverting the cumulative distribution.

    Args:
        uniforms: one number in [0, 1) for each row and step.
        width: columns of the prompt.
        temperature: above 0.
    """

    def __init__(self, uniforms: Float[ndarray, "b t"], width: int, temperature: float) -> None:
        self.uniforms = torch.from_numpy(uniforms)
        self.width = width
        self.temperature = temperature

    def __call__(self, input_ids: Int[Tensor, "b t"], scores: Float[Tensor, "b v"]) -> Tensor:
        exact = torch.float32 if scores.device.type == "mps" else torch.float64
        edges = (scores.to(exact) / self.temperature).softmax(-1).cumsum(-1)
        step = input_ids.shape[1] - self.width
        drawn = self.uniforms[:, step].to(edges) * edges[:, -1]
        token = torch.searchsorted(edges, drawn[:, None], right=True)
        token = token.clamp(max=scores.shape[-1] - 1)
        return torch.full_like(scores, -torch.inf).scatter_(1, token, 0.0)


def generate(
    subject: Subject,
    prompts: Sequence[Any],
    *,
    max_new_tokens: int = 40,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int | None = None,
    num_beams: int = 1,
    **render: Any,
) -> list[str]:
    """Continue texts or chats and return the new text alone.

    Edits of an enclosing ``intervene`` act; several arms there need ``batch_size`` (by default
    everything) to be a multiple of their number. Beams of a row have its arm.

    Args:
        subject: the model under study.
        prompts: texts or chats, or one of them.
        max_new_tokens: at most so many; a row ends earlier at an end-of-turn token.
        temperature: 0 takes the likeliest token.
        seed: row i draws from (seed, i), whatever the batch, and no global state is touched.
        batch_size: rows that run together.
        num_beams: 1 takes the likeliest token each time; more search for the likeliest text, as
            transformers does, and need temperature 0.
        render: as in ``subject.encode``.

    Raises:
        ValueError: a temperature below 0, no new token, beams that sample, or no row at a time.
        ConfigError: a prompt lacks a span that an edit's scope names.
    """
    rows = rendered_rows(subject, prompts, render)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size {batch_size}; expected at least 1, or None for all rows")
    size = batch_size or max(1, len(rows))
    texts: list[str] = []
    for start in range(0, len(rows), size):
        chosen = range(start, min(start + size, len(rows)))
        draws = [(seed, row) for row in chosen]
        texts += continue_rows(
            subject, rows[chosen.start : chosen.stop], max_new_tokens, temperature, draws,
            num_beams=num_beams,
        )  # fmt: skip
    return texts


def rendered_rows(
    subject: Subject, prompts: Sequence[Any], render: Mapping[str, Any]
) -> list[Rendered]:
    """Render prompts, each with the spans that an enclosing ``intervene`` needs.

    Raises:
        ConfigError: a prompt lacks them.
    """
    rows = [subject.renderer.render(prompt, **render) for prompt in prompts_of(prompts)]
    refuse_lacking(subject, [[name for name, own in row.spans.items() if own] for row in rows])
    return rows


def continue_rows(
    subject: Subject,
    rows: Sequence[Rendered],
    max_new_tokens: int,
    temperature: float,
    draws: Sequence[tuple[int, ...]],
    lacking: Callable[[], object] = lambda: None,
    num_beams: int = 1,
) -> list[str]:
    """Continue rows of ids; ``draws`` seeds each row.

    They run as one batch, or where the device has no room for it as smaller ones, each half as
    large; the arms of an enclosing ``intervene`` stay together, and ``lacking`` is told.

    Raises:
        BatchTooLargeError: not even the smallest batch fits.
        ConfigError: a prompt that leaves no room for so many new tokens.
    """
    check_settings(max_new_tokens, temperature)
    if num_beams < 1 or (num_beams > 1 and temperature):
        raise ValueError(
            f"num_beams {num_beams} with temperature {temperature}; expected at least 1 beam, and "
            "temperature 0 where there are several"
        )
    for number, row in enumerate(rows):
        refuse_long(subject.model, len(row.ids) + max_new_tokens, f"prompt {number}")
    texts: list[str] = []
    size, unit = len(rows), rows_together(subject)
    while len(texts) < len(rows):
        part = slice(len(texts), len(texts) + size)
        try:
            with undone_on_failure(subject):
                texts += _continued(
                    subject, rows[part], max_new_tokens, temperature, draws[part], num_beams
                )
            continue
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error)
        longest = max(len(row.ids) for row in rows[part])
        failed = too_large(len(rows[part]) * num_beams, longest + max_new_tokens, reason)
        if len(rows[part]) <= unit:
            raise failed
        size = max(unit, len(rows[part]) // 2 // unit * unit)
        lacking()
        logger.warning("%s; going on with %d rows at once", failed, size)
    return texts


def check_settings(max_new_tokens: int, temperature: float) -> None:
    """Refuse what nobody can generate.

    Raises:
        ValueError: a temperature below 0 or no new token.
    """
    if temperature < 0 or max_new_tokens < 1:
        raise ValueError(
            f"temperature {temperature}, max_new_tokens {max_new_tokens}; expected at least 0 and 1"
        )


def padded(subject: Subject, rows: Sequence[Rendered]) -> Inputs:
    """Pad prompts on the left, their spans remembered."""
    inputs = pad_left([row.ids for row in rows], pad_id(subject), device_of(subject))
    remember_spans(inputs.ids, placed_spans([row.spans for row in rows], inputs.mask))
    return inputs


def draw_of(
    draws: Sequence[tuple[int, ...]], width: int, max_new_tokens: int, temperature: float
) -> Draw | None:
    """Return what draws each row's tokens; None where the likeliest are taken."""
    if not temperature:
        return None
    uniforms = [np.random.default_rng(entropy).random(max_new_tokens) for entropy in draws]
    return Draw(np.stack(uniforms), width, temperature)


def _continued(
    subject: Subject,
    rows: Sequence[Rendered],
    max_new_tokens: int,
    temperature: float,
    draws: Sequence[tuple[int, ...]],
    num_beams: int,
) -> list[str]:
    inputs = padded(subject, rows)
    width = inputs.ids.shape[1]
    draw = draw_of(draws, width, max_new_tokens, temperature)
    processors = LogitsProcessorList([] if draw is None else [draw])
    cache = prefilled(subject, inputs, rows, max_new_tokens) if num_beams == 1 else None
    tokens = _continue(subject, inputs, max_new_tokens, processors, num_beams, cache)
    return [text_of(subject, row) for row in tokens[:, width:].tolist()]


def _continue(
    subject: Subject,
    inputs: Inputs,
    max_new_tokens: int,
    processors: LogitsProcessorList,
    num_beams: int,
    cache: Any,
) -> Int[Tensor, "b t"]:
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=num_beams,
        length_penalty=1.0,
        early_stopping=False,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        pad_token_id=pad_id(subject),
        eos_token_id=ends_of(subject) or None,
    )
    with torch.no_grad():
        tokens: Tensor = subject.model.generate(
            input_ids=inputs.ids,
            attention_mask=inputs.mask,
            generation_config=config,
            logits_processor=processors,
            **({} if cache is None else {"past_key_values": cache}),
        )
    return tokens


def ends_of(subject: Subject) -> list[int]:
    """Return the tokens that end a turn."""
    config = getattr(subject.model, "generation_config", None)
    ends = getattr(config, "eos_token_id", None)
    ends = subject.tokenizer.eos_token_id if ends is None else ends
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def text_of(subject: Subject, tokens: Sequence[int]) -> str:
    """Return the text of new tokens, up to the end of the turn."""
    ends = set(ends_of(subject))
    stop = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
    text: str = subject.tokenizer.decode(tokens[:stop], skip_special_tokens=True)
    return text


def answer_generations(
    subject: Subject,
    requests: Sequence[Request],
    wanted: Sequence[tuple[int, int]],
    arms: Sequence[Arm],
    values: list[list[list[Any]]],
    log: EditLog,
    limits: Callable[[], Limits],
    lacking: Callable[[], object],
) -> Iterator[int]:
    """Fill in the continuations of (request, read) pairs, and yield how many each batch finished.

    All arms of a request are rows of one batch, and its draw k uses the same random numbers in
    every arm, named by seed, item and condition, so that batches and their order do not matter:
    reads that differ in their seed alone run together.
    ``limits`` are asked for at each batch, and ``lacking`` is called where memory ran out.
    """
    groups: dict[GenerateRead, list[tuple[int, int]]] = {}
    for number, place in wanted:
        read = requests[number].reads[place]
        assert isinstance(read, GenerateRead)
        groups.setdefault(replace(read, seed=0), []).append((number, place))
    for read, pairs in groups.items():
        pairs = sorted(pairs, key=lambda pair: len(requests[pair[0]].ids))
        copies = (read.n if read.temperature else 1) * len(arms)
        while pairs:
            lengths = [len(requests[number].ids) + read.max_new_tokens for number, _ in pairs]
            room = limits().budget // copies

            def fits(rows: int, width: int, _total: int, room: int = room) -> bool:
                return rows * width <= room

            first = next(packed(lengths, fits))
            _answer(subject, requests, read, pairs[: len(first)], arms, values, log, lacking)
            pairs = pairs[len(first) :]
            yield len(first)


def _answer(
    subject: Subject,
    requests: Sequence[Request],
    read: GenerateRead,
    pairs: Sequence[tuple[int, int]],
    arms: Sequence[Arm],
    values: list[list[list[Any]]],
    log: EditLog,
    lacking: Callable[[], object],
) -> None:
    """Answer reads that are this one but for their seeds."""
    draws = range(read.n if read.temperature else 1)
    rows, seeds = [], []
    for number, place in pairs:
        request = requests[number]
        own_read = request.reads[place]
        assert isinstance(own_read, GenerateRead)
        names = [zlib.crc32(name.encode()) for name in (request.item, request.condition)]
        for draw in draws:
            rows += [Rendered(tuple(request.ids), request.spans)] * len(arms)
            seeds += [(own_read.seed, draw, *names)] * len(arms)
    edits = intervene(subject, arms, log=log) if any(arms) else nullcontext()
    with edits:
        texts = continue_rows(subject, rows, read.max_new_tokens, read.temperature, seeds, lacking)
    for place, (number, slot) in enumerate(pairs):
        for arm in range(len(arms)):
            first = place * len(draws) * len(arms) + arm
            own = texts[first : first + len(draws) * len(arms) : len(arms)]
            values[arm][number][slot] = own * (read.n // len(draws))
