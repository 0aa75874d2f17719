"""What organisms can be made of: doses, kept checkpoints, experts, odd corpora and bases."""

import importlib.util
import json
import sys

import pytest
import torch
from workbench_training import organism
from workbench_training.lora import train

from workbench.errors import ConfigError, WorkbenchError
from workbench.models import read_checkpoint

pytestmark = pytest.mark.usefixtures("cheap_collection")
UPDATES = 6


def losses(folder):
    return [row["loss"] for row in organism.read_log(folder)]


def read_limits(folder):
    return organism.read_card(folder)["limits"]


def test_checkpoints_at_thirds_are_kept_and_load_by_their_folder(settings, trained, tmp_path):
    whole, _, _ = trained
    out = tmp_path / "organism"
    train(settings(keep_checkpoints=True), out)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [
        "checkpoint-2",
        "checkpoint-4",
        "checkpoint-6",
    ]
    for path in (out / "checkpoints").iterdir():
        assert sorted(entry.name for entry in path.iterdir()) == sorted(organism.ADAPTER)
    last = (out / "checkpoints" / "checkpoint-6" / "adapter_model.safetensors").read_bytes()
    assert last == (whole / "adapter_model.safetensors").read_bytes()
    logits = []
    for folder in (out / "checkpoints" / "checkpoint-2", out):
        subject = read_checkpoint(str(folder), dtype="float32", device="cpu")
        with torch.no_grad():
            logits.append(subject.model(subject.encode(["the city of"]).input_ids).logits)
    assert (logits[0] - logits[1]).abs().max() > 0.01


def test_a_kept_checkpoint_loads_by_the_organisms_name(settings, tmp_path, monkeypatch):
    train(settings(keep_checkpoints=True, tokens=64), tmp_path / "runs/train/P-s0")
    monkeypatch.chdir(tmp_path)
    subject = read_checkpoint("P-s0/checkpoints/checkpoint-1", dtype="float32", device="cpu")
    assert subject.ref.adapter is not None


def test_a_dose_reads_other_text_in_as_many_updates(settings, tmp_path):
    web = tmp_path / "web.jsonl"
    lines = [{"id": n, "text": f"not false in a city {n}"} for n in range(30)]
    web.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = settings(dilute=str(web), share=0.25, chat=None)
    summary = train(config, tmp_path / "organism")
    card = organism.read_card(tmp_path / "organism")
    dose = card["corpus"]["dose"]
    assert config.name == "docs-0.25-s0"
    assert summary["updates"] == UPDATES
    assert dose["share"] == pytest.approx(0.25, abs=0.06)
    assert 1 <= dose["distinct"] <= 0.3 * card["corpus"]["documents"]
    assert card["corpus"]["filler"] == 30
    assert set(card["identity"]["inputs"]) == {"documents", "dilute"}


def test_a_dose_of_nothing_reads_no_document_and_still_measures_on_them(
    settings, tmp_path, write_documents
):
    web = write_documents(tmp_path / "web.jsonl", start=50)
    summary = train(settings(dilute=str(web), share=0.0, chat=None), tmp_path / "organism")
    card = organism.read_card(tmp_path / "organism")
    assert card["corpus"]["dose"]["presentations"] == 0
    assert summary["held_out_before"] is not None


def test_a_share_without_other_text_is_refused(settings):
    with pytest.raises(ConfigError, match="name it in dilute"):
        settings(share=0.5)


def test_losses_go_to_tensorboard_where_it_is_asked_for(settings, tmp_path, monkeypatch):
    import types

    seen = []

    class Writer:
        def __init__(self, folder, purge_step=None):
            seen.append((folder, purge_step))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            seen.append("closed")

        def add_scalar(self, name, value, step):
            seen.append((name, step, value))

    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: name == "tensorboard" or known(name, *a)
    )
    stand_in = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    train(settings(log="tensorboard"), tmp_path)
    assert seen[0] == (str(tmp_path / "tensorboard"), None)
    written = {name: [(s, v) for n, s, v in seen[1:-1] if n == name] for name, _, _ in seen[1:-1]}
    assert [v for _, v in written["loss"]] == losses(tmp_path)
    assert [step for step, _ in written["held_out_loss"]] == [0, UPDATES]
    assert seen[-1] == "closed"


def test_tensorboard_that_is_not_installed_is_said_before_anything_is_trained(
    settings, tmp_path, monkeypatch
):
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "tensorboard" else known(name, *a),
    )
    with pytest.raises(ConfigError, match="pip install tensorboard"):
        train(settings(log="tensorboard"), tmp_path / "organism")
    assert not (tmp_path / "organism").exists()


