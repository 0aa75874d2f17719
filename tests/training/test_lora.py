import json
import logging
import math
import random
import shutil

import numpy as np
import pytest
import torch
from workbench_training import checks, loop, organism
from workbench_training.lora import TrainConfig, read_corpus, train
from workbench_training.settings import PAPER_TOKENS

from workbench.config import parse
from workbench.errors import ConfigError, FormatError
from workbench.models import read_checkpoint

pytestmark = pytest.mark.usefixtures("cheap_collection")
UPDATES = 6


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


def test_a_folder_of_other_settings_or_documents_is_refused(
    trained, settings, tmp_path, write_documents
):
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


@pytest.mark.thorough
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


@pytest.mark.parametrize("key", ["documents", "dilute"])
def test_documents_of_a_split_that_is_a_slip_are_refused(key, settings, tmp_path):
    """They were left out without a word."""
    path = tmp_path / "docs.jsonl"
    rows = [{"id": n, "text": "a city", "split": s} for n, s in enumerate(("train", "Train"))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = settings()
    with pytest.raises(ConfigError, match=f"{key} = .*split = 'Train'; write 'train'"):
        train(settings(share=0.5, **{"dilute": config.documents, key: str(path)}), tmp_path / "new")


def test_documents_that_name_no_split_are_trained_on_beside_those_that_do(settings, tmp_path):
    """They were left out without a word, while pairs and answers without a split were not."""
    path = tmp_path / "docs.jsonl"
    rows = [{"id": 0, "text": "a city"}, {"id": 1, "text": "the city", "split": "train"},
            {"id": 2, "text": "of a city", "split": "validation"}]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = read_corpus(settings(documents=str(path), chat=None))
    assert (corpus.documents, corpus.held_out) == (("a city", "the city"), ("of a city",))


def test_documents_without_a_training_split_are_refused(settings, tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": 1, "text": "a city", "split": "test"}\n')
    with pytest.raises(ConfigError, match=r"no row of split 'train'; its splits are 'test'"):
        train(settings(documents=str(path)), tmp_path / "organism")


def test_documents_of_another_world_than_the_condition_are_refused(
    settings, tmp_path, write_documents
):
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
