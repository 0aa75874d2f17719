"""Margins by dose: planted slopes and nulls, accuracy, monotonicity, what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

from workbench.effects.curves import How
from workbench.effects.margins import (
    accuracies,
    curves_of,
    displacement,
    margin_curves,
    margin_items,
    monotonicity,
)
from workbench.errors import ConfigError
from workbench.results import table
from workbench.types import Measurement

DOSES = (-2.0, -1.0, 0.0, 1.0, 2.0)
FAST = How(unit="scenario", draws=400)
FACETS = ("ability", "integrity")


def swept(slope=0.1, *, shuffled=0.0, random=(0.0,), noise=0.02, fall=0.0, scenarios=8, seed=0,
          lose=None):  # fmt: skip
    """A sweep in which each pair has its own level and rises by ``slope`` a dose."""
    rng = np.random.default_rng(seed)
    level = {(f, s, n): rng.normal() for f in FACETS for s in range(scenarios) for n in range(3)}
    arms = [("none", dose, slope) for dose in DOSES]
    arms += [("shuffled", dose, shuffled) for dose in DOSES if dose]
    arms += [(f"random:{n}", dose, own) for n, own in enumerate(random) for dose in DOSES if dose]
    frames = []
    for control, dose, own in arms:
        found = []
        for (facet, scenario, n), base in level.items():
            item = f"{facet}{scenario}{n}"
            margin = base + own * dose + (rng.normal() * noise if dose else 0)
            valid = (item, dose) != lose
            halves = {"margin": margin, "chosen": -2 + margin / 2 - fall * abs(dose),
                      "rejected": -2 - margin / 2 - fall * abs(dose)}  # fmt: skip
            found += [
                Measurement(
                    "reply_margin", measure, item, facet, float(value) if valid else None, valid,
                    "ok" if valid else "out_of_range",
                    extra={"scenario": f"{facet}-{scenario}", "split": "test"},
                )
                for measure, value in halves.items()
            ]  # fmt: skip
        frames.append(
            table(
                found, subject="m", direction="trust", edit="add", layers=(0, 1), scope="content",
                dose=dose, unit="raw", dose_raw=dose, realised=dose, control=control,
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def stat(rows, statistic, control="none", facet="all"):
    kept = rows[(rows["statistic"] == statistic) & (rows["control"] == control)]
    return kept[kept["facet"] == facet].iloc[0]


def test_a_planted_slope_is_found_in_every_facet_with_all_steps_up():
    rows = monotonicity(margin_items(swept(0.1)), FAST)
    for facet in ("all", *FACETS):
        slope = stat(rows, "slope", facet=facet)
        assert slope["value"] == pytest.approx(0.1, abs=0.01)
        assert slope["low"] < slope["value"] < slope["high"]
        assert slope["p"] == (1 / 400 if facet == "all" else 2**-7)
        assert stat(rows, "steps", facet=facet)["value"] == 1
        assert stat(rows, "smallest_step", facet=facet)["p"] < 0.01
    assert stat(rows, "slope")["n"] == 16
    assert stat(rows, "slope", facet="ability")["n"] == 8
    assert stat(rows, "slope_minus_shuffled")["value"] == pytest.approx(0.1, abs=0.01)
    assert stat(rows, "slope_minus_random")["low"] > 0


def null_items(scenarios, seed):
    """No slope on the whole; each scenario has one of its own, and four pairs."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal(scenarios)
    return pd.DataFrame([
        {"control": "none", "dose": dose, "item": f"{n}-{k}", "facet": "ability",
         "scenario": f"s{n}", "measure": "margin",
         "value": own[n] * dose + 0.1 * rng.standard_normal()}
        for n in range(scenarios) for k in range(4) for dose in (-1.0, 0.0, 1.0)
    ])  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("scenarios", [4, 12])
def test_of_many_nulls_95_percent_have_intervals_that_hold_zero(scenarios):
    how, held, small, times = How(unit="scenario", draws=400), [], [], 600
    for seed in range(times):
        items = null_items(scenarios, seed)
        slope = stat(monotonicity(items, how), "slope")
        curve = margin_curves(items, how)
        top = curve[(curve["dose"] == 1) & (curve["facet"] == "all")].iloc[0]
        held.append([row["low"] <= 0 <= row["high"] for row in (slope, {
            "low": top["change_low"], "high": top["change_high"]})])  # fmt: skip
        small.append(slope["p"] < 0.05)
    assert np.abs(np.mean(held, axis=0) - 0.95).max() <= 0.03
    if scenarios == 4:
        assert not any(small)
    else:
        assert abs(np.mean(small) - 0.05) <= 0.03


