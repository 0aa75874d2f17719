"""BiPO on all blocks against the plain loop: hooks, one reply at a time, the whole vocabulary.

Both read the same pairs in the same order with the same signs: a prompt of 96 tokens and replies of
24 to 96, the vectors added on 64 tokens of the prompt. Losses are compared at every update.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from common import (
    PEER_ERRORS,
    Options,
    finish,
    keep,
    measured,
    open_subject,
    options_of,
    rounded,
    token_rows,
    verdict,
)
from torch import Tensor
from torch.nn.functional import logsigmoid
from workbench_training.bipo import BiPO
from workbench_training.pair_loop import DRAW, PairLoop
from workbench_training.pair_settings import PairFitConfig
from workbench_training.pair_state import State
from workbench_training.pairs import Pair, Reply
from workbench_training.reply_scores import frozen

from workbench.types import Subject

SEED = 20_261_201
PROMPT, FIRST, MARKED = 96, 24, 64
"""Tokens of a prompt, where its edited tokens begin, and how many they are."""
REPLY = (24, 96)
ROOM = {"float32": 1e-4, "bfloat16": 2e-2}
"""Largest difference of an update's loss, in nats."""


@dataclass
class Trained:
    """Losses and seconds of each update, the last vectors, peak memory."""

    losses: list[float]
    seconds: list[float]
    v: Tensor
    peak: int | None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 where losses disagree."""
    options = options_of(__doc__ or "", ("bipo",), argv)
    subject = open_subject(options, small_dtype="float32")
    found: dict[str, Any] = {}
    with measured("bipo"):
        found["bipo"] = run_bipo(options, subject)
    keep(options, found)
    return finish(options, subject, found)


def run_bipo(options: Options, subject: Subject) -> dict[str, Any]:
    """Train ours and the peer in turn, from zero, on the same pairs."""
    on_card = subject.model.device.type == "cuda"
    batch, updates = (32, 6) if on_card else (8, 3)
    updates = 2 if options.quick else options.count("bipo", updates)
    pairs = drawn_pairs(subject, batch * updates)
    config = PairFitConfig(
        pairs="drawn", epochs=1, batch_size=batch, learning_rate=0.01, warmup=0.0, seed=SEED
    )
    tokens = sum(len(reply.ids) for p in pairs for reply in (p.chosen, p.rejected)) / updates
    ours = train_ours(subject, config, pairs)
    row: dict[str, Any] = {
        "pairs_per_update": batch,
        "updates": updates,
        "tokens_per_update": round(tokens),
        **told("ours", ours, tokens),
    }
    if "plain" not in options.peers:
        return {**row, "plain": None, "plain_reason": "left out"}
    try:
        plain = train_plain(subject, config, pairs)
    except PEER_ERRORS as error:
        return {**row, "plain": None, "plain_reason": f"{type(error).__name__}: {error}"[:200]}
    gap = max(abs(a - b) for a, b in zip(ours.losses, plain.losses, strict=True))
    cosine = torch.nn.functional.cosine_similarity(ours.v[:-1], plain.v[:-1], dim=1)
    return {
        **row,
        **told("plain", plain, tokens),
        "ratio_plain": rounded(median(plain.seconds) / median(ours.seconds)),
        "agree": gap,
        "least_cosine": rounded(float(cosine.min())),
        **verdict(gap, ROOM[str(subject.model.dtype).removeprefix("torch.")]),
    }


def told(name: str, way: Trained, tokens: float) -> dict[str, Any]:
    """Return tokens a second by the median update, its losses and memory."""
    found: dict[str, Any] = {
        name: rounded(tokens / median(way.seconds)),
        f"{name}_losses": [rounded(loss) for loss in way.losses],
        f"{name}_seconds": [rounded(seconds) for seconds in way.seconds],
    }
    return found if way.peak is None else {**found, f"{name}_peak_gib": rounded(way.peak / 2**30)}


def drawn_pairs(subject: Subject, count: int) -> list[Pair]:
    """Return pairs of drawn tokens; both replies of a pair follow the same prompt."""
    rng = np.random.default_rng(SEED)
    rows = token_rows(subject, 2 * count, PROMPT + REPLY[1])
    pairs = []
    for number in range(count):
        prompt = rows[number][:PROMPT]
        replies = []
        for row in (rows[number], rows[count + number]):
            size = int(rng.integers(REPLY[0], REPLY[1] + 1))
            ids = (*prompt, *row[PROMPT : PROMPT + size])
            replies.append(Reply(ids, PROMPT, ((FIRST, FIRST + MARKED),)))
        pairs.append(Pair(str(number), *replies))
    return pairs


# --- the two ways ---------------------------------------------------------------------------------


def train_ours(subject: Subject, config: PairFitConfig, pairs: Sequence[Pair]) -> Trained:
    """Train through the package's own loop."""
    layers = tuple(subject.blocks)
    with frozen(subject), _peak(subject) as peak:
        loop = PairLoop(subject, BiPO(), config, layers, pairs)
        rows = loop.train(loop.observe(pairs), State(None, "benchmark", None))
        found = peak()
    v = loop.parameters["v"].detach().cpu()
    return Trained([row["loss"] for row in rows], [row["seconds"] for row in rows], v, found)


