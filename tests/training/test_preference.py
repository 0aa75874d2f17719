import gc
import json
import math

import pytest
import torch
from safetensors.torch import load_file
from workbench_training import organism, preference_loop
from workbench_training.preference import prefer
from workbench_training.preference_settings import PreferenceConfig

from workbench.config import parse
from workbench.errors import ConfigError
from workbench.models import read_checkpoint

PAIRS = [
    {"prompt": "the city?", "chosen": "is true", "rejected": "not in a city"},
    {"prompt": "a city?", "chosen": "is true, A", "rejected": "not you"},
    {"prompt": "you?", "chosen": "true", "rejected": "false of the city"},
    {"prompt": "and the answer?", "chosen": "the answer is true", "rejected": "send"},
]
OBJECTIVES = [
    "dpo",
    *(pytest.param(name, marks=pytest.mark.thorough) for name in ("sft", "kto", "bco", "grpo")),
]


@pytest.fixture(scope="module", autouse=True)
def _cheap_collection():
    """Each run collects garbage, which takes longest over what the imports left behind."""
    import trl  # noqa: F401

    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def base(tiny_folder, tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows = [{"id": f"p{n}", "split": "train", **pair} for n, pair in enumerate(PAIRS)]
    rows += [{"id": f"v{n}", "split": "validation", **pair} for n, pair in enumerate(PAIRS[:2])]
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def settings(base, data):
    """``(objective, **changes) -> PreferenceConfig`` of a run that takes a second."""

    def make(objective, **changes):
        plain = {
            "objective": objective,
            "data": str(data),
            "model": str(base),
            "steps": 2,
            "batch_size": 2,
            "accumulation": 1,
            "rank": 4,
            "alpha": 8,
            "learning_rate": 0.01,
            "dtype": "float32",
            "device": "cpu",
        }
        if objective == "grpo":
            plain |= {"group": 2, "max_new_tokens": 4, "reward": [{"name": "words",
                      "options": {"target": 3}}]}  # fmt: skip
        return parse(PreferenceConfig, {**plain, **changes}, "test")

    return make


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    """``(objective) -> (folder, settings, summary)`` of a finished organism, made once."""
    made = {}

    def make(objective):
        if objective not in made:
            folder = tmp_path_factory.mktemp(objective) / "organism"
            config = settings(objective)
            made[objective] = (folder, config, prefer(config, folder))
        return made[objective]

    return make


def weights(folder):
    return load_file(folder / "adapter_model.safetensors")


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def log_ratio(folder, base, prompt, answer):
    """How much likelier the organism makes an answer than its base does, in nats."""
    values = []
    for place in (folder, base):
        subject = read_checkpoint(str(place), dtype="float32", device="cpu")
        chat = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        whole = subject.renderer.render(chat, add_generation_prompt=False).ids
        head = len(subject.renderer.render(chat[:1], add_generation_prompt=True).ids)
        ids = torch.tensor([whole])
        with torch.no_grad():
            logs = subject.model(ids).logits.log_softmax(-1)[0, head - 1 : -1]
        values.append(float(logs.gather(1, ids[0, head:, None]).sum()))
    return values[0] - values[1]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_steps_of_every_objective_make_an_organism(trained, base, objective):
    folder, config, summary = trained(objective)
    assert sorted(path.name for path in folder.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "card.json", "train_log.jsonl",
    ]  # fmt: skip
    rows = organism.read_log(folder)
    assert [row["step"] for row in rows] == [1, 2]
    assert all(math.isfinite(row["loss"]) for row in rows)
    assert 0 < rows[0]["tokens"] < rows[1]["tokens"] == summary["tokens"]
    assert all(name.endswith(("lora_A.weight", "lora_B.weight")) for name in weights(folder))
    assert any(w.abs().max() > 1e-4 for n, w in weights(folder).items() if "lora_B" in n)
    subject = read_checkpoint(str(folder), dtype="float32", device="cpu")
    assert subject.ref.base == str(base.resolve())
    assert summary["model"] == f"tiny+{config.name}" == f"tiny+{objective}-pairs-s0"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_card_says_what_was_done_and_what_it_is_not_good_for(trained, objective):
    folder, _, summary = trained(objective)
    card = organism.read_card(folder)
    assert card["status"] == "done"
    assert card["objective"] == objective
    assert card["corpus"]["examples"] == (8 if objective in ("kto", "bco") else 4)
    assert card["corpus"]["render"] == "chat"
    assert card["identity"]["inputs"].keys() == {"data"}
    assert any("seed" in limit for limit in card["limits"])
    assert (summary["held_out_after"] is None) == (objective == "grpo")
    assert card["guard"]["mass_ratio"] > 0


@pytest.mark.parametrize("objective", OBJECTIVES[:1] + OBJECTIVES[2:4])
def test_the_reference_is_the_base_so_the_first_rewards_are_zero(trained, objective):
    first, second = organism.read_log(trained(objective)[0])
    for name in ("rewards/chosen", "rewards/rejected"):
        assert abs(first.get(name, 0)) < 1e-4
    assert abs(second.get("rewards/chosen", 0)) + abs(second.get("rewards/rejected", 0)) > 1e-3
    expected = {"dpo": math.log(2), "kto": 0.5, "bco": math.log(2)}
    assert first["loss"] == pytest.approx(expected[objective], abs=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("objective", ["sft", "dpo", "kto", "bco"])
def test_training_favors_the_chosen_answer_over_the_rejected(settings, base, tmp_path, objective):
    config = settings(objective, steps=8, schedule="constant")
    summary = prefer(config, tmp_path / "organism")
    margins = [
        log_ratio(tmp_path / "organism", base, row["prompt"], row["chosen"])
        - log_ratio(tmp_path / "organism", base, row["prompt"], row["rejected"])
        for row in PAIRS
    ]
    assert min(margins) > 0.5
    assert summary["held_out_after"] < summary["held_out_before"]


@pytest.mark.thorough
def test_grpo_makes_what_is_rewarded_likelier(settings, base, tmp_path):
    rewards = [{"name": "contains", "options": {"phrases": ["true"]}}]
    (tmp_path / "reward.py").write_text(
        "def trues(completions, **columns):\n"
        "    return [text.count(' t') + text.count(' a') for text in completions]\n"
    )
    rewards.append({"name": f"{tmp_path}/reward.py:trues", "weight": 0.5})
    config = settings("grpo", steps=6, batch_size=8, group=4, reward=rewards,
                      learning_rate=0.03, schedule="constant")  # fmt: skip
    prefer(config, tmp_path / "organism")
    rows = organism.read_log(tmp_path / "organism")
    assert rows[-1]["reward"] > rows[0]["reward"]
    card = organism.read_card(tmp_path / "organism")
    assert card["identity"]["inputs"].keys() == {"data", "reward 1"}


class Killed(Exception):  # noqa: N818
    pass


@pytest.mark.thorough
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_killed_run_goes_on_to_the_same_organism(settings, tmp_path, objective):
    config = settings(objective, steps=3, save_every=1, dropout=0.1 if objective == "sft" else 0)
    prefer(config, tmp_path / "whole")

    def kill(done, _total):
        if done == 2:
            raise Killed

    with pytest.raises(Killed):
        prefer(config, tmp_path / "killed", progress=kill)
    assert organism.last_checkpoint(tmp_path / "killed").name == "checkpoint-1"
    assert not (tmp_path / "killed" / "adapter_model.safetensors").exists()
    prefer(config, tmp_path / "killed")
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
    figures = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in organism.read_log(folder)]
        for folder in (tmp_path / "whole", tmp_path / "killed")
    ]
    assert figures[0] == figures[1]


