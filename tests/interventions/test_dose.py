"""Units of dose: each is defined by one multiplication, and what is missing is named."""

import pytest

from workbench.errors import ConfigError
from workbench.interventions.dose import UNITS, Gap, from_raw, to_raw

GAP = Gap(-4.0, 0.5, 3, "seed", "prosocial", "antisocial")


@pytest.mark.parametrize(("unit", "expected"), [("raw", 6.0), ("norm", 200.0), ("gap", -8.0)])
def test_a_dose_of_two_in_each_unit(unit, expected):
    assert to_raw(2.0, unit, length=3.0, norm=100.0, gap=GAP) == expected


@pytest.mark.parametrize("unit", UNITS)
def test_units_go_there_and_back(unit):
    raw = to_raw(-1.7, unit, length=3.0, norm=100.0, gap=GAP)
    assert from_raw(raw, unit, length=3.0, norm=100.0, gap=GAP) == pytest.approx(-1.7)


def test_a_missing_norm_says_what_to_give():
    with pytest.raises(ConfigError, match="give norms="):
        to_raw(1.0, "norm", length=1.0)


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan"), float("inf")])
def test_a_useless_norm_is_refused(norm):
    with pytest.raises(ConfigError, match="expected a positive number"):
        to_raw(1.0, "norm", length=1.0, norm=norm)


def test_a_missing_gap_says_how_to_make_one():
    with pytest.raises(ConfigError, match=r"wb\.gap"):
        to_raw(1.0, "gap", length=1.0)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_useless_gap_is_refused(value):
    with pytest.raises(ConfigError, match="between first and second"):
        to_raw(1.0, "gap", length=1.0, gap=Gap(value, 0.1, 3, "seed"))


def test_an_unknown_unit_is_a_wrong_call():
    with pytest.raises(ValueError, match="expected one of raw, norm, gap"):
        to_raw(1.0, "sigma", length=1.0)