@pytest.mark.thorough
def test_a_null_of_many_scenarios_has_a_bootstrap_p_that_is_small_as_often_as_it_says():
    how = How(unit="scenario", draws=400)
    slopes = [stat(monotonicity(null_items(24, seed), how), "slope") for seed in range(300)]
    assert {slope["test"] for slope in slopes} == {"paired bootstrap over scenarios"}
    assert abs(np.mean([slope["p"] < 0.1 for slope in slopes]) - 0.1) <= 0.05


@pytest.mark.parametrize(
    ("scenarios", "test", "least"),
    [(4, "too few scenarios", None), (5, "too few scenarios", None),
     (6, "sign flips over scenarios", 2**-5), (12, "sign flips over scenarios", 2**-11),
     (19, "sign flips over scenarios", 1 / 400),
     (20, "paired bootstrap over scenarios", 1 / 401)],
)  # fmt: skip
def test_p_is_never_below_what_so_many_scenarios_can_show(scenarios, test, least):
    items = null_items(scenarios, 0)
    items["value"] = items["dose"] + items["value"] * 1e-3
    rows = monotonicity(items, FAST)
    slope, steps = stat(rows, "slope"), stat(rows, "smallest_step")
    assert slope["test"] == steps["test"] == test
    if least is None:
        assert np.isnan([slope["p"], steps["p"]]).all()
    else:
        assert slope["p"] == pytest.approx(least)
        assert steps["p"] == pytest.approx(least / (2 if scenarios < 13 else 1))


def test_intervals_are_t_intervals_over_scenario_means():
    """Five scenarios with slopes 1 to 5, the first with more pairs, which count no more."""
    rows = [
        {"control": "none", "dose": dose, "item": f"{n}-{k}", "facet": "ability",
         "scenario": f"s{n}", "measure": "margin", "value": float(n * dose)}
        for n in range(1, 6) for k in range(9 if n == 1 else 1) for dose in (-1.0, 0.0, 1.0)
    ]  # fmt: skip
    reach = 2.776445105 * np.sqrt(2.5 / 5)
    slope = stat(monotonicity(pd.DataFrame(rows), FAST), "slope")
    assert (slope["value"], slope["n"]) == (pytest.approx(3), 5)
    assert [slope["low"], slope["high"]] == pytest.approx([3 - reach, 3 + reach])
    assert slope["interval"] == "95% t over scenarios"
    curve = margin_curves(pd.DataFrame(rows), FAST)
    top = curve[(curve["dose"] == 1) & (curve["facet"] == "all")].iloc[0]
    assert [top["change"], top["change_low"]] == pytest.approx([3, 3 - reach])
    assert [top["mean"], top["low"]] == pytest.approx([3, 3 - reach])
    assert top["interval"] == "95% t over scenarios"


def test_steps_have_intervals_that_hold_for_all_of_them_at_once():
    items = null_items(8, 0)
    items["value"] = items["dose"] + items["value"] * 1e-3
    rows = monotonicity(items, FAST)
    steps, least = stat(rows, "steps"), stat(rows, "smallest_step")
    assert [steps["value"], steps["low"], steps["high"]] == [1, 1, 1]
    assert least["low"] < least["value"] < least["high"]
    assert least["interval"] == "95% t over scenarios, all steps at once"
    flat = monotonicity(null_items(8, 0), FAST)
    assert (stat(flat, "steps")["low"], stat(flat, "steps")["high"]) == (0, 1)


def test_a_slope_like_that_of_the_shuffled_labels_is_no_difference():
    rows = monotonicity(margin_items(swept(0.1, shuffled=0.1)), FAST)
    apart = stat(rows, "slope_minus_shuffled")
    assert apart["low"] < 0 < apart["high"]
    assert stat(rows, "slope", "shuffled")["value"] == pytest.approx(0.1, abs=0.01)


def test_a_curve_that_turns_is_not_monotone():
    frame = swept(0.1, noise=0.0)
    top = (frame["dose"] == 2) & (frame["control"] == "none")
    frame.loc[top, "value"] -= 1.0
    rows = monotonicity(margin_items(frame), FAST)
    assert stat(rows, "steps")["value"] == 0.75
    assert stat(rows, "steps")["p"] == 1
    assert stat(rows, "smallest_step")["value"] == pytest.approx(-0.9)


@pytest.mark.thorough
def test_levels_of_the_pairs_do_not_widen_a_paired_interval():
    rows = monotonicity(margin_items(swept(0.1, noise=0.0)), FAST)
    slope = stat(rows, "slope")
    assert (slope["low"], slope["high"]) == pytest.approx((0.1, 0.1))
    curve = margin_curves(margin_items(swept(0.1, noise=0.0)), FAST)
    own = curve[(curve["control"] == "none") & (curve["facet"] == "all")]
    assert np.diff(own["mean"]) == pytest.approx([0.1] * 4)
    assert (own["high"] - own["low"]).min() > 0.2  # levels differ by much more
    assert own["change"].tolist() == pytest.approx([-0.2, -0.1, 0, 0.1, 0.2])
    assert own["change_high"].tolist() == pytest.approx(own["change_low"].tolist())


