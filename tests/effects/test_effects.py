"""Changes, guards, slopes and verdicts, on tables whose effects are planted."""

import numpy as np
import pandas as pd
import pytest

from workbench.effects import GUARDS, Guard, How, changes, control_slopes, sensitivity, slopes
from workbench.errors import ConfigError
from workbench.results import table
from workbench.types import Measurement

DOSES = (-2.0, -1.0, 0.0, 1.0, 2.0)
FAST = How(draws=400)


def sweep_table(
    slope=1.0,
    *,
    items=30,
    seeds=(None,),
    controls=6,
    control_slope=0.05,
    mass=lambda _dose: 0.9,
    gap=2.0,
    noise=0.1,
    extra=(),
):
    """A sweep whose items answer with their own level plus slope times dose."""
    rng = np.random.default_rng(0)
    frames = []
    for seed in seeds:
        level = rng.normal(size=items) * 5
        arms = [("none", dose, slope) for dose in DOSES]
        arms += [
            (f"random:{n}", dose, control_slope * (-1) ** n)
            for n in range(controls)
            for dose in DOSES
            if dose
        ]
        for control, dose, own in arms:
            found = [
                Measurement(
                    "game", "send", f"i{i}", "plain",
                    float(level[i] + own * dose + (rng.normal() * noise if dose else 0)),
                    mass=mass(dose),
                )
                for i in range(items)
            ]  # fmt: skip
            found += [make(control, dose) for make in extra]
            frame = table(
                found, subject="m", direction="truth", edit="add", layers=(3,), scope="all",
                dose=dose, unit="gap", dose_raw=dose * gap, dose_gap=dose,
                realised=0.8 * dose * gap, control=control,
            )  # fmt: skip
            if seed is not None:
                frame = frame.assign(organism="kind", train_seed=seed, subject=f"m+kind-s{seed}")
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def test_a_planted_slope_is_found_with_its_interval_and_beats_the_random_directions():
    row = slopes(sweep_table(1.0), how=FAST).iloc[0]
    assert row["low"] < 1.0 < row["high"]
    assert row["high"] - row["low"] < 0.1
    assert row["slope"] == pytest.approx(1.0, abs=0.03)
    assert (row["n"], row["unit"], row["interval"]) == (30, "item", "95% bootstrap over items")
    assert row["band"] == pytest.approx(0.05, abs=0.03)
    assert row["band_name"] == "largest of 6 random directions"
    assert row["monotone"]
    assert row["rho"] == pytest.approx(1)
    assert row["verdict"] == "beyond random directions"


def test_few_items_have_t_intervals_of_their_changes():
    found = changes(sweep_table(1.0, items=6), how=FAST)
    own = found[(found["control"] == "none") & (found["dose"] != 0)]
    assert set(own["interval"]) == {"95% t over items"}
    assert (own["low"] < own["change"]).all()


def test_levels_of_the_items_do_not_widen_the_interval_of_a_change():
    found = changes(sweep_table(1.0, noise=0.0), how=FAST)
    two = found[(found["control"] == "none") & (found["dose"] == 2)].iloc[0]
    assert (two["change"], two["low"], two["high"]) == pytest.approx((2, 2, 2))
    assert found.loc[(found["dose"] == 0), "change"].tolist() == [0.0]


def test_a_curve_within_its_random_directions_is_not_called_an_effect():
    row = slopes(sweep_table(0.2, control_slope=0.3), how=FAST).iloc[0]
    assert row["verdict"] == "not beyond random directions"
    assert not row["beyond_band"]


def test_noise_alone_is_no_reliable_change():
    row = slopes(sweep_table(0.0, noise=1.0), how=FAST).iloc[0]
    assert row["verdict"] == "no reliable change"


def test_without_random_directions_nothing_is_judged():
    row = slopes(sweep_table(1.0, controls=0), how=FAST).iloc[0]
    assert row["verdict"] == "not judged: no random directions"
    assert row["band_name"] == "none: no random directions"


def test_three_seeds_are_the_unit_not_their_items():
    found = slopes(sweep_table(1.0, seeds=(0, 1, 2)), how=FAST)
    assert len(found) == 1
    row = found.iloc[0]
    assert (row["model"], row["n"], row["unit"]) == ("kind", 3, "seed")
    assert row["interval"] == "95% t over 3 seeds"


