"""Too little memory: a named error that holds nothing, and generation that halves its batch."""

import logging
import weakref
from contextlib import contextmanager

import pytest
import torch

from workbench.engine.answer import answer
from workbench.engine.forward import BatchTooLargeError, is_out_of_memory
from workbench.engine.hooks import HookRunner
from workbench.errors import WorkbenchError
from workbench.types import GenerateRead, LogitsRead, Read, Request

RUNNER = HookRunner()
ROWS = [tuple(range(20, 20 + length)) for length in (5, 9, 3, 12, 7, 4)]
TEXTS = ["A B C", "the city of D", "to F", "you send it", "G is in H", "not A"]


@contextmanager
def room_for(subject, rows, layer=2):
    """A device that fails halfway through a forward of more than so many rows."""
    seen = []

    def refuse(_module, args):
        seen.append(len(args[0]))
        if seen[-1] > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    handle = subject.blocks[layer].register_forward_pre_hook(refuse)
    yield seen
    handle.remove()


def test_every_allocators_words_are_known():
    with pytest.raises(RuntimeError) as full:
        torch.empty(1 << 50)
    assert is_out_of_memory(full.value)
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
        MemoryError(),
        BatchTooLargeError("no room"),
    ):
        assert is_out_of_memory(error)
    for error in (RuntimeError("shape mismatch"), ValueError("out of memory"), KeyError("a")):
        assert not is_out_of_memory(error)


def test_a_capture_without_room_raises_a_named_error_that_holds_no_tensor(
    tiny_subject, batch_with, hook_count
):
    before = hook_count(tiny_subject.model)
    kept = []
    handle = tiny_subject.blocks[1].register_forward_hook(
        lambda _m, _a, out: kept.append(weakref.ref(out))
    )
    batch = batch_with(tiny_subject, ROWS)
    try:
        with (
            room_for(tiny_subject, 5),
            pytest.raises(BatchTooLargeError, match=r"6 rows of up to 12 tokens .*2\.00 GiB") as no,
        ):
            RUNNER.capture(tiny_subject, batch, [Read(layers=(0, 1, 3), position="all")])
    finally:
        handle.remove()
    assert isinstance(no.value, WorkbenchError)
    assert no.value.__context__ is None
    assert kept[0]() is None
    assert hook_count(tiny_subject.model) == before
    with room_for(tiny_subject, 6):
        RUNNER.capture(tiny_subject, batch, [Read(layers=(3,))])


def test_any_other_failure_stays_what_it_is(tiny_subject, batch_with):
    handle = tiny_subject.blocks[1].register_forward_pre_hook(
        lambda *_: torch.zeros(2) @ torch.zeros(3)
    )
    try:
        with pytest.raises(RuntimeError, match="inconsistent tensor size") as failed:
            RUNNER.capture(tiny_subject, batch_with(tiny_subject, ROWS), [Read(layers=(3,))])
        with pytest.raises(RuntimeError, match="inconsistent tensor size"):
            RUNNER.generate(tiny_subject, TEXTS, max_new_tokens=2)
    finally:
        handle.remove()
    assert not isinstance(failed.value, WorkbenchError)


@pytest.mark.thorough
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_generation_halves_its_batch_and_gives_the_same_texts(temperature, tiny_subject, caplog):
    options = {"max_new_tokens": 6, "temperature": temperature, "seed": 3}
    whole = RUNNER.generate(tiny_subject, TEXTS, **options)
    with caplog.at_level(logging.WARNING), room_for(tiny_subject, 2) as seen:
        assert RUNNER.generate(tiny_subject, TEXTS, **options) == whole
    assert {6, 3, 1} <= set(seen)
    assert "going on with 3 rows at once" in caplog.text
    assert "going on with 1 rows at once" in caplog.text


