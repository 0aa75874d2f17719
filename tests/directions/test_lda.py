import numpy as np
import pytest
from planted import planted
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from workbench.directions.cells import cells, center_by
from workbench.directions.lda import Lda, ledoit_wolf
from workbench.directions.mass_mean import MassMean
from workbench.linalg import cosine
from workbench.stats import auc

RNG = np.random.default_rng(11)


def items(n=90, d=8, share=0.4):
    """Anisotropic items; truth lies where they hardly vary, and where they vary most."""
    y = np.arange(n) < share * n
    X = RNG.standard_normal((n, d)) * np.linspace(0.2, 4, d)
    X[:, 0] += 0.5 * y
    X[:, -1] += 0.5 * y
    return X + 3.0, y


def by_definition(X, y, r):
    within = center_by(X, y)
    total = X - X.mean(axis=0)
    system = (1 - r) * within.T @ within / len(X) + r * (total**2).mean() * np.eye(X.shape[1])
    return np.linalg.solve(system, X[y].mean(axis=0) - X[~y].mean(axis=0))


@pytest.mark.parametrize("shape", [(90, 8), (12, 30)])
@pytest.mark.parametrize("r", [0.01, 0.3, 1.0])
def test_it_is_the_shrunk_covariance_within_classes_solved_for_the_difference(shape, r):
    X, y = items(*shape)
    np.testing.assert_allclose(Lda(shrinkage=r).fit(X, y).coef_, by_definition(X, y, r), rtol=1e-8)


def test_without_shrinkage_it_is_fishers_discriminant():
    X, y = items()
    plain = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    np.testing.assert_allclose(Lda(shrinkage=0).fit(X, y).coef_, plain.coef_[0], rtol=1e-8)


@pytest.mark.parametrize("shape", [(90, 8), (12, 30)])
def test_the_shrinkage_is_that_of_ledoit_and_wolf_for_all_items(shape):
    X, y = items(*shape)
    expected = ledoit_wolf_shrinkage(X)
    assert 0 < expected < 1
    assert Lda().fit(X, y).info_["shrinkage"] == pytest.approx(expected, rel=1e-10)
    centered = X - X.mean(axis=0)
    both = [
        ledoit_wolf(centered, g / len(X)) for g in (centered @ centered.T, centered.T @ centered)
    ]
    assert both == pytest.approx([expected] * 2, rel=1e-10)


def test_it_weighs_down_what_varies_anyway_and_so_separates_better_than_the_mean():
    X, y = items(n=400)
    other, labels = items(n=400)
    discriminant, mean = Lda().fit(X, y).coef_, MassMean().fit(X, y).coef_
    assert abs(discriminant[0]) > 10 * abs(discriminant[-1])
    assert auc(other @ discriminant, labels) > auc(other @ mean, labels) + 0.1


def test_centering_keeps_a_lopsided_topic_out_of_it():
    acts = planted(apart=0)
    topic, y = acts.columns["topic"], acts.columns["label"] == 1
    keep = np.random.default_rng(0).random(len(y)) < np.where(y == (topic == "a"), 1.0, 0.3)
    acts, offset = acts.where(keep), 4 * np.eye(24)[5]
    topic, y = acts.columns["topic"], acts.columns["label"] == 1
    X = acts.at(2) + (topic == "a")[:, None] * offset
    along = [
        cosine(Lda(center=center).fit(X, y, groups=topic).coef_[None], offset[None])[0, 0]
        for center in (True, False)
    ]
    assert abs(along[0]) < 0.1 < along[1]
    assert len(np.unique(cells(topic, None, len(X)))) == 4


@pytest.mark.parametrize(
    ("shape", "r", "message"),
    [
        ((90, 8), 1.2, "shrinkage 1.2 with 90 items of width 8; expected 0 < r <= 1"),
        ((12, 30), 0, "shrinkage 0 with 12 items of width 30"),
    ],
)
def test_a_shrinkage_that_cannot_be_is_refused(shape, r, message):
    with pytest.raises(ValueError, match=message):
        Lda(shrinkage=r).fit(*items(*shape))


def test_a_covariance_that_stays_singular_is_refused():
    X, y = items()
    with pytest.raises(ValueError, match="90 items of width 9 is singular with 0 added"):
        Lda(shrinkage=0).fit(np.c_[X, np.zeros(len(X))], y)


def test_one_item_of_each_class_has_no_discriminant():
    """Ledoit and Wolf do not shrink two items, and rounding gave a length of 1e10."""
    X = np.random.default_rng(0).normal(size=(2, 24)).astype(np.float32)
    with pytest.raises(ValueError, match="with 2 items of width 24; expected 0 < r"):
        Lda().fit(X, np.array([0, 1]))


def test_classes_that_are_two_points_have_no_discriminant():
    y = np.arange(8) < 4
    X = np.where(y, 3.0, -1.0)[:, None] * np.array([1.0, 0.0]) + np.tile([[0, 1], [0, -1]], (4, 1))
    with pytest.raises(ValueError, match="do not vary within their classes"):
        Lda(shrinkage=0).fit(X, y)


def test_items_of_one_coordinate_are_shrunk_without_a_division_by_zero():
    X = np.array([[0.0], [1.0], [2.0], [5.0]])
    found = Lda().fit(X, np.array([0, 0, 1, 1]))
    assert found.info_["shrinkage"] == 1
    assert found.coef_[0] > 0
