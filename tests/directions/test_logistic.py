import warnings

import numpy as np
import pytest
from planted import planted
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from workbench.directions import fit_layers
from workbench.directions.logistic import Logistic, descend
from workbench.errors import ConfigError
from workbench.linalg import cosine

RNG = np.random.default_rng(7)


def items(n=300, d=20, signal=1.0, spread=30.0):
    """Items whose coordinates differ in size, as in a residual stream; classes that overlap."""
    y = RNG.random(n) < 0.4
    X = RNG.standard_normal((n, d)) * np.geomspace(1, spread, d)
    X[:, 0] += signal * y
    return X + 5.0, y


def size(X):
    return np.sqrt(((X - X.mean(axis=0)) ** 2).mean())


@pytest.mark.parametrize("shape", [(300, 20), (15, 40)])
@pytest.mark.parametrize(("C", "center"), [(0.01, True), (1.0, False), (100.0, True)])
def test_its_minimum_and_its_scores_are_those_of_scikit_learn(shape, C, center):
    X, y = items(*shape)
    scaled = (X - X.mean(axis=0)) / size(X)
    plain = LogisticRegression(C=C, solver="newton-cg", tol=1e-10, max_iter=1000).fit(scaled, y)
    fit = Logistic(C=C, center=center, tolerance=1e-9).fit(X, y)
    np.testing.assert_allclose(fit.coef_ * size(X), plain.coef_[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fit.decision_function(X), plain.decision_function(scaled), atol=1e-4)


def test_unpenalized_it_converges_where_a_hundred_of_the_usual_steps_stop_short():
    X, y = items(spread=1000.0)
    scaled = X - X.mean(axis=0)
    plain = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12)
    best = plain.fit(scaled / scaled.std(axis=0), y).coef_ / scaled.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        short = LogisticRegression(C=np.inf, max_iter=100).fit(X, y).coef_
    assert cosine(short, best)[0, 0] < 0.9
    fit = Logistic(C=None, tolerance=1e-9).fit(X, y)
    assert fit.info_["gradient"] <= 1e-9
    assert cosine(fit.coef_[None], best)[0, 0] > 0.9999


def test_classes_that_a_plane_separates_have_no_unpenalized_optimum_and_it_warns():
    X, y = items(n=15, d=40)
    with pytest.warns(
        ConvergenceWarning, match=r"15 items of width 40 with C=None .* in 200 steps"
    ):
        fit = Logistic(C=None, max_iter=200).fit(X, y)
    assert fit.info_["gradient"] > 1e-6
    assert fit.info_["steps"] == 200


def test_a_fit_that_is_stopped_early_warns_and_says_how_steep_it_still_is():
    X, y = items()
    with pytest.warns(ConvergenceWarning, match="gradient of 1e-06 in 3 steps"):
        fit = Logistic(max_iter=3).fit(X, y)
    assert fit.info_["gradient"] > 1e-6


def test_the_gradient_it_reports_is_that_of_the_loss_it_states():
    X, y = items()
    penalty = np.full(20, 0.01)
    W, largest, _ = descend(X / size(X), y[:, None], penalty, 4, 0.0)
    s = np.where(y, 1, -1)

    def loss(w):
        return np.logaddexp(0, -s * (X / size(X) @ w)).mean() + (penalty * w**2).sum() / 2

    steps = 1e-6 * np.eye(20)
    numeric = [(loss(W[:, 0] + e) - loss(W[:, 0] - e)) / 2e-6 for e in steps]
    assert np.abs(numeric).max() == pytest.approx(largest[0], rel=1e-4)


@pytest.mark.parametrize("C", [0.01, 10.0])
def test_scores_are_log_odds_that_expect_as_many_true_items_as_there_are(C):
    X, y = items()
    chances = 1 / (1 + np.exp(-Logistic(C=C).fit(X, y).decision_function(X)))
    assert chances.mean() == pytest.approx(y.mean(), abs=1e-5)


@pytest.mark.parametrize("C", [0, -1.0])
def test_a_penalty_that_cannot_be_is_refused(C):
    with pytest.raises(ValueError, match=f"C must be positive, .* got {C}"):
        Logistic(C=C).fit(*items())


def test_activations_that_are_all_the_same_are_refused():
    acts = planted()
    acts.values[1] = 2.0
    with pytest.raises(
        ConfigError, match="'logistic' at layer 1: all 640 activations are the same"
    ):
        fit_layers(acts, method="logistic", layers=[2, 1])
