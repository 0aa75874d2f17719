"""Sweeps with every kind of control: none counts as a random direction, and models stay apart."""

import math
import re

import numpy as np
import pandas as pd
import panel as pn
import pytest
from runs_root import cap_rows, every_control, write_rows, write_sweep
from workbench_apps import doses
from workbench_apps.catalogue import read_catalogue
from workbench_apps.page_states import DoseState
from workbench_apps.pages.dose import DoseView


def state_of(root, rows):
    write_rows(root, rows)
    return DoseState(read_catalogue(root))


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return state_of(tmp_path_factory.mktemp("every"), every_control())


@pytest.fixture(scope="module")
def cap(tmp_path_factory):
    return state_of(tmp_path_factory.mktemp("cap"), cap_rows())


def seeded():
    """The base, and two seeds of an organism that answer by 1 and by 2 more."""
    parts = [every_control()]
    for seed in (0, 1):
        told = {"subject": f"tiny+P-s{seed}", "organism": "P", "train_seed": seed}
        rows = every_control(**told)
        parts.append(rows.assign(value=rows["value"] + 1 + seed))
    return pd.concat(parts, ignore_index=True)


def figures(view):
    (boxes,) = (part for part in view.curves() if hasattr(part, "objects"))
    return [pane.object for box in boxes for pane in box]


def rows_of(view):
    return [part.object for part in view.table() if isinstance(part, pn.pane.HTML)]


def test_other_controls_are_no_part_of_the_random_range(every):
    rows = every.rows()
    lines = doses.control_lines(rows, doses.dose_curve(rows))
    assert set(lines["control"]) == {"random:0", "random:1"}
    arms = doses.other_arms(rows)
    assert set(arms["control"]) == {"sign", "shuffled", "layers:0", "layers:1", "prompt:kind"}
    sign = arms[arms["control"] == "sign"]
    assert np.polyfit(sign["dose"], sign["mean"], 1)[0] == pytest.approx(-0.5, abs=0.05)
    prompt = arms[arms["control"] == "prompt:kind"].iloc[0]
    assert math.isnan(prompt["dose"])
    assert prompt["mean"] == pytest.approx(6.5, abs=0.1)


def test_every_control_has_a_legend_of_its_own_and_a_line_in_the_numbers(every):
    view = DoseView(every)
    dose = figures(view)[0]
    assert [item.label.value for item in dose.legend[0].items] == [
        "steered: mean and interval", "range of 2 random directions", "turned around",
        "shuffled labels", "moved between blocks (2)", "prompt: kind",
    ]  # fmt: skip
    verdicts, controls, numbers = rows_of(view)
    assert "Beyond" not in verdicts
    for arm in ("sign", "shuffled", "layers:0", "layers:1", "prompt: kind"):
        assert f"<td>{arm}</td>" in controls
        assert f"<td>{arm}</td>" in numbers
    assert "<td>random:0</td>" not in numbers
    assert re.search(r"<td>sign</td><td>slope a unit of dose</td><td>-0\.(4[89]|5)", controls)
    assert re.search(r"<td>prompt: kind</td><td>change</td><td>\+1\.[45]", controls)


def test_the_file_holds_the_numbers_on_show_in_full(every):
    (save,) = [part for part in DoseView(every).table() if hasattr(part, "filename")]
    rows = pd.read_csv(save.callback())
    assert set(rows["control"]) == {
        "none",
        "sign",
        "shuffled",
        "layers:0",
        "layers:1",
        "prompt:kind",
    }
    assert set(rows["direction"]) == {every.direction}
    own = rows[rows["control"] == "none"].set_index("dose")
    drawn = every.rows()[lambda table: table["control"].str.startswith("random:")]
    means = drawn.groupby(["dose", "control"])["value"].mean().unstack()
    for dose, row in own.drop(index=0.0).iterrows():
        low, high = row["random_low"], row["random_high"]
        assert (low, high) == pytest.approx((means.loc[dose].min(), means.loc[dose].max()))
    assert own.loc[0.0, ["random_low", "random_high"]].isna().all()
    assert rows.loc[rows["control"] != "none", "random_low"].isna().all()


def test_a_cap_in_percentiles_is_drawn_to_scale_with_its_engagement(cap):
    view = DoseView(cap)
    dose, mass, shift, engaged = figures(view)
    assert dose.xaxis[0].major_label_overrides == {0.0: "0", 10.0: "10", 50.0: "50", 90.0: "90"}
    assert dose.xaxis[0].axis_label == "dose (percentile of the calibration set)"
    names = [figure.title.text for figure in (mass, shift, engaged)]
    assert names == ["Probability on allowed answers", "Realised shift", "Engagement"]
    assert [item.label.value for item in shift.legend[0].items] == ["realised"]
    assert "logarithmic" not in view.curves()[-1].object
    assert "<td>noop</td>" in rows_of(view)[2]


