"""Thresholds and norms from stored activations, with their signs, units and rows."""

import numpy as np
import pytest
import torch
from planted import STAMP, Acts

import workbench as wb
from workbench.directions import Directions
from workbench.directions.calibrate import matched, residual_norms, thresholds, with_norms
from workbench.directions.rows import read_items, read_rows
from workbench.errors import ConfigError, MismatchError
from workbench.interventions import Intervention

D = STAMP.width


class Ragged(Acts):
    """Every token of every item, one row a token."""

    offsets: np.ndarray


def axis(sign=1.0, layers=(1, 2), name="axis"):
    vectors = np.zeros((1, len(layers), D))
    vectors[..., 0] = 3.0 * sign
    return Directions((name,), layers, vectors, STAMP)


def acts(n=500, layers=(1, 2), seed=0, **columns):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((len(layers), n, D)).astype(np.float32)
    ids = np.array([f"i{row}" for row in range(n)])
    return Acts(values, {"id": ids, **columns}, layers)


def ragged(counts=(3, 5, 4, 6), layers=(1, 2), sink=1000.0):
    total = sum(counts)
    one = acts(total, layers)
    made = Ragged(one.values, {"id": np.array([f"i{i}" for i in range(len(counts))])}, layers)
    made.offsets, made.position = np.concatenate([[0], np.cumsum(counts)]), "all"
    made.values[:, made.offsets[:-1]] = sink
    return made


def test_a_threshold_is_the_percentile_of_the_coordinate_on_the_unit_direction():
    found = thresholds(axis(), acts(), 25)
    for layer in (1, 2):
        assert found[layer] == pytest.approx(np.percentile(acts().at(layer)[:, 0], 25), abs=1e-6)
    table = found.table.iloc[0]
    assert table["low"] < table["threshold"] < table["high"]
    assert (table["n"], table["unit"], table["n_rows"]) == (500, "item", 500)
    assert repr(found) == "Thresholds(axis: 25% along direction, 2 layers, n = 500 items at last)"


def test_a_floor_on_an_axis_is_a_ceiling_on_its_opposite():
    """The released caps: the 25th percentile along role minus default is a floor on the axis."""
    toward, away = axis(), axis(-1.0)
    floor = thresholds(toward, acts(), 25, along="opposite")
    ceiling = thresholds(away, acts(), 25)
    for layer in (1, 2):
        assert floor[layer] == pytest.approx(-ceiling[layer], abs=1e-5)
        assert floor[layer] == pytest.approx(thresholds(toward, acts(), 75)[layer], abs=1e-6)
        assert floor[layer] > 0
    assert (floor.table["low"] < floor.table["high"]).all()


def test_thresholds_go_into_a_cap_as_they_are_and_move_the_share_they_say():
    one = acts()
    floor = thresholds(axis(), one, 25)
    (first, second) = Intervention.cap(axis(), floor=floor).arm(STAMP)
    assert (first.rows["floor"], second.rows["floor"]) == (floor[1], floor[2])
    h = torch.tensor(one.at(1))[None]
    capped = first.edit(
        h, torch.tensor(first.v)[None], torch.ones(1),
        floor=torch.tensor([first.rows["floor"]]), ceiling=torch.tensor([np.inf]),
    )  # fmt: skip
    moved = (capped != h).any(dim=-1).float().mean()
    assert moved == pytest.approx(0.25, abs=0.005)
    table = floor.beyond(axis(), one).set_index("layer")
    assert table.loc[1, "below"] == pytest.approx(float(moved), abs=1e-6)
    assert table.loc[1, "above"] == pytest.approx(0.75, abs=0.005)


def across(seed=0):
    vectors = np.random.default_rng(seed).normal(size=(1, 2, D))
    return Directions(("random",), (1, 2), vectors, STAMP)


@pytest.mark.parametrize("side", ["floor", "ceiling"])
@pytest.mark.parametrize("percentile", [3.0, 40.0, 97.0])
def test_a_matched_cap_moves_exactly_as_many_states(side, percentile):
    """Where the calibration's own percentile along the other direction would not."""
    other, seen = across(), acts(seed=1)
    seen.values[..., 0] -= (
        1.5  # what is acted on lies elsewhere along the axis than the calibration
    )
    limits = thresholds(axis(), acts(), percentile)
    found = matched(limits, axis(), other, seen, side=side)
    for layer in (1, 2):
        along, beside = (
            seen.at(layer) @ one.select([layer]).unit_vectors()[0, 0] for one in (axis(), other)
        )
        moved = along < limits[layer] if side == "floor" else along > limits[layer]
        same = beside < found[layer] if side == "floor" else beside > found[layer]
        assert moved.sum() == same.sum()
    plain = thresholds(other, acts(), percentile).beyond(other, seen)["below"]
    own = limits.beyond(axis(), seen)["below"]
    assert (own - plain).abs().max() > 0.02


def test_a_match_of_none_or_of_all_states_is_a_cap_of_none_or_of_all():
    low, high = ({1: value, 2: value} for value in (-1e6, 1e6))
    assert matched(low, axis(), across(), acts()) == {1: -np.inf, 2: -np.inf}
    assert matched(high, axis(), across(), acts(), side="ceiling") == {1: np.inf, 2: np.inf}
    every = matched(high, axis(), across(), acts())
    assert np.isfinite(list(every.values())).all()
    for layer in (1, 2):
        beside = acts().at(layer) @ across().select([layer]).unit_vectors()[0, 0]
        assert (beside < every[layer]).all()


