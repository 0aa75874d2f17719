import numpy as np
import pytest
from planted import planted

from workbench.directions.cells import cell_weights, cells, center_by
from workbench.directions.mass_mean import MassMean
from workbench.directions.ttpd import Ttpd
from workbench.linalg import cosine

RNG = np.random.default_rng(5)


def balanced(n=12, d=7, topics=3):
    """Float64 activations with n items in every topic x polarity x label."""
    topic, polarity, label = (
        x.ravel() for x in np.meshgrid(np.arange(topics), [1, -1], np.repeat([0, 1], n))
    )
    X = RNG.standard_normal((len(label), d)) + 3 * RNG.standard_normal((topics, d))[topic]
    return X, label == 1, topic, polarity


def class_difference(X, y, rows):
    return X[rows & y].mean(axis=0) - X[rows & ~y].mean(axis=0)


@pytest.mark.parametrize("balance", [False, True])
def test_on_a_balanced_design_ttpd_is_the_half_sum_and_half_difference_of_the_polarities(balance):
    X, y, topic, polarity = balanced()
    fit = Ttpd(balance=balance).fit(X, y, groups=topic, polarity=polarity)
    affirmed, negated = (class_difference(X, y, polarity == p) for p in (1, -1))
    np.testing.assert_allclose(fit.coef_, (affirmed + negated) / 4, atol=1e-10)
    np.testing.assert_allclose(fit.info_["t_P"], (affirmed - negated) / 4, atol=1e-10)


def test_ttpd_is_ordinary_least_squares_on_an_unbalanced_design():
    X, y, topic, polarity = balanced()
    keep = RNG.random(len(y)) < np.where(y & (polarity > 0), 0.4, 0.9)
    X, y, topic, polarity = (a[keep] for a in (X, y, topic, polarity))
    fit = Ttpd().fit(X, y, groups=topic, polarity=polarity)
    s = 2.0 * y - 1
    centered = center_by(X, cells(topic, polarity, len(X)))
    expected = np.linalg.lstsq(np.stack([s, s * polarity], 1), centered, rcond=None)[0]
    np.testing.assert_allclose([fit.coef_, fit.info_["t_P"]], expected, atol=1e-10)


def test_a_balanced_ttpd_is_that_of_repeated_cells():
    X, y, topic, polarity = balanced()
    small = (topic == 0) & (polarity == 1)
    repeated = np.concatenate([np.arange(len(y)), np.repeat(np.flatnonzero(small), 4)])
    fit = Ttpd(balance=True).fit(
        X[repeated], y[repeated], groups=topic[repeated], polarity=polarity[repeated]
    )
    plain = Ttpd().fit(X, y, groups=topic, polarity=polarity)
    np.testing.assert_allclose(fit.coef_, plain.coef_, atol=1e-10)


def test_ttpd_on_affirmed_items_alone_has_one_direction():
    X, y, topic, polarity = balanced()
    rows = polarity == 1
    fit = Ttpd().fit(X[rows], y[rows], groups=topic[rows], polarity=polarity[rows])
    np.testing.assert_allclose(fit.coef_, class_difference(X, y, rows) / 2, atol=1e-10)
    assert set(fit.info_) == {"classifier"}
    assert np.isfinite(fit.decision_function(X)).all()


def test_a_mass_mean_on_affirmed_items_turns_under_negation_and_ttpd_does_not():
    acts = planted(strength=(2.0,), polar=0.0)
    acts.values[0, :, 0] *= 0.3  # little truth, much truth times polarity
    X, y, p = acts.at(0), acts.columns["label"] == 1, acts.columns["polarity"]
    mean = MassMean().fit(X[p == 1], y[p == 1])
    assert class_difference(X, y, p == -1) @ mean.coef_ < 0
    truth = Ttpd().fit(X, y, groups=acts.columns["topic"], polarity=p)
    assert class_difference(X, y, p == -1) @ truth.coef_ > 0


def test_the_polarity_direction_points_to_affirmed_items_and_the_turning_one_lies_on_its_axis():
    acts = planted()
    y, p = acts.columns["label"] == 1, acts.columns["polarity"]
    fit = Ttpd().fit(acts.at(2), y, groups=acts.columns["topic"], polarity=p)
    axes = np.eye(24)
    assert cosine(fit.info_["polarity_direction"][None], axes[1:2])[0, 0] > 0.9
    assert cosine(fit.info_["t_P"][None], axes[2:3])[0, 0] > 0.9


def test_centering_by_topic_keeps_a_lopsided_topic_out_of_the_mass_mean():
    X, y, topic, _ = balanced(n=60, d=7)
    keep = RNG.random(len(y)) < np.where(y == (topic == 0), 0.9, 0.2)
    X, y, topic = X[keep], y[keep], topic[keep]
    offset = np.stack([X[topic == t].mean(axis=0) for t in range(3)])
    lopsided = cosine(MassMean().fit(X, y).coef_[None], offset[:1] - offset[1:])
    centered = cosine(
        MassMean(center=True).fit(X, y, groups=topic).coef_[None], offset[:1] - offset[1:]
    )
    assert np.abs(centered).max() < np.abs(lopsided).max()
    np.testing.assert_allclose(center_by(X, topic)[topic == 1].mean(axis=0), 0, atol=1e-12)


def test_a_balanced_mass_mean_counts_every_group_once():
    groups = np.array(["many"] * 30 + ["few"] * 3 + ["default"] * 5)
    y = groups == "default"
    X = RNG.standard_normal((38, 4))
    fit = MassMean(balance=True).fit(X, y, groups=groups)
    roles = (X[groups == "many"].mean(axis=0) + X[groups == "few"].mean(axis=0)) / 2
    np.testing.assert_allclose(fit.coef_, X[y].mean(axis=0) - roles, atol=1e-12)
    with pytest.raises(ValueError, match="needs groups"):
        MassMean(balance=True).fit(X, y)


def test_half_floats_are_summed_in_float32():
    X = np.full((400, 2), 30000, np.float16)
    X[::2] += 64
    fit = MassMean().fit(X, np.arange(400) % 2 == 0)
    assert fit.coef_.dtype == np.float32
    np.testing.assert_allclose(fit.coef_, X[0].astype(float) - X[1].astype(float), rtol=1e-3)


def test_cells_number_topics_and_polarities_from_zero():
    found = cells(np.array(["b", "a", "b", "a"]), np.array([1, 1, -1, 1]), 4)
    assert found.tolist() == [2, 0, 1, 0] or len(set(found.tolist())) == 3
    assert found[1] == found[3]
    weights = cell_weights(found)
    np.testing.assert_allclose([weights.sum(), weights[1] + weights[3]], [4, 4 / 3])


def test_polarity_other_than_plus_and_minus_one_is_refused():
    X, y, topic, polarity = balanced()
    with pytest.raises(ValueError, match=r"polarity must be \+1 and -1; got \[0, 1\]"):
        Ttpd().fit(X, y, groups=topic, polarity=(polarity > 0).astype(int))
