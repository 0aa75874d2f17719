"""The shipped axis study on a tiny model: its verbs, killed in the middle, and what it says."""

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from workbench.config import parse
from workbench.pipelines.study import StudyConfig, read_study, run_study
from workbench.pipelines.verbs import plan
from workbench.transcripts import read_transcripts

OWN = (
    *("organism", "roles", "traits", "judged_roles", "judged_traits", "role_acts", "trait_acts"),
    *("own", "own_acts", "same_acts", "axis", "own_cosines", "same_cosines"),
)
"""Stages that make the axis; others may follow."""
FEW = (
    "stage.organism.tokens=256", "stage.organism.block=64", "stage.organism.device=cpu",
    "stage.roles.take.roles=4", "stage.roles.take.questions=4", "stage.roles.unit=4",
    "stage.traits.take.traits=3", "stage.traits.take.questions=4",
    "stage.roles.max_new_tokens=4", "stage.traits.max_new_tokens=4", "stage.own.max_new_tokens=4",
    "stage.axis.least=2", "stage.axis.least_pairs=2", "stage.axis.layer=2",
)  # fmt: skip


def small(model, folder):
    """The shipped study with a tiny model in place of smollm2 and few rollouts, as a file."""
    study = read_study("axis_smollm2", FEW)
    stages = [stage for stage in study.stage if stage["id"] in OWN]
    for stage in stages:
        if stage.get("model") == "smollm2":
            stage["model"] = str(model)
    path = folder / "small.json"
    path.write_text(json.dumps({"name": "small", "seed": 0, "stage": stages}))
    return path


def test_the_large_study_has_the_same_stages_at_ten_times_the_counts():
    small_one, large = (read_study(name) for name in ("axis_smollm2", "axis_large"))
    shape = [[(stage["id"], stage["verb"]) for stage in one.stage] for one in (small_one, large)]
    assert shape[0] == shape[1]
    assert [name for name, _ in shape[0]][: len(OWN)] == list(OWN)
    counts = []
    for study in (small_one, large):
        stages = {stage["id"]: stage for stage in study.stage}
        told = [plan("rollout", _rollout(stages[name])).result for name in ("roles", "traits")]
        counts.append([one["chats"] for one in told])
    (roles, traits), (more_roles, more_traits) = counts
    default = [5 * stage.stage[1]["take"]["questions"] for stage in (small_one, large)]
    assert more_roles - default[1] == 10 * (roles - default[0]) == 2400
    assert more_traits == 10 * traits == 1200


def _rollout(stage):
    return {key: value for key, value in stage.items() if key not in ("id", "verb", "for")}


RUN = """
import json, sys
from pathlib import Path
from workbench.pipelines.study import StudyConfig, run_study
study = StudyConfig.model_validate(json.loads(Path(sys.argv[1]).read_text()))
for unit, done in run_study(study, root=Path(sys.argv[2])):
    print(unit.title, done.status, flush=True)
"""


def process(file, root):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(file), str(root)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.fixture(scope="module")
def whole(tiny_folder, tmp_path_factory):
    """The study's file, the root of a run that nothing stopped, and its units."""
    folder = tmp_path_factory.mktemp("study")
    file = small(tiny_folder(folder / "model"), folder)
    study = parse(StudyConfig, json.loads(file.read_text()), "small")
    return file, folder / "runs", list(run_study(study, root=folder / "runs"))


@pytest.mark.thorough
def test_the_study_killed_in_its_rollouts_ends_as_one_that_was_not(whole, tmp_path):
    file, unstopped, _ = whole
    killed = process(file, tmp_path / "runs")
    units = tmp_path / "runs" / "rollout"
    deadline = time.monotonic() + 300
    while len(list(units.glob("*/.units/*/*.npz"))) < 2:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not list(units.glob("*/transcripts.parquet"))
    again = process(file, tmp_path / "runs")
    said, _ = again.communicate(timeout=600)
    assert again.returncode == 0
    lines = said.splitlines()
    assert lines[:4] == [f"organism[{name}] reused" for name in ("P, 0", "P, 1", "A, 0", "A, 1")]
    assert "roles done" in lines
    roots = (tmp_path / "runs", unstopped)
    ours, theirs = (
        [
            read_transcripts(path).answers
            for path in sorted(root.glob("rollout/*/transcripts.parquet"))
        ]
        for root in roots
    )
    assert (
        sum(answers in theirs for answers in ours) >= 2
    )  # of the base; organisms are trained anew
    tables = [pd.read_parquet(next(root.glob("axis/*/pc1.parquet"))) for root in roots]
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.thorough
def test_every_stage_of_the_study_leaves_its_artefact(whole):
    from workbench.pipelines.report_axis import axis_rows

    _, _, units = whole
    assert {unit.stage for unit, _ in units} == set(OWN)
    done = {unit.stage: one for unit, one in units}
    placed = pd.read_parquet(done["axis"].path / "coordinates.parquet")
    organisms = set(placed.loc[placed["kind"] == "organism", "role"])
    assert organisms == {"P-s0", "P-s1", "A-s0", "A-s1"}
    table = pd.read_parquet(done["own_cosines"].path / "cosines.parquet")
    assert {name.partition(" ")[0] for name in table["null"]} >= {"isotropic,", "seed-vs-seed"}
    rows = list(axis_rows(units))
    assert any("first component" in row.question for row in rows)
    assert all(row.control and row.interval and row.n for row in rows)
    assert any("nobody judged" in row.control for row in rows)
