"""What a study of emotions says holds: beyond random directions, seeds, and zero over seeds."""

import pandas as pd
import pytest

from workbench.pipelines.report_emotion import emotion_rows
from workbench.pipelines.report_emotion_study import gap_verdicts
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done

GAP = {
    "window": "peak", "layer": 2, "random95": 1.0, "matched95": 0.8, "seed_gap": 1.2,
    "item_low": 1.9, "item_high": 2.1, "interval": "95% t over seeds", "n": 3, "unit": "seed",
    "high_condition": "A", "low_condition": "P", "reads": True,
}  # fmt: skip


def verdicts(folder, first=1.5, **second):
    _table(folder, first, **second)
    return list(gap_verdicts(Done("profiles", "x", "done", folder)))


def _table(folder, first=1.5, **second):
    rows = [
        {"emotion": name, "half": half, "zgap": zgap, "low": 0.5, "high": 3.0, **GAP, **more}
        for name in ("anger", "composite")
        for half, zgap, more in (("first", first, {}), ("second", 2.0, second))
    ]
    pd.DataFrame(rows).to_parquet(folder / "gaps.parquet")
    return folder / "gaps.parquet"


def test_a_gap_beyond_every_band_and_off_zero_over_seeds_holds(tmp_path):
    bands, reads, composite = verdicts(tmp_path)
    assert "2 of these with an interval over seeds off zero (anger, composite)" in bands
    assert reads.startswith("holds")
    assert composite.startswith("holds")


@pytest.mark.parametrize(
    "second",
    [
        {"low": -4.5, "high": 9.9},  # two seeds
        {"seed_gap": 2.5},
        {"random95": 2.5},
        {"zgap": -2.0, "low": -3.0, "high": -0.5},
    ],
)
def test_a_gap_that_fails_one_of_them_does_not(tmp_path, second):
    *_, composite = verdicts(tmp_path, **second)
    assert composite.startswith("does not hold")


ITEMS = {"unit": "item", "n": 12, "interval": "95% bootstrap over items"}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({**ITEMS, "seed_gap": float("nan")}, "one seed a condition"),
        (ITEMS, "no two seeds in both conditions"),  # two of one condition, one of the other
    ],
)
def test_without_seeds_to_compare_nothing_is_judged(tmp_path, more, reason):
    bands, reads, composite = verdicts(tmp_path, **more)
    assert "2 of 2 directions are beyond both random bands with the same sign" in bands
    assert bands.endswith(f"with the same sign, not judged: {reason}.")
    for line in (reads, composite):
        assert line.startswith(f"not judged: {reason}, so nothing says whether ")
    assert "between seeds: one seed" in composite or "between seeds 1.20" in composite
    assert "nan" not in bands + reads + composite


def test_one_direction_without_a_gap_between_seeds_does_not_hold(tmp_path):
    gaps = pd.read_parquet(_table(tmp_path))
    own = (gaps["emotion"] == "composite") & (gaps["half"] == "second")
    gaps.loc[own, "seed_gap"] = float("nan")
    gaps.to_parquet(tmp_path / "gaps.parquet")
    bands, _, composite = gap_verdicts(Done("profiles", "x", "done", tmp_path))
    assert "1 of these with an interval over seeds off zero (anger)" in bands
    assert composite.startswith("does not hold")


def test_a_headline_names_no_gap_between_seeds_where_there_is_one(tmp_path):
    verdicts(tmp_path, **ITEMS, seed_gap=float("nan"))
    done = Done("profiles", "x", "done", tmp_path)
    controls = [row.control for row in emotion_rows([(Unit("p", "profiles", (), {}), done)])]
    assert controls
    assert all("between seeds: one seed" in control for control in controls)