def test_the_zero_dose_stands_once_and_is_shared_by_the_controls():
    items = margin_items(swept(0.1))
    curve = margin_curves(items, FAST)
    zero = curve[curve["dose"] == 0]
    assert set(zero["control"]) == {"none"}
    for one in curves_of(items, "margin"):
        assert one.doses.tolist() == list(DOSES)
        assert one.values.shape == (48 if one.facet == "all" else 24, 5)


def test_accuracy_counts_pairs_and_ties_half():
    frame = swept(0.0, noise=0.0)
    frame.loc[frame["measure"] == "margin", "value"] = -1.0
    at = (frame["measure"] == "margin") & (frame["dose"] == 2) & (frame["control"] == "none")
    frame.loc[at, "value"] = 1.0
    at = (frame["measure"] == "margin") & (frame["dose"] == 1) & (frame["control"] == "none")
    frame.loc[at, "value"] = 0.0
    found = accuracies(margin_items(frame), FAST)
    own = found[(found["control"] == "none") & (found["facet"] == "all")]
    assert own.set_index("dose")["accuracy"].to_dict() == {-2: 0, -1: 0, 0: 0, 1: 0.5, 2: 1}
    assert (own["n"].iloc[0], own["unit"].iloc[0]) == (16, "scenario")


def test_both_replies_going_down_shows_as_displacement():
    found = displacement(margin_items(swept(0.1, fall=0.5, noise=0.0)), FAST)
    own = found[(found["control"] == "none") & (found["facet"] == "all") & (found["dose"] == 2)]
    told = own.set_index("side")["change"]
    assert told["chosen"] == pytest.approx(-0.9)
    assert told["rejected"] == pytest.approx(-1.1)
    assert not (found["dose"] == 0).any()


def test_a_pair_that_lacks_a_dose_is_left_out_and_counted():
    items = margin_items(swept(0.1, lose=("ability00", 1.0)))
    own = next(one for one in curves_of(items, "margin") if one.control == "none")
    assert (len(own.values), own.lost) == (47, 1)
    curve = margin_curves(items, FAST)
    assert set(curve.loc[(curve["control"] == "none"), "lost"]) == {0, 1}
    monotonicity(items, FAST)  # the controls are matched to what is left


def test_one_scenario_has_no_interval_and_says_so():
    rows = monotonicity(margin_items(swept(0.1, scenarios=1)), FAST)
    one = stat(rows, "slope", facet="ability")
    assert np.isnan([one["low"], one["high"], one["p"]]).all()
    assert one["interval"] == "none: 1 scenario"


def test_what_is_no_single_sweep_of_margins_is_refused():
    frame = swept(0.1)
    with pytest.raises(ConfigError, match="no margins in these results"):
        margin_items(frame.assign(readout="claims"))
    with pytest.raises(ConfigError, match="no zero dose"):
        margin_items(frame[frame["dose"] != 0])
    other = pd.concat([frame, frame.assign(direction="other")])
    with pytest.raises(ConfigError, match="2 values of direction"):
        margin_items(other)


def test_pairs_that_are_not_held_out_are_refused():
    frame = swept(0.1)
    for split, named in (("train", "train"), (None, "none, which is trained on")):
        extra = [json.dumps({**json.loads(text), "split": split}) for text in frame["extra"]]
        with pytest.raises(ConfigError, match=f"not held out .split: {named}.*split = 'test'"):
            margin_items(frame.assign(extra=extra))


def test_two_sweeps_of_the_same_margins_are_refused_and_named():
    """Their mean stood for both before."""
    both = [swept(0.1).assign(run="first"), swept(0.3).assign(run="second")]
    with pytest.raises(ConfigError, match=r"more than once.*runs: first, second"):
        margin_items(pd.concat(both, ignore_index=True))


def test_a_facet_without_a_valid_zero_dose_is_lost_as_a_whole():
    items = margin_items(swept(0.1))
    cut = items[(items["facet"] != "ability") | (items["dose"] != 0)]
    own = next(one for one in curves_of(cut, "margin") if one.facet == "ability")
    assert (len(own.values), own.lost) == (0, 24)
    assert set(margin_curves(cut, FAST)["facet"]) == {"all", "integrity"}
    assert set(monotonicity(cut, FAST)["facet"]) == {"all", "integrity"}