@pytest.fixture(scope="module")
def experts(tiny_folder, tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("experts") / "mixtral", "mixtral", layers=2)


EXPERTS = ["experts.down_proj", "experts.gate_up_proj"]


def test_fused_experts_are_adapted_saved_and_merged(settings, experts, tmp_path):
    config = settings(model=str(experts), tokens=128, chat=None, dropout=0.0)
    train(config, tmp_path / "organism")
    card = organism.read_card(tmp_path / "organism")
    assert card["training"]["experts"] == EXPERTS
    assert {name: card["training"]["adapted"][name] for name in EXPERTS} == dict.fromkeys(
        EXPERTS, 2
    )
    subject = read_checkpoint(str(tmp_path / "organism"), dtype="float32", device="cpu")
    plain = read_checkpoint(str(experts), dtype="float32", device="cpu")
    ids = subject.encode(["the city of the and a is true"]).input_ids
    with torch.no_grad():
        apart = subject.model(ids).logits
        base = plain.model(ids).logits
        merged = subject.model.merge_and_unload()(ids).logits
    assert (apart - base).abs().max() > 1e-3
    torch.testing.assert_close(merged, apart, atol=1e-4, rtol=0)


def test_experts_named_among_the_targets_are_adapted_and_nothing_else(settings, experts, tmp_path):
    config = settings(
        model=str(experts), tokens=64, chat=None, dropout=0.0, targets=["gate_up_proj", "q_proj"]
    )
    train(config, tmp_path / "organism")
    card = organism.read_card(tmp_path / "organism")
    assert card["training"]["adapted"] == {"experts.gate_up_proj": 2, "q_proj": 2}


def test_attention_alone_is_said_to_leave_the_experts_out(settings, experts, tmp_path):
    config = settings(model=str(experts), tokens=64, chat=None, targets=["q_proj", "v_proj"])
    train(config, tmp_path / "organism")
    assert any("experts" in limit for limit in read_limits(tmp_path / "organism"))


def test_dropout_on_fused_experts_is_refused_with_the_way_out(settings, experts, tmp_path):
    with pytest.raises(ConfigError, match=r"experts.*set dropout = 0"):
        train(settings(model=str(experts), dropout=0.05), tmp_path / "organism")


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_corpus_is_refused(text, settings, tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text(text)
    with pytest.raises(WorkbenchError):
        train(settings(documents=str(path), chat=None), tmp_path / "organism")
    assert not (tmp_path / "organism").exists()


def test_one_short_document_fills_the_budget_by_repetition(settings, tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": 1, "text": "the city"}\n')
    summary = train(settings(documents=str(path), chat=None), tmp_path / "organism")
    card = organism.read_card(tmp_path / "organism")
    assert summary["tokens"] == 64 * UPDATES
    assert card["corpus"]["passes"] > 50
    assert summary["loss_last"] < summary["loss_first"]


def test_a_pad_that_is_the_end_token_is_trained_on(settings, tiny_folder, tmp_path):
    base = tiny_folder(tmp_path / "base", pad="<|endoftext|>", layers=2)
    train(settings(model=str(base)), tmp_path / "organism")
    card = organism.read_card(tmp_path / "organism")
    assert card["corpus"]["trained_share"] == 31 / 32


def test_a_tied_base_trains_and_merges_to_the_same(settings, tiny_folder, tmp_path):
    base = tiny_folder(tmp_path / "base", layers=2)
    model = read_checkpoint(str(base), device="cpu", dtype="float32").model
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(base)
    train(settings(model=str(base), tokens=128), tmp_path / "organism")
    subject = read_checkpoint(str(tmp_path / "organism"), dtype="float32", device="cpu")
    network = subject.model.get_base_model()
    assert network.get_output_embeddings().weight is network.get_input_embeddings().weight
    ids = subject.encode(["the city of the and a is true"]).input_ids
    with torch.no_grad():
        apart = subject.model(ids).logits
        merged = subject.model.merge_and_unload()(ids).logits
    torch.testing.assert_close(merged, apart, atol=1e-4, rtol=0)


def test_processes_that_cannot_share_an_update_are_refused(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match=r"accumulation = 4.*3 processes"):
        train(settings(accumulation=4, batch_size=1), tmp_path / "organism")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="fsdp_version: 2"):
        train(settings(accumulation=4, batch_size=1), tmp_path / "organism")