def test_states_of_another_model_match_nothing():
    other = acts()
    other.site = "mlp_out"
    with pytest.raises(MismatchError):
        matched({1: 0.0}, axis(layers=(1,)), across(), other)


def test_the_share_beyond_on_other_positions_is_measured_not_assumed():
    floor = thresholds(axis(), acts(), 25)
    wide = acts(seed=1)
    wide.values *= 4
    table = floor.beyond(axis(), wide)
    assert (table["below"] > 0.35).all()
    assert ((table["low"] < table["below"]) & (table["below"] < table["high"])).all()
    with pytest.raises(MismatchError, match="thresholds are of 'axis'"):
        floor.beyond(axis(name="other"), wide)


@pytest.mark.thorough
def test_the_interval_covers_the_true_quantile_about_as_often_as_it_says():
    inside = 0
    for trial in range(200):
        row = thresholds(axis(layers=(1,)), acts(120, (1,), trial), 75, draws=200).table.iloc[0]
        inside += row["low"] <= 0.6745 <= row["high"]
    assert 0.88 <= inside / 200 <= 0.99


def test_tokens_of_one_item_are_resampled_together():
    made = ragged((2,) * 40, sink=0.0)
    one = thresholds(axis(), made, 50)
    assert set(one.table["n"]) == {40}
    by_fact = acts(40, fact=np.repeat(np.arange(8), 5))
    by_fact.values[:, :, 0] = np.repeat(np.arange(8), 5)
    widths = {
        groups: (lambda t: (t["high"] - t["low"]).mean())(
            thresholds(axis(), by_fact, 50, groups=groups).table
        )
        for groups in (None, "fact")
    }
    assert widths["fact"] > widths[None]


def test_the_attention_sink_takes_no_part():
    made = ragged()
    rows = read_rows(made, 1)
    assert len(rows.values) == 18 - 4
    assert rows.item.tolist() == [0] * 2 + [1] * 4 + [2] * 3 + [3] * 5
    assert rows.unit == "token"
    assert thresholds(axis(), made, 99)[1] < 10
    assert residual_norms(made)["norm"].max() < 10
    assert residual_norms(made)["n_rows"].tolist() == [14, 14]


def test_an_items_vector_is_the_mean_of_its_tokens_but_the_first():
    made = ragged()
    np.testing.assert_allclose(read_items(made, 2)[1], made.at(2)[4:8].mean(0), rtol=1e-5)
    assert read_items(made, 2).shape == (4, D)
    with pytest.raises(ConfigError, match="item 1 has no token but the attention sink"):
        read_items(ragged((3, 1, 2)), 1)
    with pytest.raises(ConfigError, match="the attention sink; no row is left"):
        read_rows(ragged((1, 1)), 1)


def test_norms_are_the_mean_lengths_and_a_pooled_read_is_refused():
    one = acts()
    table = residual_norms(one).set_index("layer")
    assert table.loc[1, "norm"] == pytest.approx(np.linalg.norm(one.at(1), axis=1).mean())
    assert table.loc[1, "low"] < table.loc[1, "norm"] < table.loc[1, "high"]
    one.position = "mean:assistant"
    with pytest.raises(ConfigError, match="means over tokens"):
        residual_norms(one)


def test_norms_are_stored_with_the_directions_layer_by_layer():
    one = acts(layers=(0, 1, 2))
    one.values[2] *= 5
    found = with_norms(axis(layers=(2, 1)), one)
    expected = [np.linalg.norm(one.at(layer), axis=1).mean() for layer in (2, 1)]
    np.testing.assert_allclose(found.norms, expected, rtol=1e-5)
    arm = Intervention.add(found, dose=0.5, unit="norm").arm(STAMP)
    assert arm[0].dose == pytest.approx(0.5 * expected[0], rel=1e-5)


def test_a_captured_model_calibrates_on_its_tokens_without_the_first(tiny_subject):
    prompts = wb.PromptSet.from_records([{"text": text} for text in ("a city here", "is it so?")])
    every = wb.capture(tiny_subject, prompts, layers=[1, 2], position="all")
    rows = read_rows(every, 1)
    assert len(rows.values) == len(every.at(1)) - 2
    np.testing.assert_allclose(residual_norms(every)["norm"], every.mean_norms, rtol=1e-5)
    v = np.ones((1, 2, tiny_subject.width))
    found = thresholds(Directions(("v",), (1, 2), v, tiny_subject.stamp), every, 50)
    assert set(found.table["unit"]) == {"item"}
    assert set(found.table["position"]) == {"all"}


def test_wrong_calls_are_named():
    two = Directions(("a", "b"), (1,), np.ones((2, 1, D)), STAMP)
    with pytest.raises(ValueError, match="one direction"):
        thresholds(two, acts(), 25)
    with pytest.raises(ValueError, match=r"percentile 0\.0"):
        thresholds(axis(), acts(), 0.0)
    with pytest.raises(ValueError, match="along 'axis'"):
        thresholds(axis(), acts(), 25, along="axis")
    with pytest.raises(MismatchError, match="holds layer 3"):
        thresholds(axis(layers=(3,)), acts(), 25)
