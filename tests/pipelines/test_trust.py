"""The verb trust: from pairs and sweeps on a tiny model to tables that agree with one another."""

import json

import numpy as np
import pandas as pd
import pytest

from workbench.directions import Directions, save_directions
from workbench.errors import ConfigError
from workbench.pipelines.report_trust import margin_rows, run_rows
from workbench.pipelines.study import Unit
from workbench.pipelines.verbs import carry_out
from workbench.results import read_results, write_results

WORDS = ("city", "send", "answer", "true", "false", "you", "in", "of")
TABLES = ("margin", "facets", "monotone", "displacement", "items", "transfer", "blocks", "pairs")


def pair_rows():
    rng = np.random.default_rng(0)
    rows = []
    for n in range(8):
        chosen, rejected = (" ".join(rng.permutation(WORDS)[:4]) for _ in range(2))
        rows.append({
            "id": f"r{n}", "chosen": chosen, "rejected": rejected,
            "prompt": [{"role": "user", "content": " ".join(rng.permutation(WORDS)[:5])}],
            "facet": ("ability", "integrity")[n % 2], "scenario": f"s{n // 2}", "split": "test",
            "style": "terse",
        })  # fmt: skip
    both = {"facet": "neutral", "chosen": "send it", "rejected": "send it"}
    return [*rows, {**rows[0], "id": "same", **both}]


@pytest.fixture(scope="module")
def swept(tmp_path_factory, subject_of):
    """A folder with pairs, a matrix for all blocks and the run folder of its sweep."""
    folder = tmp_path_factory.mktemp("trust")
    subject = subject_of("qwen3")
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pair_rows()))
    layers = tuple(sorted(subject.blocks))
    for name, seed in (("own", 0), ("shuffled", 1)):
        v = np.random.default_rng(seed).normal(size=(1, len(layers), 32)).astype(np.float32)
        info = {"span": "last_user", "scope": "content"}
        found = Directions(("bipo",), layers, v, subject.stamp, info=info)
        save_directions(found, folder / f"{name}.safetensors")
    settings = {
        "model": subject.ref.base, "dtype": "float32", "device": "cpu",
        "directions": str(folder / "own.safetensors"),
        "shuffled": str(folder / "shuffled.safetensors"),
        "layers": list(layers), "doses": [-1.0, 0.0, 1.0], "scope": "content", "guards": False,
        "controls": ["random:2", "shuffled"],
        "readouts": [
            {"name": "reply_margin", "pairs": str(folder / "pairs.jsonl"),
             "measures": ["margin", "chosen", "rejected"]},
            {"name": "trust_game", "counterparts": ["person"], "frames": ["plain", "study"],
             "measures": ["transfer"]},
        ],
    }  # fmt: skip
    done = carry_out("sweep", settings, root=folder / "runs")
    return folder, done.path


def settings(folder, sweep, **changed):
    found = {
        "sweeps": {"bipo": str(sweep / "results.parquet")},
        "matrices": {"bipo": str(folder / "own.safetensors")},
        "shuffled": {"bipo": str(folder / "shuffled.safetensors")},
        "baseline": "bipo",
        "pairs": str(folder / "pairs.jsonl"),
        "draws": 200,
    }
    return {**found, **changed}


def test_a_run_leaves_tables_that_agree_with_the_sweep(swept, tmp_path):
    folder, sweep = swept
    done = carry_out("trust", settings(folder, sweep), root=tmp_path)
    tables = {name: pd.read_parquet(done.path / f"{name}.parquet") for name in TABLES}
    results = read_results(sweep)
    margins = results[(results["readout"] == "reply_margin") & (results["measure"] == "margin")]
    at = margins[(margins["control"] == "none") & (margins["dose"] == 1)]
    row = tables["margin"].query("control == 'none' and facet == 'all' and dose == 1").iloc[0]
    assert row["mean"] == pytest.approx(at["value"].mean())
    assert (row["method"], row["n_items"], row["n"], row["unit"]) == ("bipo", 8, 4, "scenario")
    accuracy = tables["facets"].query("control == 'none' and facet == 'all' and dose == 1").iloc[0]
    assert accuracy["accuracy"] == pytest.approx((at["value"] > 0).mean())
    assert set(tables["items"].query("control == 'none'")["dose"]) == {-1, 0, 1}
    assert set(tables["items"]["item"]) == {f"r{n}" for n in range(8)}
    assert set(tables["margin"]["facet"]) == {"all", "ability", "integrity"}
    assert set(tables["displacement"]["facet"]) == {"all", "ability", "integrity", "neutral"}
    assert set(tables["transfer"]["measure"]) == {"transfer"}
    assert set(tables["margin"]["control"]) == {"none", "shuffled", "random:0", "random:1"}
    assert sorted(tables["pairs"]["item"]) == [f"r{n}" for n in range(8)]
    assert json.loads(tables["pairs"]["prompt"][0])[-1]["role"] == "user"
    blocks = tables["blocks"].query("control == 'none'")
    np.testing.assert_allclose(blocks["cosine_other"], 1, rtol=1e-6)  # with itself
    page = (done.path / "report.md").read_text()
    assert "acts on `content`\n" in page
    assert "95% t over scenarios (n = 4 scenarios" in page
    assert "| method | control | facet | statistic | value | p | n |" in page
    assert "| too few scenarios | 4 scenarios |" in page
    assert set(tables["monotone"]["test"]) == {"too few scenarios"}
    (line,) = run_rows(done.path, "tiny")
    assert [row.question for row in margin_rows([(Unit("t", "trust", (), {}), done)])] == [
        line.question
    ]
    assert line.value == pytest.approx(
        tables["monotone"]
        .query("facet == 'all' and control == 'none' and statistic == 'slope'")["value"]
        .iloc[0]
    )
    assert "random" in line.control
    assert carry_out("trust", settings(folder, sweep), root=tmp_path).status == "reused"


