"""How far organisms lie from a reference along an axis, at one layer, over the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from workbench.effects.curves import How, interval
from workbench.effects.engagement import CONDITION, ORGANISM, Member
from workbench.errors import ConfigError
from workbench.linalg import random_unit
from workbench.types import ndarray

OWN, REFERENCE = "own", "reference"
"""Whose reply a state was read on: the model's (on-policy), or the reference's (teacher-forced)."""
RANDOM = 1000
"""Random directions behind the band."""
DISPLACEMENT = (
    *("level", "model", "text", "control", "dose", "layer", "displacement", "low", "high", "n"),
    *("unit", "interval", "lost", "band", "band_name", "beyond_band"),
)


@dataclass(frozen=True)
class Placed:
    """Mean states over the tokens of replies, always read without hooks."""

    member: Member
    text: str
    control: str
    """Which cap wrote the reply: ``none`` is the axis itself."""
    dose: float
    """0 where the reply was written without a cap."""
    states: Float[ndarray, "n d"]
    """At the monitor layer, by prompt; NaN where a reply is empty."""


def displacement(
    placed: Sequence[Placed],
    axis: Float[ndarray, " d"],
    reference: str,
    layer: int,
    *,
    how: How | None = None,
) -> pd.DataFrame:
    """Return projection(model) minus projection(reference, uncapped), meaned over the same prompts.

    After a cap the states are those of an unhooked pass over the capped text, since a hooked one
    gives the threshold back. The unit is the training seed where a model has two or more (t
    interval), else the prompt (of the paired differences). ``band`` is how far the same means lie
    apart along 95% of random directions.

    Args:
        placed: of every member and text; the reference's own uncapped reply among them.
        axis: the direction at the monitor layer, of any length.
        reference: the subject that others are measured from.
        layer: the monitor layer, for the table.
        how: level, draws and seed of the intervals and the band.

    Returns:
        The columns ``DISPLACEMENT``, in residual-stream units along the unit axis; ``lost`` counts
        prompts without a reply on either side. The reference's uncapped rows are left out.

    Raises:
        ConfigError: no reply of the reference without a cap.
    """
    how = how or How()
    zero = next(
        (p for p in placed if p.member.subject == reference and p.text == OWN and not p.dose), None
    )
    if zero is None:
        raise ConfigError(f"nothing was read of {reference!r} without a cap; give its own replies")
    length = float(np.linalg.norm(axis))
    random = random_unit(RANDOM, len(axis), seed=how.seed)
    lines = np.vstack([axis / length, random]).astype(np.float64)
    groups: dict[tuple[Any, ...], list[Placed]] = {}
    for one in placed:
        if one is not zero:
            groups.setdefault((one.member.model, one.text, one.control, one.dose), []).append(one)
    rows = []
    for (model, text, control, dose), group in groups.items():
        label = {"text": text, "control": control, "dose": dose, "layer": layer}
        apart = [_apart(one, zero, lines) for one in group]
        rows.append({"level": CONDITION, "model": model, **label, **_pooled(apart, how)})
        if len(group) > 1:
            for one, own in zip(group, apart, strict=True):
                name = one.member.subject
                rows.append({"level": ORGANISM, "model": name, **label, **_pooled([own], how)})
    return pd.DataFrame(rows, columns=list(DISPLACEMENT))


@dataclass(frozen=True)
class _Apart:
    differences: Float[ndarray, " n"]
    """Along the axis, by prompt that has both replies."""
    drawn: Float[ndarray, " r"]
    """Mean along each random direction."""
    lost: int


def _apart(one: Placed, zero: Placed, lines: Float[ndarray, "k d"]) -> _Apart:
    both: Bool[ndarray, " n"] = ~(np.isnan(one.states).any(1) | np.isnan(zero.states).any(1))
    moved = one.states[both].astype(np.float64) - zero.states[both]
    along = moved @ lines.T
    drawn = along[:, 1:].mean(axis=0) if len(along) else np.full(len(lines) - 1, np.nan)
    return _Apart(along[:, 0], drawn, int((~both).sum()))


def _pooled(apart: Sequence[_Apart], how: How) -> dict[str, Any]:
    lost = sum(one.lost for one in apart)
    drawn = np.abs(np.mean([one.drawn for one in apart], axis=0))
    if len(apart) > 1:
        means = np.array([one.differences.mean() for one in apart if len(one.differences)])
        told = interval(means, len(means), how, "displacement")
    else:
        told = interval(apart[0].differences, 0, replace(how, unit="prompt"), "displacement")
    band = float(np.quantile(drawn, how.level)) if np.isfinite(drawn).all() else np.nan
    beyond = bool(np.isfinite(band) and abs(told["displacement"]) > band)
    name = f"{how.level:.0%} of {len(drawn)} random directions"
    return {**told, "lost": lost, "band": band, "band_name": name, "beyond_band": beyond}
