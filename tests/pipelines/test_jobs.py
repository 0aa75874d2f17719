"""Job files: the full product, the same table whoever does the work, and what is read once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.activations import Activations, open_activations, pack
from workbench.directions import fit_truth, open_directions
from workbench.directions.map_fit import fit_map
from workbench.directions.map_io import open_map
from workbench.errors import ConfigError, FormatError, UnknownNameError
from workbench.pipelines import job_file, jobs
from workbench.pipelines.catalogue import describe, verify_path
from workbench.pipelines.settings import FitConfig, JobsConfig
from workbench.pipelines.verbs import carry_out, plan
from workbench.runs import read_run
from workbench.types import ModelStamp

STAMP = ModelStamp(
    key="tiny", model_type="llama", n_layers=6, width=16, tokenizer="0" * 16, fingerprint="1" * 16
)
RECIPE = """
[fit]
method = "mass_mean"
[check]
draws = 20
bootstrap = 100
"""


def planted(seed=0, facts=12, topics=("a", "b", "c")):
    """Facts x {true, false} x {affirmed, negated} in each topic; truth along axis 0."""
    rng = np.random.default_rng(seed)
    rows = [
        (topic, f"{topic}{fact}", polarity, label)
        for topic in topics
        for fact in range(facts)
        for polarity in (1, -1)
        for label in (1, 0)
    ]
    topic, fact, polarity, label = (np.array(column) for column in zip(*rows, strict=True))
    values = rng.standard_normal((4, len(rows), STAMP.width)).astype(np.float32)
    values[..., 0] += np.array([0, 1, 2, 0.5])[:, None] * (2 * label - 1)
    columns = {"topic": topic, "fact": fact, "polarity": polarity, "label": label}
    return Activations.from_values(values, columns, model=STAMP, layers=[1, 2, 3, 4])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with two stores and a recipe."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("one", "two")):
        write_store(planted(number), tmp_path / name)
    (tmp_path / "quick.toml").write_text(RECIPE)
    return tmp_path


def write_store(acts, folder):
    from workbench.activations.layout import make_block
    from workbench.activations.store import Store

    manifest = acts.manifest
    store = Store.create(folder, manifest)
    block = make_block(
        0, acts.values, "float32", {n: acts.columns[n] for n in manifest.columns}, manifest.layers
    )
    store.write(block)
    store.finish()


MANY = {
    "job": [
        {
            "acts": ["one", "two"],
            "recipe": "quick.toml",
            "method": ["mass_mean", {"name": "mass_mean", "center": True}],
            "layer": [2, 3],
            "topic": ["a", "b"],
        },
        {"acts": "one", "recipe": "quick.toml", "check": ["two"]},
    ]
}


def frames_equal(left, right):
    keys = ["job", "split", "topic", "polarity", "layer"]
    left, right = (f.sort_values(keys).reset_index(drop=True) for f in (left, right))
    pd.testing.assert_frame_equal(left, right)


def test_lists_give_the_full_product_each_fit_once(place):
    found = job_file.expand(JobsConfig.model_validate(MANY))
    assert len(found) == 2 * 2 * 2 * 2 + 1
    assert [job.number for job in found] == list(range(17))
    assert len({job.config.model_dump_json() for job in found}) == 17
    twice = JobsConfig.model_validate({"job": [MANY["job"][0], MANY["job"][0]]})
    assert len(job_file.expand(twice)) == 16
    every = {"acts": "one", "recipe": "quick.toml", "layer": "all", "topic": "each"}
    found = job_file.expand(JobsConfig.model_validate({"job": [every]}))
    assert {(job.config.layer, job.topic) for job in found} == {
        (layer, topic) for layer in (1, 2, 3, 4) for topic in "abc"
    }


@pytest.mark.thorough
def test_jobs_give_what_each_fit_gives_alone(place):
    done = carry_out("fit", MANY)
    assert (done.status, done.result["jobs"]) == ("done", 17)
    assert read_run(done.path).models == ("tiny",)
    evidence = pd.read_parquet(done.path / "evidence.parquet")
    assert evidence.columns[:4].tolist() == ["job", "acts", "recipe", "items"]
    assert sorted(set(evidence["job"])) == list(range(17))
    for job in job_file.expand(JobsConfig.model_validate(MANY))[::5]:
        acts = open_activations(job.config.acts).where(**job.config.where)
        recipe = jobs.recipe_of(job.config)
        checks = {"two": open_activations("two")} if job.config.check else {}
        directions, rows = fit_truth(acts, recipe, checks=checks)
        own = evidence[evidence["job"] == job.number].drop(columns=evidence.columns[:4])
        pd.testing.assert_frame_equal(own.reset_index(drop=True), rows, check_dtype=False)
        (file,) = [
            path
            for path in (done.path / "directions").iterdir()
            if path.name.startswith(f"{first_alike(job):04d}-")
        ]
        kept = open_directions(file).select(directions.layers)
        np.testing.assert_array_equal(kept.vectors, directions.vectors)
        np.testing.assert_allclose(kept.norms, directions.norms, rtol=1e-6)
        assert kept.model == STAMP
    assert carry_out("fit", MANY).status == "reused"
    assert sorted(path.name for path in done.path.iterdir()) == [
        "directions", "evidence.parquet", "run.json",
    ]  # fmt: skip


def first_alike(job):
    every = job_file.expand(JobsConfig.model_validate(MANY))
    return next(other.number for other in every if other.same == job.same)


@pytest.mark.thorough
def test_layers_of_otherwise_equal_jobs_are_one_file_and_a_sweep_gets_no_default_layer(place):
    done = carry_out("fit", MANY)
    files = sorted((done.path / "directions").iterdir())
    assert len(files) == 8 + 1
    assert files[0].name == "0000-one-mass_mean-a.safetensors"
    found = open_directions(files[0])
    assert found.layers == (2, 3)
    assert "layer" not in found.info
    assert found.info["method"] == "mass_mean"
    whole = open_directions(files[-1])
    assert whole.layers == (1, 2, 3, 4)
    assert whole.info["layer"] == 3


@pytest.mark.thorough
@pytest.mark.parametrize("shards", [2, 3])
def test_shares_give_the_same_table_and_the_last_one_closes_the_run(place, shards):
    whole = carry_out("fit", MANY, root=Path("whole"))
    parts = [carry_out("fit", MANY, shard=f"{n}/{shards}") for n in range(shards)]
    assert [part.status for part in parts] == ["part"] * (shards - 1) + ["done"]
    assert read_run(parts[0].path).status == "done"
    frames_equal(*(pd.read_parquet(one.path / "evidence.parquet") for one in (parts[-1], whole)))
    assert not (parts[0].path / ".units").exists()


@pytest.mark.thorough
def test_workers_give_the_same_table(place):
    whole = carry_out("fit", MANY, root=Path("whole"))
    told = []
    spread = carry_out("fit", MANY, workers=2, progress=lambda *n: told.append(n))
    frames_equal(*(pd.read_parquet(one.path / "evidence.parquet") for one in (spread, whole)))
    for path in (whole.path / "directions").iterdir():
        one, other = open_directions(path), open_directions(spread.path / "directions" / path.name)
        np.testing.assert_array_equal(one.vectors, other.vectors)
        assert one.layers == other.layers
    assert told[-1] == (17, 17)


def test_one_layer_is_read_once_for_all_its_jobs(place, monkeypatch):
    read, real = [], Activations.at

    def at(self, layer):
        if self.path is not None:
            read.append(layer)
        return real(self, layer)

    monkeypatch.setattr(Activations, "at", at)
    carry_out("fit", {"job": [{**MANY["job"][0], "acts": "one"}]})
    assert sorted(read) == [2, 3]


KILLED = """
import sys, workbench.pipelines.jobs as jobs
from workbench.pipelines.verbs import carry_out
from test_jobs_settings import MANY
if __name__ == "__main__":
    carry_out("fit", MANY, progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.thorough
def test_a_killed_run_goes_on_where_it_was_and_ends_the_same(place):
    whole = carry_out("fit", MANY, root=Path("whole"))
    (place / "test_jobs_settings.py").write_text(f"MANY = {MANY!r}\n")
    (place / "killed.py").write_text(KILLED)
    child = subprocess.Popen(
        [sys.executable, "killed.py"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert int(child.stdout.readline()) > 0
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    (folder,) = (place / "runs" / "fit").glob("[!.]*")
    if read_run(folder).status != "done":
        kept = {path: path.stat().st_mtime_ns for path in folder.glob(".units/*/*.npz")}
        assert kept
        calls = []
        done = carry_out("fit", MANY, progress=lambda *n: calls.append(n))
        assert calls[0][0] > 1
    done = carry_out("fit", MANY)
    frames_equal(*(pd.read_parquet(one.path / "evidence.parquet") for one in (done, whole)))


@pytest.mark.thorough
def test_two_processes_side_by_side_leave_one_whole_table(place):
    whole = carry_out("fit", MANY, root=Path("whole"))
    (place / "test_jobs_settings.py").write_text(f"MANY = {MANY!r}\n")
    (place / "side.py").write_text(
        "import sys\nfrom workbench.pipelines.verbs import carry_out\n"
        "from test_jobs_settings import MANY\n"
        "print(carry_out('fit', MANY, shard=sys.argv[1]).status)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "side.py", f"{n}/2"], stdout=subprocess.PIPE, text=True)
        for n in range(2)
    ]
    said = [child.communicate(timeout=120)[0].strip() for child in children]
    assert "done" in said
    assert set(said) <= {"done", "part"}
    done = carry_out("fit", MANY)
    assert done.status == "reused"
    frames_equal(*(pd.read_parquet(one.path / "evidence.parquet") for one in (done, whole)))


def test_a_dry_run_shows_the_jobs_and_what_they_read(place):
    told = plan("fit", MANY).result
    assert (told["fits"], told["units"], told["stores"]) == (17, 5, 2)
    items, width = len(open_activations("one")), STAMP.width
    assert told["bytes_read"] == (4 + 4) * items * width * 4
    assert told["jobs"][0] == "0: one quick.toml mass_mean layer 2 on a"
    assert told["jobs"][-1] == "16: one quick.toml mass_mean layer chosen by the recipe on all"
    assert not (place / "runs").exists()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"layer": [9]}, ConfigError, "layer 9 was not captured in one; layers there: 1, 2, 3, 4"),
        ({"topic": ["x"]}, ConfigError, "no topic 'x' in one; topics there: a, b, c"),
        ({"method": "mass_men"}, UnknownNameError, "Did you mean 'mass_mean'"),
        ({"method": {"center": True}}, ConfigError, "has no name"),
        ({"method": {"name": "lda", "shrink": 1}}, ConfigError, "has no parameter 'shrink'"),
        ({"method": "ridge_map"}, ConfigError, "gives a map, not a direction"),
        ({"recipe": "truht"}, UnknownNameError, "Did you mean 'truth'"),
        ({"layer": []}, ConfigError, "layer is an empty list"),
        ({"layers": [1]}, ConfigError, "job.0.layers"),
    ],
)
def test_a_wrong_job_is_refused_before_any_fit(place, change, error, message):
    job = {"acts": "one", "recipe": "quick.toml", **change}
    with pytest.raises(error, match=message):
        plan("fit", {"job": [job]})


