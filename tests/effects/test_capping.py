"""Planted fleets: engagement is exact, displacement as planted, gaps keep what they keep."""

import numpy as np
import pandas as pd
import pytest

from workbench.effects.capped import behaviour, check_results
from workbench.effects.curves import How
from workbench.effects.displacement import OWN, REFERENCE, Placed, displacement
from workbench.effects.engagement import Counted, Member, beyond_floor, engagement
from workbench.errors import ConfigError
from workbench.results import table
from workbench.types import Measurement

BASE = Member("base", "base")
P = [Member(f"base+P-s{seed}", "P", seed) for seed in (0, 1)]
FEW = How(draws=200)


# --- engagement -----------------------------------------------------------------------------------


def counted(member, beyond, total, position="final", control="none", text="own", hooked=False):
    beyond = np.asarray(beyond)
    layers = tuple(range(5, 5 + beyond.shape[1]))
    return Counted(member, text, hooked, position, control, layers, beyond, np.asarray(total))


def test_only_coordinates_under_the_floor_count():
    along = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, -3.0]])
    assert beyond_floor(along, np.array([1.0, 1.0])).tolist() == [1, 1]  # at the floor is inside
    assert beyond_floor(along, np.array([-np.inf, np.inf])).tolist() == [0, 3]


def test_a_planted_share_comes_out_exactly_and_by_layer():
    """Pairs of position and layer count equally: a long prompt counts more than a short one."""
    one = counted(BASE, [[1, 3], [0, 10]], [4, 10], position="generated")
    found = engagement([one], how=FEW).set_index("layer")
    every = found.loc[found.index.isna()].iloc[0]
    assert every["engaged"] == 14 / 28
    assert every["n"] == 2
    assert every["unit"] == "prompt"
    assert every["n_positions"] == 28
    assert found.loc[5, "engaged"] == 1 / 14
    assert found.loc[6, "engaged"] == 13 / 14
    assert every["interval"] == "95% t over prompts"
    assert 0 <= every["low"] <= every["engaged"] <= every["high"] <= 1


def test_a_share_of_few_prompts_has_an_interval_that_holds_it_as_often_as_it_says():
    """Eight prompts of unlike length, whose own shares lie around 0.4."""
    held = 0
    for trial in range(400):
        rng = np.random.default_rng(trial)
        totals = rng.integers(20, 100, 8)
        hits = rng.binomial(totals, rng.beta(4, 6, 8))
        row = engagement([counted(BASE, hits[:, None], totals)], how=FEW).iloc[0]
        assert row["engaged"] == hits.sum() / totals.sum()
        held += row["low"] <= 0.4 <= row["high"]
    assert 0.92 <= held / 400 <= 0.98


