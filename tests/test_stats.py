import inspect

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp, ttest_rel
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
    over_groups = stats.mean_interval(values, groups, unit="fact")
    over_items = stats.mean_interval(values)
    ratio = (over_groups.high - over_groups.low) / (over_items.high - over_items.low)
    assert 2.5 < ratio < 4  # the square root of ten
    assert (over_groups.n, over_groups.unit) == (20, "fact")
    assert over_groups.name == "95% bootstrap over facts"


NULLS = 1000


def covered(make, trials=NULLS):
    """The share of simulated nulls whose interval holds 0; ``make`` turns a generator to one."""
    found = [make(np.random.default_rng(trial)) for trial in range(trials)]
    return np.mean([one.low <= 0 <= one.high for one in found])


@pytest.mark.parametrize("n", [2, 4, 6, 12, 19])
def test_an_interval_of_a_mean_of_few_units_holds_the_truth_as_often_as_it_says(n):
    share = covered(lambda rng: stats.mean_interval(rng.standard_normal(n)))
    assert 0.93 <= share <= 0.97


def test_an_interval_of_a_mean_of_many_units_holds_the_truth_as_often_as_it_says():
    def one(rng):
        return stats.mean_interval(rng.standard_normal(40), draws=400, seed=int(rng.integers(9999)))

    assert 0.93 <= covered(one) <= 0.97


@pytest.mark.parametrize("n", [3, 4, 6, 12])
@pytest.mark.parametrize("alike", [0.0, 0.2, 1.0])
def test_few_groups_of_unlike_size_or_weight_have_an_interval_that_holds(n, alike):
    """From rows that have nothing in common within a group to rows that are all alike there."""

    def weighted(rng):
        weights = rng.integers(1, 9, n).astype(float)
        spread = np.sqrt(alike + (1 - alike) / weights)
        return stats.mean_interval(spread * rng.standard_normal(n), weights=weights)

    def clustered(rng):
        groups = np.repeat(np.arange(n), rng.integers(1, 9, n))
        values = np.sqrt(alike) * rng.standard_normal(n)[groups]
        return stats.mean_interval(
            values + np.sqrt(1 - alike) * rng.standard_normal(len(groups)), groups
        )

    for make in (weighted, clustered):
        assert 0.93 <= covered(make) <= 0.975


@pytest.mark.parametrize(
    ("first", "second", "shared"), [(4, 4, 0), (3, 9, 0), (6, 6, 6), (6, 5, 3)]
)
def test_a_difference_of_means_of_few_groups_holds_the_truth(first, second, shared):
    groups = np.r_[np.arange(first), np.arange(first - shared, first - shared + second)]
    labels = np.repeat([True, False], [first, second])

    def one(rng):
        own = rng.standard_normal(groups.max() + 1) if shared else np.zeros(groups.max() + 1)
        return stats.mean_difference(own[groups] + rng.standard_normal(len(groups)), labels, groups)

    assert 0.93 <= covered(one) <= 0.98


def test_few_groups_of_one_size_have_the_t_interval_of_their_means():
    values = RNG.standard_normal((7, 3))
    found = stats.mean_interval(values.ravel(), np.repeat(np.arange(7), 3), unit="fact")
    expected = ttest_1samp(values.mean(axis=1), 0).confidence_interval(0.95)
    np.testing.assert_allclose((found.low, found.high), expected)
    assert (found.n, found.unit, found.name) == (7, "fact", "95% t over facts")
    weighted = stats.mean_interval(values.mean(axis=1), weights=np.full(7, 0.3), level=0.9)
    expected = ttest_1samp(values.mean(axis=1), 0).confidence_interval(0.9)
    np.testing.assert_allclose((weighted.low, weighted.high), expected)


def test_a_difference_of_groups_that_have_both_sides_is_the_paired_t_test():
    first, second = RNG.standard_normal((2, 8))
    found = stats.mean_difference(
        np.r_[first, second], np.repeat([True, False], 8), np.tile(np.arange(8), 2)
    )
    expected = ttest_rel(first, second).confidence_interval(0.95)
    np.testing.assert_allclose((found.low, found.high), expected)


def test_a_side_of_one_group_has_no_interval():
    found = stats.mean_difference(np.arange(6.0), np.arange(6) > 2, np.array([0, 0, 0, 1, 2, 3]))
    assert (found.value, found.n, found.name) == (3, 4, "none: 1 item on a side")
    assert np.isnan([found.low, found.high]).all()
    with pytest.raises(ValueError, match="3 of 3 rows are labelled"):
        stats.mean_difference(np.arange(3.0), np.ones(3, bool))


@pytest.mark.parametrize(
    ("n", "name"), [(19, "95% t over items"), (20, "95% bootstrap over items")]
)
def test_the_number_of_units_says_how_an_interval_is_made_and_not_what_it_is_around(n, name):
    values, weights = RNG.standard_normal(n), RNG.uniform(1, 5, n)
    found = stats.mean_interval(values, weights=weights)
    assert found.value == pytest.approx(np.average(values, weights=weights))
    assert (found.n, found.name) == (n, name)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("n", [3, 30])
def test_values_that_are_all_alike_have_an_interval_without_width(n):
    weights = RNG.uniform(1, 5, n)
    for found in (
        stats.mean_interval(np.full(n, 0.1)),
        stats.mean_interval(np.full(n, 0.1), weights=weights),
    ):
        assert (found.value, found.low, found.high) == (0.1, 0.1, 0.1)


def test_an_interval_of_a_share_stays_a_share():
    found = stats.mean_interval(np.array([0.0, 1.0, 1.0]), within=(0.0, 1.0))
    assert (found.low, found.high) == (0, 1)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_a_weight_is_a_number_above_0(weight):
    with pytest.raises(ValueError, match="each must be a number above 0"):
        stats.mean_interval(np.arange(3.0), weights=np.array([1.0, weight, 1.0]))


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
    found = stats.mean_interval(np.arange(4.0), group, unit="fact")
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
        lambda: stats.mean_interval(values, level=level),
        lambda: stats.mean_difference(values, values > 2, level=level),
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
