"""Gaps and profiles of organisms: planted ones found, on the half that chose no layer as well."""

from dataclasses import replace

import numpy as np
import pytest

from workbench.activations import Activations
from workbench.directions import Directions
from workbench.emotions.profiles import (
    Fleet,
    Reading,
    Scores,
    gap_table,
    profile_table,
    standardized_gap,
)
from workbench.errors import ConfigError
from workbench.linalg import unit

D, LAYERS, N = 48, 4, 24


@pytest.fixture(scope="module")
def world(stamp):
    """``(shift=..., seeds=2, noise=1.0, seed=0) -> fleet, directions``: A has more of "fear"."""

    def make(shift=3.0, seeds=2, noise=1.0, seed=0, at=2):
        rng = np.random.default_rng(seed)
        vectors = rng.standard_normal((3, LAYERS, D))
        directions = Directions(
            names=("fear", "joy", "calm"), layers=tuple(range(LAYERS)), vectors=vectors,
            model=stamp(), info={"window": [1, 2, 3]},
        )  # fmt: skip
        axis = unit(vectors)
        items = 2 * rng.standard_normal((LAYERS, N, D))
        half = np.array(["first", "second"] * (N // 2))

        def reading(condition, number, amount):
            h = items + noise * rng.standard_normal(items.shape)
            h[at] += amount * axis[0, at]
            key = "m" if condition is None else f"m+{condition}-s{number}"
            columns = {"half": half, "id": np.array([f"i{n}" for n in range(N)])}
            acts = Activations.from_values(h.astype(np.float32), columns, model=stamp(key))
            return Reading(acts, condition, number)

        fleet = [reading(None, None, 0.0)]
        for number in range(seeds):
            fleet += [reading("A", number, shift), reading("P", number, -shift / 2)]
            fleet += [reading("S", number, 0.0)]
        return Fleet(fleet, "A", "P"), directions

    return make


def test_a_planted_gap_is_found_at_its_layer_on_both_halves(world):
    fleet, directions = world()
    table = gap_table(Scores(fleet, directions, [1, 2, 3]), draws=200)
    peak = table[(table["window"] == "peak") & (table["emotion"] == "fear")].set_index("half")
    assert (peak["layer"] == 2).all()
    assert (peak["zgap"] > 1).all()
    assert (peak["zgap"] > peak[["random95", "matched95"]].max(axis=1)).all()
    assert (peak["item_low"] > 0).all()
    assert peak.loc["second", "zgap"] == pytest.approx(4.5 / np.sqrt(4 + 1), rel=0.4)
    assert peak["chosen"].to_dict() == {"first": True, "second": False}
    assert set(table["unit"]) == {"seed"}
    assert set(table["window"]) == {"peak", "1-3"}


def test_selection_makes_the_first_half_larger_where_there_is_nothing(world):
    first, second, beyond = [], [], []
    for seed in range(12):
        fleet, directions = world(shift=0.0, seed=seed)
        table = gap_table(Scores(fleet, directions, [1, 2, 3]), draws=200)
        peak = table[table["window"] == "peak"]
        signed = peak.pivot(index="emotion", columns="half", values="zgap")
        first += signed["first"].abs().tolist()
        second += (np.sign(signed["first"]) * signed["second"]).tolist()
        beyond += (peak["zgap"].abs() > peak["random95"]).tolist()
    assert np.mean(first) > np.mean(second) + 0.1
    assert np.mean(beyond) < 0.25


def test_the_gap_does_not_know_the_length_or_the_zero_of_a_direction(world):
    fleet, directions = world()
    plain = gap_table(Scores(fleet, directions, [1, 2]), draws=200)
    longer = gap_table(Scores(fleet, directions * 9, [1, 2]), draws=200)
    turned = gap_table(Scores(fleet, -directions, [1, 2]), draws=200)
    np.testing.assert_allclose(plain["zgap"], longer["zgap"], atol=1e-4)
    np.testing.assert_allclose(plain["zgap"], -turned["zgap"], atol=1e-4)


def test_a_window_is_averaged_before_it_is_standardized(world):
    fleet, directions = world()
    scores = Scores(fleet, directions, [1, 2, 3])
    a, p = (
        np.stack(
            [directions.project(one.acts)[0, [1, 2, 3]].mean(axis=0) for one in fleet.of(name)]
        )
        for name in ("A", "P")
    )
    sd = np.sqrt((a.var(ddof=1) + p.var(ddof=1)) / 2)
    zero = directions.project(fleet.reference.acts)[0, [1, 2, 3]].mean()
    wanted = "window == '1-3' and emotion == 'fear' and model == 'A' and half == 'all'"
    seeds = profile_table(scores, by_seed=True).query(wanted).set_index("seed")["value"]
    assert seeds[0] == pytest.approx((a[0].mean() - zero) / sd, rel=1e-4)
    mean = profile_table(scores).query(wanted)
    assert mean["value"].item() == pytest.approx((a.mean() - zero) / sd, rel=1e-4)
    assert mean["n"].item() == 2


def test_profiles_show_every_condition_from_the_reference(world):
    fleet, directions = world()
    table = profile_table(Scores(fleet, directions, [1, 2, 3]))
    peak = table.query("window == 'peak' and emotion == 'fear'").set_index(["half", "model"])
    values = peak.loc["all", "value"]
    assert values["A"] > 0.5 > values["S"] > values["P"]
    assert abs(values["S"]) < 0.4
    assert len(table) == 2 * 3 * 3 * 3  # windows, emotions, conditions, halves
    halves = peak["value"].unstack("half")
    np.testing.assert_allclose(halves[["first", "second"]].mean(axis=1), halves["all"], atol=1e-6)


def test_one_seed_gives_an_interval_over_items(world):
    fleet, directions = world(seeds=1)
    table = gap_table(Scores(fleet, directions, [1, 2]), draws=200)
    assert set(table["unit"]) == {"item"}
    assert table["seed_gap"].isna().all()
    assert (table["low"] == table["item_low"]).all()
    assert (table["interval"] == table["item_interval"]).all()
    profiles = profile_table(Scores(fleet, directions, [1, 2]))
    assert set(profiles["interval"].dropna()) == {"none: 1 seed"}


def test_the_mean_gap_is_that_of_the_states(world):
    fleet, _ = world(noise=0.0)
    gap = fleet.gap([1, 2], np.arange(N))
    assert np.linalg.norm(gap[0]) < 1e-5
    assert np.linalg.norm(gap[1]) == pytest.approx(4.5, rel=1e-4)


def test_a_standardized_gap_is_zero_where_nothing_varies():
    found, spread = standardized_gap(np.zeros((2, 3, 4)), np.zeros((2, 3, 4)))
    assert not found.any()
    assert not spread.any()


def test_fleets_that_do_not_belong_together_are_refused(world, stamp):
    fleet, directions = world()
    with pytest.raises(ConfigError, match="0 of 6 models are no organism"):
        Fleet(fleet.organisms, "A", "P")
    with pytest.raises(ConfigError, match="no organism of 'N'"):
        Fleet(fleet.readings, "N", "P")
    other = Reading(fleet.of("A")[0].acts.take(np.arange(3)), "A", 7)
    with pytest.raises(ConfigError, match="read on other items"):
        Fleet([*fleet.readings, other], "A", "P")
    few = [
        Reading(one.acts.take(np.arange(0, N, 2)), one.condition, one.seed)
        for one in fleet.readings
    ]
    with pytest.raises(ConfigError, match="0 items of the second half"):
        Fleet(few, "A", "P").halves()
    with pytest.raises(ConfigError, match="no layer 9 of the window"):
        Scores(fleet, directions, [1, 9])


def test_one_organism_counts_once(world):
    fleet, _ = world()
    again = replace(fleet.of("A")[1], store="runs/cache/b")
    with pytest.raises(
        ConfigError, match=r"m\+A-s1 and m\+A-s1 \(runs/cache/b\) are both seed 1 of"
    ):
        Fleet([*fleet.readings, again], "A", "P")
    unnamed = [replace(one, seed=None) for one in fleet.organisms]
    with pytest.raises(ConfigError, match="are both one organism of 'A'"):
        Fleet([fleet.reference, *unnamed, replace(fleet.of("A")[0], seed=None)], "A", "P")
    with pytest.raises(ConfigError, match="high and low are both 'A'"):
        Fleet(fleet.readings, "A", "A")


def test_the_same_states_under_two_names_are_refused(world):
    fleet, _ = world()
    fleet.refuse_alike()
    alike = Reading(fleet.of("A")[0].acts, "P", 7)
    with pytest.raises(ConfigError, match=r"of condition 'A', and .* of 'P', have the same states"):
        Fleet([*fleet.readings, alike], "A", "P").refuse_alike()


def test_organisms_whose_names_tell_no_seed_have_no_partner(world):
    fleet, directions = world()
    unnamed = [fleet.reference, *(replace(one, seed=None) for one in fleet.organisms)]
    scores = Scores(Fleet(unnamed, "A", "P"), directions, [1, 2])
    table = gap_table(scores, draws=200)
    assert set(table["unit"]) == {"item"}
    assert set(table["interval"]) == {"95% t over items"}
    profiles = profile_table(scores)
    assert set(profiles["interval"]) == {"none: 2 organisms without a seed"}
    assert set(profiles["unit"]) == {"organism"}
    assert profiles[["sem", "low", "high"]].isna().all(axis=None)


def test_seeds_that_only_one_condition_has_are_no_pairs(world):
    fleet, directions = world()
    kept = [one for one in fleet.readings if (one.condition, one.seed) != ("P", 1)]
    table = gap_table(Scores(Fleet(kept, "A", "P"), directions, [1, 2]), draws=200)
    assert set(table["unit"]) == {"item"}


def test_a_store_without_a_layer_of_the_others_is_named(world):
    fleet, _ = world()
    one = fleet.of("P")[0]
    values = np.stack([one.acts.at(layer) for layer in (0, 1, 2)])
    columns = {name: one.acts.column(name) for name in ("half", "id")}
    short = Activations.from_values(values, columns, model=one.acts.model)
    rest = [each for each in fleet.readings if each is not one]
    with pytest.raises(ConfigError, match=r"m\+P-s0 \(short\) holds no layer 3, m does"):
        Fleet([*rest, Reading(short, "P", 0, "short")], "A", "P")
