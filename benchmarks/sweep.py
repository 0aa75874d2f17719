"""Sweeps against their peers: edits at many doses, generation, and candidate scoring.

W4 adds a direction at three blocks from 34% depth, W4b the same on prompts that share their first
two thirds, W5 caps at eight blocks of 64 from 72% depth, W6 is W4 at the final position alone, W7
generates under every dose, W8 scores the amounts 0 to 10. All through ``subject.runner``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from common import (
    SEED,
    Compared,
    Options,
    compare,
    finish,
    keep,
    measured,
    open_subject,
    options_of,
    rounded,
    statements,
    token_rows,
    verdict,
    words_of,
)
from plain import Work, hooked
from torch import Tensor

import workbench as wb
from workbench.directions import Directions
from workbench.interventions import Intervention
from workbench.linalg import random_unit
from workbench.readouts.choice import Letters
from workbench.types import Arm, Batch, CandidatesRead, Request, Subject

NATS = {"float32": 2e-3, "bfloat16": 0.5, "float16": 0.1}
"""Largest difference of a log-probability from the peer's."""
AMOUNTS = tuple(str(amount) for amount in range(11))
NEW_TOKENS = 48
WORKLOADS = ("W4", "W4b", "W5", "W6", "W7", "W8", "curves")
CURVE_DOSES = (2, 4, 8, 16)


@dataclass(frozen=True)
class Sizes:
    """How large the inputs are."""

    prompts: int
    tokens: int
    doses: int
    new_tokens: int = NEW_TOKENS


# --- workloads ------------------------------------------------------------------------------------


def add_blocks(subject: Subject) -> list[int]:
    """Return three blocks from 34% depth: 22, 23, 24 of 64."""
    start = round(0.34 * subject.n_layers)
    return list(range(start, start + 3))


def cap_blocks(subject: Subject) -> list[int]:
    """Return an eighth of the blocks from 72% depth: 46 to 53 of 64."""
    start = round(0.72 * subject.n_layers)
    return list(range(start, start + max(1, round(subject.n_layers / 8))))


def random_direction(subject: Subject, layers: Sequence[int]) -> Directions:
    """Draw a unit vector a block, and measure the residual norm that doses refer to."""
    acts = wb.capture(subject, statements(subject, 16), layers=layers)
    vectors = np.stack([random_unit(1, subject.width, seed=(SEED, n))[0] for n in layers])
    return Directions(
        names=("drawn",),
        layers=tuple(layers),
        vectors=vectors[None],
        model=subject.stamp,
        norms=acts.mean_norms,  # type: ignore[union-attr]
    )


def add_arms(subject: Subject, doses: int, scope: str) -> list[Arm]:
    """Return doses from -0.3 to 0.3 of the residual norm, zero among them where odd."""
    along = random_direction(subject, add_blocks(subject))
    strengths = np.linspace(-0.3, 0.3, doses)
    made = [Intervention.add(along, dose=float(x), unit="norm", scope=scope) for x in strengths]
    return [one.arm(subject.stamp) for one in made]


def cap_arms(subject: Subject, doses: int) -> list[Arm]:
    """Return ceilings from -3 to 3 standard deviations of a coordinate along a drawn direction."""
    along = random_direction(subject, cap_blocks(subject))
    assert along.norms is not None
    spread = dict(zip(along.layers, along.norms / subject.width**0.5, strict=True))
    arms = []
    for level in np.linspace(-3, 3, doses):
        ceiling = {layer: float(level * size) for layer, size in spread.items()}
        arms.append(Intervention.cap(along, ceiling=ceiling).arm(subject.stamp))
    return arms


def letter_requests(subject: Subject, sizes: Sizes, shared: int = 0) -> list[Request]:
    """Ask for the probabilities of four letters after each prompt."""
    read = Letters.of(subject.tokenizer, ["A", "B", "C", "D"]).read
    rows = token_rows(subject, sizes.prompts, sizes.tokens, shared)
    return [Request(f"item{n}", "", ids, (read,)) for n, ids in enumerate(rows)]


