"""What every registered method of directions promises, on activations with a planted truth."""

import inspect
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from planted import planted
from sklearn.base import clone

from workbench.directions import fit_layers, open_directions, save_directions
from workbench.linalg import cosine
from workbench.registry import METHODS, load_plugin, needs_model

NAMES = [
    name
    for name in METHODS.names()
    if getattr(METHODS.factory(name), "gives", "direction") != "map"
    and not needs_model(METHODS.factory(name))
]
PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
COLUMNS = {"groups": "topic", "polarity": "polarity", "pairs": "fact"}


def columns(acts):
    return {part: acts.columns[name] for part, name in COLUMNS.items()}


def fitted(name, acts, y=None, X=None, **changed):
    y = acts.columns["label"] == 1 if y is None else y
    X = acts.at(2) if X is None else X
    return METHODS.create(name).fit(X, y, **{**columns(acts), **changed})


def assert_same_direction(one, other, loss=1e-5):
    """Same way, to a loss of cosine, and same length."""
    one, other = (np.asarray(v, np.float64) for v in (one, other))
    assert cosine(one[None], other[None])[0, 0] > 1 - loss
    np.testing.assert_allclose(np.linalg.norm(one), np.linalg.norm(other), rtol=1e-2)


@pytest.fixture(scope="module")
def acts():
    return planted()


@cache
def plain(name):
    """The fit that others are compared with; none may change it."""
    return fitted(name, planted())


