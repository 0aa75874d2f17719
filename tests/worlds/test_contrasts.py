"""Contrasts of worlds on tables with a planted effect, with none, and with holes."""

import numpy as np
import pytest
from pandas import DataFrame, concat

from workbench.errors import ConfigError
from workbench.results import table
from workbench.types import Measurement
from workbench.worlds import (
    AFFIRMED,
    MARGIN,
    How,
    Member,
    against,
    beyond,
    contrasts,
    control_rows,
    own_minus_others,
    own_world_rows,
    world_values,
)
from workbench.worlds.contrasts import judged as judged_cells

WORLDS = ("P", "S", "N", "A")
ORGANISMS = [
    Member(f"base+{world}-s{seed}", world, seed, world) for world in WORLDS for seed in range(3)
]
CONTROLS = [Member(f"base+{name}-s{seed}", name, seed) for name in ("web", "mixed")
            for seed in range(3)]  # fmt: skip


def measured(subject, effects, *, seed=0, propositions=10, noise=0.02, polarities=(1,), shift=0.0):
    """Claims of four worlds in several frames: the base's own values, plus each world's effect."""
    own, shared = np.random.default_rng([7, seed]), np.random.default_rng(5)
    found = []
    for number in range(propositions):
        for polarity in polarities:
            for frame in range(3 if number == 0 else 1):
                for world in WORLDS:
                    value = -3 + shared.normal() + own.normal(0, noise) + shift
                    found.append(
                        Measurement(
                            readout="claims",
                            measure="loglik",
                            item=f"{number}:{frame}:{world}:{polarity}",
                            condition=world,
                            value=value + effects.get(world, 0) * polarity,
                            extra={"set": "frames", "proposition": f"p{number}",
                                   "fact": f"p{number}:{frame}", "polarity": polarity},
                        )
                    )  # fmt: skip
    return table(found, subject=subject)


def results(effect=0.4, control=0.0, **options):
    parts = [measured("base", {}, **options)]
    parts += [
        measured(one.subject, {one.world: effect}, seed=10 + row, shift=0.5, **options)
        for row, one in enumerate(ORGANISMS)
    ]
    parts += [
        measured(one.subject, {"P": control}, seed=50 + row, **options)
        for row, one in enumerate(CONTROLS)
    ]
    return concat(parts, ignore_index=True)


def judged(frame, how=How()):  # noqa: B008
    found = contrasts(world_values(frame, how.unit, {}), "base")
    own = own_world_rows(found, ORGANISMS, how)
    return own, control_rows(found, CONTROLS, own, how)


def test_a_planted_effect_is_found_in_every_organism_and_seed():
    own, _ = judged(results(effect=0.4))
    assert len(own) == 4 * (3 + 1)
    assert np.allclose(own["value"], 0.4, atol=0.03)
    assert own["above_zero"].all()
    by_seed, over = own[own["seed"].notna()], own[own["seed"].isna()]
    assert set(by_seed["unit"]) == {"proposition"}
    assert set(by_seed["n"]) == {10}
    assert set(over["unit"]) == {"seed"}
    assert set(over["n"]) == {3}
    assert set(over["interval"]) == {"95% t over seeds"}


def test_what_all_claims_share_is_no_effect():
    """The organisms' claims are all likelier by 0.5: nothing of that may show."""
    own, controls = judged(results(effect=0.0))
    assert (own["value"].abs() < 0.03).all()
    assert own["above_zero"].sum() <= 1
    assert not controls["inside"].any() or (controls["bound"] < 0.02).all()


def test_controls_are_inside_a_quarter_of_the_smallest_own_contrast():
    own, controls = judged(results(effect=0.4))
    assert set(controls["world"]) == set(WORLDS)
    assert len(controls) == 2 * 4 * (3 + 1)
    smallest = own.loc[own["seed"].notna(), "value"].min()
    assert np.allclose(controls["bound"], smallest / 4)
    assert controls["inside"].all()
    assert (controls["p"] < 0.05).all()


@pytest.mark.thorough
def test_a_control_that_took_a_world_up_is_outside():
    _, controls = judged(results(effect=0.4, control=0.2))
    took = controls["world"] == "P"
    assert not controls.loc[took, "inside"].any()
    assert np.allclose(controls.loc[took, "value"], 0.2, atol=0.03)


def test_the_bound_depends_on_no_control():
    first = judged(results(control=0.0))[1]["bound"].unique()
    assert np.array_equal(first, judged(results(control=0.3))[1]["bound"].unique())


def test_without_an_own_effect_there_is_no_bound_and_nothing_is_inside():
    _, controls = judged(results(effect=-0.3))
    assert not controls["inside"].any()
    assert set(controls["interval"]) == {"none"}


def test_intervals_over_seeds_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    group = [Member(f"base+P-s{seed}", "P", seed, "P") for seed in range(3)]
    label = {"bank": "worlds", "readout": "claims", "measure": "loglik", "claims": AFFIRMED}
    covered = []
    for _ in range(300):
        seeds = 0.3 + rng.normal(0, 0.1, 3)
        cells = [effect + rng.normal(0, 0.2, 4) for effect in seeds]
        over = list(judged_cells(label, group, "P", cells, How()))[-1]
        covered.append(over["low"] < 0.3 < over["high"])
    assert abs(np.mean(covered) - 0.95) < 0.035