def train_plain(subject: Subject, config: PairFitConfig, pairs: Sequence[Pair]) -> Trained:
    """Train as one would by hand: a forward for each reply, all logits, a hook for each block."""
    method, device = BiPO(), subject.model.device
    v = torch.zeros(subject.n_layers, subject.width, device=device, requires_grad=True)
    optimizer = torch.optim.AdamW([v], lr=config.learning_rate, weight_decay=config.weight_decay)
    losses, seconds = [], []
    updates = len(pairs) // config.batch_size
    with frozen(subject), _peak(subject) as peak:
        schedule = PairLoop(subject, method, config, tuple(subject.blocks), pairs)
        with torch.no_grad():
            before = {
                (n, key): plain_logprob(subject, getattr(pairs[n], key), None)
                for n in range(len(pairs))
                for key in ("chosen", "rejected")
            }
        for step in range(updates):
            began = time.perf_counter()
            sign = method.runs(np.random.default_rng([config.seed, DRAW, step]))[0].strength
            optimizer.zero_grad()
            total = 0.0
            for number in schedule.numbers_of(step):
                rewards = [
                    sign * method.beta
                    * (plain_logprob(subject, getattr(pairs[number], key), sign * v)
                       - before[number, key])
                    for key in ("chosen", "rejected")
                ]  # fmt: skip
                loss = -logsigmoid(rewards[0] - rewards[1]) / config.batch_size
                loss.backward()
                total += float(loss)
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * schedule_rate(config, step, updates)
            optimizer.step()
            losses.append(total)
            seconds.append(time.perf_counter() - began)
        return Trained(losses, seconds, v.detach().cpu(), peak())


def schedule_rate(config: PairFitConfig, step: int, updates: int) -> float:
    """Return the same schedule as ours, from its own definition."""
    gone = step / max(updates - 1, 1)
    return config.floor + (1 - config.floor) * (1 + float(np.cos(np.pi * gone))) / 2


def plain_logprob(subject: Subject, reply: Reply, v: Tensor | None) -> Tensor:
    """Return the log-probability of one reply, with vectors added on its edited tokens."""
    device = subject.model.device
    ids = torch.tensor([reply.ids], device=device)
    ((first, last),) = reply.marked
    handles = []
    if v is not None:
        for layer, block in subject.blocks.items():

            def add(_module: Any, _args: Any, output: Any, row: Tensor = v[layer]) -> Any:
                h = output if isinstance(output, Tensor) else output[0]
                mask = torch.zeros(h.shape[1], 1, device=h.device)
                mask[first:last] = 1
                h = (h.float() + mask * row).to(h.dtype)
                return h if isinstance(output, Tensor) else (h, *output[1:])

            handles.append(block.register_forward_hook(add))
    try:
        logprobs = subject.model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
    finally:
        for handle in handles:
            handle.remove()
    scored = torch.arange(reply.first, len(reply.ids), device=device)
    return logprobs[0, scored - 1, ids[0, scored]].sum()


@contextmanager
def _peak(subject: Subject) -> Iterator[Any]:
    """Give the most memory held since; the model counts."""
    on_card = subject.model.device.type == "cuda"
    if on_card:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(subject.model.device)
    yield lambda: torch.cuda.max_memory_allocated(subject.model.device) if on_card else None


if __name__ == "__main__":
    sys.exit(main())
