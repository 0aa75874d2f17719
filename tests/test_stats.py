import inspect

import numpy as np
import pytest
from scipy.stats import t, ttest_rel
from sklearn.metrics import roc_auc_score

from workbench import stats

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("levels", [3, 10_000])
def test_auc_is_the_one_of_scikit_learn_with_and_without_ties(levels):
    scores = RNG.integers(0, levels, (80, 7)).astype(float)
    labels = RNG.random(80) < 0.4
    expected = [roc_auc_score(labels, column) for column in scores.T]
    np.testing.assert_allclose(stats.auc(scores, labels), expected)
    assert stats.auc(scores[:, 0], labels) == pytest.approx(expected[0])


def test_auc_keeps_the_shape_of_the_columns():
    scores = RNG.random((30, 4, 5))
    labels = np.arange(30) % 2 == 0
    found = stats.auc(scores, labels)
    assert found.shape == (4, 5)
    assert found[2, 3] == stats.auc(scores[:, 2, 3], labels)


def test_auc_of_one_class_is_refused_and_a_nan_score_gives_no_number():
    with pytest.raises(ValueError, match="0 true of 3"):
        stats.auc(np.arange(3.0), np.zeros(3, bool))
    assert np.isnan(stats.auc(np.array([0.1, np.nan, 0.3]), np.array([True, False, True])))


def test_a_weighted_auc_is_the_auc_of_the_repeated_items():
    scores = RNG.integers(0, 6, 40).astype(float)
    labels = RNG.random(40) < 0.5
    counts = RNG.integers(0, 4, (5, 40))
    expected = [roc_auc_score(np.repeat(labels, row), np.repeat(scores, row)) for row in counts]
    np.testing.assert_allclose(stats.weighted_auc(scores, labels, counts.astype(float)), expected)


def test_a_weighted_auc_without_one_class_is_no_number():
    found = stats.weighted_auc(np.arange(2.0), np.array([True, False]), np.array([[1.0, 0.0]]))
    assert np.isnan(found).all()


def test_a_bootstrap_over_groups_is_wider_than_one_over_their_copies():
    groups = np.repeat(np.arange(20), 10)
    values = np.repeat(RNG.standard_normal(20), 10)
    over_groups = stats.bootstrap_interval(values, groups, unit="fact")
    over_items = stats.bootstrap_interval(values)
    ratio = (over_groups.high - over_groups.low) / (over_items.high - over_items.low)
    assert 2.5 < ratio < 4  # the square root of ten
    assert (over_groups.n, over_groups.unit) == (20, "fact")
    assert over_groups.name == "95% bootstrap over facts"


def test_a_bootstrap_interval_of_an_auc_holds_the_truth_about_as_often_as_it_says():
    inside = 0
    for trial in range(200):
        rng = np.random.default_rng(trial)
        labels = np.tile([True, False], 60)
        scores = rng.standard_normal(120) + labels
        found = stats.bootstrap_auc(scores, labels, np.repeat(np.arange(60), 2), draws=300)
        inside += found.low <= 0.7602 <= found.high  # Phi(1 / sqrt(2))
    assert 0.88 <= inside / 200 <= 0.99


def test_a_paired_difference_is_the_paired_t_test():
    first, second = RNG.standard_normal(12), RNG.standard_normal(12)
    found = stats.paired_difference(first, second)
    expected = ttest_rel(first, second).confidence_interval(0.95)
    np.testing.assert_allclose((found.low, found.high), expected)
    assert found.value == pytest.approx((first - second).mean())
    assert (found.n, found.name) == (12, "95% t over items")


def test_rows_of_one_group_count_once_in_a_paired_difference():
    first, second = RNG.standard_normal(12), RNG.standard_normal(12)
    groups = np.repeat(["a", "b", "c", "d"], 3)
    grouped = stats.paired_difference(first, second, groups, unit="proposition")
    means = (first - second).reshape(4, 3).mean(axis=1)
    np.testing.assert_allclose(grouped.value, means.mean())
    assert (grouped.n, grouped.unit) == (4, "proposition")


def test_one_pair_or_a_pair_without_a_number_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        stats.paired_difference(np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="not finite"):
        stats.paired_difference(np.array([1.0, np.nan]), np.zeros(2))


def test_a_seed_mean_is_a_t_interval_and_needs_two_seeds():
    found = stats.seed_mean(np.array([1.0, 2.0, 4.0]))
    reach = t.ppf(0.975, 2) * np.std([1, 2, 4], ddof=1) / np.sqrt(3)
    assert found.high - found.value == pytest.approx(reach)
    assert (found.n, found.name) == (3, "95% t over seeds")
    with pytest.raises(ValueError, match="at least 2 values; got 1"):
        stats.seed_mean(np.array([1.0]))


def test_a_permutation_stays_inside_its_strata_and_is_uniform_there():
    values, strata = np.arange(7), np.array([1, 0, 1, 0, 2, 1, 0])
    shuffled = stats.permute_within(values, strata, 6000, seed=0)
    for stratum in range(3):
        rows = np.sort(shuffled[:, strata == stratum], axis=1)
        assert (rows == np.sort(values[strata == stratum])).all()
    shares = np.bincount(shuffled[:, 0], minlength=7)[[0, 2, 5]] / 6000
    np.testing.assert_allclose(shares, 1 / 3, atol=0.03)
    assert np.array_equal(shuffled, stats.permute_within(values, strata, 6000, seed=0))