def test_doses_that_lose_the_letters_are_left_out_of_the_slope():
    frame = sweep_table(1.0, mass=lambda dose: 0.9 if abs(dose) < 2 else 0.2)
    row = slopes(frame, how=FAST).iloc[0]
    assert row["doses"] == "-1, 0, 1"
    assert row["n_unguarded"] == 2
    found = changes(frame, how=FAST)
    assert set(found.loc[~found["guarded"], "dose"]) == {-2.0, 2.0}


def perplexity(control, dose):
    return Measurement("perplexity", "perplexity", "text", "", 10.0 + 4 * abs(dose))


def test_a_guard_is_measured_against_the_own_zero_dose():
    frame = sweep_table(1.0, extra=[perplexity])
    found = changes(frame, guards=[Guard("perplexity", "perplexity", times=1.5)], how=FAST)
    kept = found[found["guarded"] & (found["control"] == "none")]
    assert set(kept["dose"]) == {-1.0, 0.0, 1.0}
    assert changes(frame, guards=(), how=FAST)["guarded"].all()


def test_a_guard_that_measured_nothing_valid_fails():
    broken = Measurement(
        "perplexity", "perplexity", "t", "", None, valid=False, reason="out_of_range"
    )
    frame = sweep_table(1.0, extra=[lambda _control, _dose: broken])
    row = slopes(frame, how=FAST).set_index("readout").loc["game"]
    assert row["verdict"] == "not judged: no guarded dose"
    assert row["n"] == 0
    assert row["band_name"] == "none: no guarded dose"


def test_the_share_of_the_gap_counts_doses_within_one_realised_gap_alone():
    gaps = {("game", "send", "plain"): 1.5}
    row = slopes(sweep_table(1.0, noise=0.0), gaps=gaps, how=FAST).iloc[0]
    assert row["share_of_gap"] == pytest.approx(1 / 1.5)  # dose 2 realises 1.6 gaps
    assert row["verdict"] == "closes half of the gap"


def test_a_lost_item_is_counted_and_leaves_its_pair():
    frame = sweep_table(1.0)
    at = (frame["dose"] == 1) & (frame["item"] == "i4") & (frame["control"] == "none")
    frame.loc[at, ["value", "valid", "reason"]] = [np.nan, False, "unparseable"]
    found = changes(frame, how=FAST)
    row = found[(found["dose"] == 1) & (found["control"] == "none")].iloc[0]
    assert (row["n"], row["n_lost"]) == (29, 1)


def test_turning_the_direction_turns_the_slope():
    frame = sweep_table(1.0, noise=0.0)
    turned = frame.assign(dose=-frame["dose"])
    ahead, back = (slopes(one, how=FAST).iloc[0]["slope"] for one in (frame, turned))
    assert ahead == pytest.approx(-back)


def test_a_bent_curve_is_not_monotone():
    frame = sweep_table(1.0, noise=0.0)
    at = (frame["dose"] == 2) & (frame["control"] == "none")
    frame.loc[at, "value"] -= 1.5
    assert slopes(frame, how=FAST).iloc[0]["verdict"] == "beyond random directions, not monotone"


def test_sensitivity_takes_the_larger_end():
    frame = sweep_table(1.0, noise=0.0)
    frame.loc[(frame["dose"] == -2) & (frame["control"] == "none"), "value"] -= 1
    found = sensitivity(changes(frame, how=FAST), 2)
    assert found.to_numpy().tolist() == [[pytest.approx(3.0)]]
    with pytest.raises(ConfigError, match="doses -3 and 3 were not both swept; doses: -2, -1, 0"):
        sensitivity(changes(frame, how=FAST), 3)


def test_a_curve_without_its_zero_and_a_table_without_doses_are_refused():
    frame = sweep_table(1.0)
    with pytest.raises(ConfigError, match="no zero dose to compare with in the curve of model 'm'"):
        changes(frame[frame["dose"] != 0], how=FAST)
    with pytest.raises(ConfigError, match="give the results table of a sweep"):
        changes(frame.assign(dose=np.nan), how=FAST)
    with pytest.raises(ConfigError, match="no column 'fact' to resample"):
        changes(frame, how=How(unit="fact"))


