"""A band lets through as many meaningless directions as it says, if they are of its kind."""

from dataclasses import replace

import numpy as np
import pytest
from planted import STAMP, Acts

from workbench.directions import Directions
from workbench.directions.algebra import Difference
from workbench.directions.nulls import (
    CovarianceMatched,
    Isotropic,
    SeedPairs,
    SplitHalf,
    band,
    nulls_named,
)
from workbench.errors import MismatchError
from workbench.linalg import cosine, random_band

D = STAMP.width
SCALE = np.concatenate([np.full(3, 8.0), np.ones(D - 3)])
"""Activations with three loud axes, as residual streams have."""


def acts(n=120, seed=0, scale=SCALE, layers=(1,), key="tiny", **columns):
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal((len(layers), n, D)) * scale + 2).astype(np.float32)
    ids = np.array([f"i{row}" for row in range(n)])
    model = replace(STAMP, key=key)
    return Acts(values, {"id": ids, **columns}, layers, model=model)


def bank(k=12, seed=9, scale=1.0):
    return np.random.default_rng(seed).standard_normal((k, D)) * scale


def alarms(band_value, vectors, drawn):
    return float((np.abs(cosine(drawn, vectors)).max(axis=1) > band_value).mean())


def test_the_isotropic_band_meets_the_closed_form_at_the_published_size():
    vectors = np.random.default_rng(0).standard_normal((275, 5120)).astype(np.float32)
    simulated = band(Isotropic(draws=2000), vectors, 0).value
    assert simulated == pytest.approx(random_band(275, 5120), rel=0.03)
    assert band(None, vectors, 0).value == pytest.approx(0.052, rel=0.03)


def test_the_isotropic_band_lets_one_isotropic_direction_in_twenty_through():
    drawn = np.random.default_rng(5).standard_normal((4000, D))
    assert alarms(band(Isotropic(4000), bank(), 1).value, bank(), drawn) == pytest.approx(
        0.05, abs=0.015
    )


def test_the_covariance_band_is_calibrated_where_the_isotropic_one_raises_false_alarms():
    vectors, drawn = bank(scale=SCALE), np.random.default_rng(5).standard_normal((4000, D)) * SCALE
    matched = band(CovarianceMatched(acts(2000), draws=3000), vectors, 1).value
    assert alarms(matched, vectors, drawn) == pytest.approx(0.05, abs=0.02)
    assert alarms(band(Isotropic(2000), vectors, 1).value, vectors, drawn) > 0.3


def test_the_split_half_band_lets_one_meaningless_contrast_in_twenty_through():
    vectors, passed = bank(scale=SCALE), []
    for trial in range(400):
        one = acts(60, seed=trial)
        rng = np.random.default_rng(1000 + trial)
        half = rng.permutation(60) < 30
        contrast = one.at(1)[half].mean(0) - one.at(1)[~half].mean(0)
        limit = band(SplitHalf(one, draws=200, seed=trial), vectors, 1).value
        passed.append(alarms(limit, vectors, contrast[None]))
    assert 0.02 < np.mean(passed) < 0.09


def test_halves_keep_groups_together():
    groups = np.repeat(np.arange(10), 12)
    one = acts(fact=groups)
    one.values[0] = np.eye(D, dtype=np.float32)[groups]
    for drawn in SplitHalf(one, groups="fact", draws=50).draw(1, D):
        np.testing.assert_allclose(np.abs(drawn[:, :10]), 1 / 5, atol=1e-6)
        np.testing.assert_allclose(drawn.sum(axis=1), 0, atol=1e-5)
    assert (SplitHalf(one, groups="fact").n, SplitHalf(one, groups="fact").unit) == (10, "fact")


def test_draws_are_the_same_event_at_every_layer():
    one = acts(layers=(1, 2))
    one.values[1] = one.values[0] * 2
    for null in (SplitHalf(one, draws=5), CovarianceMatched(one, draws=5)):
        (first,), (second,) = (list(null.draw(layer, D)) for layer in (1, 2))
        np.testing.assert_allclose(cosine(first, second).diagonal(), 1, rtol=1e-5)


def test_seed_pairs_are_the_mean_differences_of_every_two_seeds():
    seeds = [acts(seed=s, key=f"organism-s{s}") for s in range(3)]
    null = SeedPairs(seeds)
    (drawn,) = null.draw(1, D)
    means = [one.at(1).mean(0, dtype=np.float64) for one in seeds]
    expected = [means[0] - means[1], means[0] - means[2], means[1] - means[2]]
    np.testing.assert_allclose(drawn, expected, atol=1e-5)
    found = band(null, bank(), 1)
    assert found.value == pytest.approx(np.abs(cosine(drawn, bank())).max(), rel=1e-6)
    assert found.null == "seed-vs-seed, most of 3 of largest of 12"
    assert (found.n, found.unit) == (3, "seed pair")
    assert found.chance(np.array([2.0]))[0] == 1 / 4


def test_seeds_are_paired_by_id_and_one_makes_no_pair():
    seeds = [acts(seed=s) for s in range(2)]
    seeds[1].values = seeds[1].values[:, ::-1]
    seeds[1].columns["id"] = seeds[1].columns["id"][::-1]
    (drawn,) = SeedPairs(seeds).draw(1, D)
    np.testing.assert_allclose(
        drawn[0], Difference(*seeds, "x").directions().vectors[0, 0], atol=1e-5
    )
    with pytest.raises(ValueError, match="1 seed makes no pair"):
        SeedPairs(seeds[:1])


@pytest.mark.parametrize("null", [None, Isotropic(4000)], ids=["closed form", "drawn"])
def test_the_chance_at_the_band_is_one_in_twenty_and_falls_with_the_cosine(null):
    found = band(null, bank(), 1)
    at, below, above = found.chance(np.array([found.value, 0.0, 0.999]))
    assert at == pytest.approx(0.05, abs=0.005)
    assert below == pytest.approx(1)
    assert above < 0.002


def test_a_band_ignores_the_length_of_the_bank_and_grows_with_its_number():
    lengths = np.random.default_rng(1).uniform(0.1, 50, (12, 1))
    one = band(Isotropic(500), bank(), 1).value
    assert band(Isotropic(500), bank() * lengths, 1).value == pytest.approx(one, rel=1e-4)
    assert band(Isotropic(500), bank()[:3], 1).value < one


def test_a_null_of_another_model_or_without_the_layer_is_refused():
    directions = Directions(("a",), (2,), np.ones((1, 1, D)), STAMP)
    with pytest.raises(MismatchError, match="holds layer 2"):
        nulls_named([SplitHalf(acts())], directions)
    other = acts(layers=(2,))
    other.model = replace(STAMP, tokenizer="other")
    with pytest.raises(MismatchError, match="tokenizer"):
        nulls_named([CovarianceMatched(other)], directions)


def test_an_unknown_null_or_none_at_all_is_refused():
    directions = Directions(("a",), (2,), np.ones((1, 1, D)), STAMP)
    with pytest.raises(ValueError, match="'isotropc'; expected isotropic"):
        nulls_named(["isotropc"], directions)
    with pytest.raises(ValueError, match="no null"):
        nulls_named([], directions)
