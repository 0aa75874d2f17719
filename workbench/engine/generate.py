"""Continuations: greedy or sampled, each row's draws its own whatever stands beside it."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from workbench.engine.apply import intervene, rows_together, undone_on_failure
from workbench.engine.batches import Limits, packed
from workbench.engine.forward import (
    Inputs,
    device_of,
    is_out_of_memory,
    pad_id,
    pad_left,
    too_large,
)
from workbench.interventions import EditLog
from workbench.types import Arm, GenerateRead, Request, Subject, ndarray

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
    **render: Any,
) -> list[str]:
    """Continue texts or chats and return the new text alone.

    Edits of an enclosing ``intervene`` act; several arms there need ``batch_size`` (by default
    everything) to be a multiple of their number.

    Args:
        subject: the model under study.
        prompts: texts or chats.
        max_new_tokens: at most so many; a row ends earlier at an end-of-turn token.
        temperature: 0 takes the likeliest token.
        seed: row i draws from (seed, i), whatever the batch, and no global state is touched.
        batch_size: rows that run together.
        render: as in ``subject.encode``.

    Raises:
        ValueError: a temperature below 0 or no new token.
    """
    rows = [subject.renderer.render(prompt, **render).ids for prompt in prompts]
    size = batch_size or max(1, len(rows))
    texts: list[str] = []
    for start in range(0, len(rows), size):
        chosen = range(start, min(start + size, len(rows)))
        draws = [(seed, row) for row in chosen]
        texts += continue_rows(
            subject, [rows[row] for row in chosen], max_new_tokens, temperature, draws
        )
    return texts


def continue_rows(
    subject: Subject,
    rows: Sequence[Sequence[int]],
    max_new_tokens: int,
    temperature: float,
    draws: Sequence[tuple[int, ...]],
    lacking: Callable[[], object] = lambda: None,
) -> list[str]:
    """Continue rows of ids; ``draws`` seeds each row.

    They run as one batch, or where the device has no room for it as smaller ones, each half as
    large; the arms of an enclosing ``intervene`` stay together, and ``lacking`` is told.

    Raises:
        BatchTooLargeError: not even the smallest batch fits.
    """
    if temperature < 0 or max_new_tokens < 1:
        raise ValueError(
            f"temperature {temperature}, max_new_tokens {max_new_tokens}; expected at least 0 and 1"
        )
    texts: list[str] = []
    size, unit = len(rows), rows_together(subject)
    while len(texts) < len(rows):
        part = slice(len(texts), len(texts) + size)
        try:
            with undone_on_failure(subject):
                texts += _continued(subject, rows[part], max_new_tokens, temperature, draws[part])
            continue
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error)
        failed = too_large(len(rows[part]), max(map(len, rows[part])) + max_new_tokens, reason)
        if len(rows[part]) <= unit:
            raise failed
        size = max(unit, len(rows[part]) // 2 // unit * unit)
        lacking()
        logger.warning("%s; going on with %d rows at once", failed, size)
    return texts


def _continued(
    subject: Subject,
    rows: Sequence[Sequence[int]],
    max_new_tokens: int,
    temperature: float,
    draws: Sequence[tuple[int, ...]],
) -> list[str]:
    inputs = pad_left(rows, pad_id(subject), device_of(subject))
    width = inputs.ids.shape[1]
    processors = LogitsProcessorList()
    if temperature > 0:
        uniforms = [np.random.default_rng(entropy).random(max_new_tokens) for entropy in draws]
        processors.append(Draw(np.stack(uniforms), width, temperature))
    tokens = _continue(subject, inputs, max_new_tokens, processors)
    return [_text(subject, row) for row in tokens[:, width:].tolist()]


def _continue(
    subject: Subject, inputs: Inputs, max_new_tokens: int, processors: LogitsProcessorList
) -> Int[Tensor, "b t"]:
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        pad_token_id=pad_id(subject),
        eos_token_id=_ends(subject) or None,
    )
    with torch.no_grad():
        tokens: Tensor = subject.model.generate(
            input_ids=inputs.ids,
            attention_mask=inputs.mask,
            generation_config=config,
            logits_processor=processors,
        )
    return tokens


def _ends(subject: Subject) -> list[int]:
    config = getattr(subject.model, "generation_config", None)
    ends = getattr(config, "eos_token_id", None)
    ends = subject.tokenizer.eos_token_id if ends is None else ends
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def _text(subject: Subject, tokens: Sequence[int]) -> str:
    ends = set(_ends(subject))
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
    every arm, named by item and condition, so that batches and their order do not matter.
    ``limits`` are asked for at each batch, and ``lacking`` is called where memory ran out.
    """
    groups: dict[GenerateRead, list[tuple[int, int]]] = {}
    for number, place in wanted:
        read = requests[number].reads[place]
        assert isinstance(read, GenerateRead)
        groups.setdefault(read, []).append((number, place))
    for read, pairs in groups.items():
        pairs = sorted(pairs, key=lambda pair: len(requests[pair[0]].ids))
        copies = (read.n if read.temperature else 1) * len(arms)
        while pairs:
            lengths = [len(requests[number].ids) + read.max_new_tokens for number, _ in pairs]
            room = limits().budget // copies

            def fits(rows: int, width: int, _total: int, room: int = room) -> bool:
                return rows * width <= room

            first = next(packed(lengths, fits))
            _answer(subject, requests, pairs[: len(first)], arms, values, log, lacking)
            pairs = pairs[len(first) :]
            yield len(first)


def _answer(
    subject: Subject,
    requests: Sequence[Request],
    pairs: Sequence[tuple[int, int]],
    arms: Sequence[Arm],
    values: list[list[list[Any]]],
    log: EditLog,
    lacking: Callable[[], object],
) -> None:
    read = requests[pairs[0][0]].reads[pairs[0][1]]
    assert isinstance(read, GenerateRead)
    draws = range(read.n if read.temperature else 1)
    rows, seeds = [], []
    for number, _ in pairs:
        request = requests[number]
        names = [zlib.crc32(name.encode()) for name in (request.item, request.condition)]
        for draw in draws:
            rows += [request.ids] * len(arms)
            seeds += [(read.seed, draw, *names)] * len(arms)
    edits = intervene(subject, arms, log=log) if any(arms) else nullcontext()
    with edits:
        texts = continue_rows(subject, rows, read.max_new_tokens, read.temperature, seeds, lacking)
    for place, (number, slot) in enumerate(pairs):
        for arm in range(len(arms)):
            first = place * len(draws) * len(arms) + arm
            own = texts[first : first + len(draws) * len(arms) : len(arms)]
            values[arm][number][slot] = own * (read.n // len(draws))
