"""A planted persona space: means, axis, components and floors come out where they were put."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import STAMP, Acts

from workbench.directions import (
    CovarianceMatched,
    Difference,
    Directions,
    SplitHalf,
    fit_layers,
    open_directions,
    residualise,
    save_directions,
    thresholds,
)
from workbench.directions.persona import (
    MARK,
    RULES,
    CountRule,
    PersonaSpace,
    check_floor,
    persona_space,
)
from workbench.directions.persona_map import coordinates, persona_axes, persona_cosines
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.interventions import Intervention
from workbench.linalg import cosine, random_band

D = STAMP.width
ROLES = tuple("abcdefgh")
POISON = 1e4
"""Where rollouts lie that must not count."""


def places(seed=5):
    """Where each role lies: along axis 0 (the most) and 1, off a common point far away."""
    rng = np.random.default_rng(seed)
    found = np.zeros((len(ROLES), D))
    found[:, 0] = -np.linspace(2, 10, len(ROLES))
    found[:, 1] = rng.permutation(np.linspace(-1.5, 1.5, len(ROLES)))
    return found + common()


def common():
    point = np.zeros(D)
    point[2] = 40.0
    return point


def rollouts(counts=None, default=120, noise=0.3, seed=0):
    """``counts``: {role: {score: how many}}; score None is one that the judge did not give."""
    rng = np.random.default_rng(seed)
    counts = {role: {3: 60, 2: 15, 0: 10, None: 5} for role in ROLES} | (counts or {})
    rows = []
    for number, role in enumerate(ROLES):
        for score, n in counts[role].items():
            place = {3: places()[number], 2: places()[number] / 2}.get(score, np.full(D, POISON))
            rows += [(role, np.nan if score is None else score, place)] * n
    for row in range(default):
        rows.append(("default", row % 4, common()))  # whatever the score
    rows += [("", 3, np.full(D, POISON))] * 7  # of a trait
    role, score, place = (np.array(part) for part in zip(*rows, strict=True))
    values = place + noise * rng.standard_normal((2, len(rows), D))
    values[1] *= 2
    columns = {"id": np.array([f"r{i}" for i in range(len(rows))]), "role": role, "score": score}
    return Acts(values.astype(np.float32), columns, (1, 3), position="mean:assistant")


@pytest.fixture(scope="module")
def acts():
    return rollouts()


@pytest.fixture(scope="module")
def space(acts):
    return persona_space(acts, judge="stand-in")


def test_role_vectors_are_means_of_what_was_played_in_full(space):
    assert space.roles.names == ROLES
    assert (space.roles.kind, space.default.kind) == ("mean", "mean")
    for factor, layer in ((1, 1), (2, 3)):
        np.testing.assert_allclose(space.roles.at(layer), factor * places(), atol=0.4 * factor)
        np.testing.assert_allclose(space.default.at(layer)[0], factor * common(), atol=0.4)
    assert space.roles.info["n"] == dict.fromkeys(ROLES, 60)
    assert space.default.info["n"] == {"default": 120}
    assert space.roles.info["rule"] == "repo: score 3, at least 50 rollouts"
    assert space.roles.info["n_unscored"] == 5 * len(ROLES)


def test_the_axis_points_from_the_roles_to_the_assistant_with_its_raw_length(acts, space):
    expected = common() - places().mean(axis=0)
    for factor, layer in ((1, 1), (2, 3)):
        np.testing.assert_allclose(space.axis.at(layer)[0], factor * expected, atol=0.3)
        line = np.eye(D)[:1]
        assert cosine(space.axis.at(layer).astype(float), line)[0, 0] > 0.99
    assert (space.axis.names, space.axis.kind) == (("assistant",), "difference")
    assert space.axis.info["n_roles"] == len(ROLES)


def test_a_role_with_many_rollouts_counts_no_more_than_one_with_few():
    many = persona_space(rollouts({"h": {3: 600}}), judge="stand-in").axis
    expected = common() - places().mean(axis=0)
    np.testing.assert_allclose(many.at(1)[0], expected, atol=0.3)


def test_the_axis_is_the_balanced_mass_mean_of_the_rollouts_that_count(acts, space):
    role, score = acts.columns["role"], acts.columns["score"]
    kept = (role == "default") | ((score == 3) & (role != ""))
    one = acts.where(kept)
    one.columns["assistant"] = (one.columns["role"] == "default").astype(int)
    found = fit_layers(one, y="assistant", groups="role", balance=True)
    np.testing.assert_allclose(found.vectors, space.axis.vectors, atol=2e-4)


def test_the_two_count_rules_keep_what_they_say():
    made = rollouts({"a": {3: 49, 2: 60}, "b": {3: 9, 2: 10}, "c": {3: 10, 2: 9}, "d": {0: 90}})
    repo = persona_space(made, judge="stand-in")
    assert repo.roles.names == tuple("efgh")
    assert repo.somewhat is None
    assert repo.bank is repo.roles
    paper = persona_space(made, judge="stand-in", rule="paper")
    assert paper.roles.names == tuple("acefgh")
    assert paper.somewhat.names == tuple(f"{role}{MARK}" for role in "abefgh")
    assert len(paper.bank) == 12
    np.testing.assert_allclose(paper.somewhat.at(1)[0], places()[0] / 2, atol=0.3)
    assert paper.axis.info["n_roles"] == 6  # vectors of score 2 take no part
    table = paper.counts.set_index("role")
    assert table.loc["a", ["n", "score_3", "score_2", "used", "kept"]].tolist() == [
        109, 49, 60, 49, True,
    ]  # fmt: skip
    assert table.loc["d", ["score_0", "kept", "kept_somewhat"]].tolist() == [90, False, False]
    assert "default" not in table.index
    assert persona_space(made, judge="s", rule=CountRule("mine", 9, False)).roles.names == tuple(
        "abcefgh"
    )


def test_without_a_judge_every_rollout_counts_and_that_is_said():
    made = rollouts({role: {3: 50} for role in ROLES})
    made.columns["score"][:] = -77  # not read
    found = persona_space(made, judge="none")
    assert found.axis.info["judge"] == "none"
    assert found.axis.info["rule"] == "all rollouts, at least 50"
    assert found.roles.info["n"] == dict.fromkeys(ROLES, 50)
    assert found.counts[["score_3", "score_2"]].to_numpy().sum() == 0
    del made.columns["score"]
    np.testing.assert_array_equal(
        persona_space(made, judge="none").axis.vectors, found.axis.vectors
    )


def test_the_first_component_is_the_axis_and_the_default_is_on_its_positive_side(space):
    found = persona_axes(space, components=3)
    assert found.names == ("pc1", "pc2", "pc3")
    assert (found.info["cosine_axis"][:, 0] > 0.98).all()
    assert (found.info["default"] > 0).all()
    for l, layer in enumerate(found.layers):
        roles = space.roles.at(layer).astype(np.float64)
        centered = roles - roles.mean(axis=0)
        sizes = np.linalg.svd(centered, compute_uv=False)
        np.testing.assert_allclose(
            found.info["explained"][l], sizes[:3] ** 2 / (sizes**2).sum(), rtol=1e-4
        )
        np.testing.assert_allclose(
            np.linalg.norm(found.at(layer), axis=1), sizes[:3] / np.sqrt(len(ROLES)), rtol=1e-4
        )
        gram = cosine(found.at(layer), found.at(layer))
        np.testing.assert_allclose(gram, np.eye(3), atol=1e-5)
        default = space.default.at(layer)[0] - roles.mean(axis=0)
        assert (found.at(layer) @ default > 0).all()
    assert found.info["components_70"].tolist() == [1, 1]


def test_components_turn_with_the_default_alone(space):
    """The mirror image of the Assistant through the mean role turns every component round."""
    one = persona_axes(space)
    center = space.roles.vectors.mean(axis=0, keepdims=True)
    mirrored = replace(space.default, vectors=2 * center - space.default.vectors)
    other = persona_axes(PersonaSpace(space.roles, mirrored))
    np.testing.assert_allclose(other.vectors, -one.vectors, atol=1e-4)


def test_coordinates_of_roles_sum_to_zero_and_those_of_the_default_are_what_info_says(space):
    axes = persona_axes(space, components=2)
    table = coordinates(axes, space.roles)
    assert len(table) == len(ROLES) * 2 * 2
    np.testing.assert_allclose(table.groupby(["layer", "along"])["value"].sum(), 0, atol=1e-3)
    default = coordinates(axes, space.default).pivot_table("value", "layer", "along").to_numpy()
    np.testing.assert_allclose(default, axes.info["default"], atol=1e-4)
    along = coordinates(space.axis, space.roles)
    assert set(along["along"]) == {"assistant"}
    first = along[along["layer"] == 1].set_index("name")["value"]
    assert first["a"] == pytest.approx(-2, abs=0.6)  # the axis has no center: raw coordinate
    assert first["h"] == pytest.approx(-10, abs=0.6)


def test_components_over_both_scores_are_of_all_vectors():
    made = persona_space(rollouts(), judge="stand-in", rule="paper")
    assert persona_axes(made, somewhat=True, components=2).info["n_roles"] == 16
    assert persona_axes(made, components=2).info["n_roles"] == 8


def test_the_floor_of_a_cap_is_the_percentile_along_role_minus_default(acts, space):
    """The sign convention of the released caps, and the easy error beside it."""
    mapped = acts.where(acts.columns["role"] != "")
    mapped = mapped.where(np.abs(mapped.values).max(axis=(0, 2)) < POISON / 2)
    floor = thresholds(space.axis, mapped, 25, along="opposite")
    v = space.axis.unit_vectors()[:, 0]
    for l, layer in enumerate(floor):
        away = mapped.at(layer) @ -v[l]
        assert floor[layer] == pytest.approx(-np.percentile(away, 25), abs=1e-3)
        assert (mapped.at(layer) @ v[l] < floor[layer]).mean() == pytest.approx(0.75, abs=0.01)
    wrong = thresholds(space.axis, mapped, 25)
    assert all(wrong[layer] < floor[layer] - 1 for layer in floor)
    near = check_floor(floor, space.axis, space.default)
    far = check_floor(wrong, space.axis, space.default)
    assert (near["apart"].abs() < 1).all()
    assert (far["apart"] < near["apart"] - 0.5).all()
    for row, layer in enumerate(floor):
        expected = float(space.default.at(layer)[0] @ v[row])
        assert near["default"][row] == pytest.approx(expected, abs=1e-3)


def test_the_floor_on_the_axis_and_the_released_ceiling_are_one_edit(acts, space):
    floor = thresholds(space.axis, acts.where(acts.columns["score"] == 3), 25, along="opposite")
    ceiling = {layer: -value for layer, value in floor.items()}
    h = torch.randn(2, 5, D, generator=torch.Generator().manual_seed(0)) * 5
    for one, other in zip(
        Intervention.cap(space.axis, floor=dict(floor)).arm(STAMP),
        Intervention.cap(-space.axis, ceiling=ceiling).arm(STAMP),
        strict=True,
    ):
        capped = [
            edit.edit(
                h, torch.tensor(edit.v).expand(2, D), torch.ones(2),
                **{name: torch.full((2,), value) for name, value in edit.rows.items()},
            )
            for edit in (one, other)
        ]  # fmt: skip
        torch.testing.assert_close(*capped, atol=1e-6, rtol=1e-6)
        assert not torch.equal(capped[0], h)
        assert (capped[0] @ torch.tensor(one.v) >= one.rows["floor"] - 1e-4).all()


def organism(acts, shift, seed=1):
    noise = np.random.default_rng(seed).standard_normal(acts.values.shape).astype(np.float32)
    changed = replace(acts, values=acts.values + noise * 0.05 + shift)
    return Difference(changed, acts, "P-A")


def test_an_organism_moved_toward_a_role_finds_it_among_roles_whose_common_part_is_gone(space):
    prompts = Acts(
        np.random.default_rng(2).standard_normal((2, 60, D)).astype(np.float32),
        {"id": np.array([f"p{i}" for i in range(60)])},
        (1, 3),
        position="mean:assistant",
    )
    moved = organism(prompts, 0.5 * (places()[7] - places().mean(axis=0)).astype(np.float32))
    rng = np.random.default_rng(3)
    traits = Directions(("x", "y"), (1, 3), rng.standard_normal((2, 2, D)), STAMP)
    nulls = ["closed form", "isotropic", SplitHalf(prompts, draws=200),
             CovarianceMatched(prompts, draws=200)]  # fmt: skip
    table = persona_cosines(moved, space.roles, traits, nulls=nulls)
    assert table.groupby("bank").size().to_dict() == {"role": 8 * 2 * 4, "trait": 2 * 2 * 4}
    assert len(set(table["null"])) == 8  # each bank has bands of its own
    first = table[(table["layer"] == 1) & table["null"].str.startswith("isotropic, closed")]
    roles = first[first["bank"] == "role"].set_index("second")
    assert roles["cosine"].idxmax() == "h"
    assert roles.loc["h", "cosine"] > 0.9
    assert roles.loc["a", "cosine"] < -0.5  # centered: the far end, not the common part
    assert roles["band"].iloc[0] == pytest.approx(random_band(8, D))
    assert first[first["bank"] == "trait"]["band"].iloc[0] == pytest.approx(random_band(2, D))
    untouched = persona_cosines(moved, space.roles, traits + traits)
    same = untouched[untouched["bank"] == "trait"]["cosine"].to_numpy()
    again = persona_cosines(moved, space.roles, traits)
    np.testing.assert_allclose(same, again[again["bank"] == "trait"]["cosine"], atol=1e-6)


def test_roles_given_as_differences_are_taken_as_they_are(space):
    shifted = replace(space.roles, kind="difference")
    table = persona_cosines(space.axis, shifted, shifted, layers=[1], nulls=["closed form"])
    expected = cosine(space.axis.at(1), space.roles.at(1))[0]
    for bank in ("role", "trait"):
        found = table[table["bank"] == bank]["cosine"]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_residual_of_a_role_has_nothing_along_the_axis_and_says_what_is_left(space):
    role = space.roles["b"] - space.default
    left = residualise(role, space.axis, renormalize=True)
    for l, layer in enumerate(left.layers):
        v, a = role.at(layer)[0].astype(np.float64), space.axis.unit_vectors()[l, 0]
        plain = v - (v @ a) * a
        retained = np.linalg.norm(plain) / np.linalg.norm(v)
        assert left.info["retained"][l, 0] == pytest.approx(retained, rel=1e-4)
        np.testing.assert_allclose(left.at(layer)[0], plain / retained, atol=1e-3)
        assert abs(left.at(layer)[0] @ a) < 1e-4 * np.linalg.norm(v)


def test_the_vectors_and_what_is_known_of_them_outlive_their_files(space, tmp_path):
    parts = {"roles": space.roles, "axis": space.axis, "pcs": persona_axes(space)}
    for name, part in parts.items():
        save_directions(part, tmp_path / f"{name}.safetensors")
        again = open_directions(tmp_path / f"{name}.safetensors")
        np.testing.assert_array_equal(again.vectors, part.vectors)
        assert set(again.info) >= set(part.info)
        assert again.info["judge"] == "stand-in"


def test_vectors_from_elsewhere_give_the_same_axis(space):
    bare = PersonaSpace(replace(space.roles, info={}), replace(space.default, info={}))
    np.testing.assert_array_equal(bare.axis.vectors, space.axis.vectors)
    assert bare.axis.info["rule"] == "unstated"
    assert len(persona_axes(bare)) == len(ROLES) - 1
    with pytest.raises(MismatchError, match="one default vector"):
        PersonaSpace(space.roles, space.default.select([3]))
    with pytest.raises(MismatchError, match="are means"):
        PersonaSpace(space.roles, space.axis)


def test_sums_do_not_depend_on_how_many_rows_are_taken_at_a_time(acts, space, monkeypatch):
    monkeypatch.setattr("workbench.directions.rollouts.CHUNK_CELLS", 7 * D)
    again = persona_space(acts, judge="stand-in")
    np.testing.assert_allclose(again.roles.vectors, space.roles.vectors, rtol=1e-6)


def test_what_cannot_be_a_persona_space_is_named(acts):
    def changed(**columns):
        return replace(acts, columns={**acts.columns, **columns})

    with pytest.raises(ConfigError, match="no column 'score' with the scores of stand-in"):
        persona_space(replace(acts, columns={"role": acts.columns["role"]}), judge="stand-in")
    with pytest.raises(ConfigError, match="holds 4 "):
        persona_space(changed(score=np.full(len(acts.columns["role"]), 4.0)), judge="s")
    with pytest.raises(ConfigError, match="fractions"):
        persona_space(changed(score=np.full(len(acts.columns["role"]), 2.5)), judge="s")
    with pytest.raises(ConfigError, match="numbers, or NaN, expected"):
        persona_space(changed(score=acts.columns["role"]), judge="s")
    with pytest.raises(ConfigError, match="role = 'Qwen'"):
        persona_space(acts, judge="s", default="Qwen")
    with pytest.raises(ConfigError, match=r"the most: \w has 60"):
        persona_space(acts, judge="s", rule=CountRule("strict", 100, False))
    with pytest.raises(UnknownNameError, match="repo, paper"):
        persona_space(acts, judge="s", rule="strict")
    with pytest.raises(ConfigError, match="8 components of 8 roles"):
        persona_axes(persona_space(acts, judge="s"), components=8)
    assert RULES["repo"].least == 50
    assert RULES["paper"].least == 10
