"""The container of maps: what it holds, what it does to arrays, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from planted import STAMP, planted

from workbench.directions.linear_map import LinearMap
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.linalg import cosine
from workbench.types import DirectionsLike

D = STAMP.width


def whole(layers=(1, 3), seed=0, **fields):
    rng = np.random.default_rng(seed)
    l = len(layers)
    return LinearMap(
        name="trust",
        layers=tuple(layers),
        W=rng.standard_normal((l, D, D)),
        b=rng.standard_normal((l, D)),
        axis=rng.standard_normal((l, D)),
        model=STAMP,
        **fields,
    )


def low(layers=(1, 3), rank=2, seed=0, **fields):
    rng = np.random.default_rng(seed)
    l = len(layers)
    return LinearMap(
        name="trust",
        layers=tuple(layers),
        left=rng.standard_normal((l, D, rank)),
        right=rng.standard_normal((l, rank, D)),
        b=rng.standard_normal((l, D)),
        axis=rng.standard_normal((l, D)),
        model=STAMP,
        **fields,
    )


@pytest.fixture(params=[whole, low], ids=["whole", "low"])
def make(request):
    return request.param


@pytest.fixture(name="X")
def some_states():
    return np.random.default_rng(9).standard_normal((5, D))


def test_a_map_is_what_the_interventions_and_sweeps_ask_for(make):
    found = make()
    assert isinstance(found, DirectionsLike)
    assert found.names == ("trust",)
    assert found["trust"] is found
    assert np.array_equal(found.vectors[0], found.axis)
    with pytest.raises(UnknownNameError, match="'trust'"):
        found["trsut"]


def test_a_dose_moves_states_by_that_part_of_w_h_plus_b(make, X):
    found = make()
    moved = X @ found.matrix(3).astype(float).T + found.b[1]
    np.testing.assert_allclose(found.displacement(X, 3), moved, atol=1e-5)
    for dose in (1, -0.5, 2.0):
        np.testing.assert_allclose(found.apply(X, 3, dose), X + dose * moved, atol=1e-5)
    assert np.array_equal(found.apply(X, 3, 0.0), X)
    np.testing.assert_allclose((found * 0.5).apply(X, 3), found.apply(X, 3, 0.5), atol=1e-6)
    np.testing.assert_allclose((-found).apply(X, 3), found.apply(X, 3, -1), atol=1e-6)
    np.testing.assert_array_equal((-found).axis, -found.axis)


def test_both_ways_of_holding_a_map_do_the_same(X):
    found = low()
    laid = replace(
        found, left=None, right=None, W=np.stack([found.matrix(layer) for layer in found.layers])
    )
    np.testing.assert_allclose(laid.apply(X, 1), found.apply(X, 1), atol=1e-5)
    assert (laid.rank, found.rank) == (D, 2)
    assert (laid.kind, found.kind) == ("whole", "rank 2")


def test_half_floats_are_moved_in_float32(make):
    X = np.full((1, D), 60000, np.float16)
    assert np.isfinite(make().apply(X, 1)).all()


def test_a_layer_is_a_block_index_not_a_row(make, X):
    found = make(norms=np.array([10.0, 20.0]), info={"lam": np.array([1.0, 2.0]), "method": "x"})
    one = found.select([3])
    assert one.layers == (3,)
    assert one.norms.tolist() == [20.0]
    assert one.info == {"lam": np.array([2.0]), "method": "x"}
    np.testing.assert_array_equal(one.apply(X, 3), found.apply(X, 3))
    np.testing.assert_array_equal(found.select([3, 1]).b, found.b[::-1])
    for ask in (found.weights, lambda layer: found.select([layer]), found.matrix):
        with pytest.raises(ConfigError, match="map trust holds no layer 2; it holds layers 1, 3"):
            ask(2)


def test_the_weights_of_a_layer_are_one_object_without_a_copy(make):
    found = make()
    assert found.weights(3) is found.weights(3)
    for name, value in found.weights(3).items():
        assert np.shares_memory(value, getattr(found, name))


def test_a_rotated_map_moves_every_state_as_far_another_way(make, X):
    found = make()
    turned = found.rotated(0)
    for layer in found.layers:
        was, now = found.displacement(X, layer), turned.displacement(X, layer)
        np.testing.assert_allclose(
            np.linalg.norm(now, axis=1), np.linalg.norm(was, axis=1), rtol=1e-4
        )
        np.testing.assert_allclose(now @ now.T, was @ was.T, rtol=1e-3, atol=1e-3)
        assert np.abs(np.diag(cosine(now, was))).max() < 0.9
    assert turned.rank == found.rank
    np.testing.assert_array_equal(found.rotated(0).b, turned.b)
    assert not np.allclose(found.rotated(1).b, turned.b)


def test_rotations_are_uniform_over_directions(make):
    found = make(layers=(1,))
    drawn = np.stack([found.rotated(seed).b[0] for seed in range(400)]) / np.linalg.norm(found.b[0])
    np.testing.assert_allclose(drawn.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(drawn.T @ drawn / 400, np.eye(D) / D, atol=0.02)


def test_a_rotation_depends_on_the_layer_not_on_what_else_is_held(make):
    found = make()
    np.testing.assert_allclose(found.rotated(4).b[1], found.select([3]).rotated(4).b[0], atol=1e-6)


def test_activations_of_another_model_or_site_are_refused(make):
    acts = planted()
    make().refuse_other(acts)
    with pytest.raises(MismatchError, match=r"map trust was made with tiny .width"):
        make().refuse_other(replace(acts, model=replace(STAMP, width=25)))
    with pytest.raises(MismatchError, match=r"resid_post.*mlp_out"):
        make().refuse_other(replace(acts, site="mlp_out"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"b": np.zeros((3, D))}, r"b has shape \(3, 24\); expected \(2, 24\)|violates type hint"),
        ({"W": np.zeros((2, D, D - 1))}, r"W has shape|violates type hint"),
        ({"W": None}, "give W, or left and right"),
        ({"left": np.zeros((2, D, 2))}, "give W, or left and right"),
        ({"W": None, "left": np.zeros((2, D, 2))}, "give W, or left and right"),
        ({"left": np.zeros((2, D, 2)), "right": np.zeros((2, 2, D))}, "not both"),
        ({"layers": (1, 6)}, "blocks 0 to 5"),
        ({"layers": (1, 1)}, "layers must differ"),
        ({"norms": np.zeros(3)}, "norms"),
        ({"name": ""}, "needs a name"),
        ({"info": {"lam": np.zeros(5)}}, "the first axis is 2 layers"),
        ({"W": np.full((2, D, D), np.inf)}, "W holds numbers that are not finite"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(whole(), **fields)


def test_a_left_side_that_does_not_meet_the_right_is_refused():
    with pytest.raises((ValueError, TypeError)):
        replace(low(), left=np.zeros((2, D, 3)))
    with pytest.raises((ValueError, TypeError)):
        replace(low(), left=np.zeros((2, D, 0)), right=np.zeros((2, 0, D)))


def test_a_printed_map_says_what_it_holds_and_no_numbers(make):
    said = repr(make())
    assert len(said) < 200
    assert "array" not in said
    assert "trust" in said


def test_norms_that_are_not_above_zero_are_refused():
    with pytest.raises(ValueError, match="mean residual norms are above 0"):
        replace(low(), norms=np.zeros(2))
