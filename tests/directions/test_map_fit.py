"""From activations with columns to a map: one fit a layer, and mistakes named."""

from dataclasses import replace

import numpy as np
import pytest
from planted import STAMP, Acts, planted
from sklearn.base import BaseEstimator

from workbench.directions import Directions
from workbench.directions.map_fit import fit_map
from workbench.directions.ridge_map import RidgeMap
from workbench.errors import ConfigError, FormatError, MismatchError, UnknownNameError
from workbench.registry import METHODS, needs_model

NAMES = [
    name
    for name in METHODS.names()
    if getattr(METHODS.factory(name), "gives", "") == "map"
    and not needs_model(METHODS.factory(name))
]
PARAMS = {"null_space": {"share": 0.5}}


@pytest.fixture(scope="module")
def acts():
    found = planted()
    pair = [
        f"{fact}{p}"
        for fact, p in zip(found.columns["fact"], found.columns["polarity"], strict=True)
    ]
    columns = {**found.columns, "pair": np.array(pair)}
    norms = np.tile(np.arange(1.0, 5)[:, None], (1, len(pair)))
    found = replace(found, columns=columns)
    found.norms = norms
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_holds_what_its_own_fit_learned(name, acts):
    params = PARAMS.get(name, {})
    found = fit_map(acts, method=name, pairs="pair", layers=[3, 1], name="truth", **params)
    y, pairs = acts.columns["label"] == 1, acts.columns["pair"]
    assert (found.name, found.layers, found.norms.tolist()) == ("truth", (3, 1), [4, 2])
    for layer in (1, 3):
        one = METHODS.create(name, **params).fit(acts.at(layer), y, pairs=pairs)
        moved = one.displacement(acts.at(layer))
        np.testing.assert_allclose(found.displacement(acts.at(layer), layer), moved, atol=1e-4)
        row = found.layers.index(layer)
        np.testing.assert_allclose(found.axis[row], one.axis_, atol=1e-5)
        for key, value in one.info_.items():
            np.testing.assert_allclose(found.info[key][row], value, rtol=1e-5)
    assert found.info["method"] == name
    assert found.info["columns"]["pairs"] == "pair"
    assert (found.info["n"], found.info["n_true"]) == (640, 320)


def test_layers_are_read_one_at_a_time(acts):
    acts.reads.clear()
    fit_map(acts, method="leace")
    assert acts.reads == [0, 1, 2, 3]


def test_a_target_differs_by_layer():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((1, 4, STAMP.width))
    target = Directions(("refusal",), (0, 1, 2, 3), vectors, STAMP)
    X = rng.standard_normal((2, 20, STAMP.width)).astype(np.float32)
    acts = Acts(X, {"label": np.arange(20) >= 10}, layers=(1, 3))
    found = fit_map(acts, method="null_space", target=target)
    for layer in (1, 3):
        moved = found.displacement(acts.at(layer), layer)
        np.testing.assert_allclose(moved[:10], 0, atol=1e-5)
        np.testing.assert_allclose(moved[10:], np.tile(target.at(layer)[0], (10, 1)), atol=0.1)
    assert found.info["target"] == "direction refusal"
    with pytest.raises(ConfigError, match="'leace' has no target"):
        fit_map(acts, method="leace", target=target)
    wider = Directions(("refusal",), (1, 3), np.ones((1, 2, 25)), replace(STAMP, width=25))
    with pytest.raises(MismatchError, match="width"):
        fit_map(acts, method="null_space", target=wider)


def test_mistakes_are_named(acts):
    with pytest.raises(
        ConfigError, match=r"'mass_mean' gives a direction, not a map; use .* wb\.fit"
    ):
        fit_map(acts, method="mass_mean")
    with pytest.raises(ConfigError, match=r"'ridge_map' needs pairs; name its column"):
        fit_map(acts, method="ridge_map")
    with pytest.raises(ConfigError, match="no column 'pears'"):
        fit_map(acts, method="ridge_map", pairs="pears")
    with pytest.raises(ConfigError, match="a pair is one of each"):
        fit_map(acts, method="ridge_map", pairs="topic")
    with pytest.raises(ConfigError, match="layer 9 was not captured"):
        fit_map(acts, method="leace", layers=[9])
    with pytest.raises(ConfigError, match="'reduced_rank' at layer 0: 99 axes asked for"):
        fit_map(acts, method="reduced_rank", pairs="pair", rank=99)
    with pytest.raises(UnknownNameError, match="ridge_map"):
        fit_map(acts, method="ridge_mop")
    broken = replace(acts, values=np.where(np.arange(640)[:, None] == 5, np.nan, acts.values))
    with pytest.raises(FormatError, match="1 of 640 rows are not finite"):
        fit_map(broken, method="leace")


def test_a_ridge_of_ones_own_reaches_the_method(acts):
    found = fit_map(acts, method="ridge_map", pairs="pair", layers=[2], ridge=5.0)
    y = acts.columns["label"] == 1
    alone = RidgeMap(ridge=5.0).fit(acts.at(2), y, pairs=acts.columns["pair"])
    np.testing.assert_allclose(found.matrix(2), alone.W_, atol=1e-6)
    assert found.info["params"] == {"ridge": 5.0}


def test_a_method_of_ones_own_needs_no_base_class(acts, monkeypatch):
    class Half(BaseEstimator):
        gives = "map"

        def fit(self, X, y, *, groups=None, polarity=None, pairs=None):
            d = X.shape[1]
            self.W_, self.b_ = -0.5 * np.eye(d), np.zeros(d)
            self.axis_ = X[y].mean(0) - X[~y].mean(0)
            return self

    monkeypatch.setattr(METHODS, "_factories", {**METHODS._factories, "half": Half})
    found = fit_map(acts, method="half", layers=[1])
    np.testing.assert_allclose(found.apply(acts.at(1), 1), acts.at(1) / 2)