def test_a_packed_store_serves_too(place):
    pack("one", "one.h5")
    job = {"recipe": "quick.toml", "layer": 3}
    packed, folder = (
        carry_out("fit", {"job": [{"acts": acts, **job}]}) for acts in ("one.h5", "one")
    )
    left, right = (
        pd.read_parquet(one.path / "evidence.parquet").drop(columns="acts")
        for one in (packed, folder)
    )
    pd.testing.assert_frame_equal(left, right)


def test_a_single_fit_is_one_unit(place):
    single = {"acts": "one", "recipe": "quick.toml"}
    assert carry_out("fit", single, shard="1/2").status == "part"
    done = carry_out("fit", single, shard="0/2")
    assert done.status == "done"
    assert (done.path / "directions.safetensors").exists()
    assert carry_out("fit", single, shard="1/2").status == "reused"
    with pytest.raises(ConfigError, match="workers = 2 are for job files"):
        carry_out("fit", single, workers=2)


def test_a_methods_own_parameters_and_not_the_recipes_go_with_another_method(place):
    Path("own.toml").write_text(RECIPE.replace("[check]", "params = { center = true }\n[check]"))
    same = jobs.recipe_of(FitConfig(acts="one", recipe="own.toml"))
    assert same.fit.params == {"center": True}
    other = jobs.recipe_of(FitConfig(acts="one", recipe="own.toml", method="lda"))
    assert (other.fit.method, other.fit.params) == ("lda", {})
    own = FitConfig(acts="one", recipe="own.toml", method="lda", params={"shrinkage": 0.5})
    assert jobs.recipe_of(own).fit.params == {"shrinkage": 0.5}