def amount_requests(subject: Subject, sizes: Sizes) -> list[Request]:
    """Ask for the likelihood of each amount, closed by a terminator."""
    tokenizer = subject.tokenizer
    amounts = [tuple(tokenizer(x, add_special_tokens=False)["input_ids"]) for x in AMOUNTS]
    line = tokenizer("\n", add_special_tokens=False)["input_ids"]
    ends = (tokenizer.eos_token_id, *(line if len(line) == 1 else ()))
    read = CandidatesRead(tuple(amounts), ends)
    rows = token_rows(subject, sizes.prompts, sizes.tokens)
    return [Request(f"item{n}", "", ids, (read,)) for n, ids in enumerate(rows)]


def trunk_ratio(subject: Subject, fork: int, sizes: Sizes, shared: int = 0) -> float:
    """Return block-token products of the plain sweep over those of the plan."""
    blocks, doses = subject.n_layers, sizes.doses
    whole = sizes.prompts * sizes.tokens
    own = shared + sizes.prompts * (sizes.tokens - shared)
    return doses * blocks * whole / (own * (fork + 1) + doses * own * (blocks - fork - 1))


def last_ratio(subject: Subject, fork: int, sizes: Sizes, fed: int = 1, plain: int = 0) -> float:
    """Return the same where only the last position, and what follows it, differs by dose.

    Args:
        subject: the model under test.
        fork: the lowest edited block.
        sizes: of the inputs.
        fed: tokens by dose, the last of the prompt among them.
        plain: block-token products a dose and prompt of the plain way, over blocks.
    """
    blocks, doses = subject.n_layers, sizes.doses
    ours = blocks * (sizes.tokens - 1) + (fork + 1) * fed + doses * (blocks - fork - 1) * fed
    return doses * blocks * (plain or sizes.tokens) / ours


def run_logits(options: Options, subject: Subject, name: str, sizes: Sizes) -> dict[str, Any]:
    """Compare one of W4, W4b, W5 and W6."""
    shared = sizes.tokens * 2 // 3 if name == "W4b" else 0
    requests = letter_requests(subject, sizes, shared)
    if name == "W5":
        arms = cap_arms(subject, sizes.doses)
    else:
        arms = add_arms(subject, sizes.doses, "last" if name == "W6" else "all")
    fork = min(edit.layer for edit in arms[0])
    ratio = last_ratio if name == "W6" else trunk_ratio
    extra = {"shared": shared} if shared else {}
    work = Work(subject, requests, arms, ratio(subject, fork, sizes, **extra))
    return _compared(options, work, sizes, ("plain", "keep1"))


def run_candidates(options: Options, subject: Subject, sizes: Sizes) -> dict[str, Any]:
    """Compare W8."""
    requests = amount_requests(subject, sizes)
    arms = add_arms(subject, sizes.doses, "last")
    read = requests[0].reads[0]
    assert isinstance(read, CandidatesRead)
    fed = 1 + len({tokens[: n + 1] for tokens in read.candidates for n in range(len(tokens))})
    whole = sum(sizes.tokens + len(tokens) for tokens in read.candidates)
    fork = min(edit.layer for edit in arms[0])
    ratio = last_ratio(subject, fork, sizes, fed, whole)
    return _compared(options, Work(subject, requests, arms, ratio), sizes, ("candidate", "cached"))


def _compared(options: Options, work: Work, sizes: Sizes, peers: Sequence[str]) -> dict[str, Any]:
    runs: dict[str, Callable[[], Any]] = {"ours": work.ours}
    runs |= {peer: getattr(work, peer) for peer in peers if peer in options.peers}
    skipped = {peer: "not asked for" for peer in peers if peer not in runs}
    found = compare(runs, options.repeats, skipped=skipped)
    row = _times(found, peers)
    row["work_ratio"] = rounded(work.work_ratio)
    row |= _agreement(work, found)
    return row | vars(sizes) | {"reasons": found.reasons}


def _times(found: Compared, peers: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: rounded(found.times[name].seconds) if name in found.times else None
        for name in ("ours", *peers)
    }
    label = {"keep1": "plain_keep1"}
    for peer in peers:
        row[f"ratio_{label.get(peer, peer)}"] = found.ratio(peer)
    if not torch.cuda.is_available():
        row |= {f"cpu_ratio_{label.get(peer, peer)}": found.cpu_ratio(peer) for peer in peers}
    if found.peak:
        row["peak_mib"] = {name: round(value / 2**20) for name, value in found.peak.items()}
    return row


