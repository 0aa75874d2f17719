"""What a capping run says in words: gates, bands and controls, nothing hidden."""

import pandas as pd
import pytest

from workbench.pipelines.capping import CappingConfig
from workbench.pipelines.report_capping import read_summary, report, summary, verdict

CONFIG = CappingConfig(
    model="base", organisms=["P-s0"], axis="axis", calibration="acts", layers=[5, 6]
)
TOLD = {"low": -1.0, "high": -0.5, "n": 3, "unit": "seed", "interval": "95% t over 3 seeds"}


def tables(engaged=0.5, near=True, **change):
    floors = {"control": "none", "layer": 5, "floor": 2.0, "below": 0.75, "default": 1.9,
              "apart": 0.1 if near else -3.0, "near": near}  # fmt: skip
    shares = {"level": "condition", "model": "P", "text": "own", "hooked": False,
              "position": "final", "control": "none", "layer": pd.NA, "engaged": engaged,
              "informative": engaged >= 0.15}  # fmt: skip
    placed = {"level": "condition", "model": "P", "text": "own", "control": "none", "dose": 0.0,
              "displacement": -2.0, "band": 0.5, "band_name": "95% of 1000 random directions",
              "beyond_band": True}  # fmt: skip
    gap = {"level": "contrast", "model": "P - A", "readout": "game", "measure": "sent",
           "condition": "person", "control": "none", "before": 2.0, "after": 1.2, "effect": -0.8,
           "kept": 0.6, "band": 0.1, "band_name": "largest of 3", "beyond_band": True,
           "engaged_before": engaged, "informative": engaged >= 0.15, **change}  # fmt: skip
    written = {**shares, "position": "generated"}
    other = {**written, "control": "random:0", "engaged": 0.4}
    return {
        "thresholds": pd.DataFrame([{**TOLD, **floors}]),
        "engagement": pd.DataFrame([{**TOLD, **row} for row in (shares, written, other)]),
        "displacement": pd.DataFrame([{**TOLD, **placed}]),
        "behaviour": pd.DataFrame([{**TOLD, **gap}]),
    }


def test_the_summary_holds_every_number_that_decides():
    told = "\n".join(summary(tables(), CONFIG))
    assert "percentile 25 along role minus default, so 75% of 3 calibration seeds" in told
    assert "near it" in told
    assert "final positions, own replies: 50% over 1 models; all reach the gate of 15%" in told
    assert "P from the reference, on own replies: -2 [-1, -0.5] uncapped (beyond the band" in told
    assert "P - A, game sent person: +2 before, +1.2 after, change -0.8 [-1, -0.5]" in told
    assert "n = 3 seeds; random caps reach 0.1: a change beyond random caps" in told
    assert "set by the calibration's percentile; the axis's would move 50% of own tokens" in told
    assert "Control random" in told
    assert "would move 40% of own tokens" in told


def test_a_cap_under_the_gate_and_a_floor_far_off_are_told_and_not_hidden():
    told = "\n".join(summary(tables(engaged=0.1, near=False), CONFIG))
    assert "under the gate of 15% (uninformative): P" in told
    assert "UNINFORMATIVE" in told
    assert "+2 before" in told  # the number stays
    assert "not near it at 1 of 1 blocks" in told


def test_one_unit_has_no_interval_and_no_plural():
    alone = {"n": 1, "unit": "item", "low": float("nan"), "high": float("nan")}
    told = "\n".join(summary(tables(**alone), CONFIG))
    assert "change -0.8 (no interval), n = 1 item; random caps" in told


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "a change beyond random caps"),
        ({"beyond_band": False}, "a change not beyond random caps"),
        ({"low": -1.0, "high": 0.2}, "no reliable change"),
        ({"low": float("nan"), "high": float("nan")}, "no reliable change"),
        ({"informative": False}, "UNINFORMATIVE, the cap engages too little"),
    ],
)
def test_a_verdict_needs_an_interval_off_zero_random_caps_and_the_gate(row, words):
    assert verdict(tables(**row)["behaviour"].to_dict("records")[0]) == words


def test_the_summary_stands_before_the_tables_and_can_be_read_back(tmp_path):
    whole = report(tables(), CONFIG)
    (tmp_path / "report.md").write_text(whole)
    assert read_summary(tmp_path) == "# Cap at blocks 5, 6\n\n" + "\n".join(
        summary(tables(), CONFIG)
    )
    for title in ("Thresholds", "Engagement", "Displacement", "Readouts before and after"):
        assert f"\n## {title}" in whole
    assert "whole persona" in whole.splitlines()[-1]
