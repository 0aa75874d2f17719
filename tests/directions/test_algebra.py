"""Sums, residuals and denoising: laws first, then what a planted axis says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import STAMP, Acts, planted

from workbench.directions import (
    Directions,
    fit_layers,
    open_directions,
    save_directions,
    thresholds,
)
from workbench.directions.algebra import (
    Difference,
    centered,
    combine,
    denoise,
    residualise,
    variance_along,
)
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.linalg import cosine, unit

D = STAMP.width


def directions(k=3, layers=(1, 2), seed=0, **fields):
    rng = np.random.default_rng(seed)
    fields = {"names": tuple("abcdefgh"[:k]), "model": STAMP, **fields}
    return Directions(layers=layers, vectors=rng.standard_normal((k, len(layers), D)), **fields)


def acts(n=200, layers=(1, 2), seed=0, scale=None, **columns):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((len(layers), n, D)) * (1 if scale is None else scale)
    ids = np.array([f"i{row}" for row in range(n)])
    return Acts(values.astype(np.float32), {"id": ids, **columns}, layers)


def test_a_weighted_sum_is_the_sum_of_the_weighted():
    found = directions()
    total = combine(found, {"a": 2, "c": -0.5}, name="sum")
    expected = 2 * found["a"].vectors - 0.5 * found["c"].vectors
    np.testing.assert_allclose(total.vectors, expected, rtol=1e-6)
    assert (total.names, total.info["weights"]) == (("sum",), {"a": 2.0, "c": -0.5})


def test_a_sum_of_units_does_not_care_how_long_the_parts_are():
    found = directions()
    weights = {"a": 1, "b": 1, "c": -1}
    once = combine(found, weights, name="s", unit_length=True)
    longer = combine(found * 30, weights, name="s", unit_length=True)
    np.testing.assert_allclose(once.vectors, longer.vectors, rtol=1e-5)
    np.testing.assert_allclose(
        once.vectors[0, 0], (unit(found.at(1)) * [[1], [1], [-1]]).sum(0), atol=1e-6
    )


def test_means_whose_weights_cancel_make_a_difference_and_others_a_mean():
    means = directions(kind="mean")
    assert combine(means, {"a": 1, "b": -1}, name="x").kind == "difference"
    assert combine(means, {"a": 0.5, "b": 0.5}, name="x").kind == "mean"


def test_an_unknown_name_or_no_weight_is_refused():
    with pytest.raises(UnknownNameError, match="'z'"):
        combine(directions(), {"z": 1}, name="x")
    with pytest.raises(ValueError, match="no weights"):
        combine(directions(), {}, name="x")


def test_centered_means_sum_to_nothing_and_forget_a_common_part():
    means = directions(kind="mean")
    common = np.random.default_rng(1).standard_normal(D) * 50
    moved = Directions(("a", "b", "c"), (1, 2), means.vectors + common, STAMP, kind="mean")
    assert np.abs(centered(means).vectors.sum(axis=0)).max() < 1e-5
    np.testing.assert_allclose(centered(moved).vectors, centered(means).vectors, atol=1e-4)
    assert centered(means).kind == "difference"
    with pytest.raises(ValueError, match="one name alone"):
        centered(means["a"])


def test_a_residual_is_orthogonal_to_every_nuisance_at_every_layer():
    left = residualise(directions(), [directions(2, seed=1), directions(1, seed=2)])
    for layer in (1, 2):
        nuisances = np.concatenate(
            [directions(2, seed=1).at(layer), directions(1, seed=2).at(layer)]
        )
        assert np.abs(cosine(left.at(layer), nuisances)).max() < 1e-6
    assert left.info["nuisances"] == ["a", "b", "a"]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5), st.booleans())
def test_residualising_twice_is_residualising_once(seed, count, renormalize):
    nuisances = directions(count, seed=seed + 1)
    once = residualise(directions(seed=seed), nuisances, renormalize=renormalize)
    twice = residualise(once, nuisances, renormalize=renormalize)
    np.testing.assert_allclose(twice.vectors, once.vectors, atol=1e-5)
    np.testing.assert_allclose(twice.info["retained"], 1, rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_retained_and_removed_squares_sum_to_one_for_one_nuisance(seed, size):
    found, nuisance = directions(seed=seed), directions(1, seed=seed + 1) * size
    retained = residualise(found, nuisance).info["retained"]
    removed = np.stack([cosine(found.at(l), nuisance.at(l))[:, 0] for l in (1, 2)])
    np.testing.assert_allclose(retained**2 + removed**2, 1, rtol=1e-5)


def test_renormalizing_keeps_the_length_and_the_line():
    found, nuisance = directions(), directions(1, seed=1)
    kept, short = (residualise(found, nuisance, renormalize=r) for r in (True, False))
    np.testing.assert_allclose(
        np.linalg.norm(kept.vectors, axis=-1), np.linalg.norm(found.vectors, axis=-1), rtol=1e-5
    )
    np.testing.assert_allclose(
        np.linalg.norm(short.vectors, axis=-1),
        short.info["retained"].T * np.linalg.norm(found.vectors, axis=-1),
        rtol=1e-5,
    )
    np.testing.assert_allclose(np.diag(cosine(kept.at(1), short.at(1))), 1, rtol=1e-5)
    assert (kept.info["renormalized"], short.info["renormalized"]) == (True, False)


def test_a_direction_within_the_nuisances_has_no_residual():
    found = directions()
    with pytest.raises(ConfigError, match="'a' at layer 1 lies in the removed span"):
        residualise(found, found["a"] * 3 + found["b"] * 0)
    with pytest.raises(ConfigError, match="lies in the removed span"):
        residualise(found["a"], [found["b"], found["a"] + found["b"]], renormalize=True)


def test_nuisances_of_another_site_or_without_a_layer_are_refused():
    with pytest.raises(MismatchError, match="site resid_post"):
        residualise(directions(), directions(1, site="mlp_out"))
    with pytest.raises(MismatchError, match="layer 2 is not held by all"):
        residualise(directions(), directions(1, layers=(1,)))


def test_nuisances_may_hold_more_layers_in_another_order():
    wide = directions(1, layers=(3, 2, 1), seed=4)
    left = residualise(directions(), wide)
    assert np.abs(cosine(left.at(2), wide.at(2))).max() < 1e-6


def loud(strong=3, size=10.0):
    """Neutral activations whose variance lies along the first axes."""
    scale = np.ones(D)
    scale[:strong] = size
    return acts(n=400, scale=scale)


def test_denoising_removes_the_loud_axes_and_says_how_many_and_how_much():
    found = denoise(directions(), loud(), explained=0.9)
    assert (found.info["components"] == 3).all()
    assert (found.info["explained"] > 0.9).all()
    removed = np.linalg.norm(found.vectors[..., :3], axis=-1) / np.linalg.norm(
        found.vectors, axis=-1
    )
    assert removed.max() < 0.1


def test_denoising_keeps_the_fewest_components_that_reach_the_share():
    for explained in (0.2, 0.5, 0.8):
        neutral = loud()
        found = denoise(directions(), neutral, explained=explained)
        for row, layer in enumerate((1, 2)):
            share = np.linalg.svd(neutral.at(layer) - neutral.at(layer).mean(0))[1] ** 2
            share = np.cumsum(share / share.sum())
            count = int(found.info["components"][row])
            assert share[count - 1] >= explained
            assert count == 1 or share[count - 2] < explained


def test_the_control_removes_a_random_subspace_of_the_same_rank():
    found = directions(8)
    real, control = (denoise(found, loud(), explained=0.9, control=c) for c in (None, 7))
    np.testing.assert_array_equal(real.info["components"], control.info["components"])
    assert np.mean(control.info["retained"] ** 2) == pytest.approx(1 - 3 / D, abs=0.05)
    again = denoise(found, loud(), explained=0.9, control=7)
    np.testing.assert_array_equal(again.vectors, control.vectors)
    assert np.abs(control.vectors[..., :3]).max() > 0.5


def test_a_direction_along_the_noise_loses_far_more_to_it_than_to_the_control():
    vectors = np.eye(D)[:1, None].repeat(2, 1) + 0.01
    along = Directions(("a",), (1, 2), vectors, STAMP)
    real, control = (denoise(along, loud(), explained=0.9, control=c) for c in (None, 3))
    assert real.info["retained"].max() < 0.2
    assert control.info["retained"].min() > 0.7


def test_the_share_of_variance_is_the_ratio_of_variances_and_isotropic_ones_get_1_over_d():
    table = variance_along(directions(1), acts(400), draws=300)
    assert table["share"].between(0.5 / D, 1.8 / D).all()
    assert (table["low"] < table["share"]).all()
    assert (table["share"] < table["high"]).all()
    assert set(table["unit"]) == {"item"}
    assert set(table["n"]) == {400}


def test_a_loud_axis_holds_more_variance_than_random_directions_do():
    loudest = Directions(("a",), (1, 2), np.eye(D)[:1, None].repeat(2, 1), STAMP)
    table = variance_along(loudest, loud(1), draws=300)
    assert table["share"].to_numpy() == pytest.approx(100 / (100 + D - 1), rel=0.15)
    assert (table["low"] > table["band"]).all()


def pair(shift, n=60, noise=0.0, seed=3):
    """Two models' activations of the same items, the second's in another order."""
    first, second = acts(n, seed=seed), acts(n, seed=seed)
    rng = np.random.default_rng(seed + 1)
    first.values += shift + noise * rng.standard_normal(first.values.shape).astype(np.float32)
    order = rng.permutation(n)
    second.values = second.values[:, order]
    second.columns = {name: values[order] for name, values in second.columns.items()}
    return first, second


def test_a_planted_shift_between_two_models_is_the_difference_whatever_the_order():
    shift = np.random.default_rng(5).standard_normal(D).astype(np.float32)
    first, second = pair(shift)
    found = Difference(first, second, "shift").directions()
    np.testing.assert_allclose(found.vectors[0], [shift, shift], atol=1e-5)
    turned = Difference(second, first, "shift").directions()
    np.testing.assert_allclose(turned.vectors, -found.vectors, atol=1e-6)


def test_a_difference_of_what_is_alike_at_every_layer_is_refused_with_both_names():
    first, second = pair(0.0)
    with pytest.raises(MismatchError, match=r"difference x: .*are alike on all 60 items at every"):
        Difference(first, second, "x").directions()


def test_a_difference_that_begins_at_a_later_layer_is_kept():
    first, second = pair(0.0)
    first.values[1] += 1
    vectors = Difference(first, second, "x").directions().vectors[0]
    assert not vectors[0].any()
    assert vectors[1].all()


def test_a_difference_of_other_prompts_is_refused():
    first, second = pair(0.0)
    with pytest.raises(MismatchError, match="59 ids are shared by the 59 items"):
        _ = Difference(first.where(np.arange(60) > 0), second, "x").rows
    second.columns["id"][:2] = "same"
    with pytest.raises(ConfigError, match="occur twice"):
        _ = Difference(first, second, "x").rows


def test_what_was_removed_and_how_much_is_left_survives_the_file(tmp_path):
    for made in (
        residualise(directions(), directions(2, seed=1)),
        denoise(directions(), loud()),
        denoise(directions(), loud(), control=4),
        combine(directions(), {"a": 1}, name="x"),
        Difference(*pair(1.0), "shift").directions(),
    ):
        save_directions(made, tmp_path / "made.safetensors")
        opened = open_directions(tmp_path / "made.safetensors")
        np.testing.assert_array_equal(opened.vectors, made.vectors)
        assert set(made.info) <= set(opened.info)
        for key, value in made.info.items():
            np.testing.assert_array_equal(opened.info[key], value)


def test_items_that_are_alike_have_no_variance_to_share():
    acts = planted(facts=3)
    own = fit_layers(acts, layers=[1])
    same = replace(acts, values=np.full_like(acts.values, 0.1))
    with pytest.raises(ConfigError, match="items are alike at layer 1"):
        variance_along(own, same)
    with pytest.raises(ConfigError, match="neutral activations at layer 1"):
        denoise(own, same)


def test_draws_of_one_item_over_and_over_do_not_count():
    """Of two items half of the draws hold one alone, which has no variance."""
    acts = planted(facts=3)
    two = acts.where(np.arange(len(acts.columns["label"])) < 2)
    found = variance_along(fit_layers(acts, layers=[1]), two, draws=50).iloc[0]
    assert found["low"] == pytest.approx(found["share"])
    assert found["high"] == pytest.approx(found["share"])


def test_one_group_has_no_interval():
    acts = planted(facts=3)
    acts = replace(acts, columns={**acts.columns, "one": np.zeros(len(acts.columns["label"]))})
    own = fit_layers(acts, layers=[1])
    share = variance_along(own, acts, groups="one").iloc[0]
    cap = thresholds(own, acts, 25, groups="one").table.iloc[0]
    for row in (share, cap):
        assert (row["n"], row["interval"]) == (1, "none: 1 one")
        assert np.isnan([row["low"], row["high"]]).all()


def test_no_nuisance_and_no_draws_are_a_wrong_call():
    acts = planted(facts=3)
    with pytest.raises(ValueError, match="nothing to remove"):
        residualise(fit_layers(acts), [])
    with pytest.raises(ValueError, match="draws 0"):
        thresholds(fit_layers(acts), acts, 25, draws=0)
