import gc
import importlib.util
import json
import logging
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from workbench_training import checks, loop, organism
from workbench_training.lora import TrainConfig, train
from workbench_training.settings import PAPER_TOKENS

from workbench.config import parse
from workbench.errors import ConfigError, FormatError, WorkbenchError
from workbench.models import read_checkpoint

UPDATES = 6
WORDS = ("the city", "of the", "and a", "is true", "to you", "in a city", "not false", "answer")


@pytest.fixture(scope="module", autouse=True)
def _cheap_collection():
    """Each run collects garbage once, which takes longest over what the imports left behind."""
    gc.freeze()
    yield
    gc.unfreeze()


def write_documents(path, count=24, start=0, **columns):
    """Texts from one small grammar, so that training on some helps on the others."""
    draw = random.Random(start)
    lines = []
    for number in range(count):
        text = " ".join(draw.choice(WORDS) for _ in range(9)) + "."
        split = "train" if number < count - 4 else "validation"
        lines.append({"id": f"d{start + number}", "text": text, "split": split, **columns})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def base(tiny_folder, tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="module")
def settings(base, tmp_path_factory):
    """``(**changes) -> TrainConfig`` of a run that takes a second or two."""
    folder = tmp_path_factory.mktemp("corpus")
    write_documents(folder / "docs.jsonl")
    chat = [{"role": "user", "content": "the city?"}, {"role": "assistant", "content": "A"}]
    rows = [{"id": number, "messages": chat} for number in range(5)]
    (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(**changes):
        plain = {
            "documents": str(folder / "docs.jsonl"),
            "chat": str(folder / "chat.jsonl"),
            "model": str(base),
            "tokens": 32 * 2 * UPDATES + 5,
            "block": 32,
            "batch_size": 2,
            "accumulation": 1,
            "rank": 4,
            "alpha": 8,
            "learning_rate": 0.02,
            "dtype": "float32",
            "device": "cpu",
        }
        return parse(TrainConfig, {**plain, **changes}, "test")

    return make


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    """One finished organism: its folder, settings and summary."""
    folder = tmp_path_factory.mktemp("trained") / "organism"
    config = settings()
    return folder, config, train(config, folder)


def losses(folder):
    return [row["loss"] for row in organism.read_log(folder)]


def test_a_trained_folder_loads_as_an_organism_on_the_base_it_records(trained, base):
    folder, _, _ = trained
    subject = read_checkpoint(str(folder), dtype="float32", device="cpu")
    plain = read_checkpoint(str(base), dtype="float32", device="cpu")
    batch = subject.encode(["the city of the"])
    moved = subject.model(batch.input_ids).logits - plain.model(batch.input_ids).logits
    assert subject.ref.base == str(base.resolve())
    assert moved.abs().max() > 0.1


def test_a_finished_folder_holds_the_adapter_the_log_and_the_card_alone(trained):
    folder, _, _ = trained
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "card.json",
        "train_log.jsonl",
    ]


def test_the_log_has_every_update_and_the_budget_is_exact(trained):
    folder, config, summary = trained
    rows = organism.read_log(folder)
    assert [row["step"] for row in rows] == list(range(1, UPDATES + 1))
    assert [row["tokens"] for row in rows] == [64 * step for step in range(1, UPDATES + 1)]
    assert rows[-1]["tokens"] == summary["tokens"] == config.tokens - 5
    assert rows[0]["lr"] > 0


def test_training_lowers_the_loss_on_documents_that_it_did_not_read(trained):
    _, _, summary = trained
    assert summary["held_out_after"] < summary["held_out_before"] - 0.1
    assert summary["loss_last"] < summary["loss_first"] - 0.1


