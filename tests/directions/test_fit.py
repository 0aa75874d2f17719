from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from planted import planted
from sklearn.base import BaseEstimator, clone

from workbench.directions import fit_layers, fit_map, fit_truth, read_recipe
from workbench.directions.fit import fit_many, read_columns, shuffled
from workbench.directions.paired import Paired
from workbench.directions.recipe import FitPart
from workbench.directions.ttpd import Ttpd
from workbench.errors import ConfigError, FormatError, UnknownNameError
from workbench.linalg import cosine

TRUTH = {"method": "ttpd", "groups": "topic", "polarity": "polarity"}


def with_column(acts, name, values):
    return replace(acts, columns={**acts.columns, name: np.asarray(values)})


def test_each_layer_is_fitted_alone_and_read_once():
    acts = planted()
    found = fit_layers(acts, layers=[3, 1], names=["truth"], **TRUTH)
    assert (found.names, found.layers, found.kind) == (("truth",), (3, 1), "difference")
    assert acts.reads == [3, 1]
    y = acts.columns["label"] == 1
    alone = Ttpd().fit(
        acts.at(1), y, groups=acts.columns["topic"], polarity=acts.columns["polarity"]
    )
    np.testing.assert_array_equal(found.at(1)[0], alone.coef_)
    np.testing.assert_array_equal(found.center[0, 1], alone.center_)
    np.testing.assert_allclose(found.info["t_P"][1], alone.info_["t_P"], rtol=1e-6)
    assert found.info["classifier"].shape == (2, 3)


def test_a_fit_says_what_it_was_made_of():
    acts = planted()
    found = fit_layers(acts, balance=True, **TRUTH)
    assert found.model == acts.model
    assert found.info["method"] == "ttpd"
    assert found.info["params"] == {"balance": True}
    assert found.info["columns"]["groups"] == "topic"
    assert (found.info["n"], found.info["n_true"]) == (640, 320)


def test_mean_residual_norms_come_with_the_activations_or_not_at_all():
    acts = planted()
    assert fit_layers(acts).norms is None
    acts.norms = np.stack([np.full(640, 10.0 + layer) for layer in range(4)])
    assert fit_layers(acts, layers=[2, 0]).norms.tolist() == [12, 10]


def test_labels_may_be_booleans_integers_or_floats():
    acts = planted()
    label = acts.columns["label"]
    plain = fit_layers(acts).vectors
    for kind in (bool, float, np.int8):
        assert np.array_equal(
            fit_layers(with_column(acts, "label", label.astype(kind))).vectors, plain
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(640, int), r"column 'label' holds one class alone \(640 times 1\)"),
        (np.arange(640) % 3, r"column 'label' holds 3 values: 0 \(214\), 1 \(213\), 2 \(213\)"),
        (np.where(np.arange(640) % 2, "yes", "no"), r"'no' \(320\), 'yes' \(320\)"),
        (np.where(np.arange(640) % 2, np.nan, 1.0), "no value for 320 of 640 items"),
    ],
)
def test_labels_that_are_not_two_classes_are_named_with_their_counts(values, message):
    acts = with_column(planted(), "label", values)
    with pytest.raises(ConfigError, match=message):
        fit_layers(acts)
    assert acts.reads == []


def test_a_missing_column_is_named_with_those_that_exist():
    with pytest.raises(ConfigError, match="no column 'truth'; columns: topic, fact"):
        fit_layers(planted(), y="truth")


def test_a_method_says_which_column_it_needs():
    with pytest.raises(ConfigError, match="method 'ttpd' needs polarity"):
        fit_layers(planted(), method="ttpd")


def test_polarity_must_be_plus_or_minus_one():
    acts = with_column(planted(), "polarity", np.arange(640) % 2)
    with pytest.raises(ConfigError, match=r"column 'polarity' holds \[0, 1\]"):
        fit_layers(acts, **TRUTH)


def test_an_unknown_method_or_layer_is_refused_with_what_there_is():
    with pytest.raises(UnknownNameError, match="mass_mean"):
        fit_layers(planted(), method="mass_men")
    with pytest.raises(ConfigError, match=r"layer 9 was not captured; .* 0, 1, 2, 3"):
        fit_layers(planted(), layers=[9])


def test_activations_of_every_token_are_refused():
    acts = planted()
    acts.values = np.repeat(acts.values, 2, axis=1)
    with pytest.raises(ConfigError, match="layer 0 holds 1280 vectors, column 'topic' 640 items"):
        fit_layers(acts)