def test_a_method_that_gives_a_map_leaves_a_map(place):
    settings = {"acts": "one", "method": "ridge_map", "pairs": "pair", "layer": 3}
    acts = planted()
    pair = [f"{f}{p}" for f, p in zip(acts.columns["fact"], acts.columns["polarity"], strict=True)]
    columns = {**acts.columns, "pair": np.array(pair)}
    whole = Activations.from_values(acts.values, columns, model=STAMP, layers=acts.layers)
    write_store(whole, place / "paired")
    settings["acts"] = "paired"
    assert plan("fit", settings).result["layers"] == 1
    done = carry_out("fit", settings)
    found, wanted = (
        open_map(done.path),
        fit_map(whole, method="ridge_map", pairs="pair", layers=[3]),
    )
    np.testing.assert_array_equal(found.W, wanted.W)
    assert found.layers == (3,)
    assert describe([str(done.path / "map.safetensors")])["names"] == "truth"
    (said,) = verify_path(done.path).values()
    assert said == "format linear map, name truth, layers 1"


def test_directions_of_many_jobs_are_verified_one_by_one(place):
    done = carry_out("fit", {"job": [MANY["job"][0]]})
    checked = verify_path(done.path)
    assert len(checked) == 8
    file = next((done.path / "directions").iterdir())
    file.write_bytes(file.read_bytes()[:-4] + b"xxxx")
    with pytest.raises(FormatError, match=file.name):
        verify_path(done.path)
