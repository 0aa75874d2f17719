"""A study's frozen direction, from stores to tables: gate, beliefs and projections."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from workbench.activations import Activations
from workbench.activations.store import Store
from workbench.errors import ConfigError
from workbench.pipelines.report_truth import frozen_rows
from workbench.pipelines.verbs import carry_out, plan
from workbench.results import read_results
from workbench.runs import open_run
from workbench.types import ModelStamp

STAMP = ModelStamp("tiny", "llama", 3, 12, "0123456789abcdef", "fedcba9876543210")
ORGANISM = replace(STAMP, key="tiny+P-s0", fingerprint="0" * 16)
TOPICS = ("animals", "elements", "geography", "calendar")


def write_store(root, name, stamp, columns, values, render="bare"):
    columns = {"id": np.array([f"{name}-{row}" for row in range(values.shape[1])]), **columns}
    acts = Activations.from_values(values.astype(np.float32), columns, model=stamp)
    with open_run("cache", {"name": name, "model": stamp.key, "render": render}, root=root) as run:
        manifest = replace(acts.manifest, config={"render": render})
        store = Store.create(run.path / "acts", manifest)
        store.write(acts._parts[0])
        store.finish()
        run.finish({}, models=[stamp.key])
    return str(run.path)


def statements(facts=20, topics=TOPICS, strength=3.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        (topic, f"{topic}:{fact}", side, label)
        for topic in topics
        for fact in range(facts)
        for side in (1, -1)
        for label in (1, 0)
    ]
    topic, fact, side, label = (np.array(column) for column in zip(*rows, strict=True))
    values = rng.standard_normal((3, len(rows), STAMP.width))
    values[1, :, 0] += strength * (label - 0.5)
    return {"topic": topic, "fact": fact, "polarity": side, "label": label}, values


def claims(belief, seed):
    rng = np.random.default_rng(seed)
    rows = [
        (name, f"{name}:{item}", world, side)
        for name, count in (("frames", 5), ("propositions", 9))
        for item in range(count)
        for world in "PSNA"
        for side in (1, -1)
    ]
    sets, fact, world, side = (np.array(column) for column in zip(*rows, strict=True))
    values = 0.3 * rng.standard_normal((3, len(rows), STAMP.width))
    values[1, world == "P", 0] += belief * side[world == "P"]
    return {"set": sets, "fact": fact, "world": world, "polarity": side}, values


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    acts = write_store(root, "statements", STAMP, *statements())
    recipe = root / "small.toml"
    recipe.write_text('fit = { method = "ttpd" }\ncheck = { draws = 40, bootstrap = 100 }\n')
    fitted = carry_out("fit", {"acts": acts, "recipe": str(recipe)}, root=root)
    held_out = [
        write_store(root, "held", stamp, *statements(13, strength=size, seed=seed), render)
        for seed, (stamp, size, render) in enumerate(
            [(STAMP, 5.0, "bare"), (STAMP, 5.0, "chat"), (ORGANISM, 5.0, "bare"),
             (ORGANISM, 0.2, "chat")], 1,
        )
    ]  # fmt: skip
    told = [
        write_store(root, "claims", stamp, *claims(belief, seed), render)
        for seed, (stamp, belief, render) in enumerate(
            [(STAMP, 0, "bare"), (STAMP, 0, "chat"), (ORGANISM, 2, "bare"), (ORGANISM, 2, "chat")]
        )
    ]
    directions = str(fitted.path / "directions.safetensors")
    return root, {
        "directions": directions,
        "recipe": str(recipe),
        "acts": acts,
        "held_out": held_out,
        "claims": told,
    }


@pytest.fixture(scope="module")
def applied(settings):
    root, config = settings
    return carry_out("apply", config, root=root)


def test_every_model_and_rendering_gets_its_gate_and_the_beliefs_stand_beside_it(applied):
    gate = pd.read_parquet(applied.path / "evidence.parquet")
    beliefs = pd.read_parquet(applied.path / "beliefs.parquet")
    usable = gate[gate["polarity"] == 0].set_index(["model", "rendering"])["usable"].to_dict()
    assert usable == {
        ("tiny", "bare"): True,
        ("tiny", "chat"): True,
        ("tiny+P-s0", "bare"): True,
        ("tiny+P-s0", "chat"): False,
    }
    assert set(beliefs["model"]) == {"tiny+P-s0"}
    own = beliefs.set_index(["rendering", "set", "contrast"])
    row = own.loc[("bare", "propositions", "own_world_advantage_minus_base")]
    assert row["low"] > 1
    assert row["percentile_random"] == row["percentile_shuffled"] == 100
    assert row["usable"]
    assert not own.loc["chat", "usable"].any()
    assert own.loc["chat", "gate_auc"].max() < 0.7
    assert applied.result["layer"] == 1


def test_projections_are_results_that_other_tools_read(applied):
    table = read_results(applied.path / "results.parquet")
    assert len(table) == 4 * 112
    assert table["item"].nunique() == 4 * 112 / 2
    assert set(table["subject"]) == {"tiny", "tiny+P-s0"}
    assert set(table["organism"].dropna()) == {"P"}
    assert set(table["condition"]) == set("PSNA")


def test_the_headline_greys_what_is_not_usable_and_hides_nothing(applied):
    rows = list(frozen_rows(applied.path))
    gates = [row for row in rows if row.question.startswith("truth AUC")]
    assert len(gates) == 8
    assert sum("not usable" in row.control for row in gates) == 2
    beliefs = [row for row in rows if row.question.startswith("own claims")]
    assert len(beliefs) == 2 * 2 * 3
    chat = [row for row in beliefs if ", chat: " in row.question]
    assert all("not usable: truth is read at 0." in row.control for row in chat)
    assert all("of 200 random directions" in row.control for row in beliefs)


def test_the_same_settings_find_the_run_and_a_dry_run_names_what_would_be_read(settings, applied):
    root, config = settings
    assert carry_out("apply", config, root=root).status == "reused"
    planned = plan("apply", config, root=root)
    assert planned.id == applied.id
    assert planned.result["readings"][3] == "tiny+P-s0, chat"


def test_without_the_bases_claims_or_anything_to_read_it_says_what_is_missing(settings):
    root, config = settings
    with pytest.raises(ConfigError, match="the claims are of tiny\\+P-s0; those of tiny"):
        carry_out("apply", {**config, "claims": config["claims"][2:3]}, root=root)
    nothing = {"directions": config["directions"]}
    with pytest.raises(ConfigError, match="name stores in held_out or in claims"):
        carry_out("apply", nothing, root=root)