def test_activations_that_are_not_finite_are_counted_and_refused():
    acts = planted()
    acts.values[2, [5, 9], 0] = np.inf
    with pytest.raises(FormatError, match=r"layer 2: 2 of 640 rows are not finite .* row 5"):
        fit_layers(acts)
    fit_layers(acts, layers=[0, 1])


def test_a_method_of_several_directions_extends_the_name_or_takes_as_many():
    acts, two = planted(), {"method": "pca", "pairs": "fact", "components": 2, "layers": [2, 0]}
    found = fit_layers(acts, **two)
    assert found.names == ("label:pc1", "label:pc2")
    assert found.vectors.shape == found.center.shape == (2, 2, 24)
    assert found.info["explained"].shape == (2, 2)
    one = fit_layers(acts, method="pca", pairs="fact", layers=[2, 0])
    np.testing.assert_array_equal(found["label:pc1"].vectors, one.vectors)
    assert fit_layers(acts, names=["truth", "rest"], **two).names == ("truth", "rest")
    with pytest.raises(ConfigError, match=r"3 names \(a, b, c\) for 2 directions"):
        fit_layers(acts, names=["a", "b", "c"], **two)


def test_text_that_a_method_says_of_itself_is_kept_once():
    found = fit_layers(planted(), whiten=True, layers=[1, 2])
    assert found.info["scope"].startswith("in distribution only")
    assert found.select([2]).info["scope"] == found.info["scope"]


def test_a_parameter_that_a_method_lacks_is_named_with_those_it_has():
    with pytest.raises(ConfigError, match="'ttpd' has no parameter 'center'; it has balance"):
        fit_layers(planted(), center=True, **TRUTH)
    with pytest.raises(ConfigError, match="'paired' has no parameter 'balance'; it has none"):
        fit_layers(planted(), method="paired", pairs="fact", balance=True)


def test_what_a_method_refuses_is_said_with_its_name_and_the_layer():
    with pytest.raises(ConfigError, match="'lda' at layer 0: shrinkage 2"):
        fit_layers(planted(), method="lda", shrinkage=2)


def test_a_method_that_gives_maps_is_refused(monkeypatch):
    monkeypatch.setattr(Ttpd, "gives", "map", raising=False)
    with pytest.raises(ConfigError, match=r"gives a map, not a direction; .* Python wb\.fit_map"):
        fit_layers(planted(), **TRUTH)


def test_pairs_reach_the_method_that_needs_them():
    acts = planted()
    with pytest.raises(ConfigError, match="'paired' needs pairs; name its column: --pairs COLUMN"):
        fit_layers(acts, method="paired")
    found = fit_layers(acts, method="paired", pairs="fact")
    assert found.info["columns"]["pairs"] == "fact"
    assert found.info["n_pairs"].tolist() == [160] * 4


@pytest.mark.parametrize("method", [Ttpd(), Paired()])
def test_many_labelings_are_fitted_at_once_with_their_columns(method):
    acts = planted(facts=10)
    y, polarity = acts.columns["label"] == 1, acts.columns["polarity"]
    columns = {"groups": acts.columns["topic"], "polarity": polarity, "pairs": acts.columns["fact"]}
    Y = np.stack([y, ~y, y ^ (polarity < 0)], axis=1)
    found = fit_many(method, acts.at(2), Y, columns)
    for labels, coef in zip(Y.T, found, strict=True):
        np.testing.assert_allclose(
            clone(method).fit(acts.at(2), labels, **columns).coef_, coef, atol=1e-5
        )


def test_a_method_that_fits_one_labeling_at_a_time_is_fitted_to_each():
    class Lone(BaseEstimator):
        def fit(self, X, y, *, groups=None, polarity=None, pairs=None):
            self.coef_ = X[y].sum(axis=0) + len(groups)
            return self

    X, Y = np.arange(12.0).reshape(4, 3), np.array([[1, 0], [0, 1], [1, 1], [0, 0]], bool)
    columns = {"groups": np.arange(4), "polarity": None, "pairs": None}
    np.testing.assert_array_equal(fit_many(Lone(), X, Y, columns), Y.T @ X + 4)


