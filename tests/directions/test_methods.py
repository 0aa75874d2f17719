import numpy as np
import pytest
from planted import planted

from workbench.directions.cells import cell_weights, cells, center_by
from workbench.directions.lda import Lda
from workbench.directions.logistic import Logistic
from workbench.directions.mass_mean import MassMean
from workbench.directions.paired import Paired
from workbench.directions.pca import Pca
from workbench.directions.truth import fit_truth
from workbench.directions.ttpd import Ttpd
from workbench.linalg import cosine, unit
from workbench.stats import auc

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


def test_auc_and_accuracy_of_ttpd_part_where_the_rendering_shifts_all_items():
    acts = planted(strength=(3.0,), apart=0)
    y, p = acts.columns["label"] == 1, acts.columns["polarity"]
    fit = Ttpd().fit(acts.at(0), y, polarity=p)
    shifted = acts.at(0) + 20 * unit(fit.coef_)
    plain, moved = (fit.decision_function(X) for X in (acts.at(0), shifted))
    assert auc(plain, y) > 0.95
    assert auc(moved, y) == pytest.approx(auc(plain, y), abs=1e-3)
    assert ((plain > 0) == y).mean() > 0.9
    assert ((moved > 0) == y).mean() == 0.5


@pytest.mark.parametrize("method", [Ttpd(), MassMean(center=True), Lda(), Logistic()])
def test_groups_that_each_hold_one_class_cannot_be_centered(method):
    X, y, topic, polarity = balanced()
    with pytest.raises(ValueError, match="each of the 6 cells of group and polarity holds one cl"):
        method.fit(
            X[y == (topic == 0)],
            y[y == (topic == 0)],
            groups=topic[y == (topic == 0)],
            polarity=polarity[y == (topic == 0)],
        )


@pytest.mark.parametrize(
    "method", [MassMean(), MassMean(whiten=True), Ttpd(), Lda(), Logistic(), Paired(), Pca()]
)
def test_turning_the_residual_stream_turns_the_direction(method):
    acts = planted()
    X, turn = acts.at(2).astype(float), np.linalg.qr(RNG.standard_normal((24, 24)))[0]
    columns = {"polarity": acts.columns["polarity"], "pairs": acts.columns["fact"]}
    y = acts.columns["label"]
    plain, turned = (method.fit(Z, y, **columns).coef_ for Z in (X, X @ turn))
    np.testing.assert_allclose(turned, plain @ turn, rtol=1e-4, atol=1e-6 * np.abs(plain).max())


def test_a_whitened_mass_mean_is_the_pseudo_inverse_within_classes_times_the_difference():
    X, y, *_ = balanced()
    X = np.c_[X, X[:, 0] + X[:, 1]]  # a coordinate that the others give: no inverse
    within = np.where(y[:, None], X - X[y].mean(axis=0), X - X[~y].mean(axis=0))
    inverse = np.linalg.pinv(within.T @ within / len(X), hermitian=True)
    fit = MassMean(whiten=True).fit(X, y)
    np.testing.assert_allclose(fit.coef_, inverse @ MassMean().fit(X, y).coef_, atol=1e-8)
    assert "in distribution only" in fit.info_["scope"]
    assert MassMean().fit(X, y).info_ == {}


def test_a_whitened_mass_mean_wins_where_it_was_fitted_and_loses_elsewhere():
    def items(leak):
        """Truth on axis 0; what varies most there also lies, times ``leak``, on axis 1."""
        y = RNG.random(2000) < 0.5
        X = RNG.standard_normal((2000, 4)) * np.array([3.0, 0.3, 1, 1])
        X[:, 1] += leak * X[:, 0]
        X[:, 0] += 2.0 * y
        return X, y

    X, y = items(leak=1.0)
    plain, whitened = (MassMean(whiten=whiten).fit(X, y).coef_ for whiten in (False, True))
    (near, labels), (far, others) = items(leak=1.0), items(leak=-1.0)
    assert auc(near @ whitened, labels) > auc(near @ plain, labels) + 0.2
    assert auc(far @ whitened, others) < auc(far @ plain, others) - 0.05


def test_what_a_mass_mean_cannot_do_is_refused():
    X, y, topic, _ = balanced()
    with pytest.raises(ValueError, match="balance=True and whiten=True do not go together"):
        MassMean(balance=True, whiten=True).fit(X, y, groups=topic)
    with pytest.raises(ValueError, match=r"no eigenvalue .* above tolerance=1000; the largest is"):
        MassMean(whiten=True, tolerance=1000).fit(X, y)


def test_paired_items_one_a_side_give_the_mass_mean():
    X = RNG.standard_normal((20, 5))
    y, pairs = np.tile([True, False], 10), np.repeat(np.arange(10), 2)
    fit = Paired().fit(X, y, pairs=pairs)
    np.testing.assert_allclose(fit.coef_, MassMean().fit(X, y).coef_, atol=1e-12)
    assert fit.info_ == {"n_pairs": 10}


def test_a_pair_counts_once_however_many_items_it_holds():
    X = np.array([[3.0, 0], [3, 0], [3, 0], [1, 0], [0, 5], [0, 2], [0, 4]])
    y, pairs = np.array([1, 1, 1, 0, 1, 0, 0]), np.array(list("aaaabbb"))
    np.testing.assert_allclose(Paired().fit(X, y, pairs=pairs).coef_, [1, 1])  # 2 of a, 2 of b


def test_a_pair_without_both_classes_is_named_with_what_it_holds():
    X, y = RNG.standard_normal((6, 3)), np.array([1, 0, 1, 1, 1, 0])
    message = r"pair 'b' holds 2 true and 0 false items; a pair needs both \(1 of 3 lack one\)"
    for method in (Paired(), Pca()):
        with pytest.raises(ValueError, match=message):
            method.fit(X, y, pairs=np.array(list("aabbcc")))


def test_the_evidence_holds_the_auc_of_t_g_and_the_classifiers_beside_it():
    acts = planted(strength=(0.8,), apart=0, polar=1.0)
    topic, polarity, label = (acts.columns[name] for name in ("topic", "polarity", "label"))
    _, table = fit_truth(acts, "truth")
    rest, held_out = topic != "a", (topic == "a") & (polarity == -1)
    fit = Ttpd().fit(acts.at(0)[rest], label[rest], groups=topic[rest], polarity=polarity[rest])
    X, y = acts.at(0)[held_out], label[held_out] == 1
    expected = [auc(X @ fit.coef_, y), auc(fit.decision_function(X), y)]
    (row,) = table[
        (table["split"] == "unseen topic") & (table["topic"] == "a") & (table["polarity"] == -1)
    ][["auc", "auc_classifier"]].to_numpy()
    np.testing.assert_allclose(row, expected, atol=1e-9)
    assert expected[0] != pytest.approx(expected[1], abs=1e-6)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_the_classifier_of_ttpd_does_not_depend_on_the_units(factor):
    acts = planted()
    X, y, p = acts.at(2).astype(float), acts.columns["label"], acts.columns["polarity"]
    plain, scaled = (Ttpd().fit(Z, y, polarity=p) for Z in (X, X * factor))
    np.testing.assert_allclose(
        scaled.decision_function(X * factor), plain.decision_function(X), rtol=1e-6, atol=1e-9
    )
