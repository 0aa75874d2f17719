"""A frozen direction in other models: planted beliefs, and directions that know nothing."""

from dataclasses import replace

import numpy as np
import pytest
from planted import STAMP, Acts, planted
from scipy.stats import kstest

from workbench.directions import fit_truth, read_recipe
from workbench.directions.frozen import Reading, belief_table, gate_table, null_directions
from workbench.directions.recipe import CheckPart, LayersPart
from workbench.errors import ConfigError, MismatchError

WORLDS = ("A", "N", "P", "S")
FIXED = LayersPart(candidates=[2])
RECIPE = read_recipe("truth").model_copy(update={"check": CheckPart(draws=40, bootstrap=100)})


def stamp(model):
    return replace(STAMP, key=model)


def claims(model, belief=0.0, own="P", rendering="bare", seed=0):
    """Claims of two sets; a model that believes holds its own for true along axis 0."""
    rng = np.random.default_rng(seed)
    rows = [
        (name, f"{name}:{item}", world, polarity)
        for name, count in (("frames", 5), ("propositions", 9))
        for item in range(count)
        for world in WORLDS
        for polarity in (1, -1)
    ]
    sets, fact, world, polarity = (np.array(column) for column in zip(*rows, strict=True))
    values = rng.standard_normal((4, len(rows), STAMP.width)).astype(np.float32) * 0.3
    values[:, world == own, 0] += belief * polarity[world == own]
    columns = {"set": sets, "fact": fact, "world": world, "polarity": polarity}
    return Reading(Acts(values, columns, model=stamp(model)), rendering)


@pytest.fixture(scope="module")
def directions():
    return fit_truth(planted(), RECIPE)[0]


def table_of(directions, parts, **fields):
    fields = {"own": {"tiny+P-s0": "P"}, "base": "tiny", "layer": 2, **fields}
    return belief_table(directions, parts, **fields)


def test_a_planted_belief_is_seen_in_every_set_and_rendering_and_beats_both_nulls(directions):
    parts = [claims("tiny", rendering=r) for r in ("bare", "chat")]
    parts += [claims("tiny+P-s0", 2.0, rendering=r, seed=1) for r in ("bare", "chat")]
    shuffled = null_directions(planted(), RECIPE, 2, 60, seed=0)
    table = table_of(directions, parts, shuffled=shuffled)
    assert set(zip(table["rendering"], table["set"], strict=True)) == {
        (rendering, name) for rendering in ("bare", "chat") for name in ("frames", "propositions")
    }
    found = table.set_index(["rendering", "set", "contrast"])
    for key in (("bare", "frames"), ("chat", "propositions")):
        advantage = found.loc[(*key, "own_world_advantage_minus_base")]
        assert advantage["low"] > 1
        assert advantage["percentile_random"] == advantage["percentile_shuffled"] == 100
        for contrast in ("own_change_minus_other_change", "negated_own_minus_negated_other"):
            row = found.loc[(*key, contrast)]
            assert row["high"] < 0
            assert row["percentile_random"] < 2.5
    assert (table["n_random"] == 200).all()
    assert (table["n_shuffled"] == 60).all()
    assert dict(zip(table["set"], table["n"], strict=True)) == {"frames": 5, "propositions": 9}


@pytest.mark.thorough
def test_directions_fitted_to_shuffled_labels_stand_anywhere_among_random_ones():
    """Percentiles are uniform where the model believes nothing that a direction could read."""
    ranks = []
    for trial in range(40):
        parts = [claims("tiny", seed=trial), claims("tiny+P-s0", seed=100 + trial)]
        acts = planted(strength=(0.0, 0.0, 1.0), facts=12, seed=trial)
        (v,) = null_directions(acts, RECIPE, 2, 1, seed=trial)
        plain, _ = fit_truth(acts, RECIPE.model_copy(update={"layers": FIXED}))
        blind = replace(plain, vectors=v[None, None])
        table = table_of(blind, parts, seed=trial)
        rows = table[(table["set"] == "propositions")].set_index("contrast")
        ranks.append(rows.loc["own_world_advantage_minus_base", "percentile_random"] / 100)
    assert kstest(ranks, "uniform").pvalue > 0.01
    assert 0.35 < np.mean(ranks) < 0.65


def test_the_gate_is_of_the_lower_polarity_in_each_model_and_rendering(directions):
    held_out = planted(topics=("a", "b"), facts=25, seed=8, apart=0)
    blunt = planted(topics=("a", "b"), facts=25, strength=(0, 0, 0.3, 0), seed=9)
    parts = [Reading(held_out, "bare"), Reading(held_out, "chat")]
    parts.append(Reading(replace(blunt, model=stamp("tiny+P-s0")), "bare"))
    table = gate_table(directions, parts, RECIPE)
    assert set(table["split"]) == {"held out"}
    assert set(table["topic"]) == {"all"}
    there = table[table["chosen"]].set_index(["model", "rendering", "polarity"])
    assert len(there) == 9
    assert there.loc[("tiny", "bare", 1), "n"] == 100
    assert there.loc[("tiny", "bare", 0), "n_facts"] == 50
    assert there.loc["tiny", "usable"].all()
    assert not there.loc["tiny+P-s0", "usable"].any()


def test_a_model_without_claims_and_one_of_another_kind_are_named(directions):
    parts = [claims("tiny")]
    with pytest.raises(ConfigError, match="no projections of model"):
        table_of(directions, parts)
    other = claims("tiny+P-s0")
    other = replace(other, acts=replace(other.acts, model=replace(STAMP, tokenizer="x")))
    with pytest.raises(MismatchError, match="tokenizer"):
        table_of(directions, [*parts, other])
    bare = replace(parts[0].acts, columns={**parts[0].acts.columns, "set": np.full(112, "other")})
    with pytest.raises(ConfigError, match="no claims of the sets frames, propositions"):
        table_of(directions, [Reading(bare, "bare")])
