"""Equivalence tests: right as often as they say, and the same as what they are defined by."""

import numpy as np
import pytest
from scipy import stats

from workbench.worlds import equivalence

RUNS = 4000


def test_p_and_interval_are_those_of_two_one_sided_t_tests():
    values = np.random.default_rng(0).normal(0.02, 0.1, 9)
    found = equivalence(values, 0.1, unit="seed")
    above = stats.ttest_1samp(values, -0.1, alternative="greater").pvalue
    below = stats.ttest_1samp(values, 0.1, alternative="less").pvalue
    assert found.p == pytest.approx(max(above, below))
    low, high = stats.t.interval(0.9, 8, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.name == "90% t over seeds, two one-sided tests at 5.0%"
    assert (found.n, found.unit) == (9, "seed")


@pytest.mark.parametrize("mean", [-0.3, -0.1, 0.0, 0.05, 0.2])
@pytest.mark.parametrize("bound", [0.05, 0.15, 0.4])
def test_the_interval_lies_inside_exactly_where_both_tests_reject(mean, bound):
    draws = np.random.default_rng(3).normal(mean, 0.12, (40, 4))
    for values in draws:
        found = equivalence(values, bound, unit="seed")
        assert found.inside == (found.p < 0.05)


@pytest.mark.parametrize("seeds", [3, 5, 12])
def test_a_true_effect_at_the_bound_passes_in_five_percent_of_runs(seeds):
    draws = np.random.default_rng(seeds).normal(0.1, 0.02, (RUNS, seeds))
    passed = np.mean([equivalence(row, 0.1, unit="seed").inside for row in draws])
    # 5% with a standard error of 0.34%: the other side is too far away to matter here
    assert 0.038 < passed < 0.062


@pytest.mark.parametrize("seeds", [3, 8])
def test_the_interval_covers_the_mean_in_ninety_percent_of_runs(seeds):
    draws = np.random.default_rng(seeds).normal(0.07, 0.3, (RUNS, seeds))
    found = [equivalence(row, 1.0, unit="seed") for row in draws]
    covered = np.mean([one.low < 0.07 < one.high for one in found])
    assert abs(covered - 0.9) < 0.015


def test_power_grows_with_seeds_and_reaches_what_the_t_distribution_says():
    power = {}
    for seeds in (3, 6, 12):
        draws = np.random.default_rng(seeds).normal(0.0, 0.05, (RUNS, seeds))
        power[seeds] = np.mean([equivalence(row, 0.1, unit="seed").inside for row in draws])
    assert power[3] < power[6] < power[12]
    # by numeric integration over the spread: P(|mean| < bound - t * s / sqrt(n))
    n, spread = 3, np.sqrt(np.random.default_rng(1).chisquare(2, 200_000) / 2) * 0.05
    room = np.maximum(0.1 - stats.t.ppf(0.95, n - 1) * spread / np.sqrt(n), 0)
    expected = (2 * stats.norm.cdf(room / (0.05 / np.sqrt(n))) - 1).mean()
    assert power[3] == pytest.approx(expected, abs=0.025)


def test_values_without_spread_are_inside_or_not_by_their_mean():
    assert equivalence(np.array([0.5, 0.5, 0.5]), 0.75, unit="seed").p == 0
    outside = equivalence(np.array([0.5, 0.5, 0.5]), 0.25, unit="seed")
    assert (outside.inside, outside.p) == (False, 1)


@pytest.mark.parametrize(
    ("values", "bound"),
    [([0.1], 1.0), ([0.1, np.nan], 1.0), ([0.1, 0.2], 0.0), ([0.1, 0.2], np.nan)],
)
def test_what_cannot_be_tested_is_refused(values, bound):
    with pytest.raises(ValueError, match=r"equivalence test needs|bound"):
        equivalence(np.array(values), bound, unit="seed")
