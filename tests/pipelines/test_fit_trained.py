"""The verb ``fit`` with a model: pairs in, directions and a log out, resumed and reused."""

import json

import numpy as np
import pandas as pd
import pytest

from workbench.directions import open_directions
from workbench.errors import ConfigError, UnknownNameError
from workbench.pipelines.study import Outputs, expand
from workbench.pipelines.verbs import carry_out, plan

ROWS = [
    {
        **{"id": f"p{n}", "prompt": [{"role": "user", "content": f"is it {word} ?"}]},
        **{"chosen": "A A", "rejected": "B B", "split": "train" if n < 4 else "test"},
        **{"facet": "ability", "scenario": f"s{n}", "family": "f", "style": "plain"},
    }
    for n, word in enumerate("CDEFGH")
]


@pytest.fixture
def settings(tiny_folder, tmp_path):
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return {
        "model": str(tiny_folder(tmp_path / "tiny")),
        "pairs": str(tmp_path / "pairs.jsonl"),
        "epochs": 3,
        "batch_size": 2,
        "learning_rate": 0.02,
        "device": "cpu",
        "dtype": "float32",
    }


def test_a_plan_counts_pairs_and_updates(settings, tmp_path):
    done = plan("fit", settings, root=tmp_path / "runs")
    counts = {name: done.result[name] for name in ("pairs", "held_out", "updates")}
    assert counts == {"pairs": 4, "held_out": 2, "updates": 6}
    assert done.result["other_splits_left_out"] == 0
    assert not done.path.exists()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"method": "mass_mean"}, "fitted to activations"),
        ({"method": "bip"}, "bipo"),
        ({"params": {"rank": 3}}, "no parameter 'rank'"),
        ({"span": "system"}, "span"),
        ({"pairs": "nowhere.jsonl"}, "nowhere"),
        ({"model": "nowhere"}, "nowhere"),
        ({"epoch": 3}, "epochs"),
        ({"learning_rate": float("inf")}, "learning_rate"),
        ({"weight_decay": float("inf")}, "weight_decay"),
        ({"params": {"gamma": "abc"}}, "gamma"),
        ({"method": "loreft", "params": {"rank": 2.5}}, "rank"),
    ],
)
def test_a_plan_refuses_what_the_run_would_refuse(settings, tmp_path, changed, told):
    with pytest.raises((ConfigError, UnknownNameError), match=told):
        plan("fit", {**settings, **changed}, root=tmp_path)


def test_a_run_leaves_directions_and_a_row_an_update_and_is_reused(settings, tmp_path):
    first = carry_out("fit", settings, root=tmp_path / "runs")
    again = carry_out("fit", settings, root=tmp_path / "runs")
    assert (first.status, again.status) == ("done", "reused")
    assert again.result == first.result
    found = open_directions(first.path)
    assert (found.names, found.layers) == (("bipo",), (0, 1, 2))
    assert (found.info["span"], found.info["scope"]) == ("user", "user")
    assert found.info["left_out_layers"] == [3]
    assert np.linalg.norm(found.vectors[0], axis=1).min() > 0
    assert found.norms.min() > 0
    log = pd.read_parquet(first.path / "log.parquet")
    assert log["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert {"loss", "margin", "reward_chosen", "reward_rejected", "size"} <= set(log)
    assert first.result["margin_after"] > first.result["margin_before"]
    left = {path.name for path in first.path.iterdir()}
    assert left == {"run.json", "directions.safetensors", "log.parquet"}


def test_a_stage_of_a_study_fans_out_and_gets_the_studys_seed():
    stage = {"id": "vector", "verb": "fit", "model": "m", "pairs": "p", "for": {"span": ["user"]}}
    (unit,) = expand(stage, Outputs(), seed=3)
    assert (unit.settings["span"], unit.settings["seed"]) == ("user", 3)


def test_the_command_line_trains_and_lists_the_method(run, settings):
    flags = ["--model", settings["model"], "--set", "epochs=1", "--set", "dtype=float32"]
    code, said, _ = run("fit", settings["pairs"], *flags, "--layers", "0,1", "--json")
    told = json.loads(said)
    assert (code, told["status"], told["result"]["updates"]) == (0, "done", 1)
    code, said, _ = run("show", "method", "bipo")
    assert code == 0
    assert "needs: model" in said
    assert "gamma" in said
    code, said, _ = run("fit", settings["pairs"], "--method", "bipo")
    assert code == 1


@pytest.mark.parametrize("span", ["user", "assistant"])
def test_a_sweep_of_the_recorded_scope_finds_the_margin_that_training_told(
    span, settings, tmp_path, caplog
):
    from workbench import api, sweep

    done = carry_out("fit", {**settings, "span": span}, root=tmp_path / "runs")
    found = open_directions(done.path)
    subject = api.load(settings["model"], dtype="float32", device="cpu", check=False)
    readout = {"name": "reply_margin", "pairs": settings["pairs"], "measures": ["margin"]}
    table = sweep(
        subject, found, readouts=[readout], doses=[-1, 1], scope=found.info["scope"], controls=0
    )
    means = table.groupby("dose")["value"].mean()
    assert means[1.0] == pytest.approx(done.result["margin_after"], abs=1e-3)
    assert means[0.0] == pytest.approx(done.result["margin_before"], abs=1e-3)
    assert means[-1.0] < means[0.0] < means[1.0]
    assert "was trained with scope" not in caplog.text
    sweep(subject, found, readouts=[readout], doses=[1], scope="last", controls=0)
    assert f"was trained with scope '{found.info['scope']}'" in caplog.text


@pytest.mark.parametrize("do", [carry_out, plan])
@pytest.mark.parametrize(
    ("more", "told"), [({"workers": 3}, "workers = 3"), ({"shard": "0/2"}, "shard = '0/2'")]
)
def test_what_one_model_is_trained_on_is_not_shared_out(do, more, told, settings, tmp_path):
    with pytest.raises(ConfigError, match=told):
        do("fit", settings, root=tmp_path, **more)


def test_a_dry_run_refuses_workers_too(settings, run):
    words = [settings["pairs"], "--model", settings["model"], "--method", "bipo"]
    code, _, err = run("fit", *words, "--workers", "3", "--dry")
    assert code == 1
    assert "workers = 3" in err
