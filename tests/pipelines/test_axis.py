"""The verb axis on a planted persona space: vectors, counts, components, floors, and the map."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from planted_personas import (
    ASSISTANT,
    CALM,
    ROLES,
    STAMP,
    TRAITS,
    default_place,
    layered,
    organism,
    organism_answers,
    role_place,
    role_rollouts,
    trait_rollouts,
    write_judged,
    write_store,
)

from workbench.activations import open_activations
from workbench.directions import open_directions
from workbench.errors import ConfigError, MismatchError
from workbench.linalg import unit
from workbench.pipelines.verbs import carry_out, plan


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("axis")
    columns, values = role_rollouts()
    judge = {"score_judge": np.full(len(columns["role"]), "grader")}
    roles = write_store(root, "roles", {**columns, **judge}, values)
    told, responses = trait_rollouts()
    judge = {"score_judge": np.full(len(told["trait"]), "grader")}
    return {
        "roles": roles,
        "traits": write_store(root, "traits", {**told, **judge}, responses),
        "bare": write_store(root, "bare", {"role": columns["role"]}, values),
        "organisms": [
            write_store(
                root, condition, *organism_answers({ASSISTANT: shift}), organism(condition, 0)
            )
            for condition, shift in (("P", 2.0), ("A", -4.0))
        ],
        "root": root,
    }


def made(stores, **settings):
    given = {"roles": stores["roles"], "traits": stores["traits"], "draws": 100, **settings}
    done = carry_out("axis", given, root=stores["root"])
    return done, {path.stem: pd.read_parquet(path) for path in done.path.glob("*.parquet")}


def test_vectors_axis_and_components_come_out_where_they_were_put(stores):
    done, tables = made(stores)
    axis, roles = (open_directions(done.path / f"{n}.safetensors") for n in ("axis", "roles"))
    planted = default_place() - np.mean([role_place(role) for role in ROLES], axis=0)
    for layer in (0, 1):
        np.testing.assert_allclose(axis.at(layer)[0], (1 + layer) * planted, atol=0.3)
    assert axis.info["layer"] == done.result["layer"] == 1  # the middle of two
    assert roles.names == ROLES
    assert (tables["pc1"]["cosine"] > 0.98).all()
    assert (tables["pc1"]["low"] > 0.9).all()
    assert tables["counts"]["kept"].all()
    assert tables["counts"]["used"].tolist() == [12] * len(ROLES)
    assert tables["counts"]["score_0"].tolist() == [3] * len(ROLES)  # far away, and left out
    calm = unit(open_directions(done.path / "traits.safetensors")["calm"].at(0)[0])
    assert calm[CALM] > 0.98
    assert tables["trait_counts"]["used"].tolist() == [12] * len(TRAITS)


def test_everyone_stands_on_the_map_where_they_are(stores):
    _, tables = made(stores, organisms=stores["organisms"])
    placed = tables["coordinates"]
    assert set(placed["kind"]) == {"role", "default", "organism"}
    at = placed[placed["layer"] == 0].set_index("role")
    assert at.loc["P-s0", "axis"] - at.loc["default", "axis"] == pytest.approx(2, abs=0.3)
    assert at.loc["A-s0", "axis"] - at.loc["default", "axis"] == pytest.approx(-4, abs=0.3)
    assert at.loc["a", "pc1"] > at.loc["j", "pc1"]  # the first component points to the default
    assert at.loc["default", "pc1"] > at.loc["a", "pc1"]
    assert at.loc["default", "n"] == 20
    assert at.loc["P-s0", "n"] == 16


def test_floors_are_percentiles_of_all_rollouts_counted_from_the_roles_side(stores):
    done, tables = made(stores)
    axis = open_directions(done.path / "axis.safetensors")
    rollouts = [open_activations(stores[name]).at(0) for name in ("roles", "traits")]
    along = np.concatenate(rollouts).astype(float) @ unit(axis.at(0)[0])
    floors = tables["thresholds"].set_index(["layer", "percentile"])
    for percentile in (1, 25, 50, 75):
        floor = floors.loc[(0, percentile), "floor"]
        assert floor == pytest.approx(np.quantile(along, 1 - percentile / 100), abs=1e-3)
        assert floor == pytest.approx(-np.quantile(-along, percentile / 100), abs=1e-3)
    row = floors.loc[(0, 25)]
    assert row["side"] == "floor"
    assert row["rollouts"] == len(along)
    assert (row["n"], row["unit"]) == (len(ROLES) + len(TRAITS) + 1, "persona")
    default = unit(axis.at(0)[0]) @ default_place()
    assert row["default"] == pytest.approx(default, abs=0.3)
    assert row["apart"] == pytest.approx((row["floor"] - row["default"]) / row["sd"], abs=1e-6)


def test_the_band_of_the_default_holds_nine_in_ten_of_its_rollouts(stores):
    done, tables = made(stores)
    axis = open_directions(done.path / "axis.safetensors")
    acts = open_activations(stores["roles"]).where(role="default")
    along = acts.at(1).astype(float) @ unit(axis.at(1)[0])
    row = tables["reference"].set_index("layer").loc[1]
    assert row["n"] == len(along) == 20
    assert row["low"] == pytest.approx(np.quantile(along, 0.05), abs=1e-3)
    assert ((along >= row["low"]) & (along <= row["high"])).mean() == pytest.approx(0.9, abs=0.05)


def test_where_nobody_judged_every_rollout_counts_and_the_files_say_so(stores):
    done, tables = made(stores, roles=stores["bare"], traits=None, least=12)
    info = open_directions(done.path / "axis.safetensors").info
    assert (info["judge"], done.result["judges"]["role"]) == ("none", "none")
    assert "all rollouts" in info["rule"]
    assert tables["counts"]["used"].tolist() == [15] * len(ROLES)  # the bad ones with them
    assert not (done.path / "traits.safetensors").exists()


def test_scores_may_come_from_transcripts_judged_later(stores, tmp_path):
    columns = dict(open_activations(stores["roles"]).columns)
    columns["score"] = np.where(columns["role"] == "b", 1.0, columns["score"])
    judged = write_judged(tmp_path / "transcripts.parquet", columns, judge="another")
    done, tables = made(stores, judged_roles=judged)
    assert done.result["judges"] == {"role": "another", "trait": "grader"}
    assert not tables["counts"].set_index("role").loc["b", "kept"]
    assert "b" not in open_directions(done.path / "roles.safetensors").names


def test_the_papers_rule_keeps_partly_played_roles_apart(stores):
    columns, values = role_rollouts(score=2)
    full, more = role_rollouts(seed=9)
    both = {name: np.concatenate([full[name], columns[name]]) for name in columns}
    both["score_judge"] = np.full(len(both["role"]), "grader")
    store = write_store(stores["root"], "both", both, np.concatenate([more, values], axis=1))
    done, tables = made(stores, roles=store, traits=None)
    partly = open_directions(done.path / "somewhat.safetensors")
    assert partly.names == tuple(f"{role} (somewhat)" for role in ROLES)
    repo, _ = made(stores, roles=store, traits=None, rule="repo", least=12)
    assert not (repo.path / "somewhat.safetensors").exists()
    assert set(tables["pc1"]["n"]) == {2 * len(ROLES)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rule": "repo"}, ConfigError, "no role has rollouts enough"),
        ({"layer": 7}, ConfigError, "layer 7 is not among 0, 1"),
        ({"percentiles": []}, ConfigError, "percentiles"),
        ({"components": 40}, ConfigError, "40 components of 10 roles"),
    ],
)
def test_a_wrong_setting_is_named(stores, change, error, message):
    with pytest.raises(error, match=message):
        made(stores, **change)


def test_stores_that_do_not_fit_are_refused(stores):
    columns, values = role_rollouts()
    no_default = {"role": np.where(columns["role"] == "default", "a", columns["role"])}
    lone = write_store(stores["root"], "lone", no_default, values)
    with pytest.raises(ConfigError, match="no Assistant"):
        made(stores, roles=lone)
    mixed = {"role": columns["role"], "score": columns["score"]}
    mixed["score_judge"] = np.where(columns["role"] == "a", "x", "y")
    store = write_store(stores["root"], "mixed", mixed, values)
    with pytest.raises(ConfigError, match="scores of x, y"):
        made(stores, roles=store)
    other = replace(STAMP, key="other", n_layers=9)
    strange = write_store(stores["root"], "strange", *organism_answers({}), stamp=other)
    with pytest.raises(MismatchError, match="n_layers"):
        made(stores, organisms=[strange])
    played = write_store(
        stores["root"], "played", {"role": np.array(["a"] * 4)}, layered(np.ones((4, 24)))
    )
    with pytest.raises(ConfigError, match="no answer as 'default'"):
        made(stores, organisms=[played])


def test_a_plan_counts_without_taking_a_mean(stores):
    told = plan("axis", {"roles": stores["roles"], "traits": stores["traits"]}).result
    assert told["roles"]["default"] == 20
    assert told["traits"] == list(TRAITS)
    assert told["judges"] == {"role": "grader", "trait": "grader"}