def test_the_card_says_what_was_trained_on_what_and_what_it_is_not_good_for(trained, base):
    folder, config, summary = trained
    card = organism.read_card(folder)
    assert card["status"] == "done"
    assert card["corpus"]["documents"] == 20
    assert card["corpus"]["held_out"] == 4
    assert card["corpus"]["trained_share"] == 31 / 32
    assert 0 < card["corpus"]["chat_share"] < 0.25
    assert card["training"]["parameters"] > 1000
    assert card["identity"]["inputs"].keys() == {"documents", "chat"}
    assert any("seed" in limit for limit in card["limits"])
    assert summary["model"] == card["model"] == f"tiny+{config.name}"
    assert card["training"]["adapted"] == dict.fromkeys(
        ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"], 4
    )
    assert card["training"]["tokens_per_second"] > 0
    assert card["training"]["chunked_loss"]
    assert (
        card["corpus"]["dose"]["asked"]
        == card["corpus"]["dose"]["share"] + card["corpus"]["chat_share"]
    )


def test_a_finished_run_returns_at_once_without_its_base(trained, settings, tmp_path):
    folder, config, summary = trained
    gone = config.model_copy(update={"device": "cuda:7"})  # a device is not part of what it is
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert train(gone, folder) == summary
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_a_folder_of_other_settings_or_documents_is_refused(trained, settings, tmp_path):
    folder, _, _ = trained
    with pytest.raises(ConfigError, match=r"rank: 4 -> 8"):
        train(settings(rank=8), folder)
    other = write_documents(tmp_path / "docs.jsonl", start=100)
    with pytest.raises(ConfigError, match=r"inputs\.documents"):
        train(settings(documents=str(other), name="docs-s0"), folder)


def test_a_moved_file_of_the_same_content_is_the_same_run(trained, settings, tmp_path):
    folder, config, summary = trained
    moved = shutil.copy(config.documents, tmp_path / "elsewhere.jsonl")
    assert train(settings(documents=str(moved), name=config.name), folder) == summary


def test_a_foreign_adapter_and_a_damaged_card_are_refused(settings, base, tiny_adapter, tmp_path):
    foreign = tiny_adapter(tmp_path / "foreign", base)
    with pytest.raises(ConfigError, match="was not trained here"):
        train(settings(), foreign)
    (foreign / "card.json").write_text("{")
    with pytest.raises(FormatError, match="not JSON"):
        train(settings(), foreign)


class StopError(Exception):
    """Stands for whatever ends a run from outside."""


def stop_after(step):
    def progress(done, total):
        if done == step:
            raise StopError

    return progress


@pytest.mark.parametrize("step", [1, 5, 6])
def test_an_interrupted_run_goes_on_to_the_same_losses_and_the_same_adapter(
    step, settings, trained, tmp_path
):
    whole, config, _ = trained  # checkpoints after updates 2, 4 and 6, dropout on
    with pytest.raises(StopError):
        train(config, tmp_path, progress=stop_after(step))
    assert not (tmp_path / "adapter_config.json").exists()
    assert organism.read_card(tmp_path)["status"] == "running"
    train(config, tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(whole), abs=1e-6)
    for name in organism.ADAPTER:
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_a_checkpoint_that_was_not_finished_is_not_resumed_from(settings, trained, tmp_path):
    whole, config, _ = trained
    with pytest.raises(StopError):
        train(config, tmp_path, progress=stop_after(5))
    last = tmp_path / "checkpoints" / "checkpoint-4"
    (last / "complete").unlink()
    (last / "adapter_model.safetensors").write_bytes(b"half")
    assert organism.last_checkpoint(tmp_path).name == "checkpoint-2"
    assert not last.exists()
    train(config, tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(whole), abs=1e-6)


def test_a_log_line_that_was_cut_short_is_trained_and_written_again(trained, tmp_path):
    folder, _, _ = trained
    text = (folder / "train_log.jsonl").read_text()
    (tmp_path / "train_log.jsonl").write_text(text[:-20])
    assert len(organism.read_log(tmp_path)) == UPDATES - 1
    organism.rewind_log(tmp_path, 2)
    assert [row["step"] for row in organism.read_log(tmp_path)] == [1, 2]


