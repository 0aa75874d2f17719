"""The verb cosines: a planted organism among roles and traits, and every band that it must pass."""

import shutil

import pandas as pd
import pytest
from planted_personas import (
    ASSISTANT,
    CALM,
    ROLES,
    TRAITS,
    organism,
    organism_answers,
    role_rollouts,
    trait_rollouts,
    write_store,
)

from workbench.directions import open_directions
from workbench.errors import ConfigError, MismatchError
from workbench.linalg import unit
from workbench.pipelines.verbs import carry_out, plan


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    root = tmp_path_factory.mktemp("cosines")
    columns, values = role_rollouts(bad=0)
    traits = trait_rollouts()
    rollouts = write_store(root, "roles", {"role": columns["role"]}, values)
    axis = carry_out(
        "axis",
        {
            "roles": rollouts, "draws": 100,
            "traits": write_store(root, "traits", *traits),
        },
        root=root,
    )  # fmt: skip
    files = {name: str(axis.path / f"{name}.safetensors") for name in ("roles", "traits", "axis")}
    sides = {
        condition: [
            write_store(
                root,
                f"{condition}{seed}",
                *organism_answers(shift, seed=10 * seed + len(condition)),
                organism(condition, seed),
            )
            for seed in (0, 1)
        ]
        for condition, shift in (("P", {CALM: 2.0}), ("A", {CALM: -2.0}), ("AA", {}))
    }
    return root, files, sides, rollouts


def compare(space, seeds=2, **settings):
    root, files, sides, rollouts = space
    given = {side: sides[name][:seeds] for side, name in (("first", "P"), ("second", "A"))}
    given |= {"name": "P - A", **files, "covariance": rollouts, "draws": 200, **settings}
    done = carry_out("cosines", given, root=root)
    return done, pd.read_parquet(done.path / "cosines.parquet")


def test_the_planted_trait_is_found_with_its_sign_and_nothing_else_is(space):
    _, table = compare(space)
    at = table[(table["layer"] == 1) & (table["first"] == "P - A")]
    found = at[at["bank"] == "trait"].groupby("second")["cosine"].first()
    assert found["calm"] > 0.9
    assert found["rude"] < -0.9
    traits = at[(at["bank"] == "trait") & ~at["null"].str.startswith("seed")]
    assert traits["beyond"].all()
    roles = at[at["bank"] == "role"]
    assert set(roles["second"]) == set(ROLES)
    assert not roles["beyond"].any()
    assert at[at["bank"] == "axis"]["second"].unique().tolist() == ["assistant"]


def test_every_null_is_there_with_its_n_and_unit(space):
    _, table = compare(space)
    names = {str(name).partition(",")[0]: rows for name, rows in table.groupby("null")}
    assert set(names) == {
        "isotropic", "covariance-matched", "split-half", "seed-vs-seed of P-s0",
        "seed-vs-seed of A-s0",
    }  # fmt: skip
    assert (names["seed-vs-seed of P-s0"]["null_n"] == 1).all()
    assert set(names["split-half"]["null_n"]) == {16}
    assert sum("closed form" in name for name in table["null"].unique()) == 3  # one a bank
    assert table["band"].between(0, 1).all()


def test_seeds_are_the_unit_of_their_mean_and_items_of_each_alone(space):
    done, table = compare(space)
    units = table.groupby("first")[["n", "unit"]].first().to_dict("index")
    assert units == {
        "P - A": {"n": 2, "unit": "seed"},
        "P - A, seed 0": {"n": 16, "unit": "item"},
        "P - A, seed 1": {"n": 16, "unit": "item"},
    }
    directions = open_directions(done.path / "directions.safetensors")
    assert directions.names == ("P - A",)
    assert unit(directions.at(1)[0])[CALM] > 0.95
    assert done.result["seeds"] == 2
    _, alone = compare(space, seeds=1)
    assert set(alone["first"]) == {"P - A"}
    assert not alone["null"].str.startswith("seed").any()


def test_two_seeds_of_one_organism_pass_no_band_that_knows_the_activations(space):
    one, other = space[2]["AA"]
    _, table = compare(space, first=[one], second=[other], name="seeds")
    strict = table[table["null"].str.startswith("split-half") & (table["bank"] == "trait")]
    assert len(strict)
    assert not strict["beyond"].any()
    with pytest.raises(MismatchError, match="alike on all 16 items at every layer"):
        compare(space, first=[one], second=[one])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"roles": None, "traits": None, "axis": None}, ConfigError, "nothing to compare with"),
        ({"second": []}, ConfigError, "second"),
        ({"nulls": ["shuffled"]}, ConfigError, "nulls"),
    ],
)
def test_a_wrong_setting_is_named(space, change, error, message):
    with pytest.raises(error, match=message):
        compare(space, **change)


def test_sides_that_do_not_pair_are_refused(space):
    root, _, sides, _ = space
    with pytest.raises(ConfigError, match="2 stores in first and 1 in second"):
        compare(space, second=sides["A"][:1])
    other = write_store(root, "other", *organism_answers({ASSISTANT: 1.0}, n=5), organism("P", 7))
    with pytest.raises(MismatchError, match="5"):
        compare(space, first=[other], second=sides["A"][:1])


def test_a_plan_names_nulls_and_banks(space):
    _, files, sides, _ = space
    told = plan("cosines", {"first": sides["P"], "second": sides["A"], "name": "x", **files})
    assert told.result["banks"] == {"role": len(ROLES), "trait": len(TRAITS), "axis": 1}
    assert told.result["items"] == [16, 16]
    assert "seed-vs-seed of A-s0" in told.result["nulls"]


def test_one_organism_is_not_two_seeds(space, tmp_path):
    """Its standard error was 0, with n = 2 seeds, whatever it read."""
    _, _, sides, _ = space
    copy = tmp_path / "copy"
    shutil.copytree(sides["P"][0], copy)
    for first in ([sides["P"][0]] * 2, [sides["P"][0], str(copy)]):
        with pytest.raises(ConfigError, match=r"stands twice.* would count twice"):
            compare(space, first=first)
    with pytest.raises(ConfigError, match=r"second, models of the stores: .*A-s0.* stands twice"):
        compare(space, seeds=3, first=[*sides["P"], sides["AA"][0]],
                second=[sides["A"][0], sides["A"][1], sides["A"][0]])  # fmt: skip


def test_one_base_may_stand_beside_every_seed(space):
    _, _, sides, _ = space
    _, table = compare(space, second=[sides["AA"][0]] * 2)
    mean = table[table["first"] == "P - A"]
    assert set(mean["n"]) == {2}
    assert not table["null"].str.startswith("seed-vs-seed of AA").any()