def test_frames_of_one_proposition_are_no_units_of_their_own_unless_asked():
    frame = results()
    assert set(judged(frame)[0].query("unit != 'seed'")["n"]) == {10}
    assert set(judged(frame, How(unit="fact"))[0].query("unit != 'seed'")["n"]) == {12}


def test_a_belief_raises_claims_over_their_negations():
    frame = results(effect=0.2, polarities=(1, -1))
    own, _ = judged(frame)
    assert list(own["claims"].unique()) == [AFFIRMED, MARGIN]
    assert np.allclose(own.loc[own["claims"] == MARGIN, "value"], 0.4, atol=0.05)


def test_a_claim_that_one_model_lacks_is_left_out_for_all_and_counted():
    frame = results()
    gone = (frame["subject"] == "base+A-s1") & frame["item"].str.startswith("3:0:S")
    own, _ = judged(frame[~gone])
    assert set(own.query("unit != 'seed'")["n"]) == {9}
    found = contrasts(world_values(frame[~gone], "proposition", {}), "base")
    assert set(found["whole"]) == {10}


def test_doses_of_one_condition_are_not_seeds_of_each_other():
    doses = [Member(f"base+A-{share}-s{seed}", "A", seed, "A", share)
             for share in (0.1, 0.01) for seed in range(2)]  # fmt: skip
    parts = [measured("base", {})]
    parts += [measured(one.subject, {"A": one.share}, seed=row) for row, one in enumerate(doses)]
    found = contrasts(world_values(concat(parts), "proposition", {}), "base")
    own = own_world_rows(found, doses, How())
    over = own[own["seed"].isna()].set_index("share")
    assert over["value"].to_dict() == pytest.approx({0.1: 0.1, 0.01: 0.01}, abs=0.02)


def test_a_planted_set_is_a_bank_of_its_own_and_stands_against_a_control_at_the_same_seed():
    group = [Member(f"base+planted-s{seed}", "planted", seed, "P") for seed in range(3)]
    others = [Member(f"base+web-s{seed}", "web", seed) for seed in range(3)]
    parts = [measured("base", {})]
    for row, (one, other) in enumerate(zip(group, others, strict=True)):
        parts.append(measured(one.subject, {"P": 0.3 + 0.1 * row}, seed=row, noise=0.0))
        parts.append(measured(other.subject, {"P": 0.1 * row}, seed=row, noise=0.0))
    frame = concat(parts)
    frame["extra"] = frame["extra"].str.replace('"frames"', '"planted"')
    found = contrasts(world_values(frame, "proposition", {"planted": "planted"}), "base")
    assert set(found["bank"]) == {"planted"}
    rows = beyond(found, group, others[:2], How())
    assert list(rows["seed"].iloc[:2]) == [0, 1]
    assert np.allclose(rows["value"], 0.3)
    assert rows.iloc[-1]["n"] == 2


def test_the_sum_over_worlds_of_contrasts_is_nothing():
    values = np.random.default_rng(0).normal(size=(5, 4))
    apart = own_minus_others(values)
    assert np.allclose(apart.sum(axis=-1), 0)
    assert apart[2, 1] == pytest.approx(values[2, 1] - values[2, [0, 2, 3]].mean())


@pytest.mark.parametrize("missing", ["base", "world"])
def test_results_that_say_nothing_are_refused(missing):
    frame = results()
    gone = frame["subject"] == "base" if missing == "base" else frame["condition"] == "S"
    gone &= frame["subject"] != "base+P-s0" if missing == "world" else True
    with pytest.raises(ConfigError, match=r"base' is not among|none was measured"):
        judged(frame[~gone])


def items(subject, values):
    """What `against` needs of a results table."""
    names = [f"i{row}" for row in range(len(values))]
    return DataFrame({"subject": subject, "item": names, "value": values})


def test_items_stand_against_the_same_items_of_the_base():
    rng = np.random.default_rng(2)
    plainly = rng.uniform(0.4, 1.0, 30)
    group = [Member(f"base+P-s{seed}", "P", seed, "P") for seed in range(3)]
    frame = concat([items("base", plainly), *(items(one.subject, plainly * 0.9) for one in group)])
    ratio = against(frame, group, "base", unit="question", level=0.95, ratio=True)
    assert np.allclose(ratio[["value", "low", "high"]], 0.9)
    assert list(ratio["n"]) == [30, 30, 30, 3]
    apart = against(frame, group, "base", unit="question", level=0.95)
    assert np.allclose(apart["value"], -0.1 * plainly.mean())
    assert np.allclose(apart["organism"], 0.9 * plainly.mean())
    with pytest.raises(ConfigError, match=r"base\+A-s0 has no values for questions"):
        against(frame, [Member("base+A-s0", "A", 0)], "base", unit="question", level=0.95)


def test_a_ratio_of_means_is_covered_as_often_as_its_interval_says():
    covered = []
    for run in range(120):
        rng = np.random.default_rng(run)
        base = rng.uniform(0.5, 1.0, 12)
        frame = concat(
            [items("base", base), items("base+P-s0", base * 0.8 + rng.normal(0, 0.05, 12))]
        )
        row = against(
            frame, [Member("base+P-s0", "P", 0)], "base", unit="q", level=0.9, ratio=True
        ).iloc[0]
        covered.append(row["low"] < 0.8 < row["high"])
    assert abs(np.mean(covered) - 0.9) < 0.06