@pytest.mark.thorough
def test_arms_stay_together_and_are_counted_once(tiny_subject, make_edit):
    arms = [(), (make_edit("add", 1, 5.0),), (make_edit("add", 3, -4.0, seed=2),)]
    rows = [text for text in TEXTS for _ in arms]
    with RUNNER.intervene(tiny_subject, arms) as log:
        whole = RUNNER.generate(tiny_subject, rows, max_new_tokens=5)
    with RUNNER.intervene(tiny_subject, arms) as short, room_for(tiny_subject, 4) as seen:
        assert RUNNER.generate(tiny_subject, rows, max_new_tokens=5) == whole
    assert {18, 9, 3} == set(seen)
    first, second = log.table(), short.table()
    assert (second.realised - first.realised).abs().max() < 1e-5
    assert (second.n <= first.n).all()  # a batch ends once its rows have: fewer steps for some
    with (
        RUNNER.intervene(tiny_subject, arms),
        room_for(tiny_subject, 2),
        pytest.raises(BatchTooLargeError, match="a batch of 3 rows"),
    ):
        RUNNER.generate(tiny_subject, rows, max_new_tokens=5)


@pytest.mark.thorough
def test_generation_reads_of_an_answer_shrink_too(tiny_subject, make_edit):
    arms = [(), (make_edit("add", 1, 6.0),)]
    reads = (GenerateRead(3, 6, 1.0, seed=4),)
    requests = [Request(str(row), "c", ids, reads) for row, ids in enumerate(ROWS)]
    whole = RUNNER.answer(tiny_subject, requests, arms)
    plan = RUNNER.plan(tiny_subject, requests, arms, budget=512)
    with room_for(tiny_subject, 6):
        short = answer(tiny_subject, requests, arms, plan=plan)
    assert short.values == whole.values
    assert short.realised == pytest.approx(whole.realised, abs=1e-5)
    assert plan.shrunk
    assert plan.shrunk == [512 // 2**n for n in range(1, len(plan.shrunk) + 1)]
    assert (short.budget, whole.budget) == (plan.shrunk[-1], 8192)


def test_the_budget_that_a_call_ended_with_runs_again_without_a_failure(tiny_subject, make_edit):
    arms = [(), (make_edit("add", 1, 6.0),)]
    reads = (LogitsRead(), GenerateRead(3, 6, 1.0, seed=4))
    requests = [Request(str(row), "c", ids, reads) for row, ids in enumerate(ROWS)]
    with room_for(tiny_subject, 6):
        first = RUNNER.answer(tiny_subject, requests, arms)
        plan = RUNNER.plan(tiny_subject, requests, arms, budget=first.budget)
        again = answer(tiny_subject, requests, arms, plan=plan)
    assert plan.shrunk == []
    assert again.budget == first.budget < 8192
    for mine, other in zip(first.values, again.values, strict=True):
        for (logits, texts), (others, same) in zip(mine, other, strict=True):
            assert texts == same
            assert abs(logits - others).max() < 2e-5


@pytest.mark.parametrize("site", ["resid_post", "resid_pre", "attn_out", "mlp_out"])
@pytest.mark.parametrize("position", ["last", "mean"])
def test_a_capture_keeps_the_tokens_read_and_nothing_of_the_batch(
    position, site, tiny_subject, batch_with
):
    kept = []
    handles = [
        tiny_subject.blocks[layer].register_forward_hook(
            lambda _m, _a, out: kept.append(weakref.ref(out))
        )
        for layer in (0, 1)
    ]
    (values,) = RUNNER.capture(
        tiny_subject, batch_with(tiny_subject, ROWS), [Read(site, (0, 1, 2), position)]
    )
    for handle in handles:
        handle.remove()
    assert len(kept) == 2
    assert all(ref() is None for ref in kept)
    assert values.untyped_storage().nbytes() == 3 * len(ROWS) * 32 * 4


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS])
def test_a_stream_without_room_names_the_next_step_and_holds_no_tensor(
    texts, tiny_subject, make_edit, hook_count
):
    before = hook_count(tiny_subject.model)
    pieces = tiny_subject.stream(texts, interventions=[make_edit("add", 1, 5.0)], max_new_tokens=4)
    with (
        room_for(tiny_subject, 0),
        pytest.raises(BatchTooLargeError, match="shorten the pro") as no,
    ):
        next(pieces)
    assert f"{2 * len(texts)} rows of up to" in str(no.value)
    assert no.value.__context__ is None
    assert hook_count(tiny_subject.model) == before
    assert list(pieces) == []
    again = tiny_subject.stream(texts, interventions=[make_edit("add", 1, 5.0)], max_new_tokens=4)
    assert {piece.prompt for piece in again} == set(range(len(texts)))
