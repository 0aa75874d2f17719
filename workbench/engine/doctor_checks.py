"""The full checks of a model: each measures one thing in one way that cannot share its fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor
from transformers import GenerationConfig

from workbench.engine.blocks import hidden_into, hidden_of, watching, with_hidden
from workbench.engine.doctor_probe import (
    CHAT,
    TEXTS,
    Found,
    Probe,
    blocks_in_words,
    counted,
    dtype_of,
    has_template,
    inputs_of,
    largest,
    one_row,
)
from workbench.engine.forward import Inputs, device_of, pad_id, pad_left, run
from workbench.types import Batch, Read, Subject, ndarray

STEPS = 6
"""Tokens decoded to compare the cache with none."""
MOVED = 0.01
"""A dose of one residual norm must move some logit by so many standard deviations."""
ROWS = 8
"""Copies of a prompt that make a batch."""
MARGIN = 0.5
"""Part of a number format's range that activations may take."""
NEAR = 0.1
"""Part of it above which the verdict says how much is left."""


def check_tokens(subject: Subject) -> Found:
    """Compare the renderer's ids with the tokenizer's own, and look for a second BOS."""
    cases: list[tuple[str, Any, Any]] = [
        ("bare", subject.renderer.render(text).ids, subject.tokenizer(text)["input_ids"])
        for text in TEXTS
    ]
    if has_template(subject):
        cases.append(("chat", subject.renderer.render(list(CHAT)).ids, _templated(subject)))
    wrong = [
        problem for name, ids, own in cases if (problem := _token_problem(subject, name, ids, own))
    ]
    kinds = "bare and chat" if has_template(subject) else "bare"
    detail = f"{len(cases)} prompts ({kinds}) are as the tokenizer writes them, never two BOS"
    return Found(not wrong, float(len(wrong)), 0.0, wrong[0] if wrong else detail)


def _templated(subject: Subject) -> Any:
    thinks = "enable_thinking" in str(subject.tokenizer.get_chat_template())
    return subject.tokenizer.apply_chat_template(
        list(CHAT),
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        **({"enable_thinking": False} if thinks else {}),
    )["input_ids"]


def _token_problem(subject: Subject, name: str, ids: Sequence[int], own: Sequence[int]) -> str:
    bos = subject.tokenizer.bos_token_id
    if bos is not None and list(ids[:2]) == [bos, bos]:
        return f"a {name} prompt begins with two BOS tokens (id {bos})"
    if list(ids) != list(own):
        return f"a {name} prompt begins {list(ids[:4])}, the tokenizer's own {list(own[:4])}"
    return ""


def check_hooks(probe: Probe) -> Found:
    """Count how often a hook on each block fires in a forward."""
    silent = [layer for layer in probe.layers if any(one.fired[layer] != 1 for one in probe.alone)]
    if silent:
        times = probe.alone[0].fired[silent[0]]
        detail = f"hooks on {blocks_in_words(silent)} fire {times} times in a forward, not once"
    else:
        detail = f"a hook on each of {len(probe.layers)} blocks fires once a forward"
    return Found(not silent, float(len(silent)), 0.0, detail)


def check_overflow(probe: Probe) -> Found:
    """Compare the largest activation with the largest number of its format."""
    peaks = {
        layer: max(float(one.hidden[layer].float().abs().max()) for one in probe.alone)
        for layer in probe.alone[0].hidden
    }
    logits = max(float(one.logits.float().abs().max()) for one in probe.alone)
    top = torch.finfo(dtype_of(probe.subject)).max
    return overflow(peaks, logits, top, str(dtype_of(probe.subject)).removeprefix("torch."))


def overflow(peaks: dict[int, float], logits: float, top: float, name: str) -> Found:
    """Judge the largest activations by block, and the largest logit."""
    lost = [layer for layer, peak in peaks.items() if not math.isfinite(peak)]
    if lost or not math.isfinite(logits):
        where = blocks_in_words(lost) if lost else "the logits"
        return Found(False, math.inf, MARGIN, f"{where} hold numbers that {name} cannot")
    layer = max(peaks, key=lambda one: peaks[one])
    share = max(peaks[layer], logits) / top
    size = f"{peaks[layer]:,.0f}" if peaks[layer] >= 100 else f"{peaks[layer]:.3g}"
    detail = f"largest |activation| {size} at block {layer}; {name} ends at {top:.3g}"
    if share > NEAR:
        detail += f": near, {1 / share:.1f} times are left"
    return Found(share <= MARGIN, share, MARGIN, detail)


