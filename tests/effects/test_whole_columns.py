"""A drawn sweep that is judged in whole columns gives the numbers of the plain way, arm by arm."""

import numpy as np
import pandas as pd
import pytest
from plain_way import plain_changes, plain_slopes

from workbench.effects import How, changes, control_slopes, judge, slopes
from workbench.effects.arms import intervals
from workbench.effects.curves import interval
from workbench.results import table
from workbench.types import Measurement

HOW = How(draws=200)
DOSES = (-2.0, -1.0, 0.0, 0.5)
CONTROLS = ("none", "random:0", "random:1", "sign", "prompt:kind", "prompt")


def arm(rng, seed, direction, layers, control, dose):
    """One arm's answers: items of weights of their own, some lost, some asked twice."""
    found, slope = [], 1.5 if control == "none" else 0.1
    for readout, condition, items, mass in (("game", "plain", 26, 0.9), ("claims", "", 6, np.nan)):
        for n in range(items):
            lost = rng.random() < 0.1
            answer = {"valid": False, "reason": "unparseable"} if lost else {}
            value = None if lost else float(rng.normal() + slope * (dose or 0) * (n % 3))
            found += [
                Measurement(
                    readout, "score", f"i{n}", condition, value, mass=mass,
                    weight=float(rng.choice([0.5, 1.0, 3.0])), **answer,
                )
            ] * (1 + (n % 9 == 4))  # fmt: skip
    worse = 10 + (9 if dose == -2 and layers == "3" else 0)
    found.append(Measurement("perplexity", "perplexity", "text", "", float(worse)))
    told = {}
    if dose is not None:
        told = {"dose": dose, "dose_raw": dose * 2, "dose_gap": dose, "realised": 0.7 * dose}
    organism = {} if seed is None else {"organism": "kind", "train_seed": seed}
    return table(
        found, subject="m" if seed is None else f"m+kind-s{seed}", base="m", direction=direction,
        edit="add", layers=layers, scope="all", unit="gap", control=control, **told, **organism,
    )  # fmt: skip


def drawn_sweep():
    """A base and two seeds of one organism, two directions, every kind of control."""
    rng, parts = np.random.default_rng(5), []
    for seed in (None, 0, 1):
        for direction, layers in (("truth", "3"), ("calm", "9")):
            for control in CONTROLS:
                prompted = control.startswith("prompt")
                for dose in (None,) if prompted else DOSES:
                    if control == "none" or dose != 0:
                        parts.append(arm(rng, seed, direction, layers, control, dose))
    frame = pd.concat(parts, ignore_index=True)
    alone = (
        (frame["train_seed"] == 1).fillna(False).astype(bool)
        & (frame["dose"] == -1)
        & (frame["layers"] == "9")
    )
    frame.loc[alone, ["value", "valid", "reason"]] = [np.nan, False, "unparseable"]
    quiet = (frame["readout"] == "game") & (frame["dose"] == 0.5) & (frame["direction"] == "calm")
    frame.loc[quiet, "mass"] = 0.2
    gone = (frame["readout"] == "claims") & (frame["control"] == "sign")
    frame.loc[gone, ["value", "valid", "reason"]] = [np.nan, False, "unparseable"]
    return frame.sample(frac=1, random_state=3, ignore_index=True)


@pytest.fixture(scope="module")
def sweep():
    return drawn_sweep()


def assert_same(found, plain):
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), plain, check_dtype=False, rtol=1e-12, atol=1e-12
    )


def test_changes_are_those_of_the_plain_way(sweep):
    plain = plain_changes(sweep, HOW)
    assert set(plain["unit"]) == {"item", "seed"}
    assert plain["n_lost"].max() > 3
    assert not plain["guarded"].all()
    assert_same(changes(sweep, how=HOW), plain)


def test_slopes_and_those_of_controls_are_those_of_the_plain_way(sweep):
    plain, controls = plain_slopes(sweep, HOW)
    assert plain["verdict"].nunique() > 1
    assert plain["n_unguarded"].max() == 1
    assert_same(slopes(sweep, how=HOW), plain)
    assert_same(control_slopes(sweep, how=HOW), controls)


def test_samples_of_one_size_that_share_their_draws_have_the_intervals_of_each():
    rng = np.random.default_rng(1)
    sizes = ((30, 0), (3, 3), (1, 0), (30, 0), (25, 2), (0, 0), (12, 0), (41, 0), (20, 0))
    samples = [(rng.normal(size=n), seeds) for n, seeds in sizes]
    found = pd.DataFrame(intervals(samples, HOW, "change"))
    plain = [interval(values, seeds, HOW, "change") for values, seeds in samples]
    assert_same(found, pd.DataFrame(plain))


def test_what_is_judged_at_once_is_what_is_judged_apart(sweep):
    gaps = {("game", "score", "plain"): 2.0}
    found = judge(sweep, gaps=gaps, how=HOW)
    assert_same(found.changes, changes(sweep, how=HOW))
    assert_same(found.slopes, slopes(sweep, gaps=gaps, how=HOW))
    assert_same(found.controls, control_slopes(sweep, how=HOW))
    assert found.slopes["share_of_gap"].notna().any()
