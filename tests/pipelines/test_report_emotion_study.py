"""What a study of emotions says holds: beyond random directions, seeds, and zero over seeds."""

import pandas as pd
import pytest

from workbench.pipelines.report_emotion_study import gap_verdicts
from workbench.pipelines.verb import Done

GAP = {
    "window": "peak", "random95": 1.0, "matched95": 0.8, "seed_gap": 1.2, "item_low": 1.9,
    "item_high": 2.1, "interval": "95% t over seeds", "n": 3, "high_condition": "A",
    "low_condition": "P", "reads": True,
}  # fmt: skip


def verdicts(folder, first=1.5, **second):
    rows = [
        {"emotion": name, "half": half, "zgap": zgap, "low": 0.5, "high": 3.0, **GAP, **more}
        for name in ("anger", "composite")
        for half, zgap, more in (("first", first, {}), ("second", 2.0, second))
    ]
    pd.DataFrame(rows).to_parquet(folder / "gaps.parquet")
    return list(gap_verdicts(Done("profiles", "x", "done", folder)))


def test_a_gap_beyond_every_band_and_off_zero_over_seeds_holds(tmp_path):
    bands, reads, composite = verdicts(tmp_path)
    assert "2 of these with an interval over seeds off zero (anger, composite)" in bands
    assert reads.startswith("holds")
    assert composite.startswith("holds")


@pytest.mark.parametrize(
    "second",
    [
        {"low": -4.5, "high": 9.9},  # two seeds
        {"low": float("nan"), "high": float("nan")},  # one
        {"seed_gap": 2.5},
        {"random95": 2.5},
        {"zgap": -2.0, "low": -3.0, "high": -0.5},
    ],
)
def test_a_gap_that_fails_one_of_them_does_not(tmp_path, second):
    *_, composite = verdicts(tmp_path, **second)
    assert composite.startswith("does not hold")
