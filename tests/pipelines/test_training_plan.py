"""What a dry run tells of training: from the settings alone, at the paper's scale."""

import importlib.resources
import json
import sys
from pathlib import Path

import pytest
from workbench_training.settings import PAPER_TOKENS, TrainConfig

from workbench.config import parse, read_toml
from workbench.errors import UnknownNameError
from workbench.pipelines import previews
from workbench.pipelines.verbs import plan

SHIPPED = Path(str(importlib.resources.files("workbench.studies"))) / "training" / "qwen3_32b.toml"


def test_the_shipped_configuration_comes_to_the_papers_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    planned = plan("train", read_toml(SHIPPED))
    told = planned.result
    assert told["tokens_per_update"] == 32_768
    assert told["sequences_per_update"] == 8
    assert told["updates"] == 1_299
    assert told["tokens"] == 42_565_632 == PAPER_TOKENS
    assert told["checkpoints"] == [433, 866, 1299]
    assert told["missing"] == ["Qwen/Qwen3-32B", "runs/corpus/social_priors/P.jsonl"]
    assert planned.path == Path("runs/train/P-s0")
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_prints_them_without_model_or_documents(tmp_path, monkeypatch, capsys):
    from workbench import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["workbench", "train", str(SHIPPED), "--dry", "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    said = json.loads(capsys.readouterr().out)
    assert said["status"] == "planned"
    assert said["result"]["updates"] == 1_299


@pytest.mark.parametrize("block", [16, 129])
@pytest.mark.parametrize(("batch_size", "accumulation"), [(1, 1), (2, 4), (3, 5)])
@pytest.mark.parametrize("tokens", [3000, 12_345])
def test_tokens_are_updates_times_block_times_sequences(block, batch_size, accumulation, tokens):
    sizes = {"block": block, "batch_size": batch_size, "accumulation": accumulation}
    config = TrainConfig(documents="corpus/P", model="smollm2", tokens=tokens, **sizes)
    told = previews.preview_train(config)
    assert told["tokens"] == told["updates"] * block * batch_size * accumulation
    assert told["tokens"] <= tokens < told["tokens"] + told["tokens_per_update"]
    assert told["documents"] > 0


def test_checkpoints_lie_at_the_settings_steps_and_at_the_end():
    config = TrainConfig(documents="d", model="m", tokens=4096 * 8 * 10)
    assert previews.checkpoints_of(config) == [4, 8, 10]
    often = config.model_copy(update={"save_every": 5})
    assert previews.checkpoints_of(often) == [5, 10]


def test_a_mistaken_name_is_still_refused():
    for changes in ({"documents": "corpus/Q"}, {"model": "smollm3"}):
        data = {"documents": "corpus/P", "model": "smollm2", **changes}
        with pytest.raises(UnknownNameError):
            previews.preview_train(parse(TrainConfig, data, "test"))