def test_shuffled_labels_keep_every_group_polarity_and_pair():
    acts = planted()
    columns = read_columns(acts, y="label", groups="topic", polarity="polarity", pairs="fact")
    drawn = shuffled(columns, seed=3)
    cells = pd.DataFrame({**acts.columns, "drawn": drawn})
    by_pair = cells.groupby(["topic", "polarity", "fact"])["drawn"].agg(["sum", "size"])
    assert (by_pair["sum"] * 2 == by_pair["size"]).all()
    assert 0.3 < np.mean(drawn == columns.y) < 0.7
    assert (shuffled(columns, seed=3) == drawn).all()
    assert (shuffled(columns, seed=4) != drawn).any()


def test_a_fit_to_shuffled_labels_loses_the_planted_direction_and_says_so():
    acts = planted()
    own, null = (fit_layers(acts, layers=[2], shuffle=seed, **TRUTH) for seed in (None, 0))
    assert abs(cosine(own.at(2), np.eye(24)[:1])) > 0.9
    assert abs(cosine(null.at(2), np.eye(24)[:1])) < 0.6
    assert (null.info["shuffle"], null.info["n_true"]) == (0, own.info["n_true"])
    assert "shuffle" not in own.info


def test_labels_that_may_not_trade_are_not_called_shuffled():
    """A group of one label each, or pairs of a statement and its negation: nothing may move."""
    acts = planted()
    role = np.where(acts.columns["label"] == 1, "default", "bard")
    with pytest.raises(ConfigError, match="shuffled labels would be the labels"):
        fit_layers(replace(acts, columns={**acts.columns, "role": role}), groups="role", shuffle=0)
    content = (acts.columns["label"] == 1) == (acts.columns["polarity"] == 1)
    twins = acts.where(content)
    with pytest.raises(ConfigError, match="shuffled labels would be the labels"):
        fit_layers(twins, method="paired", pairs="fact", polarity="polarity", shuffle=0)
    moved = fit_layers(twins, method="paired", pairs="fact", shuffle=0)
    assert not np.allclose(moved.vectors, fit_layers(twins, method="paired", pairs="fact").vectors)


@pytest.mark.parametrize("empty", [None, float("nan")])
def test_an_item_without_a_group_or_label_is_named(empty):
    acts = planted()
    topic = acts.columns["topic"].astype(object)
    topic[3] = empty
    label = acts.columns["label"].astype(object)
    label[3] = empty
    right = acts.columns["label"]
    gap = replace(acts, columns={**acts.columns, "topic": topic, "label": label, "right": right})
    for call in (
        lambda: fit_layers(gap),
        lambda: fit_layers(gap, y="right", groups="topic"),
        lambda: fit_layers(gap, y="right", method="paired", pairs="topic"),
    ):
        with pytest.raises(ConfigError, match=r"no value for 1 of 640 items .*item 3"):
            call()
    whole = acts.columns["label"].astype(object)
    found = fit_layers(replace(acts, columns={**acts.columns, "label": whole}))
    np.testing.assert_array_equal(found.vectors, fit_layers(acts).vectors)


@pytest.mark.parametrize("layers", [[], [1, 1]])
def test_layers_are_some_and_each_once(layers):
    with pytest.raises(ConfigError, match="name at least one block, each once"):
        fit_layers(planted(), layers=layers)


def test_half_a_layer_is_no_layer():
    with pytest.raises(TypeError):
        fit_layers.__wrapped__(planted(), layers=[1.7])


def test_one_name_may_be_given_as_it_is():
    assert fit_layers(planted(), names="truth").names == ("truth",)


@pytest.mark.parametrize("method", ["mass_mean", "lda", "logistic", "ttpd", "paired", "pca", "ccs"])
def test_states_that_are_all_the_same_give_no_direction(method):
    acts = planted()
    same = replace(acts, values=np.ones_like(acts.values))
    with pytest.raises(ConfigError, match=f"method '{method}' at layer 0"):
        fit_layers(same, method=method, pairs="fact", polarity="polarity")


@pytest.mark.parametrize("method", ["bipo", "loreft"])
@pytest.mark.parametrize("way", ["layers", "map", "truth"])
def test_a_method_that_a_model_trains_is_not_fitted_to_activations(method, way):
    acts = planted()
    recipe = read_recipe("truth").model_copy(update={"fit": FitPart(method=method, y="label")})
    ways = {
        "layers": lambda: fit_layers(acts, method=method),
        "map": lambda: fit_map(acts, method=method),
        "truth": lambda: fit_truth(acts, recipe),
    }
    with pytest.raises(ConfigError, match=r"trained by a model .* wb.fit_trained"):
        ways[way]()