def test_a_prompt_stands_beside_the_doses_and_outside_the_slope():
    frame = sweep_table(1.0, noise=0.0)
    asked = frame[(frame["dose"] == 0) & (frame["control"] == "none")]
    asked = asked.assign(control="prompt", dose=np.nan, realised=np.nan, value=asked["value"] + 0.7)
    both = pd.concat([frame, asked], ignore_index=True)
    found = changes(both, how=FAST)
    assert found.loc[found["control"] == "prompt", "change"].tolist() == [pytest.approx(0.7)]
    assert found["guarded"].all()
    assert slopes(both, how=FAST).iloc[0]["slope"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("value", np.nan, "no finite value"),
        ("value", np.inf, "no finite value"),
        ("weight", np.nan, "no weight above 0"),
        ("weight", 0.0, "no weight above 0"),
        ("valid", None, "column 'valid' holds None"),
        ("valid", "False", "column 'valid' holds 'False'"),
        ("control", None, "column 'control' is empty"),
        ("dose", "much", "column 'dose' holds no numbers"),
    ],
)
def test_a_cell_that_would_count_as_something_else_is_named(column, value, message):
    """A valid row without a number counted as 0, and the text False as true."""
    frame = sweep_table()
    frame[column] = frame[column].astype(object)
    frame.loc[3, column] = value
    for judge in (changes, slopes, control_slopes):
        with pytest.raises(ConfigError, match=message):
            judge(frame, how=FAST)


@pytest.mark.parametrize("column", ["mass", "realised", "weight", "organism"])
def test_a_missing_column_is_named(column):
    with pytest.raises(ConfigError, match=f"no column '{column}'"):
        changes(sweep_table().drop(columns=column), how=FAST)


@pytest.mark.thorough
def test_an_organism_on_two_bases_is_two_models():
    small, large = (
        sweep_table(slope, seeds=(0, 1), controls=1).assign(base=base)
        for base, slope in (("small", 1.0), ("large", 3.0))
    )
    found = slopes(pd.concat([small, large], ignore_index=True), how=FAST).set_index("model")
    assert found.index.tolist() == ["small+kind", "large+kind"]
    assert found["slope"].tolist() == pytest.approx([1, 3], abs=0.05)


@pytest.mark.thorough
def test_a_dose_that_one_seed_survived_does_not_turn_to_items():
    frame = sweep_table(seeds=(0, 1, 2))
    frame.loc[(frame["train_seed"] > 0) & (frame["dose"] == 2), ["valid", "reason"]] = [
        False, "unparseable",
    ]  # fmt: skip
    found = changes(frame, how=FAST)
    own = found[found["control"] == "none"].set_index("dose")
    assert (own.loc[2.0, "n"], own.loc[2.0, "unit"]) == (1, "seed")
    assert own.loc[2.0, "interval"] == "none: 1 seed"
    assert np.isnan(own.loc[2.0, "low"])
    assert own.loc[2.0, "change"] == pytest.approx(2, abs=0.1)


@pytest.mark.thorough
def test_the_larger_of_two_doses_needs_both():
    frame = sweep_table()
    lacking = frame[frame["dose"] != 2].assign(direction="lacking")
    found = sensitivity(changes(pd.concat([frame, lacking], ignore_index=True), how=FAST), 2)
    values = found.iloc[:, 0]
    assert values.xs("truth", level="direction").notna().all()
    assert values.xs("lacking", level="direction").isna().all()


@pytest.mark.thorough
def test_controls_without_a_zero_dose_have_no_slope_either():
    frame = sweep_table()
    guard = [lambda _control, _dose: Measurement("perplexity", "perplexity", "t", "plain", 5.0)]
    for table_ in (frame[frame["dose"] != 0], sweep_table(extra=guard)):
        rows = table_[~((table_["readout"] == "perplexity") & (table_["dose"] == 0))]
        with pytest.raises(ConfigError, match="no zero dose"):
            control_slopes(rows, how=FAST)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.readout)
def test_a_guard_passes_its_own_zero_dose_where_that_is_zero_too(guard):
    assert guard.passes(0.0, 0.0)
    assert not guard.passes(np.nan, 0.0)