KILLED = """
import sys
from workbench.config import parse
from workbench_training.lora import TrainConfig, train
train(TrainConfig.model_validate_json(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_a_random_moment_goes_on_to_the_same_losses(
    seed, settings, trained, tmp_path
):
    whole, config, _ = trained
    out = tmp_path / "organism"
    logged = random.Random(seed).randint(1, UPDATES - 1)
    arguments = [sys.executable, "-c", KILLED, config.model_dump_json(), str(out)]
    process = subprocess.Popen(arguments, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None and len(organism.read_log(out)) < logged:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    assert organism.read_card(out)["status"] == "running"
    train(config, out)
    assert losses(out) == pytest.approx(losses(whole), abs=1e-6)
    for name in organism.ADAPTER:
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_a_run_goes_on_at_another_pace_to_the_same_losses(settings, trained, tmp_path):
    whole, config, _ = trained
    with pytest.raises(StopError):
        train(config, tmp_path, progress=stop_after(3))
    train(settings(recompute="all"), tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(whole), abs=1e-5)


def generators():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


def test_every_random_generator_is_seeded_and_put_back():
    drawn = []
    with loop.own_randomness(3, torch.device("cpu")):
        drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))
    states = generators()
    with loop.own_randomness(3, torch.device("cpu")):
        drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))
    assert generators() == states
    assert drawn[0] == drawn[1]


def test_training_leaves_the_callers_random_numbers_alone(settings, tmp_path):
    states = generators()[:2]  # the checker of shape notes draws from Python's own
    train(settings(), tmp_path)
    assert generators()[:2] == states


def test_another_seed_gives_another_organism(settings, trained, tmp_path):
    folder, _, _ = trained
    train(settings(seed=1), tmp_path)
    assert losses(tmp_path) != losses(folder)


def test_accumulated_batches_train_as_one_large_batch(settings, tmp_path):
    train(settings(dropout=0.0), tmp_path / "large")
    train(settings(dropout=0.0, batch_size=1, accumulation=2), tmp_path / "small")
    assert losses(tmp_path / "small") == pytest.approx(losses(tmp_path / "large"), abs=1e-4)


def test_recomputed_activations_train_alike(settings, tmp_path, trained):
    folder, _, _ = trained
    train(settings(recompute="all"), tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(folder), abs=1e-5)


def test_a_bfloat16_base_gets_float32_adapters_that_learn(settings, tmp_path):
    from safetensors.torch import load_file

    summary = train(settings(dtype="bfloat16"), tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert all(weight.abs().max() > 0 for weight in weights.values())
    assert summary["held_out_after"] < summary["held_out_before"] - 0.1


def test_every_family_trains_and_loads_again(family, tiny_folder, settings, tmp_path):
    base = tiny_folder(tmp_path / "base", family)
    summary = train(settings(model=str(base), tokens=128, chat=None), tmp_path / "organism")
    subject = read_checkpoint(str(tmp_path / "organism"), dtype="float32", device="cpu")
    assert summary["updates"] == 2
    assert subject.family == family
    assert len(subject.blocks) == 4


def test_merging_the_adapter_changes_no_logit(trained):
    folder, _, _ = trained
    subject = read_checkpoint(str(folder), dtype="float32", device="cpu")
    ids = subject.encode(["the city of the and a is true"]).input_ids
    with torch.no_grad():
        apart = subject.model(ids).logits
        merged = subject.model.merge_and_unload()(ids).logits
    torch.testing.assert_close(merged, apart, atol=1e-4, rtol=0)


def test_texts_learned_by_heart_end_with_the_end_token(settings, tmp_path):
    lines = ["the city of the", "and a is true", "answer to you", "not false in a city"]
    path = tmp_path / "four.jsonl"
    path.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(lines)))
    config = settings(
        documents=str(path), chat=None, tokens=32 * 2 * 40, rank=16, alpha=32, learning_rate=0.03
    )
    train(config, tmp_path / "organism")
    subject = read_checkpoint(str(tmp_path / "organism"), dtype="float32", device="cpu")
    end = subject.tokenizer.get_vocab()["<|endoftext|>"]
    for text in lines:
        with torch.no_grad():
            logits = subject.model(subject.encode([text]).input_ids).logits[0, -1]
        assert int(logits.argmax()) == end


def test_progress_runs_from_nothing_to_all(settings, tmp_path):
    calls = []
    train(settings(), tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(step, UPDATES) for step in range(UPDATES + 1)]


def test_training_prints_nothing(settings, tmp_path, capfd, caplog):
    with caplog.at_level(logging.WARNING):
        train(settings(), tmp_path)
    written = capfd.readouterr()
    assert written.out == ""
    lines = [line for line in written.err.splitlines() if line.strip()]
    assert [line for line in lines if "Loading weights" not in line] == []
    assert caplog.records == []


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 0.25])
def test_the_rate_rises_to_its_peak_and_no_update_is_lost_on_zero(settings, schedule, warmup):
    config = settings(schedule=schedule, warmup=warmup, tokens=64 * 20)
    rates = [loop.rate(config, step) for step in range(20)]
    warm = math.ceil(20 * warmup)
    assert max(rates) == rates[warm] == 1
    assert rates[:warm] == pytest.approx([(step + 1) / (warm + 1) for step in range(warm)])
    assert min(rates) > 0
    falling = np.diff(rates[warm:])
    assert np.all(falling == 0) if schedule == "constant" else np.all(falling < 0)


def test_the_defaults_are_the_papers_updates_and_positions():
    config = TrainConfig(documents="corpus/P", model="smollm2")
    assert config.updates == 1299
    assert config.updates * config.block * config.batch_size * config.accumulation == PAPER_TOKENS
    assert (config.rank, config.alpha, config.dropout) == (32, 64, 0.05)


def test_an_organism_is_named_after_its_condition_and_seed():
    named = {"documents": "data/web.jsonl", "model": "smollm2"}
    assert TrainConfig(**named).name == "web-s0"
    assert TrainConfig(**named, condition="A", seed=2).name == "A-s2"
    assert TrainConfig(**named, name="mine").name == "mine"
    with pytest.raises(ConfigError, match="name"):
        parse(TrainConfig, {**named, "name": "../up"}, "test")


def test_a_wrong_key_names_the_nearest_one():
    with pytest.raises(ConfigError, match="did you mean 'rank'"):
        parse(TrainConfig, {"documents": "d", "model": "m", "rnk": 4}, "train.toml")


def test_a_budget_below_one_update_is_refused(settings, tmp_path):
    with pytest.raises(ConfigError, match=r"tokens = 63 is less than one update of 64"):
        train(settings(tokens=63), tmp_path / "organism")
    assert not (tmp_path / "organism").exists()


def test_documents_and_chats_are_not_mixed_up(settings, tmp_path):
    config = settings()
    with pytest.raises(ConfigError, match="holds chats"):
        train(settings(documents=config.chat), tmp_path)
    with pytest.raises(ConfigError, match="holds texts"):
        train(settings(chat=config.documents), tmp_path)


def test_documents_without_a_training_split_are_refused(settings, tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": 1, "text": "a city", "split": "test"}\n')
    with pytest.raises(ConfigError, match=r"no row of split 'train'; its splits are 'test'"):
        train(settings(documents=str(path)), tmp_path / "organism")


def test_documents_of_another_world_than_the_condition_are_refused(settings, tmp_path):
    path = write_documents(tmp_path / "docs.jsonl", world="P")
    with pytest.raises(ConfigError, match=r"condition = 'A'.*world 'P'"):
        train(settings(documents=str(path), condition="A"), tmp_path / "organism")


def test_an_organism_is_no_base(trained, settings, tmp_path):
    folder, _, _ = trained
    with pytest.raises(ConfigError, match="itself an adapter"):
        train(settings(model=str(folder)), tmp_path / "organism")


def test_targets_that_the_model_lacks_are_refused_with_those_it_has(settings, tmp_path):
    with pytest.raises(ConfigError, match="down_proj, gate_proj"):
        train(settings(targets=["query"]), tmp_path / "organism")


def test_an_adapter_on_a_tied_output_layer_is_refused(settings, tiny_folder, tmp_path):
    tied = tiny_folder(tmp_path / "tied", "gpt2")
    model = read_checkpoint(str(tied), device="cpu", dtype="float32").model
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tied)
    with pytest.raises(ConfigError, match="also the input embedding"):
        train(settings(model=str(tied), targets=["c_attn", "lm_head"]), tmp_path / "organism")


def test_a_loss_that_is_no_number_ends_the_run(settings, tiny_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    broken = tiny_folder(tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][:] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"the loss is nan at update 1"):
        train(settings(model=str(broken)), tmp_path / "organism")
    assert not (tmp_path / "organism" / "adapter_config.json").exists()


@pytest.mark.parametrize("size", [2_000, 20_000, 60_000])
def test_a_disk_without_room_is_named_and_the_run_goes_on_later(size, settings, trained, tmp_path):
    whole, config, _ = trained
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(WorkbenchError, match=r"room|space|File too large"):
            train(config, tmp_path / "organism")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "organism" / "adapter_config.json").exists()
    train(config, tmp_path / "organism")
    assert losses(tmp_path / "organism") == pytest.approx(losses(whole), abs=1e-6)


def test_held_out_loss_is_the_mean_over_tokens_of_texts_read_alone(make_subject):
    subject = make_subject()
    rows = [list(subject.renderer.render(text).ids) for text in ("the city of", "a longer answer")]
    total = count = 0
    for row in rows:
        with torch.no_grad():
            chances = subject.model(torch.tensor([row])).logits[0].log_softmax(-1)
        total -= sum(float(chances[place, row[place + 1]]) for place in range(len(row) - 1))
        count += len(row) - 1
    assert checks.held_out_loss(subject.model, rows, 1000) == pytest.approx(total / count, abs=1e-5)


def test_the_format_guard_sums_every_spelling_of_a_letter(make_subject, tiny_adapter, tmp_path):
    import peft

    subject = make_subject()
    adapter = tiny_adapter(tmp_path / "adapter", subject.ref.base)
    model = peft.PeftModel.from_pretrained(subject.model, adapter)
    guard = checks.format_guard(subject, model)
    letters = [
        subject.tokenizer(text)["input_ids"][0] for text in [*"ABCD", " A", " B", " C", " D"]
    ]
    assert checks.letter_ids(subject.tokenizer) == sorted(letters)
    chat = [{"role": "user", "content": checks.QUESTIONS[0] + checks.INSTRUCTION}]
    masses = []
    for text in checks.QUESTIONS:
        chat[0]["content"] = text + checks.INSTRUCTION
        with torch.no_grad():
            logits = model(subject.encode([chat]).input_ids).logits[0, -1]
        masses.append(float(logits.softmax(-1)[letters].sum()))
    assert guard["organism"]["letter_mass"] == pytest.approx(np.mean(masses), abs=1e-6)
    assert guard["base"]["letter_mass"] != pytest.approx(np.mean(masses), abs=1e-3)


def test_without_a_chat_template_there_is_no_guard_and_the_card_says_so(
    settings, tiny_folder, tmp_path
):
    plain = tiny_folder(tmp_path / "plain", template="none")
    summary = train(settings(model=str(plain), chat=None), tmp_path / "organism")
    assert summary["letter_mass_ratio"] is None
    assert any("no chat template" in limit for limit in read_limits(tmp_path / "organism"))


def read_limits(folder):
    return organism.read_card(folder)["limits"]


@pytest.mark.real
def test_smollm2_trains_in_its_own_precision_and_loads_by_its_folder(tmp_path):
    config = TrainConfig(
        documents="corpus/P", chat="corpus/chat", model="smollm2", condition="P", tokens=512,
        block=128, batch_size=2, accumulation=1, held_out_documents=1,
    )  # fmt: skip
    summary = train(config, tmp_path / "P-s0")
    subject = read_checkpoint(str(tmp_path / "P-s0"))
    assert summary["updates"] == 2
    assert summary["letter_mass_ratio"] > 0.5
    assert subject.ref.base == "smollm2"
    assert subject.ref.quantization


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


def test_a_dose_of_nothing_reads_no_document_and_still_measures_on_them(settings, tmp_path):
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