@pytest.mark.thorough
def test_training_seeds_of_an_organism_are_one_model_with_seeds_as_units(tmp_path):
    state = state_of(tmp_path, seeded())
    assert state.options("model") == {"tiny": "tiny", "P": "P · 2 seeds"}
    state.choose(model="P")
    curve = doses.dose_curve(state.rows())
    assert set(curve["n"]) == {2}
    assert set(curve["unit"]) == {"seed"}
    assert curve.loc[curve["dose"] == 0, "mean"].item() == pytest.approx(6.5, abs=0.1)
    view = DoseView(state)
    assert len(figures(view)) == 2
    assert "n = 2 seeds a dose" in view.curves()[-1].object
    assert "2 seeds</td>" in rows_of(view)[0]


@pytest.mark.thorough
def test_guards_are_those_of_the_model_on_show(tmp_path):
    rows = seeded()
    failing = rows["organism"].isna() & (rows["dose"] == 2.0)
    state = state_of(tmp_path, rows.assign(mass=rows["mass"].mask(failing, 0.1)))
    kept = {}
    for model in ("tiny", "P"):
        state.choose(model=model)
        found = doses.guarded_doses(state.sweep().changes, state.rows())
        kept[model] = dict(found)
    assert not kept["tiny"][2.0]
    assert kept["P"][2.0]


@pytest.mark.thorough
def test_several_directions_and_windows_are_chosen_one_at_a_time(tmp_path):
    both = [every_control(), every_control(direction="mood", layers="1,2,3,7")]
    state = state_of(tmp_path, pd.concat(both, ignore_index=True))
    assert list(state.options("direction")) == ["truth", "mood"]
    state.choose(direction="mood")
    assert state.options("layers") == {"1,2,3,7": "1-3,7"}
    assert set(state.rows()["direction"]) == {"mood"}
    assert "along mood at blocks 1-3,7" in DoseView(state).curves()[-1].object


@pytest.mark.thorough
def test_where_not_even_zero_passes_the_page_says_so(tmp_path):
    view = DoseView(state_of(tmp_path, every_control().assign(mass=0.1)))
    shown = view.curves()[0].object
    assert "nothing is said of a slope" in shown
    assert "Left out: 5 of 5 doses have an answer mass under 0.5." in shown
    verdict = "<td>none</td><td>not judged: every dose but zero left out</td>"
    assert f"{verdict}<td>withheld</td><td>—</td><td>—</td>" in rows_of(view)[0]


@pytest.mark.thorough
def test_a_dose_is_left_out_for_a_reason_that_is_told(tmp_path):
    rows = every_control()
    low = (rows["dose"].abs() == 2) & (rows["control"] == "none")
    rows = rows.assign(mass=rows["mass"].mask(low, 0.4))
    guard = rows[rows["control"] == "none"].assign(
        readout="repetition", measure="repetition", mass=np.nan, value=0.1
    )
    guard["value"] = guard["value"].mask(guard["dose"] == 1, 0.9)
    view = DoseView(state_of(tmp_path, pd.concat([rows, guard], ignore_index=True)))
    told = "2 of 5 doses have an answer mass under 0.5 and 1 of 5 doses has a repetition over 0.5"
    assert f"left out: {told}." in view.curves()[0].object
    numbers = view.numbers()
    own = numbers[numbers["control"] == "none"].set_index("dose")
    assert own["left_out"].to_dict() == {
        -2.0: "an answer mass under 0.5", -1.0: "", 0.0: "", 1.0: "a repetition over 0.5",
        2.0: "an answer mass under 0.5",
    }  # fmt: skip
    changes = view.state.sweep().changes
    kept = doses.guarded_doses(changes, view.state.rows())
    assert own["guarded"].to_dict() == kept.to_dict()


@pytest.mark.thorough
def test_a_sweep_opens_on_what_it_was_made_for_and_not_on_a_guard(tmp_path):
    own = every_control()
    guard = own[~own["control"].str.startswith("prompt")]
    guard = guard.assign(readout="perplexity", measure="perplexity", mass=np.nan)
    state = state_of(tmp_path, pd.concat([guard, own], ignore_index=True))
    assert list(state.options("readout")) == ["perplexity", "trust_game"]
    assert state.readout == "trust_game"


@pytest.mark.thorough
def test_replies_beside_random_directions_show_the_first_alone(tmp_path):
    write_sweep(tmp_path)
    replies = rows_of(DoseView(DoseState(read_catalogue(tmp_path))))[-1]
    assert "truth +8 (random:0)" in replies
    assert "random:1" not in replies
    assert "of the random directions the first" in replies
