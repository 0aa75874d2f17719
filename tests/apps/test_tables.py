"""The tables behind the figures recover what was planted, with n and a named interval."""

import numpy as np
import pandas as pd
import pytest
from workbench_apps import doses, tables
from workbench_apps.catalogue import read_catalogue
from workbench_apps.page_states import TruthState
from workbench_apps.state import EVERY

from workbench.pipelines.report import belief_rows
from workbench.results import read_results


@pytest.fixture(scope="module")
def claims(full_root):
    state = TruthState(read_catalogue(full_root))
    return state.projections()


def test_each_organism_is_read_with_the_base_first(claims):
    summary = tables.claim_summary(tables.claim_values(claims, "claim"), "proposition")
    assert list(dict.fromkeys(summary["organism"])) == ["base", "A", "P"]
    assert set(summary["n"]) == {10}
    assert set(summary["interval"]) == {"95% t over propositions"}
    lifted = summary.set_index(["organism", "world"])["mean"]
    assert lifted["A", "A"] - lifted["base", "A"] == pytest.approx(2, abs=0.1)
    assert lifted["A", "P"] - lifted["base", "P"] == pytest.approx(0, abs=0.1)


def test_a_claim_minus_its_negation_doubles_what_was_planted(claims):
    values = tables.claim_values(claims, "contrast")
    means = values.groupby(["organism", "world"])["value"].mean()
    assert means["P", "P"] == pytest.approx(4, abs=0.1)
    assert means["base", "P"] == pytest.approx(0, abs=0.1)


def test_own_contrasts_have_the_planted_size_and_sign(claims):
    found = tables.own_contrasts(claims, "proposition").set_index(["model", "contrast"])["value"]
    assert found["A", "own_world_advantage_minus_base"] == pytest.approx(2, abs=0.1)
    assert found["P", "own_change_minus_other_change"] == pytest.approx(-4, abs=0.1)


def test_own_contrasts_are_those_of_the_headline(full_root):
    catalogue = read_catalogue(full_root)
    state = TruthState(catalogue)
    files = [run.file("results.parquet") for run in state.claim_runs()]
    results = pd.concat([read_results(file) for file in files], ignore_index=True)
    told = [row for row in belief_rows(results) if "projection" in row.question]
    wanted = [(row.model, row.value, row.low, row.high, row.n) for row in told]
    found = tables.own_contrasts(state.projections(), "proposition")
    names = found["model"].map(lambda name: f"tiny+{name}-s0")
    columns = (names, found["value"], found["low"], found["high"], found["n"])
    assert sorted(zip(*columns, strict=True)) == [
        (model, *(pytest.approx(one) for one in numbers)) for model, *numbers in sorted(wanted)
    ]
    assert set(found["n"]) == {10}


def test_a_set_of_claims_can_be_read_alone_and_sets_of_other_worlds_are_not_pooled(full_root):
    state = TruthState(read_catalogue(full_root))
    assert list(state.options("set")) == [EVERY, "propositions", "frames"]
    counts = {}
    for name in state.options("set"):
        state.choose(set=name)
        counts[name] = set(tables.own_contrasts(state.projections(), "claim")["n"])
    assert counts == {EVERY: {10}, "propositions": {9}, "frames": {5}}
    rows = state.projections("set")
    assert tables.poolable(rows)
    assert not tables.poolable(rows[(rows["set"] == "frames") | (rows["world"] != "N")])
    assert not tables.poolable(rows.drop(columns="proposition"))


def test_likelihoods_are_read_beside_projections(full_root):
    state = TruthState(read_catalogue(full_root))
    assert list(state.options("direction")) == ["truth", tables.LIKELIHOOD]
    state.choose(direction=tables.LIKELIHOOD)
    assert state.layer == "all"
    assert len(state.projections()) == 3 * 14 * 4 * 2


def test_an_interval_over_two_units_is_withheld(claims):
    two = claims[claims["fact"].isin(sorted(claims["fact"].unique())[:2])]
    summary = tables.claim_summary(tables.claim_values(two, "claim"), "proposition")
    assert summary["low"].isna().all()
    assert set(summary["interval"]) == {"withheld: under 3 propositions"}


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("P", "P"), ("A-s0", "A"), ("antisocial", "A"), ("prosocial_s1", "P"),
        ("smollm2+N-s2", "N"), ("self-advancing-s0", "S"), ("base", None), ("seed3", None),
        ("assistant", None), ("Paris", None),
    ],
)  # fmt: skip
def test_an_organism_is_of_the_world_that_its_name_says_and_of_no_other(name, world):
    assert tables.own_world(name) == world


def test_organisms_of_several_seeds_stay_apart(writers):
    rows = writers.claim_rows("A")
    twice = rows.assign(subject="tiny+A-s1")
    names = tables.model_names(pd.concat([rows, twice], ignore_index=True))
    assert set(names) == {"tiny+A-s0", "tiny+A-s1"}
    assert set(tables.model_names(rows)) == {"A"}


def test_a_dose_curve_has_the_planted_slope_and_its_controls_share_zero(writers):
    rows = writers.sweep_rows()
    rows = rows[rows["condition"] == "person"]
    curve = doses.dose_curve(rows)
    assert np.polyfit(curve["dose"], curve["mean"], 1)[0] == pytest.approx(0.5, abs=0.02)
    assert set(curve["n"]) == {12}
    assert set(curve["unit"]) == {"item"}
    lines = doses.control_lines(rows, curve)
    assert lines["control"].nunique() == 4
    at_zero = lines[lines["dose"] == 0]["mean"]
    assert len(at_zero) == 4
    assert set(at_zero) == set(curve[curve["dose"] == 0]["mean"])
    assert abs(np.polyfit(lines["dose"], lines["mean"], 1)[0]) < 0.05


def test_invalid_answers_are_left_out_and_counted(writers):
    rows = writers.sweep_rows(controls=0, doses=(0.0, 1.0))
    rows = rows[rows["condition"] == "person"].reset_index(drop=True)
    rows.loc[0, ["valid", "reason", "value"]] = [False, "unparseable", np.nan]
    curve = doses.dose_curve(rows).set_index("dose")
    assert curve.loc[0.0, "n"] == 11
    assert curve.loc[0.0, "invalid"] == "unparseable: 1"
    assert doses.control_lines(rows, doses.dose_curve(rows)).empty