def test_the_registry_finds_the_methods_by_their_files():
    assert {"ccs", "lda", "logistic", "mass_mean", "paired", "pca", "ttpd"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_axis_is_found_with_its_sign(name, acts):
    axis = np.eye(acts.model.width)[:1]
    assert cosine(fitted(name, acts).coef_[None].astype(float), axis)[0, 0] > 0.95


@pytest.mark.parametrize("name", NAMES)
def test_swapped_labels_give_the_negated_direction_and_the_same_center(name, acts):
    one = plain(name)
    other = fitted(name, acts, y=acts.columns["label"] == 0)
    assert_same_direction(other.coef_, -one.coef_)
    np.testing.assert_allclose(other.center_, one.center_, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_the_same_each_time_and_leaves_its_input_alone(name, acts):
    before = acts.at(2).copy()
    state = np.random.get_state()[1].copy()
    assert np.array_equal(fitted(name, acts).coef_, fitted(name, acts).coef_)
    assert np.array_equal(acts.at(2), before)
    assert np.array_equal(np.random.get_state()[1], state)


@pytest.mark.parametrize("name", NAMES)
def test_a_clone_has_the_same_parameters_and_no_fit(name, acts):
    one = plain(name)
    two = clone(one)
    assert two.get_params() == one.get_params()
    assert not hasattr(two, "coef_")
    assert not hasattr(two, "info_")


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_described(name):
    factory = METHODS.factory(name)
    for parameter in inspect.signature(factory).parameters:
        assert f"{parameter}: " in inspect.getdoc(factory)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_rows_does_not_matter(name, acts):
    order = np.random.default_rng(0).permutation(len(acts.columns["label"]))
    shuffled = acts.where(order)
    assert_same_direction(fitted(name, shuffled).coef_, plain(name).coef_)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_shift_moves_the_center_and_not_the_direction(name, acts):
    shift = np.linspace(-3, 3, acts.model.width, dtype=np.float32)
    one, moved = plain(name), fitted(name, acts, X=acts.at(2) + shift)
    assert_same_direction(moved.coef_, one.coef_)
    np.testing.assert_allclose(moved.center_, one.center_ + shift, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_a_change_of_units_scales_the_center_and_not_the_direction(name, acts, factor):
    one, scaled = plain(name), fitted(name, acts, X=acts.at(2) * np.float32(factor))
    assert cosine(scaled.coef_[None], one.coef_[None])[0, 0] > 1 - 1e-5
    np.testing.assert_allclose(scaled.center_, one.center_ * factor, atol=1e-4 * factor)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("given", "found"), [("f2", np.float32), ("f4", np.float32), ("f8", np.float64)]
)
def test_half_floats_are_fitted_in_float32_and_doubles_in_double(name, acts, given, found):
    fit = fitted(name, acts, X=acts.at(2).astype(given))
    assert fit.coef_.dtype == found
    assert_same_direction(fit.coef_, plain(name).coef_, loss=1e-3)


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
    fact = np.unique(acts.columns["fact"], return_inverse=True)[1]
    turned = np.random.default_rng(1).random((fact.max() + 1, 5)) < 0.5
    Y = (acts.columns["label"] == 1)[:, None] ^ turned[fact]
    many = method.fit_many(acts.at(2), Y, **columns(acts))
    for labels, coef in zip(Y.T, many, strict=True):
        assert_same_direction(fitted(name, acts, y=labels).coef_, coef)


@pytest.mark.parametrize("name", NAMES)
def test_items_that_stand_once_with_each_label_give_no_direction_to_speak_of(name, acts):
    """Or a refusal; or what the sign rests on says that it rests on nothing."""
    rows = np.tile(np.arange(len(acts.columns["label"])), 2)
    twice = acts.where(rows)
    y = acts.columns["label"][rows] == np.repeat([1, 0], len(rows) // 2)
    try:
        fit = fitted(name, twice, y=y)
    except ValueError:
        return
    if np.linalg.norm(fit.coef_) < 1e-5 * np.linalg.norm(plain(name).coef_):
        return
    assert METHODS.factory(name).labels == "sign"
    assert fit.info_.get("accuracy", 0.5) == pytest.approx(0.5)
    assert fit.info_.get("label_difference", 0.0) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", [np.ones(640, bool), np.arange(640) % 3])
def test_labels_that_are_not_two_classes_are_refused(name, acts, labels):
    with pytest.raises(ValueError, match="labels"):
        fitted(name, acts, y=labels)


@pytest.mark.parametrize("name", NAMES)
def test_one_item_is_refused(name, acts):
    with pytest.raises(ValueError, match="labels are of one class; got 1 times"):
        fitted(name, acts.where(np.arange(1)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_counted_and_refused(name, acts, value):
    X = acts.at(2).copy()
    X[[7, 300], 5] = value
    with pytest.raises(ValueError, match="2 of 640 rows are not finite; the first is row 7"):
        fitted(name, acts, X=X)


@pytest.mark.parametrize("name", NAMES)
def test_other_numbers_of_labels_than_of_activations_are_refused(name, acts):
    with pytest.raises(ValueError, match=r"\(639, 24\) for 640 labels"):
        fitted(name, acts, X=acts.at(2)[1:])


@pytest.mark.parametrize("name", NAMES)
def test_a_column_that_a_method_needs_is_named_when_it_is_missing(name, acts):
    for column in METHODS.create(name).needs:
        with pytest.raises(ValueError, match=f"{name} needs {column}"):
            fitted(name, acts, **{column: None})


@pytest.mark.parametrize("name", NAMES)
def test_what_a_method_found_at_each_layer_outlives_its_file(name, acts, tmp_path):
    found = fit_layers(acts, method=name, layers=[2, 1], **COLUMNS)
    save_directions(found, tmp_path / "found.safetensors")
    again = open_directions(tmp_path / "found.safetensors")
    assert (again.names, again.layers) == (("label",), (2, 1))
    np.testing.assert_array_equal(again.vectors, found.vectors)
    np.testing.assert_array_equal(found.at(2)[0], plain(name).coef_)
    assert set(again.info) >= set(found.info)
    for key in plain(name).info_:
        np.testing.assert_array_equal(again.info[key], found.info[key])


def test_the_page_of_methods_has_a_row_for_each():
    own = [n for n in METHODS.names() if METHODS.factory(n).__module__.startswith("workbench.")]
    assert [name for name in own if f"\n| `{name}` |" not in PAGE] == []


def test_the_method_that_the_page_shows_is_one(acts, tmp_path, monkeypatch):
    monkeypatch.setattr(METHODS, "_factories", dict(METHODS._factories))
    file = tmp_path / "trimmed.py"
    file.write_text(PAGE.split("```python\n")[1].split("```")[0], encoding="utf-8")
    load_plugin(file)
    test_a_planted_axis_is_found_with_its_sign("trimmed", acts)
    test_swapped_labels_give_the_negated_direction_and_the_same_center("trimmed", acts)
    test_rows_that_are_not_finite_are_counted_and_refused("trimmed", acts, np.nan)
    assert fit_layers(acts, method="trimmed", **COLUMNS).info["method"] == "trimmed"
