"""Margins by dose: planted slopes and nulls, accuracy, monotonicity, what is refused."""

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
                    "ok" if valid else "out_of_range", extra={"scenario": f"{facet}-{scenario}"},
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
        assert slope["p"] < 0.01
        assert stat(rows, "steps", facet=facet)["value"] == 1
        assert stat(rows, "smallest_step", facet=facet)["p"] < 0.01
    assert stat(rows, "slope")["n"] == 16
    assert stat(rows, "slope", facet="ability")["n"] == 8
    assert stat(rows, "slope_minus_shuffled")["value"] == pytest.approx(0.1, abs=0.01)
    assert stat(rows, "slope_minus_random")["low"] > 0


@pytest.mark.thorough
def test_a_null_has_a_p_that_is_spread_over_the_unit_interval():
    """No slope anywhere: p below 0.1 in about a tenth of many tables, never in most."""
    ps = [
        stat(monotonicity(margin_items(swept(0.0, noise=0.3, seed=seed)), FAST), "slope")["p"]
        for seed in range(12)
    ]
    assert sum(p < 0.1 for p in ps) <= 4
    assert max(ps) > 0.4


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
