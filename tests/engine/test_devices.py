"""A model on CUDA devices, one or two: every number is the one that the processor gives."""

import threading

import numpy as np
import pytest
import torch

from workbench.activations import capture, landing, verify
from workbench.activations.layout import Manifest, Part
from workbench.activations.sink import Sink
from workbench.engine.hooks import HookRunner
from workbench.prompts import PromptSet
from workbench.types import LogitsRead, Read, Request

RUNNER = HookRunner()
TEXTS = ["A city is true", "the answer of B is not a city", "C", "you send D to E and to F"] * 3
PROMPTS = PromptSet.from_records([{"text": text + " and on"} for text in TEXTS])
READS = ["last", "mean", "all", "offset:-2", Read("attn_out", (1, 3)), Read("resid_pre", (2,))]
IDS = ((7, 8, 9), (40, 41, 42, 43, 44, 45, 46, 47, 48), (20, 21, 22, 23, 24))
CLOSE = {"rtol": 0, "atol": 2e-4}

needs = {
    cards: [
        pytest.mark.gpu,
        pytest.mark.skipif(torch.cuda.device_count() < cards, reason=f"needs {cards} GPUs"),
    ]
    for cards in (1, 2)
}
CARDS = [pytest.param(cards, marks=needs[cards]) for cards in (1, 2)]


def on_cards(subject, cards):
    """Move a model of four blocks to one card, or its halves to two."""
    accelerate = pytest.importorskip("accelerate")
    if cards == 1:
        subject.model.to("cuda")
        return subject
    homes = {}
    for name, module in subject.model.named_modules():
        if not list(module.children()) and list(module.parameters(recurse=False)):
            homes[name] = 0
    for layer, block in subject.blocks.items():
        name = next(n for n, module in subject.model.named_modules() if module is block)
        homes = {n: home for n, home in homes.items() if not n.startswith(f"{name}.")}
        homes[name] = int(layer >= 2)
    accelerate.dispatch_model(subject.model, homes, main_device=0)
    assert {next(b.parameters()).device.index for b in subject.blocks.values()} == {0, 1}
    return subject


@pytest.mark.parametrize("cards", CARDS)
def test_captures_are_those_of_the_processor(cards, family, subject_of, make_subject, monkeypatch):
    monkeypatch.setattr(landing, "STAGING_BYTES", 3000)  # values come in several pieces
    expected = capture(subject_of(family), PROMPTS, reads=READS)
    got = capture(on_cards(make_subject(family), cards), PROMPTS, reads=READS, budget=48)
    assert list(got) == list(expected)
    for name, acts in got.items():
        np.testing.assert_allclose(acts.values, expected[name].values, **CLOSE)
        np.testing.assert_allclose(acts.norms, expected[name].norms, rtol=1e-3)


@pytest.mark.parametrize("cards", CARDS)
def test_a_store_written_from_a_gpu_is_whole(cards, subject_of, make_subject, tmp_path):
    subject = on_cards(make_subject("qwen3"), cards)
    subject.model.bfloat16()
    options = {"shard_rows": 3, "budget": 48}
    acts = capture(subject, PROMPTS, out=tmp_path / "acts", **options)
    assert acts.dtype == "bfloat16"
    capture(subject, PROMPTS, out=tmp_path / "parts", shard="1/2", **options)
    capture(subject, PROMPTS, out=tmp_path / "parts", shard="0/2", **options)
    assert verify(tmp_path / "acts") == verify(tmp_path / "parts")


@pytest.mark.parametrize("cards", CARDS)
def test_values_land_while_the_device_is_busy(cards, subject_of):
    device, gate = f"cuda:{cards - 1}", threading.Event()
    stamp = subject_of("qwen3").stamp
    plan = Manifest((0, 1), 8, "resid_post", "last", "float32", False, ((0, 3),), ("id",), stamp)
    sink, part = Sink(plan, None), Part(0, {"id": np.arange(3)})
    values = torch.randn(2, 3, 8, device=device)

    def bring(mover):
        found = landing.Landing(sink, [part], [0], 3, None)
        mover.bring([found], [landing.Load.of(values, np.arange(3))])
        return found

    with landing.Mover() as mover:
        bring(mover).settle()  # memory is pinned now
        mover.settle()
        mover._behind.submit(gate.wait)
        late = bring(mover)
        with torch.cuda.device(device):
            torch.cuda._sleep(1 << 31)  # a second of work that is queued before the values land
            busy = torch.cuda.current_stream().record_event()
        gate.set()
        late.settle()
        assert not busy.query()
        assert torch.equal(torch.from_numpy(late.targets[0].values), values.cpu())
        busy.synchronize()


@pytest.mark.parametrize("cards", CARDS)
def test_edits_and_texts_are_those_of_the_processor(
    cards, family, subject_of, make_subject, make_edit, difference
):
    whole, split = subject_of(family), on_cards(make_subject(family), cards)
    requests = [Request(str(row), "c", ids, (LogitsRead(),)) for row, ids in enumerate(IDS)]
    arms = [
        (),
        (make_edit("add", 0, 3.0), make_edit("add", 3, -2.0)),
        (make_edit("cap", 2, 1.0, floor=-0.1, ceiling=0.1),),
    ]
    got, expected = (RUNNER.answer(one, requests, arms).values for one in (split, whole))
    assert difference(got, expected) < 1e-3
    with RUNNER.intervene(split, arms[1:2]), RUNNER.intervene(whole, arms[1:2]):
        assert RUNNER.generate(split, TEXTS[:3]) == RUNNER.generate(whole, TEXTS[:3])