def _agreement(work: Work, found: Compared) -> dict[str, Any]:
    """Return the largest difference in nats, and how far the doses move the answer at all."""
    ours = found.outputs["ours"]
    gaps, lines = [0.0], [1.0]
    for peer, values in found.outputs.items():
        if peer != "ours":
            gaps.append(float(np.abs(ours - values).max()))
            lines.append(float(np.corrcoef(ours.ravel(), values.ravel())[0, 1]))
    return {
        "agree": rounded(max(gaps)),
        "correlation": round(min(lines), 6),
        "moved": rounded(float(np.ptp(ours, axis=0).max())),
        **verdict(max(gaps), NATS[work.subject.ref.dtype]),
    }


# --- generation -----------------------------------------------------------------------------------


def run_generation(options: Options, subject: Subject, sizes: Sizes) -> dict[str, Any]:
    """Compare W7: all doses as rows of one batch, against one dose after another."""
    arms = add_arms(subject, sizes.doses, "all")
    rng = np.random.default_rng(SEED)
    prompts = [words_of(subject, sizes.tokens, rng) for _ in range(sizes.prompts)]
    runner = subject.runner
    assert runner is not None

    def ours() -> list[list[str]]:
        rows = [prompt for prompt in prompts for _ in arms]
        with runner.intervene(subject, arms):
            texts = subject.generate(rows, max_new_tokens=sizes.new_tokens)
        return [texts[number :: len(arms)] for number in range(len(arms))]

    def sequential() -> list[list[str]]:
        return [_continued(subject, prompts, arm, sizes.new_tokens) for arm in arms]

    runs: dict[str, Callable[[], Any]] = {"ours": ours}
    if "sequential" in options.peers:
        runs["sequential"] = sequential
    skipped = {} if "sequential" in runs else {"sequential": "not asked for"}
    found = compare(runs, options.repeats, skipped=skipped)
    row = _times(found, ("sequential",))
    row["ms_per_step"] = rounded(1000 * found.times["ours"].seconds / sizes.new_tokens)
    if "sequential" in found.outputs:
        pairs = [
            (mine, other)
            for mine_arm, other_arm in zip(*found.outputs.values(), strict=True)
            for mine, other in zip(mine_arm, other_arm, strict=True)
        ]
        row["same_texts"] = f"{sum(mine == other for mine, other in pairs)} of {len(pairs)}"
        gap = _step_gap(subject, prompts, arms)
        row["agree"] = rounded(gap)
        row |= verdict(gap, NATS[subject.ref.dtype])
    return row | vars(sizes) | {"reasons": found.reasons}


def _step_gap(
    subject: Subject, prompts: Sequence[str], arms: Sequence[Arm], steps: int = 8
) -> float:
    """Return the largest difference in nats of the ten likeliest tokens, while texts are equal.

    Two ways that round differently part at the first near-tie, so whole texts say little.
    """
    runner = subject.runner
    assert runner is not None
    batch = _batch(subject, prompts)
    rows = batch.input_ids.repeat_interleave(len(arms), 0)
    mask = batch.attention_mask.repeat_interleave(len(arms), 0)
    with torch.no_grad(), runner.intervene(subject, arms):
        together = _generated(subject, rows, mask, steps)
    worst = 0.0
    for number, arm in enumerate(arms):
        with torch.no_grad(), hooked(subject, arm, batch.input_ids.shape[1] - 1):
            alone = _generated(subject, batch.input_ids, batch.attention_mask, steps)
        equal = torch.ones(len(prompts), dtype=torch.bool, device=rows.device)
        for step, logits in enumerate(alone.logits[: len(together.logits)]):
            theirs = logits.float().log_softmax(-1)
            ours = together.logits[step][number :: len(arms)].float().log_softmax(-1)
            best = theirs.topk(10, -1).indices
            gaps = (ours.gather(1, best) - theirs.gather(1, best)).abs().amax(-1)
            worst = max(worst, float(gaps[equal].max()) if equal.any() else 0.0)
            equal &= ours.argmax(-1) == theirs.argmax(-1)
    return worst


def _generated(
    subject: Subject, ids: Tensor, mask: Tensor, new_tokens: int, *, logits: bool = True
) -> Any:
    pad = subject.tokenizer.pad_token_id
    return subject.model.generate(
        ids,
        attention_mask=mask,
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=_ends(subject),
        pad_token_id=subject.tokenizer.eos_token_id if pad is None else pad,
        output_logits=logits,
        return_dict_in_generate=True,
    )