def test_a_scope_that_a_matrix_was_not_trained_on_is_told(swept, tmp_path):
    from workbench.pipelines.report_trust import as_page
    from workbench.pipelines.trust import TrustConfig, judge

    folder, sweep = swept
    found = judge(TrustConfig(**settings(folder, sweep)))
    assert found.scopes == {"bipo": ("content", "content")}
    other = as_page(found.__class__(**{**vars(found), "scopes": {"bipo": ("content", "user")}}))
    assert "acts on `content`, though it was trained on `user`" in other


def test_replies_of_scenarios_that_are_trained_on_are_told(swept, tmp_path):
    """Neutral rows of training scenarios passed for text that nothing was trained on."""
    folder, sweep = swept
    page = "of scenarios whose other pairs are trained on"
    clean = carry_out("trust", settings(folder, sweep), root=tmp_path)
    assert clean.result["of_trained_scenarios"] == {"pairs": 0, "neutral replies": 0}
    assert page not in (clean.path / "report.md").read_text()
    trained = {**pair_rows()[0], "id": "more", "split": "train"}
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*pair_rows(), trained]))
    told = carry_out("trust", settings(folder, sweep, pairs=str(file)), root=tmp_path)
    assert told.result["of_trained_scenarios"] == {"pairs": 2, "neutral replies": 1}
    assert f"**1 of 1 neutral replies are {page}**" in (told.path / "report.md").read_text()
    assert f"**2 of 8 pairs are {page}**" in (told.path / "report.md").read_text()


def test_what_does_not_belong_together_is_refused(swept, tmp_path):
    folder, sweep = swept
    with pytest.raises(ConfigError, match="matrices has 'other', which no sweep is of"):
        carry_out(
            "trust",
            settings(folder, sweep, matrices={"other": str(folder / "own.safetensors")}),
            root=tmp_path,
        )
    few = folder / "few.jsonl"
    few.write_text(json.dumps(pair_rows()[0]) + "\n")
    with pytest.raises(ConfigError, match="has 1 of the 8 pairs"):
        carry_out("trust", settings(folder, sweep, pairs=str(few)), root=tmp_path)


def test_a_second_sweep_of_the_same_margins_or_of_the_same_game_is_refused(swept, tmp_path):
    folder, sweep = swept
    whole = read_results(sweep)
    paths = {}
    for readout in ("reply_margin", "trust_game"):
        paths[readout] = tmp_path / f"{readout}.parquet"
        write_results(whole[whole["readout"] == readout], paths[readout], run="second")
        both = {"bipo": [str(sweep / "results.parquet"), str(paths[readout])]}
        told = rf"rows of {readout} stand more than once.*runs: {sweep.name}, second"
        with pytest.raises(ConfigError, match=told):
            carry_out("trust", settings(folder, sweep, sweeps=both), root=tmp_path)
    apart = {"bipo": [str(path) for path in paths.values()]}
    carry_out("trust", settings(folder, sweep, sweeps=apart), root=tmp_path)


def test_margins_of_pairs_that_were_trained_on_are_refused(swept, tmp_path):
    folder, sweep = swept
    whole = read_results(sweep)
    trained = whole.assign(extra=whole["extra"].str.replace('"split": "test"', '"split": "train"'))
    write_results(trained, tmp_path / "results.parquet")
    named = {"bipo": str(tmp_path / "results.parquet")}
    with pytest.raises(ConfigError, match=r"split: train.*name = 'reply_margin', split = 'test'"):
        carry_out("trust", settings(folder, sweep, sweeps=named), root=tmp_path)
