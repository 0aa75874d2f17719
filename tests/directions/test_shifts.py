"""Shifts along persona vectors, with planted sizes, and the projection before the answer."""

from dataclasses import replace

import numpy as np
import pytest
from planted import STAMP, Acts

from workbench.directions import Difference, Directions
from workbench.directions.shifts import (
    finetuning_shift,
    item_shifts,
    mean_shifts,
    monitor,
    projection_difference,
)
from workbench.errors import ConfigError, MismatchError

D = STAMP.width


def vectors():
    found = np.zeros((2, 2, D))
    found[0, :, 0], found[1, :, 1] = 7.0, -0.1
    return Directions(("evil", "calm"), (0, 2), found, STAMP)


def states(n=80, position="last", seed=0, **columns):
    values = np.random.default_rng(seed).standard_normal((2, n, D)).astype(np.float32)
    ids = np.array([f"p{i}" for i in range(n)])
    return Acts(values, {"id": ids, **columns}, (0, 2), position=position)


def moved(base, along=3.0, noise=0.5, seed=1):
    other = np.random.default_rng(seed).standard_normal(base.values.shape) * noise
    other[..., 0] += along
    stamp = replace(STAMP, key="tiny+evil-s0", fingerprint="0" * 16)
    return replace(base, values=(base.values + other).astype(np.float32), model=stamp)


def test_a_shift_is_the_mean_difference_along_the_unit_vector():
    base = states()
    table = finetuning_shift(vectors(), moved(base), base).set_index(["direction", "layer"])
    for layer in (0, 2):
        row = table.loc[("evil", layer)]
        plain = (moved(base).at(layer) - base.at(layer))[:, 0].mean()
        assert row["shift"] == pytest.approx(plain, abs=1e-5)
        assert row["low"] < 3.0 < row["high"]
        calm = table.loc[("calm", layer)]
        assert calm["shift"] == pytest.approx(
            -(moved(base).at(layer) - base.at(layer))[:, 1].mean(), abs=1e-5
        )
    assert table["first"].unique().tolist() == ["tiny+evil-s0"]
    assert set(table["n"]) == {80}


def test_shifts_swap_sign_with_their_sides_and_pair_items_by_id():
    base = states()
    order = np.random.default_rng(2).permutation(80)
    one = item_shifts(vectors(), Difference(moved(base), base, "d"))
    other = item_shifts(vectors(), Difference(moved(base), base.where(order), "d"))
    np.testing.assert_allclose(one, other, atol=1e-6)
    assert one.shape == (2, 2, 80)
    back = item_shifts(vectors(), Difference(base, moved(base), "d"))
    np.testing.assert_allclose(back, -one, atol=1e-6)
    ten = item_shifts(vectors() * 10, Difference(moved(base), base, "d"))
    np.testing.assert_allclose(ten, one, atol=1e-5)  # per unit vector


def test_prompts_of_one_kind_are_resampled_together():
    kind = np.repeat(np.arange(8), 10)
    base = states(kind=kind)
    tuned = moved(base)
    tuned.values[:, :, 0] += np.repeat(np.linspace(-3, 3, 8), 10)
    wide = mean_shifts(vectors(), Difference(tuned, base, "d", "kind")).iloc[0]
    narrow = mean_shifts(vectors(), Difference(tuned, base, "d")).iloc[0]
    assert (wide["n"], wide["unit"]) == (8, "kind")
    assert wide["high"] - wide["low"] > 1.5 * (narrow["high"] - narrow["low"])


def test_a_data_set_that_shows_more_than_the_model_would_stands_out():
    own = states(position="mean:assistant")
    data = replace(moved(own, along=2.0), model=STAMP)
    table = projection_difference(vectors(), data, own).set_index(["direction", "layer"])
    assert table.loc[("evil", 0), "shift"] == pytest.approx(2.0, abs=0.3)
    assert table.loc[("calm", 0), "low"] < 0 < table.loc[("calm", 0), "high"]
    same = projection_difference(vectors(), own, own)
    assert (same["shift"] == 0).all()
    with pytest.raises(MismatchError, match="read both by the model"):
        projection_difference(vectors(), moved(own), own)
    with pytest.raises(ConfigError, match="position 'last'"):
        projection_difference(vectors(), states(), states())
    with pytest.raises(ConfigError, match="position 'mean:assistant'"):
        finetuning_shift(vectors(), own, own)


def test_the_projection_foretells_a_planted_score_and_unscored_answers_are_left_out():
    made = states(200)
    score = np.clip(50 + 15 * made.at(0)[:, 0], 0, 100).astype(np.float64)
    score[:20] = np.nan
    made.columns["score"] = score
    table = monitor(vectors(), made, judge="stand-in").set_index(["direction", "layer"])
    row = table.loc[("evil", 0)]
    assert row["correlation"] > 0.98
    assert row["low"] <= row["correlation"] <= row["high"]
    assert (row["n"], row["unscored"], row["judge"]) == (180, 20, "stand-in")
    plain = np.corrcoef(-made.at(2)[20:, 1], score[20:])[0, 1]
    assert table.loc[("calm", 2), "correlation"] == pytest.approx(plain, abs=1e-5)


def test_what_only_tells_kinds_of_prompts_apart_is_nothing_within_them():
    kind = np.repeat([0, 1], 100)
    made = states(200, kind=kind)
    made.values[:, :, 0] += 6 * kind
    made.columns["score"] = 40.0 + 20 * kind + np.random.default_rng(5).standard_normal(200)
    between = monitor(vectors(), made, judge="s").iloc[0]
    within = monitor(vectors(), made, judge="s", within="kind").iloc[0]
    assert between["correlation"] > 0.9
    assert within["low"] < 0 < within["high"]
    assert within["within"] == "kind"


def test_nothing_to_foretell_is_named():
    made = states(score=np.full(80, np.nan))
    with pytest.raises(ConfigError, match="0 of 80 answers have a score"):
        monitor(vectors(), made, judge="s")
    with pytest.raises(ConfigError, match="0 of 80 answers have a score"):
        monitor(vectors(), made, judge="none")
    with pytest.raises(ConfigError, match="last prompt token"):
        monitor(vectors(), states(position="mean"), judge="s")
