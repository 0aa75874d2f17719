"""The capping stages of the shipped axis study, on a tiny model: what they need and leave."""

import json

import pandas as pd
import pytest

from workbench.config import parse
from workbench.pipelines.capping import TABLES
from workbench.pipelines.report import headline
from workbench.pipelines.report_effects import study_effects
from workbench.pipelines.study import StudyConfig, read_study, run_study

NEEDED = ("organism", "roles", "traits", "judged_roles", "judged_traits", "role_acts", "trait_acts")
OWN = ("acted_on", "capped", "capping")
FEW = (
    "stage.organism.tokens=256", "stage.organism.block=64", "stage.organism.device=cpu",
    "stage.roles.take.roles=4", "stage.roles.take.questions=3", "stage.roles.max_new_tokens=4",
    "stage.traits.take.traits=2", "stage.traits.take.questions=3", "stage.traits.max_new_tokens=4",
    "stage.axis.least=2", "stage.axis.least_pairs=2", "stage.axis.layer=2",
    "stage.acted_on.layers=[1,2]", "stage.capped.layers=[1,2]", "stage.capping.layers=[1,2]",
    "stage.capping.monitor=2", "stage.capping.max_new_tokens=4",
)  # fmt: skip


def small(model):
    study = read_study("axis_smollm2", FEW)
    stages = [stage for stage in study.stage if stage["id"] in (*NEEDED, "axis", *OWN)]
    game = {"name": "trust_game", "counterparts": ["person"], "frames": ["plain"]}
    for stage in stages:
        if stage.get("model") == "smollm2":
            stage["model"] = str(model)
        if stage["id"] == "axis":
            del stage["organisms"]
        if stage["id"] == "capped":
            stage["for"] = {"model": [str(model), "@organism"]}
        if "readouts" in stage:
            stage["readouts"] = [game]
    return parse(StudyConfig, {"name": "small", "stage": json.loads(json.dumps(stages))}, "small")


@pytest.mark.thorough
def test_the_study_caps_its_fleet(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("workbench.api.cache_root", lambda: tmp_path / "cache")
    study = small(tiny_folder(tmp_path / "model"))
    units = list(run_study(study, root=tmp_path / "runs"))
    assert [unit.stage for unit, _ in units if unit.stage in OWN] == [
        "acted_on", *["capped"] * 5, "capping"
    ]  # fmt: skip
    done = units[-1][1]
    tables = {name: pd.read_parquet(done.path / f"{name}.parquet") for name in TABLES}
    gaps = tables["behaviour"].query("level == 'contrast' and control == 'none'")
    assert set(gaps["model"]) == {"P - A"}
    assert set(gaps["n"]) == {2}
    assert gaps["engaged_before"].notna().all()
    floors = tables["thresholds"]
    stores = [one.result["n"] for unit, one in units if unit.stage in ("role_acts", "trait_acts")]
    assert len(stores) == 2
    assert set(floors["n"]) == {sum(stores)}  # all rollouts that have an answer, traits among them
    matched = floors.groupby("layer")["match_below"].agg(["min", "max"])
    assert (matched["max"] - matched["min"]).max() < 0.1  # ties of equal prompts apart
    assert (done.path / "report.md").exists()
    assert len(headline(units))
    assert len(dict(study_effects(units))) == 5
