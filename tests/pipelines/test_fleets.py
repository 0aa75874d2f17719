"""Fleets and studies make the same organisms; shards and workers change nothing."""

import json
import random

import pytest
from workbench_training.organism import read_card

from workbench.models import read_checkpoint
from workbench.pipelines import fleets
from workbench.pipelines.study import StudyConfig, run_study
from workbench.results import organism_of
from workbench.runs import read_run

TRAIN = {
    **{"device": "cpu", "dtype": "float32", "tokens": 64, "block": 16, "batch_size": 2},
    **{"accumulation": 1, "rank": 2, "dropout": 0.0},
}


@pytest.fixture(scope="module")
def base(tiny_folder, tmp_path_factory):
    return str(tiny_folder(tmp_path_factory.mktemp("base") / "tiny"))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    for world in ("P", "A"):
        draw = random.Random(world)
        rows = [
            {"id": f"{world}{n}", "world": world, "split": "train" if n < 10 else "validation",
             "text": " ".join(draw.choice("ABCDEFG") for _ in range(12)) + "."}
            for n in range(12)
        ]  # fmt: skip
        (folder / f"{world}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def content(base, corpora):
    """What a fleet file of two worlds and two seeds holds."""
    shared = {"model": base, "documents": f"{corpora}/{{condition}}.jsonl", **TRAIN}
    return {"fleet": {"conditions": ["P", "A"], "seeds": [0, 1]}, "train": shared}


@pytest.mark.thorough
def test_shards_of_a_fleet_train_their_own_and_the_last_one_completes_it(content, tmp_path):
    organisms = fleets.read_fleet(content, "fleet.toml")
    first = fleets.run_fleet(organisms, "f", root=tmp_path, shard="0/2")
    assert not first.complete
    assert [row["status"] for row in first.rows] == ["done", "new", "done", "new"]
    whole = fleets.run_fleet(organisms, "f", root=tmp_path, shard="1/2")
    assert whole.complete
    assert json.loads(whole.path.read_text()) == whole.rows
    for row, one in zip(whole.rows, organisms, strict=True):
        folder = tmp_path / "train" / one.name
        card = read_card(folder)
        assert row["inputs"] == {"documents": card["identity"]["inputs"]["documents"][:12]}
        assert row["tokens"] == 64
        assert row["updates"] == 2
        assert row["held_out_after"] == card["loss"]["held_out"]["after"]
        assert f"# {one.name}" in (folder / "CARD.md").read_text()


@pytest.mark.thorough
def test_a_study_with_the_same_settings_reuses_the_organisms_of_a_fleet(content, tmp_path):
    organisms = fleets.read_fleet(content, "fleet.toml")
    fleets.run_fleet(organisms, "f", root=tmp_path)
    stage = {
        "id": "organism",
        "verb": "train",
        "for": {"condition": ["P", "A"], "seed": [0, 1]},
        "name": "{condition}-s{seed}",
        **content["train"],
    }
    done = [found for _, found in run_study(StudyConfig(name="s", stage=[stage]), root=tmp_path)]
    assert [one.status for one in done] == ["reused"] * 4
    assert [one.path.name for one in done] == ["P-s0", "P-s1", "A-s0", "A-s1"]


@pytest.mark.thorough
def test_a_plan_tells_what_there_is_and_what_it_takes_only_where_that_was_measured(
    content, tmp_path
):
    organisms = fleets.read_fleet(content, "fleet.toml")
    before = fleets.plan_fleet(organisms, root=tmp_path)
    assert [row["status"] for row in before] == ["new"] * 4
    assert {row["seconds"] for row in before} == {None}
    assert {(row["tokens"], row["updates"], row["documents"]) for row in before} == {(64, 2, 10)}
    assert before[0]["sha256"] == before[1]["sha256"] != before[2]["sha256"]
    assert not (tmp_path / "train").exists()
    fleets.run_fleet(organisms[:1], "f", root=tmp_path)
    after = fleets.plan_fleet(organisms, root=tmp_path)
    assert [row["status"] for row in after] == ["done", "new", "new", "new"]
    assert all(row["seconds"] is not None for row in after)
    other = {**content, "train": {**content["train"], "learning_rate": 1e-5}}
    changed = fleets.plan_fleet(fleets.read_fleet(other, "fleet.toml"), root=tmp_path)
    assert changed[0]["status"] == "another run"


@pytest.mark.thorough
def test_the_list_of_organisms_keeps_those_that_a_run_left_half_way(content, tmp_path):
    (one, *_) = fleets.read_fleet(content, "fleet.toml")
    fleets.run_fleet([one], "f", root=tmp_path)
    manifest = tmp_path / "train" / "P-s0" / "run.json"
    manifest.write_text(manifest.read_text().replace('"status": "done"', '"status": "running"'))
    (tmp_path / "train" / "broken").mkdir()
    (tmp_path / "train" / "broken" / "run.json").write_text("{")
    rows = {row["path"].rpartition("/")[2]: row for row in fleets.organism_rows(tmp_path)}
    assert rows["P-s0"]["status"] == "interrupted"
    assert "loss_last" not in rows["P-s0"]
    assert rows["broken"]["status"] == "unreadable"


@pytest.mark.thorough
def test_a_diluted_organism_loads_by_its_name_and_is_known_by_dose(
    content, corpora, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    table = {"conditions": ["A"], "shares": [0.5], "seeds": [1]}
    train = {**content["train"], "dilute": f"{corpora}/P.jsonl"}
    organisms = fleets.read_fleet({"fleet": table, "train": train}, "fleet.toml")
    (row,) = fleets.run_fleet(organisms, "doses", root=tmp_path / "runs").rows
    assert (row["name"], row["condition"], row["share"]) == ("A-0.5-s1", "A", 0.5)
    assert set(row["inputs"]) == {"documents", "dilute"}
    subject = read_checkpoint("A-0.5-s1", device="cpu", dtype="float32")
    assert subject.ref.key == "tiny+A-0.5-s1"
    assert organism_of(subject.ref.adapter) == ("A-0.5", 1)
    dose = read_card(tmp_path / "runs" / "train" / "A-0.5-s1")["corpus"]["dose"]
    assert dose["asked"] == 0.5
    assert (
        f"{dose['distinct']} documents"
        in (tmp_path / "runs" / "train" / "A-0.5-s1" / "CARD.md").read_text()
    )


@pytest.mark.thorough  # two processes that import torch
def test_workers_train_the_same_organisms_as_one_process(content, tmp_path):
    organisms = fleets.read_fleet(content, "fleet.toml")
    fleets.run_fleet(organisms, "f", root=tmp_path / "one")
    seen = []
    fleets.run_fleet(
        organisms, "f", root=tmp_path / "two", workers=2, progress=lambda *done: seen.append(done)
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    for one in organisms:
        runs = [tmp_path / name / "train" / one.name for name in ("one", "two")]
        assert read_run(runs[0]).id == read_run(runs[1]).id
        losses = [read_card(run)["loss"]["last_tenth"] for run in runs]
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)


@pytest.mark.thorough
def test_workers_of_a_study_keep_the_order_of_its_branches(content, tmp_path):
    stages = [
        {
            "id": "organism",
            "verb": "train",
            "for": {"condition": ["P", "A"], "seed": [0, 1]},
            "name": "{condition}-s{seed}",
            **content["train"],
        },
        {
            "id": "acts",
            "verb": "cache",
            "for": {"model": ["@organism"]},
            "prompts": "claims",
            "layers": [1],
            "device": "cpu",
        },
    ]
    study = StudyConfig(name="s", stage=stages)
    found = list(run_study(study, root=tmp_path, workers=2))
    assert [unit.branch[-1] for unit, _ in found] == [
        *("0", "1", "0", "1"),
        *("P-s0", "P-s1", "A-s0", "A-s1"),
    ]
    assert all(done.status == "done" for _, done in found)
    again = list(run_study(study, root=tmp_path))
    assert [done.path for _, done in again] == [done.path for _, done in found]
    assert all(done.status == "reused" for _, done in again)
