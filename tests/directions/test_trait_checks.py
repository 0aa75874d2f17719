"""Checks of trait vectors: against swapped poles, between halves and between reads, planted."""

import numpy as np
import pytest
from planted import STAMP, Acts

from workbench.directions import Directions
from workbench.directions.trait_checks import check_traits, read_similarity
from workbench.directions.trait_pairs import PairRule, good_pairs, trait_vectors

D = STAMP.width
ALL = PairRule("all", least=1)


def rollouts(size=3.0, pairs=30, seed=0):
    """Pairs of two traits, of which only "loud" is there: along axis 0, at layer 2 alone."""
    rng, rows = np.random.default_rng(seed), []
    for trait in ("loud", "void"):
        rows += [(trait, pole, f"p{number}") for number in range(pairs) for pole in (1, -1)]
    trait, pole, pair = (np.array(column) for column in zip(*rows, strict=True))
    values = rng.standard_normal((2, len(rows), D))
    values[1, :, 0] += size / 2 * pole * (trait == "loud")
    return Acts(values.astype(np.float32), {"trait": trait, "pole": pole, "pair": pair}, (0, 2))


def checked(acts, **how):
    found = good_pairs(acts, judge="none", rule=ALL)
    return check_traits(acts, found, **how).set_index(["trait", "layer"])


def test_a_planted_trait_is_longer_than_swapped_poles_and_its_halves_agree():
    table = checked(rollouts())
    loud, void = table.loc[("loud", 2)], table.loc[("void", 2)]
    assert loud["length"] > 1.5 * loud["null"]
    assert loud["halves"] > 0.5
    assert abs(void["halves"]) < 0.2
    assert (loud["n"], loud["unit"]) == (30, "pair")
    assert table.loc[("loud", 0), "length"] < 1.2 * table.loc[("loud", 0), "null"]


def test_the_length_is_that_of_the_vector_and_the_null_is_that_of_pairs_swapped_by_hand():
    acts = rollouts(pairs=8)
    table = checked(acts, draws=4000)
    vectors = trait_vectors(acts, judge="none", rule=ALL).vectors
    for name in ("loud", "void"):
        length = np.linalg.norm(vectors[name].at(2))
        assert table.loc[(name, 2), "length"] == pytest.approx(length, rel=1e-5)
    own = acts.columns["trait"] == "void"
    states = acts.at(2)[own]
    difference = states[::2].astype(float) - states[1::2]
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1).T  # every way to swap
    exact = np.quantile(np.linalg.norm(signs @ difference / 8, axis=1), 0.95)
    assert table.loc[("void", 2), "null"] == pytest.approx(exact, rel=0.02)


def test_where_nothing_is_planted_one_in_twenty_lies_above_the_null():
    above = [
        row["length"] > row["null"]
        for seed in range(30)
        for _, row in checked(rollouts(0.0, pairs=12, seed=seed), draws=300).iterrows()
    ]
    assert len(above) == 120
    assert 0 <= np.mean(above) < 0.12


def test_one_pair_has_no_halves_and_no_null_to_lie_above():
    row = checked(rollouts(pairs=1)).loc[("loud", 2)]
    assert np.isnan(row["halves"])
    assert row["null"] == pytest.approx(row["length"])


def test_reads_are_compared_trait_by_trait_at_the_layers_that_both_hold():
    vectors = np.zeros((2, 2, D))
    vectors[0, :, 0], vectors[1, :, 1] = 2.0, 1.0
    response = Directions(("loud", "calm"), (0, 2), vectors, STAMP, position="mean:assistant")
    turned = np.zeros((1, 1, D))
    turned[0, 0, :2] = 3.0, 4.0
    prompt = Directions(("loud",), (2,), turned, STAMP)
    (row,) = read_similarity({"response-mean": response, "prompt-last": prompt}).to_dict("records")
    assert (row["trait"], row["layer"], row["first"], row["second"]) == (
        "loud", 2, "response-mean", "prompt-last",
    )  # fmt: skip
    assert row["cosine"] == pytest.approx(0.6)
    assert row["random"] == pytest.approx(1.96 / np.sqrt(D), rel=0.05)
    assert read_similarity({"response-mean": response}).empty