def test_a_percentile_rank_counts_ties_half():
    assert stats.percentile_rank(2.0, np.array([1.0, 2.0, 2.0, 3.0])) == 50


def test_intervals_over_seeds_are_those_of_each_column():
    values = RNG.standard_normal((4, 3, 2))
    mean, low, high = stats.t_intervals(values)
    one = stats.seed_mean(values[:, 2, 1])
    assert (mean[2, 1], low[2, 1], high[2, 1]) == pytest.approx((one.value, one.low, one.high))
    with pytest.raises(ValueError, match="at least 2"):
        stats.t_intervals(values[:1])


def test_the_jackknife_of_a_mean_is_its_t_interval():
    values = RNG.standard_normal((9, 2))
    without = (values.sum(axis=0) - values) / 8
    low, high = stats.jackknife(without, values.mean(axis=0))
    expected = stats.t_intervals(values)
    np.testing.assert_allclose((low, high), expected[1:])


def test_correlations_are_pearsons_and_weights_are_repeated_items():
    first, second = RNG.standard_normal((30, 2)) + 5, RNG.standard_normal((30, 3)) - 40
    counts = RNG.integers(0, 4, (3, 30))
    plain, weighted = (
        stats.correlations(first, second),
        stats.correlations(first, second, counts.astype(float)),
    )
    assert plain[0, 1, 2] == pytest.approx(np.corrcoef(first[:, 1], second[:, 2])[0, 1])
    for draw, row in zip(weighted, counts, strict=True):
        repeated = np.corrcoef(np.repeat(first[:, 1], row), np.repeat(second[:, 2], row))
        assert draw[1, 2] == pytest.approx(repeated[0, 1])


def test_a_column_that_does_not_vary_correlates_with_nothing():
    assert np.isnan(stats.correlations(np.ones((5, 1)), RNG.standard_normal((5, 1)))).all()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.75])
def test_a_weighted_quantile_is_the_one_of_the_repeated_values(share):
    values, counts = RNG.standard_normal(25), RNG.integers(0, 4, (6, 25))
    found = stats.weighted_quantiles(values, counts.astype(float), share)
    expected = [np.quantile(np.repeat(values, row), share, method="inverted_cdf") for row in counts]
    np.testing.assert_allclose(found, expected)
    assert np.isnan(stats.weighted_quantiles(values, np.zeros((1, 25)), share)).all()


def test_labels_counted_as_numbers_give_the_same_auc_under_weights():
    scores, labels = np.array([4.0, 1.0, 2.0, 3.0]), np.array([True, False, True, False])
    weights = np.array([[1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 0.0, 1.0]])
    as_numbers = inspect.unwrap(stats.weighted_auc)  # without the tests' check of types
    np.testing.assert_allclose(as_numbers(scores, labels.astype(int), weights), [0.75, 1.0])


def test_a_score_that_is_no_number_has_no_interval():
    scores, labels = np.array([np.nan, 1.0, 2.0, 3.0]), np.array([True, False, True, False])
    with pytest.raises(ValueError, match="1 of 4 scores are NaN"):
        stats.bootstrap_auc(scores, labels)


def test_one_group_alone_has_no_interval():
    group = np.zeros(4, int)
    found = stats.bootstrap_interval(np.arange(4.0), group, unit="fact")
    assert (found.value, found.n, found.name) == (1.5, 1, "none: 1 fact")
    assert np.isnan([found.low, found.high]).all()
    labels = np.array([True, False, True, False])
    found = stats.bootstrap_auc(np.arange(4.0), labels, group, unit="fact")
    assert (found.value, found.name) == (0.25, "none: 1 fact")
    assert np.isnan([found.low, found.high]).all()


def test_nothing_ranks_among_no_numbers():
    for value, null in [(np.nan, [1.0]), (1.0, []), (1.0, [0.0, np.nan])]:
        with pytest.raises(ValueError, match="no rank of"):
            stats.percentile_rank(value, np.array(null))


@pytest.mark.parametrize("level", [0.0, 1.5, 95.0])
def test_a_level_is_a_share(level):
    values = np.arange(5.0)
    for make in (
        lambda: stats.seed_mean(values, level),
        lambda: stats.t_intervals(values, level),
        lambda: stats.jackknife(values, np.array(2.0), level),
        lambda: stats.bootstrap_interval(values, level=level),
        lambda: stats.paired_difference(values, np.zeros(5), level=level),
    ):
        with pytest.raises(ValueError, match="a share between 0 and 1"):
            make()


def test_one_item_drawn_over_and_over_has_no_correlation():
    """What is left of its variance is rounding, whose quotient is any number from -1 to 1."""
    a, b = RNG.normal(size=(5, 4)), RNG.normal(size=(5, 3))
    found = stats.correlations(a, b, 5 * np.eye(5))
    assert np.isnan(found).all()
    assert np.isnan(stats.correlations(np.full((10, 1), 0.1), RNG.normal(size=(10, 1)))).all()