def _ends(subject: Subject) -> list[int]:
    config = getattr(subject.model, "generation_config", None)
    ends = getattr(config, "eos_token_id", None) or subject.tokenizer.eos_token_id
    return ends if isinstance(ends, list) else [ends]


def _batch(subject: Subject, prompts: Sequence[str]) -> Batch:
    batch = subject.encode(prompts)
    assert bool(batch.attention_mask.all()), "the prompts are of one length: no pad is edited"
    return batch


def _continued(subject: Subject, prompts: Sequence[str], arm: Arm, new_tokens: int) -> list[str]:
    batch = _batch(subject, prompts)
    width = batch.input_ids.shape[1]
    with torch.no_grad(), hooked(subject, arm, width - 1):
        tokens = _generated(
            subject, batch.input_ids, batch.attention_mask, new_tokens, logits=False
        ).sequences
    ended = set(_ends(subject))
    texts = []
    for row in tokens[:, width:].tolist():
        stop = next((place for place, token in enumerate(row) if token in ended), len(row))
        texts.append(subject.tokenizer.decode(row[:stop], skip_special_tokens=True))
    return texts


# --- how cost grows -------------------------------------------------------------------------------


def run_curves(options: Options, subject: Subject, sizes: Sizes) -> dict[str, Any]:
    """Time W4 at more doses and more items, beside what the plan predicts."""
    cases: dict[str, tuple[Work, float]] = {}
    for doses in CURVE_DOSES:
        cases[f"doses {doses}"] = _curve(subject, Sizes(sizes.prompts, sizes.tokens, doses))
    for times in (2, 4):
        more = Sizes(sizes.prompts * times, sizes.tokens, CURVE_DOSES[0])
        cases[f"items x{times}"] = _curve(subject, more)
    first = next(iter(cases))
    runs: dict[str, Callable[[], Any]] = {"ours": cases[first][0].ours}
    runs |= {name: work.ours for name, (work, _) in cases.items() if name != first}
    found = compare(runs, options.repeats)
    base = found.times["ours"]
    rows = {}
    for name, (_, cost) in cases.items():
        timing = found.times["ours" if name == first else name]
        rows[name] = {
            "seconds": rounded(timing.seconds),
            "cpu_seconds": rounded(timing.cpu_seconds),
            "grew": rounded(timing.seconds / base.seconds),
            "cpu_grew": rounded(timing.cpu_seconds / base.cpu_seconds),
            "predicted": rounded(cost / cases[first][1]),
        }
    return rows


def _curve(subject: Subject, sizes: Sizes) -> tuple[Work, float]:
    arms = add_arms(subject, sizes.doses, "all")
    fork = min(edit.layer for edit in arms[0])
    work = Work(subject, letter_requests(subject, sizes), arms, 1.0)
    blocks = subject.n_layers
    cost = sizes.prompts * sizes.tokens * (fork + 1 + sizes.doses * (blocks - fork - 1))
    return work, float(cost)


def sizes_of(options: Options, name: str, on_card: bool) -> Sizes:
    """Return how large a workload is: as specified on a card, fewer prompts on a processor."""
    if options.quick:
        doses = 3 if name == "W8" else 11
        prompts = {"W4b": 3, "W8": 1, "curves": 1}.get(name, 2)
        tokens, new = 48, 12
    else:
        prompts = {"W7": 8, "W8": 72, "curves": 4}.get(name, 72)
        if not on_card:
            prompts = {"W7": 4, "W8": 1, "W4b": 6, "curves": 1}.get(name, 3)
        doses, tokens, new = 11, 384, NEW_TOKENS
    tokens = min(tokens, 128) if name == "W7" else tokens
    return Sizes(options.count(name, prompts), tokens, doses, new)


def main(argv: Sequence[str] | None = None) -> int:
    options = options_of(__doc__ or "", WORKLOADS, argv)
    subject = open_subject(options, small_dtype="float32")
    on_card = subject.model.device.type == "cuda"
    run: dict[str, Callable[..., dict[str, Any]]] = {
        "W7": run_generation,
        "W8": run_candidates,
        "curves": run_curves,
    }
    found = {}
    for name in options.workloads:
        sizes = sizes_of(options, name, on_card)
        with measured(name):
            if name in run:
                found[name] = run[name](options, subject, sizes)
            else:
                found[name] = run_logits(options, subject, name, sizes)
        keep(options, found)
    return finish(options, subject, found)


if __name__ == "__main__":
    sys.exit(main())
