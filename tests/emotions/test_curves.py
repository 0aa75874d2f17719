"""Held-out curves: high where emotions were planted, at chance elsewhere, without peeking."""

import numpy as np
import pytest

from workbench.emotions.curves import ALL, Held, _aucs, best_window, held_out_curves
from workbench.emotions.vectors import VARIANTS, Stories, folds_of
from workbench.errors import ConfigError
from workbench.stats import auc


def curves(made, names, **options):
    return held_out_curves(
        Stories.of(made.stories, names), made.neutral, **{"draws": 40, "width": 2, **options}
    )


def test_planted_layers_are_read_and_others_are_at_chance(plant, names):
    found = curves(plant(), names)
    mean = found.table.query(f"emotion == '{ALL}' and variant == 'denoised'").set_index("layer")
    assert (mean.loc[[1, 2, 3], "auc"] > 0.95).all()
    assert abs(mean.loc[0, "auc"] - 0.5) < 0.2
    assert 0 not in found.window
    assert (mean.loc[list(found.window), "chosen"]).all()
    assert found.null_largest >= found.null.max() - 1e-12
    assert 0.5 < found.null_largest < 0.75
    assert found.summary()["auc"] > 0.95
    assert set(found.table["variant"]) == set(VARIANTS)
    assert set(found.table["unit"]) == {"topic"}


def test_without_emotions_nothing_beats_chance(plant, names):
    inside = [
        found.summary()["auc"] <= found.null_largest
        for found in (curves(plant(seed=seed, active=()), names) for seed in range(8))
    ]
    assert sum(inside) >= 6


def test_an_auc_is_that_of_one_emotion_against_the_others():
    rng = np.random.default_rng(0)
    scores, labels = rng.standard_normal((20, 3)).round(1), rng.integers(0, 3, 20)
    expected = [auc(scores[:, k], labels == k) for k in range(3)]
    np.testing.assert_allclose(_aucs(scores, labels[None])[0], expected)
    only = _aucs(scores[:3], np.array([[0, 0, 0]]))
    assert np.isnan(only).all()  # no others to compare with


def test_held_out_stories_take_no_part_in_their_vectors(plant, names):
    stories = Stories.of(plant(drop=0.2).stories, names)
    held = Held(stories, folds_of(stories.topic, 3, 0), 3)
    assert sorted(held.weights) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    for pair, weights in held.weights.items():
        out = np.isin(held.fold, pair)
        assert not weights[:, out].any()
        assert weights[:, ~out].any()


def test_the_window_is_the_best_run_of_neighbors():
    assert list(best_window(np.array([0.5, 0.9, 0.5, 0.8, 0.8]), 2)) == [3, 4]
    assert list(best_window(np.array([0.7, 0.7, 0.7]), 1)) == [0]


def test_a_fixed_window_is_reported_where_it_lies(plant, names):
    made = plant(active=(2, 3))
    chosen, fixed = curves(made, names), curves(made, names, fixed=[0, 1])
    assert chosen.window == (2, 3)
    assert fixed.window == (0, 1)
    told = fixed.summary()
    assert told["window"] == "0-1"
    assert told["auc"] == pytest.approx(0.447, abs=0.01)
    assert told["low"] < told["auc"] < told["high"] < 0.55
    assert told["n"] == 6
    mean = fixed.table.query(f"emotion == '{ALL}' and variant == 'denoised'")
    assert mean.set_index("layer")["chosen"].to_dict() == {0: True, 1: True, 2: False, 3: False}
    assert told["auc"] == pytest.approx(mean[mean["chosen"]]["auc"].mean())


@pytest.mark.parametrize("fixed", [[], [2, 2], [3, 1], [1, 3], [2, 1], [77]])
def test_a_fixed_window_is_a_run_of_neighbors(plant, names, fixed):
    message = "layer 77 was not captured" if fixed == [77] else "is no run of neighboring layers"
    with pytest.raises(ConfigError, match=message):
        curves(plant(), names, fixed=fixed)


def test_a_fixed_window_needs_no_third_fold(plant, names):
    assert curves(plant(), names, folds=2, fixed=[2]).summary()["auc"] > 0.95


def test_two_folds_choose_without_a_nested_report(plant, names):
    found = curves(plant(), names, folds=2)
    assert np.isnan(found.by_topic).all()
    assert np.isnan(found.summary()["auc"])
    assert found.summary()["n"] == 0


def test_wrong_widths_and_too_many_folds_are_refused(plant, names):
    with pytest.raises(ConfigError, match="window = 9"):
        curves(plant(), names, width=9)
    with pytest.raises(ConfigError, match="6 topics make no 7 folds"):
        curves(plant(), names, folds=7)


def test_an_emotion_without_stories_in_a_split_is_left_out_of_it(plant, names):
    made = plant()
    topic, emotion = (made.stories.column(name) for name in ("topic", "emotion"))
    found = held_out_curves(Stories.of(made.stories, names), made.neutral, draws=10, width=2)
    lone = np.unique(topic)[found.fold == 0]
    kept = made.stories.take((emotion != "fear") | np.isin(topic, lone))
    sparse = held_out_curves(Stories.of(kept, names), made.neutral, draws=10, width=2)
    fear = sparse.aucs["raw"][2, names.index("fear")]
    assert np.isnan(fear).all()  # its only stories are those that are held out
    assert sparse.summary()["auc"] > 0.9