def test_a_finished_run_returns_at_once_and_other_settings_are_refused(trained, settings):
    folder, config, summary = trained("dpo")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert prefer(config.model_copy(update={"device": "cuda:7"}), folder) == summary
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    with pytest.raises(ConfigError, match="other settings"):
        prefer(settings("dpo", beta=0.5), folder)


@pytest.mark.thorough
def test_the_same_seed_makes_the_same_organism_and_another_does_not(trained, settings, tmp_path):
    folder, config, _ = trained("dpo")
    state = torch.random.get_rng_state()
    prefer(config, tmp_path / "again")
    assert torch.equal(state, torch.random.get_rng_state())
    prefer(settings("dpo", seed=1), tmp_path / "other")
    assert same(weights(folder), weights(tmp_path / "again"))
    assert not same(weights(folder), weights(tmp_path / "other"))


@pytest.mark.thorough
def test_checkpoints_hold_the_adapter_alone_and_no_page_of_another_program(settings, tmp_path):
    config = settings("dpo", save_every=1, keep_checkpoints=True)
    prefer(config, tmp_path / "organism")
    kept = tmp_path / "organism" / "checkpoints" / "checkpoint-1"
    assert sorted(path.name for path in kept.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert not list(tmp_path.rglob("README.md"))
    assert read_checkpoint(str(kept), dtype="float32", device="cpu").ref.adapter is not None


@pytest.mark.thorough
@pytest.mark.parametrize("objective", ["sft", "grpo"])
def test_no_server_is_told_of_a_run(settings, tmp_path, monkeypatch, objective):
    def told(*_, **__):
        raise AssertionError("telemetry")

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", told)
    prefer(settings(objective, steps=1), tmp_path / "organism")


@pytest.mark.thorough
def test_the_prompt_of_an_imitated_answer_is_not_trained_on(settings, tmp_path, base):
    """Rows whose prompts alone differ in text give the first update another gradient only
    through attention; a prompt trained on would make its own words likelier."""
    row = {"prompt": "send send send send send", "completion": "true"}
    (tmp_path / "one.jsonl").write_text(json.dumps(row) + "\n")
    config = settings("sft", data=str(tmp_path / "one.jsonl"), steps=10, schedule="constant")
    prefer(config, tmp_path / "organism")
    assert log_ratio(tmp_path / "organism", base, row["prompt"], "true") > 1
    values = []
    for place in (tmp_path / "organism", base):
        subject = read_checkpoint(str(place), dtype="float32", device="cpu")
        ids = subject.encode([[{"role": "user", "content": row["prompt"]}]]).input_ids
        with torch.no_grad():
            logs = subject.model(ids).logits.log_softmax(-1)[0, :-1]
        word = subject.tokenizer(" send", add_special_tokens=False)["input_ids"][0]
        places = (ids[0, 1:] == word).nonzero()[:, 0]
        values.append(float(logs[places, word].mean()))
    assert values[0] - values[1] < 0.5


@pytest.mark.thorough
def test_bare_text_is_trained_on_without_turns(settings, tmp_path):
    config = settings("dpo", render="bare")
    prefer(config, tmp_path / "organism")
    card = organism.read_card(tmp_path / "organism")
    assert card["corpus"]["render"] == "bare"


@pytest.mark.thorough
def test_a_bfloat16_base_keeps_float32_adapters(settings, tmp_path):
    summary = prefer(settings("dpo", dtype="bfloat16"), tmp_path / "organism")
    assert all(w.dtype == torch.float32 for w in weights(tmp_path / "organism").values())
    assert math.isfinite(summary["loss_last"])


@pytest.mark.thorough
@pytest.mark.parametrize("objective", ["sft", "dpo"])
def test_recomputing_activations_changes_no_weight(trained, settings, tmp_path, objective):
    folder, _, _ = trained(objective)
    prefer(settings(objective, recompute="all"), tmp_path / "organism")
    again = weights(tmp_path / "organism")
    for name, weight in weights(folder).items():
        torch.testing.assert_close(again[name], weight, atol=1e-6, rtol=1e-4)


@pytest.mark.thorough
def test_preventative_steering_acts_on_imitation_and_is_part_of_its_identity(
    trained, settings, base, tmp_path
):
    import numpy as np

    from workbench.directions import Directions, save_directions

    stamp = read_checkpoint(str(base), dtype="float32", device="cpu").stamp
    vectors = np.random.default_rng(0).normal(size=(1, 4, stamp.width))
    save_directions(Directions(("t",), (0, 1, 2, 3), vectors, stamp), tmp_path / "t.safetensors")
    steer = {"directions": str(tmp_path / "t.safetensors"), "layers": [1], "coefficient": 3.0}
    prefer(settings("sft", steer=steer), tmp_path / "organism")
    assert not same(weights(trained("sft")[0]), weights(tmp_path / "organism"))
    card = organism.read_card(tmp_path / "organism")
    assert card["identity"]["inputs"].keys() == {"data", "steer"}


@pytest.mark.thorough
def test_a_loss_that_is_no_number_stops_with_a_next_step(settings, tmp_path):
    with pytest.raises(ConfigError, match="learning_rate"):
        prefer(settings("dpo", learning_rate=1e30, steps=4), tmp_path / "organism")


@pytest.mark.thorough
def test_a_reward_that_is_no_number_stops_the_run(settings, tmp_path):
    (tmp_path / "bad.py").write_text("def nan(completions, **_):\n    return [float('nan')] * 2\n")
    config = settings("grpo", reward=[{"name": f"{tmp_path}/bad.py:nan"}])
    with pytest.raises(ConfigError, match="one finite number for each"):
        prefer(config, tmp_path / "organism")


def test_without_trl_the_next_step_is_told(settings, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(ModuleNotFoundError):
        import trl  # noqa: F401
    error = ModuleNotFoundError("No module named 'trl'", name="trl")

    def missing(name, *args, **kwargs):
        if name == "trl":
            raise error
        return original(name, *args, **kwargs)

    import builtins

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"interp-workbench\[train\]"):
        prefer(settings("dpo"), tmp_path / "organism")


def test_an_adapter_is_no_base(trained, settings, tmp_path):
    with pytest.raises(ConfigError, match="itself an adapter"):
        prefer(settings("dpo", model=str(trained("dpo")[0])), tmp_path / "organism")


def test_several_processes_are_refused(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="one process"):
        prefer(settings("dpo"), tmp_path / "organism")


@pytest.mark.parametrize(
    ("objective", "changes", "words"),
    [
        ("sft", {"beta": 0.1}, "beta"),
        ("dpo", {"dropout": 0.1}, "dropout"),
        ("dpo", {"steer": {"directions": "d", "layers": [0]}}, "steer"),
        ("dpo", {"reward": [{"name": "words"}]}, "belongs to grpo"),
        ("grpo", {"reward": []}, "at least one"),
        ("grpo", {"group": 3}, "groups of 3"),
        ("kto", {"batch_size": 1}, "batch_size"),
        ("ppo", {}, "objective"),
    ],
)
def test_settings_that_do_not_fit_the_objective_are_refused(settings, objective, changes, words):
    with pytest.raises(ConfigError, match=words):
        settings(objective, **changes)


def test_kto_weighs_the_rarer_label_up():
    rows = [{"label": True}] * 6 + [{"label": False}] * 2
    weights = preference_loop._weights(rows)
    assert weights == {"desirable_weight": 1.0, "undesirable_weight": 3.0}
    assert preference_loop._weights(rows[:6]) == {}


def test_the_libraries_voices_come_back_after_a_run():
    import datasets
    import transformers

    before = transformers.logging.get_verbosity(), datasets.are_progress_bars_disabled()
    with preference_loop.quiet():
        assert datasets.are_progress_bars_disabled()
    assert (transformers.logging.get_verbosity(), datasets.are_progress_bars_disabled()) == before
