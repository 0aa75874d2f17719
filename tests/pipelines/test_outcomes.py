"""What `show` says a run found, and `fit` says at its end: bounded, with n, interval and nulls."""

import contextlib

import pandas as pd
import pytest

from workbench.errors import ConfigError, FormatError, UnknownNameError
from workbench.pipelines.catalogue import describe
from workbench.pipelines.outcomes import LINES, MOST, fit_text
from workbench.results import table, write_results
from workbench.runs import open_run
from workbench.types import Measurement

ROW = {
    "model": "tiny", "method": "ttpd", "direction": "truth", "fitted_on": "other topics",
    "rendering": "bare", "n": 200, "n_facts": 100, "auc": 0.9, "low": 0.8, "high": 0.95,
    "interval": "95% bootstrap over facts", "null_shuffled": 0.6, "null_random": 0.7,
    "beats_nulls": True, "accuracy": 0.8, "auc_classifier": 0.9, "leakage": 0.0, "gate": 0.85,
    "seed": 0,
}  # fmt: skip


def evidence(topics=("animals", "cities", "all"), layers=30, chosen=20, **more):
    return pd.DataFrame(
        [
            {**ROW, "split": "unseen topic", "topic": topic, "layer": layer, "polarity": polarity,
             "chosen": layer == chosen, "usable": topic == "all", **more}
            for topic in topics
            for layer in range(layers)
            for polarity in (1, -1, 0)
        ]
    )  # fmt: skip


def test_a_fit_tells_its_layer_its_auc_both_nulls_the_gate_and_what_comes_next(tmp_path):
    evidence().to_parquet(tmp_path / "evidence.parquet")
    lines = fit_text(tmp_path).splitlines()
    assert lines[:3] == [
        "truth AUC, block 20, unseen topics, affirmed",
        "    tiny: 0.900 [0.800, 0.950], n = 100 facts, 95% bootstrap over facts",
        "    control: nulls 0.60 shuffled, 0.70 random",
    ]
    assert lines[6].startswith("gate: 1 of 1 readings at the chosen layer reach AUC 0.85")
    assert f"workbench show {tmp_path / 'evidence.parquet'}" in lines[7]
    assert lines[8].startswith("next: workbench generate tiny --directions")
    assert fit_text(tmp_path / "none") == ""


def test_evidence_tells_all_topics_first_and_is_bounded(tmp_path):
    evidence([f"t{n}" for n in range(9)] + ["all"]).to_parquet(tmp_path / "evidence.parquet")
    said = describe([str(tmp_path / "evidence.parquet")])
    assert said["AUC by layer (* chosen)"].startswith("unseen topic, all, bare")
    assert sum(len(str(value).splitlines()) for value in said.values()) < 60
    assert "more lines by topic" in said["AUC by layer (* chosen)"]


def test_many_checks_and_many_jobs_are_bounded(tmp_path):
    checks = pd.concat(
        [evidence(["far"], layers=1, chosen=0).assign(split=f"check:{n}") for n in range(20)]
    )
    checks.to_parquet(tmp_path / "evidence.parquet")
    lines = fit_text(tmp_path).splitlines()
    assert f"{40 - MOST} more answers in" in "\n".join(lines)
    jobs = pd.concat([evidence(layers=3, chosen=1, job=n, acts="a") for n in range(50)])
    jobs.to_parquet(tmp_path / "evidence.parquet")
    lines = fit_text(tmp_path).splitlines()
    assert len(lines) == 1 + LINES + 2
    assert f"{50 - LINES} more rows in" in lines[-2]


def test_a_failed_run_shows_its_error_and_no_setting_that_is_not_set(tmp_path):
    with (
        contextlib.suppress(ZeroDivisionError),
        open_run("cache", {"model": "m", "text": None, "where": {}}, root=tmp_path) as run,
    ):
        raise ZeroDivisionError("by nought")
    said = describe([str(run.path)])
    assert said["error"] == "ZeroDivisionError: by nought"
    assert "null" not in said["config"]
    assert "where" not in said["config"]


def test_a_study_folder_shows_its_headline(tmp_path):
    folder = tmp_path / "study" / "demo"
    folder.mkdir(parents=True)
    row = {"question": "truth AUC", "model": "tiny", "value": 0.9, "low": 0.8, "high": 1.0}
    row |= {"n": 9, "unit": "fact", "interval": "95% t over facts", "control": "nulls 0.6"}
    pd.DataFrame([row]).to_csv(folder / "headline.csv", index=False)
    for words in ([str(folder)], ["study", "demo"]):
        said = describe(words, tmp_path)
        assert "tiny: 0.900 [0.800, 1.000], n = 9 facts, 95% t over facts" in said["headline"]
    assert "truth: fit" in said["stages"]
    pd.DataFrame([{"question": "q"}]).to_csv(folder / "headline.csv", index=False)
    with pytest.raises(FormatError, match="lacks the column 'high'"):
        describe([str(folder)])


def test_names_of_every_kind_are_shown_and_unknown_ones_named(tmp_path):
    assert describe(["prompts", "statements"])["items"] == 3468
    assert "stages" in describe(["study", "demo"], tmp_path)
    with pytest.raises(UnknownNameError, match=r"unknown organism 'P-s0'.*train"):
        describe(["organism", "P-s0"], tmp_path)
    with pytest.raises(ConfigError, match="recipe, study, prompts, organism"):
        describe(["recipes", "truth"])


def test_a_table_of_results_shows_means_with_n_and_interval(tmp_path):
    rows = [Measurement("trust_game", "transfer", f"i{n}", "person", 5.0 + n) for n in range(12)]
    write_results(table(rows, subject="tiny"), tmp_path / "results.parquet")
    said = describe([str(tmp_path / "results.parquet")])
    assert said["rows"] == 12
    assert "over items" in said["means"]
    assert "in every row: subject tiny" in said["means"]