def test_many_prompts_have_a_bootstrap_of_their_share():
    totals = np.arange(1, 31)
    found = engagement([counted(BASE, (totals // 3)[:, None], totals)], how=FEW)
    assert set(found["interval"]) == {"95% bootstrap over prompts"}


@pytest.mark.parametrize(("hits", "kept"), [(14, False), (15, True), (16, True)])
def test_the_gate_is_told_on_either_side_and_hides_nothing(hits, kept):
    one = counted(BASE, [[hits], [0]], [50, 50])
    found = engagement([one], how=FEW)
    assert len(found) == 2
    assert found["informative"].tolist() == [kept, kept]
    assert found["engaged"].tolist() == [hits / 100] * 2
    assert (found["least"] == 0.15).all()


def test_seeds_are_the_unit_of_a_condition_and_stand_alone_too():
    several = [counted(P[0], [[2], [2]], [10, 10]), counted(P[1], [[4], [6]], [10, 10])]
    found = engagement(several, how=FEW)
    found = found[found["layer"].isna()].set_index("model")
    assert found.loc["P", ["level", "n", "unit"]].tolist() == ["condition", 2, "seed"]
    assert found.loc["P", "engaged"] == pytest.approx((0.2 + 0.5) / 2)
    assert found.loc["P", ["low", "high"]].tolist() == [0, 1]  # no share lies beyond
    assert found.loc["base+P-s0", ["level", "n", "unit"]].tolist() == ["organism", 2, "prompt"]
    assert found.loc["base+P-s1", "engaged"] == 0.5


def test_prompts_without_positions_are_no_prompts():
    found = engagement([counted(BASE, [[3], [0], [1]], [4, 0, 4])], how=FEW)
    assert set(found["n"]) == {2}
    assert found["engaged"].iloc[0] == 0.5
    lone = engagement([counted(BASE, [[3]], [4])], how=FEW)
    assert lone["interval"].tolist() == ["none: 1 prompt"] * 2
    assert lone["low"].isna().all()


def test_before_and_under_the_cap_and_its_controls_are_rows_of_their_own():
    several = [
        counted(BASE, [[1]], [4]),
        counted(BASE, [[2]], [4], hooked=True),
        counted(BASE, [[3]], [4], control="random:0"),
        counted(BASE, [[4]], [4], position="generated"),
    ]
    found = engagement(several, how=FEW)
    found = found[found["layer"].isna()].set_index(["position", "hooked", "control"])["engaged"]
    assert found.to_dict() == {
        ("final", False, "none"): 0.25, ("final", True, "none"): 0.5,
        ("final", False, "random:0"): 0.75, ("generated", False, "none"): 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("least", [0.0, 1.0, -0.1])
def test_a_gate_that_is_no_share_is_refused(least):
    with pytest.raises(ConfigError, match="expected a share between 0 and 1"):
        engagement([counted(BASE, [[1]], [4])], least=least)


# --- displacement ---------------------------------------------------------------------------------


def planted(shift, noise=0.1, n=12, d=64, seed=0):
    """States of the reference, and of two organisms that lie ``shift`` along an axis from it."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=d)
    unit = axis / np.linalg.norm(axis)
    base = rng.normal(size=(n, d)).astype(np.float32)
    moved = [(base + shift * unit + noise * rng.normal(size=(n, d))).astype(np.float32) for _ in P]
    placed = [Placed(BASE, OWN, "none", 0.0, base)]
    placed += [Placed(one, OWN, "none", 0.0, x) for one, x in zip(P, moved, strict=True)]
    return axis, placed


def test_a_planted_displacement_comes_out_of_an_axis_of_any_length():
    axis, placed = planted(-2.0)
    found = displacement(placed, 7 * axis, "base", 3, how=FEW).set_index("model")
    assert found.loc["P", "displacement"] == pytest.approx(-2, abs=0.1)
    assert found.loc["P", ["n", "unit", "layer"]].tolist() == [2, "seed", 3]
    row = found.loc["base+P-s0"]
    assert row["low"] < -1.9 < -1.8
    assert row["high"] > -2.1
    assert row["n"] == 12
    assert row["unit"] == "prompt"
    assert row["interval"].endswith("over prompts")
    assert found["beyond_band"].all()
    assert "base" not in found.index  # from itself it lies nowhere


def test_what_lies_apart_no_farther_than_along_random_directions_is_within_the_band():
    axis, placed = planted(0.0, noise=1.0)
    found = displacement(placed, axis, "base", 3, how=FEW).set_index("model")
    assert abs(found.loc["P", "displacement"]) < found.loc["P", "band"]
    assert not found.loc["P", "beyond_band"]


def test_prompts_without_a_reply_are_lost_on_both_sides_and_counted():
    axis, placed = planted(1.0, noise=0.0)
    placed[0].states[0] = np.nan
    placed[1].states[3] = np.nan
    found = displacement(placed, axis, "base", 3, how=FEW).set_index("model")
    assert found.loc["base+P-s0", ["n", "lost"]].tolist() == [10, 2]
    assert found.loc["P", "lost"] == 3
    assert found.loc["P", "displacement"] == pytest.approx(1, abs=1e-4)


def test_capped_replies_and_shared_text_are_measured_from_the_same_uncapped_replies():
    axis, placed = planted(-2.0, noise=0.0)
    unit = (axis / np.linalg.norm(axis)).astype(np.float32)
    zero = placed[0].states
    placed.append(Placed(P[0], OWN, "none", 75.0, zero - 0.5 * unit))
    placed.append(Placed(P[0], REFERENCE, "none", 0.0, zero - 1.0 * unit))
    placed.append(Placed(BASE, OWN, "noop", 75.0, zero))
    found = displacement(placed, axis, "base", 3, how=FEW)
    told = found.set_index(["model", "text", "control", "dose"])["displacement"]
    assert told["P", OWN, "none", 75.0] == pytest.approx(-0.5, abs=1e-4)
    assert told["P", REFERENCE, "none", 0.0] == pytest.approx(-1, abs=1e-4)
    assert told["base", OWN, "noop", 75.0] == 0


def test_a_fleet_without_its_reference_is_refused():
    axis, placed = planted(1.0)
    with pytest.raises(ConfigError, match="'other' without a cap"):
        displacement(placed, axis, "other", 3)


# --- readouts -------------------------------------------------------------------------------------

ITEMS = 12
RANDOM = 3


def results(models, kept=1.0, dose=75.0, **constants):
    """A sweep of each: ``models`` maps (organism, seed) to its level; caps keep ``kept`` of it."""
    rng = np.random.default_rng(1)
    items = rng.normal(size=ITEMS)
    frames = []
    for (organism, seed), value in models.items():
        arms = {("none", 0.0): 1.0, ("none", dose): kept, ("noop", dose): 1.0}
        arms |= {(f"random:{n}", dose): 1 + 0.01 * (n - 1) for n in range(RANDOM)}
        for (control, at), share in arms.items():
            measured = [
                Measurement("game", "sent", f"i{n}", "plain", item + value * share, mass=0.9)
                for n, item in enumerate(items)
            ]
            shared = {
                "direction": "assistant", "edit": "cap", "layers": "5,6", "scope": "all",
                "unit": "percentile", "dose": at, "control": control, "engaged": 0.4 * (at > 0),
                "realised": 0.0, **constants,
            }  # fmt: skip
            name = "base" if organism is None else f"base+{organism}-s{seed}"
            frame = table(measured, subject=name, **shared)
            frames.append(frame.assign(base="base", organism=organism, train_seed=seed))
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(train_seed=frame["train_seed"].astype("Int64"))


FLEET = {(None, None): 0.0, ("P", 0): 2.0, ("P", 1): 2.2, ("A", 0): -1.0, ("A", 1): -0.8}


def pick(found, **where):
    for name, value in where.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


@pytest.mark.thorough
def test_a_gap_that_a_cap_halves_is_told_with_what_it_keeps():
    found = behaviour(results(FLEET, kept=0.5), 75.0, contrasts=[("P", "A")], how=FEW)
    gap = pick(found, level="contrast", control="none")
    assert gap["model"] == "P - A"
    assert gap[["n", "unit"]].tolist() == [2, "seed"]
    assert gap["before"] == pytest.approx(3.0)
    assert gap["after"] == pytest.approx(1.5)
    assert gap["effect"] == pytest.approx(-1.5)
    assert gap["kept"] == pytest.approx(0.5)
    assert gap["low"] <= gap["effect"] <= gap["high"]
    assert gap["before_low"] <= gap["before"] <= gap["before_high"]
    assert gap["beyond_band"]
    assert gap["band"] == pytest.approx(0.03)
    assert gap["band_name"] == "largest of 3 random directions"
    idle = pick(found, level="contrast", control="noop")
    assert idle["effect"] == 0
    assert idle["kept"] == 1


def test_every_model_and_each_of_several_seeds_has_its_own_rows():
    found = behaviour(results(FLEET, kept=0.5), 75.0, how=FEW)
    own = found[found["control"] == "none"].set_index(["level", "model"])
    assert own.loc[("condition", "P"), "effect"] == pytest.approx(-1.05)
    assert own.loc[("condition", "P"), "unit"] == "seed"
    assert own.loc[("organism", "base+P-s1"), "effect"] == pytest.approx(-1.1)
    assert own.loc[("organism", "base+P-s1"), ["n", "unit"]].tolist() == [ITEMS, "item"]
    assert own.loc[("condition", "base"), ["n", "unit"]].tolist() == [ITEMS, "item"]
    assert ("organism", "base") not in own.index
    np.testing.assert_allclose(own["mass"], 0.9)
    np.testing.assert_allclose(own["engaged"], 0.4)


def test_one_seed_a_side_is_compared_item_by_item():
    fleet = {("P", 0): 2.0, ("A", 0): -1.0}
    gap = pick(
        behaviour(results(fleet, kept=0.5), 75.0, contrasts=[("P", "A")], how=FEW),
        level="contrast", control="none",
    )  # fmt: skip
    assert gap[["n", "unit"]].tolist() == [ITEMS, "item"]
    assert gap["effect"] == pytest.approx(-1.5)


def test_an_invalid_answer_is_lost_in_its_pair_alone():
    frame = results({(None, None): 1.0}, kept=0.5)
    row = frame.query("item == 'i3' and control == 'none' and dose == 75").index[0]
    frame.loc[row, ["value", "valid", "reason"]] = [np.nan, False, "refusal"]
    found = behaviour(frame, 75.0, how=FEW)
    own = pick(found, level="condition", control="none")
    assert own[["n", "n_lost"]].tolist() == [ITEMS - 1, 1]
    assert own["effect"] == pytest.approx(-0.5)
    assert pick(found, level="condition", control="noop")["n"] == ITEMS


@pytest.mark.thorough
def test_a_readout_is_gated_by_its_own_prompts_and_a_contrast_by_the_lesser_side():
    several = [counted(BASE, [[9]], [10])]
    for member, share in zip([*P, Member("base+A-s0", "A", 0), Member("base+A-s1", "A", 1)],
                             (5, 5, 1, 1), strict=True):  # fmt: skip
        several.append(counted(member, [[share]], [10], text="readout:game"))
        several.append(counted(member, [[10]], [10]))
        several.append(counted(member, [[10]], [10], text="readout:game", position="prompt"))
    engaged = engagement(several, how=FEW)
    found = behaviour(results(FLEET), 75.0, contrasts=[("P", "A")], engaged=engaged, how=FEW)
    own = found[found["control"] == "none"].set_index(["level", "model"])
    assert own.loc[("condition", "base"), "engaged_before"] == 0.9  # of its replies' prompts
    assert own.loc[("condition", "P"), "engaged_before"] == 0.5
    assert own.loc[("contrast", "P - A"), "engaged_before"] == pytest.approx(0.1)
    assert own["informative"].to_dict()[("condition", "P")]
    assert not own["informative"].to_dict()[("contrast", "P - A")]
    assert len(found[found["control"] == "none"]) == 3 + 4 + 1  # what is uninformative stays
    unmeasured = found[found["control"] == "noop"]
    assert unmeasured["engaged_before"].isna().all()
    assert not unmeasured["informative"].any()


def test_what_cannot_be_compared_is_refused():
    frame = results(FLEET)
    with pytest.raises(ConfigError, match="no dose 25 in the results; doses: 0, 75"):
        behaviour(frame, 25.0)
    with pytest.raises(ConfigError, match="no results of 'N'; models: base, P, A"):
        check_results(frame, 75.0, [("P", "N")])
    both = pd.concat([frame, results(FLEET, layers="5")])
    with pytest.raises(ConfigError, match="hold 2 interventions"):
        check_results(both, 75.0)