def check_padding(probe: Probe) -> Found:
    """Run rows alone, padded on the left and on the right; positions are counted over tokens."""
    subject, wrong, worst = probe.subject, [], 0.0
    for side in ("left", "right"):
        batch = subject.renderer.collate(probe.rows, side)
        if batch.position_ids.tolist() != counted(batch.attention_mask):
            wrong.append(f"{side}-padded prompts")
        with torch.no_grad():
            logits = run(subject, inputs_of(batch)).logits
        for row, one in enumerate(probe.alone):
            real = batch.attention_mask[row].bool().to(logits.device)
            worst = max(worst, probe.apart(logits[row][real], one.logits))
    inputs = _padded(probe)
    if inputs.positions.tolist() != counted(inputs.mask):
        wrong.append("requests")
    if wrong:
        detail = f"position ids of {' and '.join(wrong)} are not counted over real tokens"
        return Found(False, worst, probe.limit, detail)
    detail = f"{len(probe.rows)} prompts alone = padded left = padded right"
    return Found(worst <= probe.limit, worst, probe.limit, detail)


def check_batch(probe: Probe) -> Found:
    """Run a row by itself and among copies: rounding may depend on the batch, an answer not."""
    ids = [probe.rows[0].ids] * ROWS
    inputs = pad_left(ids, pad_id(probe.subject), device_of(probe.subject))
    with torch.no_grad():
        logits = run(probe.subject, inputs).logits
    worst = max(probe.apart(row, probe.alone[0].logits) for row in logits)
    return Found(worst <= probe.limit, worst, probe.limit, f"a prompt alone = one row of {ROWS}")


def check_cache(probe: Probe) -> Found:
    """Decode greedily with the cache, then run the same tokens in one forward without."""
    subject, inputs = probe.subject, _padded(probe)
    config = GenerationConfig(
        max_new_tokens=STEPS,
        min_new_tokens=STEPS,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        pad_token_id=pad_id(subject),
        output_logits=True,
        return_dict_in_generate=True,
    )
    with torch.no_grad():
        made = subject.model.generate(
            input_ids=inputs.ids, attention_mask=inputs.mask, generation_config=config
        )
        plain = _without_cache(subject, inputs, made.sequences)
    cached = torch.stack(made.logits, 1)
    worst = probe.apart(cached, plain)
    same = int((cached.argmax(-1) == plain.to(cached.device).argmax(-1)).sum())
    detail = f"{same} of {cached[..., 0].numel()} greedy tokens the same with and without cache"
    return Found(worst <= probe.limit, worst, probe.limit, detail)


def _without_cache(subject: Subject, inputs: Inputs, tokens: Tensor) -> Tensor:
    width = inputs.ids.shape[1]
    mask = torch.cat([inputs.mask, torch.ones_like(tokens[:, width:-1])], 1)
    positions = torch.tensor(counted(mask), device=mask.device)
    logits: Tensor = run(subject, Inputs(tokens[:, :-1], mask, positions)).logits
    return logits[:, width - 1 :]


def check_capture(probe: Probe) -> Found:
    """Capture every block while later hooks overwrite what went by, and compare bit for bit."""
    subject = probe.subject
    batch = subject.renderer.collate(probe.rows)
    seen: dict[int, Tensor] = {}

    def see(layer: int, output: Any) -> None:
        seen[layer] = hidden_of(output).clone()

    reads = [Read(layers=probe.layers, position="all"), Read(layers=probe.layers)]
    with torch.no_grad(), watching(subject, probe.layers, see), _turning(subject, probe.layers[1:]):
        every, last = probe.runner.capture(subject, batch, reads)
    wrong = [
        layer
        for place, layer in enumerate(probe.layers)
        if _differs(batch, seen[layer], [row[place] for row in every], last[place])
    ]
    detail = f"captures of {len(probe.layers)} blocks are the blocks' own output, bit for bit"
    if wrong:
        detail = f"captures of {blocks_in_words(wrong)} are not the blocks' own output"
    return Found(not wrong, float(len(wrong)), 0.0, detail)


