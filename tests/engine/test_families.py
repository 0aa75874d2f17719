"""Every architecture against the plain way: one unpadded forward, one hook, no cache.

Equal to 1e-5 in float32 but for linear attention (Qwen3-Next, Qwen3.5): its prefill runs in
chunks, its decoding step by step, and both in float32 inside, so that transformers itself differs
between a padded and an unpadded row, and between cached and uncached decoding, by up to 1e-3.
"""

import numpy as np
import pytest
import torch

from workbench.engine.cache import why_plain
from workbench.engine.hooks import HookRunner
from workbench.types import CandidatesRead, LogitsRead, Read, Request

pytestmark = pytest.mark.thorough

RUNNER = HookRunner()
HYBRID = ("qwen3_next", "qwen3_5_text")
LAYERS = (0, 1, 2, 3)
RNG = np.random.default_rng(5)
PROMPTS = [tuple(int(token) for token in RNG.integers(5, 300, length)) for length in (13, 4, 11)]
"""Longer and shorter than the sliding windows of 8."""
SCOPES = ("all", "all+first", "last")


def tolerance(family):
    return 1e-3 if family in HYBRID else 1e-5


def close(family, value, expected):
    """Relative to the largest number about: residual streams here are of size 1 to 30."""
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(value, expected, rtol=0, atol=tolerance(family) * scale)


@pytest.fixture
def subject(any_family, subject_of):
    return subject_of(any_family)


@pytest.fixture
def arms(make_edit):
    """Unedited, added at three blocks, and capped then added, by scope."""

    def make(scope):
        band = {"floor": 0.4, "ceiling": float("inf")}
        added = tuple(make_edit("add", layer, 2.0 - layer, scope) for layer in (0, 1, 3))
        capped = (make_edit("cap", 1, 1.0, scope, seed=1, **band), make_edit("add", 2, -2.0, scope))
        return [(), added, capped]

    return make


def test_a_capture_equals_an_independent_hook_whatever_the_padding(
    subject, any_family, batch_with, forward_plainly
):
    reads = [Read(layers=LAYERS, position=position) for position in ("last", "mean", "all")]
    plain = [forward_plainly(subject, ids)[1] for ids in PROMPTS]
    for batch in (
        batch_with(subject, PROMPTS, "left"),
        batch_with(subject, PROMPTS, "right"),
    ):
        last, mean, every = RUNNER.capture(subject, batch, reads)
        for row, hidden in enumerate(plain):
            expected = torch.stack([hidden[layer] for layer in LAYERS])
            close(any_family, last[:, row], expected[:, -1])
            close(any_family, mean[:, row], expected[:, 1:].mean(1))
            close(any_family, every[row], expected)


def requests():
    amounts = CandidatesRead(((60,), (60, 70, 71)), (12, 2))
    reads = [
        (amounts, Read(layers=(0, 2, 3), position="last")),
        (LogitsRead(), Read(layers=LAYERS, position="all")),
        (LogitsRead(keep=(7, 299)), Read(layers=(1,), position="mean")),
    ]
    return [
        Request(str(row), "c", ids, own)
        for row, (ids, own) in enumerate(zip(PROMPTS, reads, strict=True))
    ]


def test_answers_equal_the_plain_way(subject, any_family, arms, oracle, difference):
    wanted = requests()
    made = [(), *(arm for scope in SCOPES for arm in arms(scope)[1:])]
    got = RUNNER.answer(subject, wanted, made)
    plain = oracle(subject, wanted, made)
    # Summed over the tokens of a candidate, and residual streams of size 30: a few roundings.
    assert difference(got.values, plain) < 5 * tolerance(any_family)
    assert difference(plain[:1], plain[1:2]) > 0.1


def test_families_that_allow_no_shortcut_say_so(subject, any_family):
    reason = why_plain(subject)
    assert (reason is not None) == (any_family in HYBRID)
    assert reason is None or "LinearAttention" in reason


@pytest.mark.parametrize("scope", [None, "all+first", "last"])
def test_cached_text_equals_uncached_text(scope, subject, any_family, arms, forward_plainly):
    arm = () if scope is None else arms(scope)[1]
    texts = ["the city of A is in B, you send it", "to F"]
    with RUNNER.intervene(subject, [arm]):
        new = RUNNER.generate(subject, texts, max_new_tokens=5)
    for text, got in zip(texts, new, strict=True):
        ids = subject.renderer.render(text).ids
        tokens = list(ids)
        for _ in range(5):
            logits, _ = forward_plainly(subject, tokens, arm, prompt=len(ids))
            tokens.append(int(logits[-1].argmax()))
        own = tokens[len(ids) :]
        stop = own.index(2) if 2 in own else len(own)
        assert got == subject.tokenizer.decode(own[:stop], skip_special_tokens=True)


def test_an_edit_of_any_block_acts_and_leaves_no_hook(subject, batch_with, make_edit, hook_count):
    batch, before = batch_with(subject, PROMPTS), hook_count(subject.model)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    with torch.no_grad():
        plain = subject.model(**inputs).logits[:, -1]
        for layer in LAYERS:
            with RUNNER.intervene(subject, [(make_edit("add", layer, 1000.0),)]):
                edited = subject.model(**inputs).logits[:, -1]
            assert ((edited - plain).abs().amax(-1) > 0.1).all()
            assert hook_count(subject.model) == before
        torch.testing.assert_close(subject.model(**inputs).logits[:, -1], plain, rtol=0, atol=0)
