from dataclasses import replace

import numpy as np
import pytest
from planted import STAMP, Acts, planted

from workbench.directions import Directions, stack
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.types import DirectionsLike

RNG = np.random.default_rng(3)


def make(names=("anger", "joy"), layers=(1, 3), **fields):
    vectors = RNG.standard_normal((len(names), len(layers), STAMP.width))
    return Directions(tuple(names), tuple(layers), vectors, STAMP, **fields)


def test_directions_are_what_the_edits_and_sweeps_ask_for():
    assert isinstance(make(), DirectionsLike)


def test_a_name_picks_one_direction_and_an_unknown_name_tells_the_near_ones():
    both = make(center=RNG.standard_normal((2, 2, STAMP.width)))
    assert both["joy"].names == ("joy",)
    assert np.array_equal(both["joy"].vectors[0], both.vectors[1])
    assert np.array_equal(both["joy"].center[0], both.center[1])
    assert both["joy", "anger"].names == ("joy", "anger")
    with pytest.raises(UnknownNameError, match="'anger'"):
        both["angr"]


def test_a_layer_is_a_block_index_not_a_row():
    both = make(norms=np.array([10.0, 20.0]))
    assert np.array_equal(both.at(3), both.vectors[:, 1])
    assert both.select([3]).norms.tolist() == [20.0]
    assert np.array_equal(both.select([3, 1]).vectors[:, 0], both.vectors[:, 1])
    told = replace(both, info={"bias": np.array([0.1, 0.3]), "method": "ttpd"})
    assert told.select([3]).info == {"bias": np.array([0.3]), "method": "ttpd"}
    with pytest.raises(ConfigError, match="no layer 2; it holds layers 1, 3"):
        both.at(2)


def test_a_projection_is_in_residual_units_whatever_the_length_of_the_vector():
    acts, both = planted(), make()
    found = both.project(acts)
    assert found.shape == (2, 2, len(acts.columns["label"]))
    v = both.at(3)[1] / np.linalg.norm(both.at(3)[1])
    np.testing.assert_allclose(found[1, 1], acts.at(3) @ v, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((both * 7).project(acts), found, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((-both).project(acts), -found, rtol=1e-4, atol=1e-4)


def test_a_centered_projection_is_zero_at_the_center():
    both = make()
    center = RNG.standard_normal((2, 2, STAMP.width)).astype(np.float32)
    both = replace(both, center=center)
    for name in range(2):
        at_center = Acts(np.repeat(center[name], 1, 0)[:, None], {}, (1, 3))
        np.testing.assert_allclose(both.project(at_center, centered=True)[name], 0, atol=1e-5)
    with pytest.raises(ValueError, match="no center"):
        make().project(planted(), centered=True)


def test_half_float_activations_are_projected_in_float32():
    acts = Acts(np.full((1, 1, STAMP.width), 60000, np.float16), {}, (1,))
    ones = Directions(("up",), (1,), np.ones((1, 1, STAMP.width)), STAMP)
    np.testing.assert_allclose(ones.project(acts), 60000 * np.sqrt(STAMP.width), rtol=1e-3)


@pytest.mark.parametrize(
    ("field", "value"),
    [("model_type", "qwen3"), ("n_layers", 7), ("width", 25), ("tokenizer", "other")],
)
def test_activations_of_another_model_are_refused_with_the_field_named(field, value):
    acts = replace(planted(), model=replace(STAMP, **{field: value}))
    with pytest.raises(MismatchError, match=f"directions anger, joy was made with tiny .{field}"):
        make().project(acts)


def test_an_organism_of_the_same_model_is_allowed():
    acts = replace(planted(), model=replace(STAMP, key="tiny+s0", fingerprint="0" * 16))
    assert np.isfinite(make().project(acts)).all()


def test_another_site_or_a_missing_layer_is_refused():
    with pytest.raises(MismatchError, match=r"resid_post.*mlp_out"):
        make().project(replace(planted(), site="mlp_out"))
    with pytest.raises(MismatchError, match="holds layer 5, these activations do not"):
        make(layers=(1, 5)).project(planted())


def test_algebra_is_that_of_the_vectors():
    a, b = make(), make()
    np.testing.assert_allclose((2 * a - b / 4).vectors, 2 * a.vectors - b.vectors / 4, rtol=1e-6)
    np.testing.assert_allclose((a + b - b).vectors, a.vectors, atol=1e-6)
    assert (a + b).names == ("anger", "joy")
    one = make(names=("calm",))
    assert (a - one).names == ("anger-calm", "joy-calm")
    np.testing.assert_allclose((one + a).vectors, one.vectors + a.vectors)


def test_a_mean_minus_a_mean_is_a_difference_and_scaling_keeps_the_kind():
    mean, difference = make(kind="mean"), make()
    assert (mean - mean).kind == "difference"
    assert (mean + difference).kind == (mean * 2).kind == "mean"
    assert (difference - difference).kind == "difference"


def test_norms_survive_only_where_both_sides_agree():
    a, b = make(norms=np.array([1.0, 2.0])), make(norms=np.array([1.0, 3.0]))
    assert (a + a).norms.tolist() == [1.0, 2.0]
    assert (a + b).norms is None


@pytest.mark.parametrize(
    ("change", "field"), [({"layers": (1, 2)}, "layers"), ({"site": "x"}, "site")]
)
def test_unlike_directions_do_not_combine(change, field):
    with pytest.raises(MismatchError, match=f"has {field}"):
        make() + replace(make(), **change)
    with pytest.raises(MismatchError, match=f"has {field}"):
        stack([make(), replace(make(names=("a", "b")), **change)])


def test_two_do_not_pair_with_three():
    with pytest.raises(MismatchError, match="2 directions do not pair with 3"):
        make() + make(names=("a", "b", "c"))


def test_a_stack_keeps_every_name_and_refuses_a_name_twice():
    both = stack([make(names=("a",)), make(names=("b", "c"))])
    assert both.names == ("a", "b", "c")
    assert both.vectors.shape == (3, 2, STAMP.width)
    with pytest.raises(ValueError, match="must differ"):
        stack([make(), make()])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vectors": np.zeros((1, 2, STAMP.width))}, "expected .2, 2, 24."),
        ({"layers": (1, 6)}, "blocks 0 to 5"),
        ({"layers": (1, 1)}, "layers must differ"),
        ({"kind": "sum"}, "difference, mean"),
        ({"norms": np.zeros(3)}, "norms"),
        ({"info": {"t_P": np.zeros(24)}}, "the first axis is 2 layers"),
        ({"vectors": np.full((2, 2, STAMP.width), np.nan)}, "not finite"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(make(), **fields)


def test_a_printed_set_says_what_it_holds_and_no_numbers():
    said = repr(make())
    assert len(said) < 200
    assert "array" not in said
    assert make().model.key in said


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("norms", np.array([np.nan, 1.0]), "norms that are not finite"),
        ("norms", np.array([0.0, 1.0]), "mean residual norms are above 0"),
        ("norms", np.array([-1.0, 1.0]), "mean residual norms are above 0"),
        ("center", np.full((2, 2, STAMP.width), np.inf), "center that are not finite"),
        ("names", ("", "joy"), "must be texts"),
    ],
)
def test_what_stands_beside_the_vectors_is_checked_too(field, value, message):
    with pytest.raises(ValueError, match=message):
        replace(make(), **{field: value})


def test_nothing_is_no_stack():
    with pytest.raises(ValueError, match="at least one"):
        stack([])