@contextmanager
def _turning(subject: Subject, layers: Sequence[int]) -> Iterator[None]:
    """Negate, in place, what goes into some blocks, as a careless neighbor's edit may."""

    def turn(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden_into(args, kwargs).neg_()

    with ExitStack() as stack:
        for layer in layers:
            block = subject.blocks[layer]
            stack.callback(block.register_forward_pre_hook(turn, with_kwargs=True).remove)
        yield


def _differs(batch: Batch, h: Tensor, every: Sequence[Tensor], last: Tensor) -> bool:
    for row, taken in enumerate(every):
        own = h[row][batch.attention_mask[row].bool().to(h.device)]
        if not torch.equal(taken.to(own.device), own):
            return True
        if not torch.equal(last[row].to(own.device), own[-1]):
            return True
    return False


def check_stored(captured: Shaped[ndarray, " ..."], stored: Shaped[ndarray, " ..."]) -> Found:
    """Compare what hooks gave with what a store gave back, bit for bit."""
    first, second = np.asarray(captured), np.asarray(stored)
    if first.shape != second.shape:
        detail = f"captured {first.shape}, stored {second.shape}"
        return Found(False, math.inf, 0.0, detail)
    worst = largest(torch.from_numpy(first), torch.from_numpy(second)) if first.size else 0.0
    detail = f"{first.size} captured numbers are the stored ones"
    return Found(worst == 0, worst, 0.0, detail if worst == 0 else "stored numbers differ")


def check_lens(probe: Probe) -> Found:
    """Put the captured last block into another prompt's forward: its logits must come out.

    The first token's vector is turned round, which must change its logits alone: after the last
    block, nothing but the norm and the head may follow, and they act token by token.
    """
    subject, last, row = probe.subject, probe.layers[-1], probe.rows[0]
    batch = subject.renderer.collate([row])
    captured = probe.runner.capture(subject, batch, [Read(layers=(last,), position="all")])
    h = captured[0][0][0].clone()
    h[0].neg_()

    def put(_layer: int, output: Any) -> Any:
        return with_hidden(output, h[None].to(hidden_of(output)))

    with torch.no_grad(), watching(subject, [last], put):
        logits = run(subject, one_row(subject, row.ids[::-1])).logits[0]
    plain = probe.alone[0].logits
    worst = probe.apart(logits[1:], plain[1:])
    moved = probe.apart(logits[:1], plain[:1])
    passed = worst <= probe.limit < moved
    detail = "final norm and head, once, on the captured last block give the logits"
    if worst > probe.limit:
        detail = f"norm and head on the captured block {last} do not give the model's logits"
    elif not passed:
        detail = f"the logits do not depend on the captured block {last}"
    return Found(passed, worst, probe.limit, detail)


def check_edits(probe: Probe) -> Found:
    """Add one residual norm at each block in turn: the edit counts tokens and moves the logits."""
    subject, row = probe.subject, probe.rows[1]
    arms = [(), *((probe.edit(layer),) for layer in probe.layers)]
    with torch.no_grad(), probe.runner.intervene(subject, arms) as log:
        logits = run(subject, one_row(subject, row.ids).repeat(len(arms))).logits
        rows = {entry.layer: entry for entry in log.rows}
        moves = [probe.apart(logits[arm], logits[0]) for arm in range(1, len(arms))]
    silent = [
        layer
        for layer, move in zip(probe.layers, moves, strict=True)
        if not MOVED < move < math.inf or not rows[layer].n or not rows[layer].engaged
    ]
    detail = f"one residual norm at each block moves the logits by {min(moves):.2g} std or more"
    if silent:
        detail = f"an edit of one residual norm at {blocks_in_words(silent)} does nothing"
    return Found(not silent, float(len(silent)), 0.0, detail)


def _padded(probe: Probe) -> Inputs:
    ids = [row.ids for row in probe.rows]
    return pad_left(ids, pad_id(probe.subject), device_of(probe.subject))


PLAIN: dict[str, Callable[[Probe], Found]] = {
    "hooks": check_hooks,
    "overflow": check_overflow,
    "padding": check_padding,
    "batch": check_batch,
    "cache": check_cache,
    "capture": check_capture,
    "last block": check_lens,
    "edits": check_edits,
}
"""In the order of running."""
