"""Doses in the units that people compare, turned into residual-stream units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.errors import ConfigError

UNITS = ("raw", "norm", "gap")


@dataclass(frozen=True)
class Gap:
    """Natural distance between two groups of subjects along one direction, zero dose.

    ``value`` is the mean coordinate of ``first`` minus that of ``second`` along the unit direction,
    in residual-stream units; the sign is kept, so one gap of dose moves from second towards first.
    """

    value: float
    standard_error: float
    n: int
    unit: str
    """What was counted as independent: "seed" or "item"."""
    first: str = "first"
    second: str = "second"


def to_raw(
    dose: float,
    unit: str,
    *,
    length: float,
    norm: float | None = None,
    gap: Gap | None = None,
) -> float:
    """Return the dose in residual-stream units along the unit direction at one layer.

    Args:
        dose: multiples of the unit.
        unit: ``raw`` multiplies the stored vector, ``norm`` is a fraction of the mean residual
            norm, ``gap`` counts natural gaps.
        length: norm of the stored vector at this layer.
        norm: mean residual norm at this layer.
        gap: the natural gap along this direction.

    Raises:
        ConfigError: the unit needs a norm or a gap that is missing or useless.
    """
    if unit == "raw":
        return dose * length
    if unit == "norm":
        return dose * _norm(norm)
    if unit == "gap":
        return dose * _gap(gap)
    raise ValueError(f"unit {unit!r}; expected one of {', '.join(UNITS)}")


def from_raw(
    raw: float,
    unit: str,
    *,
    length: float,
    norm: float | None = None,
    gap: Gap | None = None,
) -> float:
    """Return residual-stream units as a dose in ``unit``: the inverse of `to_raw`.

    Raises:
        ConfigError: the unit needs a norm or a gap that is missing or useless.
    """
    return raw / to_raw(1.0, unit, length=length, norm=norm, gap=gap)


def _norm(norm: float | None) -> float:
    if norm is None:
        raise ConfigError(
            'unit "norm" needs the mean residual norm by layer, and the directions store none; '
            "inside wb.intervene and wb.sweep it is measured on the subject; elsewhere give "
            'norms=... or use unit="raw"'
        )
    if not (math.isfinite(norm) and norm > 0):
        raise ConfigError(
            f"mean residual norm {norm}; expected a positive number; measure it again"
        )
    return norm


def _gap(gap: Gap | None) -> float:
    if gap is None:
        raise ConfigError(
            'unit "gap" needs a natural gap: in a sweep file gap = { first = ..., second = ..., '
            'prompts = ... }, in Python gap = wb.gap(...); or take unit = "norm"'
        )
    if not math.isfinite(gap.value) or gap.value == 0:
        raise ConfigError(
            f"natural gap {gap.value} between {gap.first} and {gap.second}; expected a finite "
            'number other than 0; use unit="norm" where two subjects do not differ'
        )
    return gap.value
