"""The verb ``train`` with an objective: one file, one organism, as with documents."""

import json

import pytest

from workbench.errors import ConfigError
from workbench.pipelines.study import Outputs, expand
from workbench.pipelines.verbs import carry_out, plan


@pytest.fixture
def settings(tiny_folder, tmp_path):
    rows = [{"prompt": "a?", "chosen": "true", "rejected": "false"}] * 3
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "objective": "dpo",
        "data": str(tmp_path / "pairs.jsonl"),
        "model": str(tiny_folder(tmp_path / "tiny")),
        "steps": 2,
        "batch_size": 2,
        "accumulation": 1,
        "device": "cpu",
        "dtype": "float32",
    }


def test_a_plan_counts_examples_and_passes_and_trains_nothing(settings, tmp_path):
    done = plan("train", settings, root=tmp_path / "runs")
    assert done.path == tmp_path / "runs" / "train" / "dpo-pairs-s0"
    assert done.result["examples"] == 3
    assert done.result["passes"] == pytest.approx(4 / 3)
    assert done.result["checkpoints"] == [1, 2]
    assert not done.path.exists()


def test_a_plan_refuses_what_the_run_would_refuse(settings, tmp_path):
    reward = {"objective": "grpo", "reward": [{"name": "words"}], "group": 2}
    with pytest.raises(ConfigError, match="target"):
        plan("train", {**settings, **reward}, root=tmp_path)
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    with pytest.raises(ConfigError, match="no 'label'"):
        plan("train", {**settings, "objective": "kto"}, root=tmp_path)


def test_a_stage_of_a_study_fans_out_over_objectives_and_gets_the_studys_seed():
    stage = {"id": "arm", "verb": "train", "for": {"objective": ["dpo", "kto"]}, "data": "d",
             "name": "{objective}-s0"}  # fmt: skip
    units = expand(stage, Outputs(), seed=3)
    assert [unit.settings["objective"] for unit in units] == ["dpo", "kto"]
    assert [unit.settings["seed"] for unit in units] == [3, 3]


@pytest.mark.thorough
def test_a_run_lies_under_its_organisms_name_and_is_reused(settings, tmp_path):
    first = carry_out("train", settings, root=tmp_path / "runs")
    again = carry_out("train", settings, root=tmp_path / "runs")
    assert (first.status, again.status) == ("done", "reused")
    assert (first.path / "adapter_model.safetensors").exists()
    assert again.result == first.result
    assert first.result["model"] == "tiny+dpo-pairs-s0"
    page = (first.path / "CARD.md").read_text()
    assert "trained on answers by the objective dpo" in page
    assert "3, read 1.33 times" in page
