"""What every registered direction method promises, on activations with a planted truth."""

import numpy as np
import pytest
from planted import planted
from sklearn.base import clone

from workbench.linalg import cosine
from workbench.registry import METHODS

NAMES = METHODS.names()


def columns(acts):
    return {"groups": acts.columns["topic"], "polarity": acts.columns["polarity"]}


def fitted(name, acts, y=None, X=None):
    y = acts.columns["label"] == 1 if y is None else y
    return METHODS.create(name).fit(acts.at(2) if X is None else X, y, **columns(acts))


@pytest.fixture(scope="module")
def acts():
    return planted()


def test_the_registry_finds_the_methods_by_their_files():
    assert {"mass_mean", "ttpd"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_axis_is_found_with_its_sign(name, acts):
    axis = np.eye(acts.model.width)[:1]
    assert cosine(fitted(name, acts).coef_[None].astype(float), axis)[0, 0] > 0.95


@pytest.mark.parametrize("name", NAMES)
def test_swapped_labels_give_the_negated_direction_and_the_same_center(name, acts):
    one = fitted(name, acts)
    other = fitted(name, acts, y=acts.columns["label"] == 0)
    np.testing.assert_allclose(other.coef_, -one.coef_, atol=1e-5)
    np.testing.assert_allclose(other.center_, one.center_, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_the_same_each_time_and_leaves_its_input_alone(name, acts):
    before = acts.at(2).copy()
    assert np.array_equal(fitted(name, acts).coef_, fitted(name, acts).coef_)
    assert np.array_equal(acts.at(2), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_clone_has_the_same_parameters_and_no_fit(name, acts):
    one = fitted(name, acts)
    two = clone(one)
    assert two.get_params() == one.get_params()
    assert not hasattr(two, "coef_")


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_rows_does_not_matter(name, acts):
    order = np.random.default_rng(0).permutation(len(acts.columns["label"]))
    shuffled = acts.where(order)
    np.testing.assert_allclose(fitted(name, shuffled).coef_, fitted(name, acts).coef_, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_shift_moves_the_center_and_not_the_direction(name, acts):
    shift = np.linspace(-3, 3, acts.model.width, dtype=np.float32)
    one, moved = fitted(name, acts), fitted(name, acts, X=acts.at(2) + shift)
    np.testing.assert_allclose(moved.coef_, one.coef_, atol=1e-4)
    np.testing.assert_allclose(moved.center_, one.center_ + shift, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_positive_on_the_true_side(name):
    acts = planted(apart=0)
    scores = fitted(name, acts).decision_function(acts.at(2))
    assert ((scores > 0) == (acts.columns["label"] == 1)).mean() > 0.85


@pytest.mark.parametrize("name", NAMES)
def test_fitting_many_labelings_at_once_is_fitting_them_one_by_one(name, acts):
    method = METHODS.create(name)
    if not hasattr(method, "fit_many"):
        pytest.skip("this method fits one labeling at a time")
    Y = np.random.default_rng(1).random((len(acts.columns["label"]), 5)) < 0.4
    many = method.fit_many(acts.at(2), Y, **columns(acts))
    for labels, coef in zip(Y.T, many, strict=True):
        np.testing.assert_allclose(fitted(name, acts, y=labels).coef_, coef, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", [np.ones(640, bool), np.arange(640) % 3])
def test_labels_that_are_not_two_classes_are_refused(name, acts, labels):
    with pytest.raises(ValueError, match="labels"):
        fitted(name, acts, y=labels)
