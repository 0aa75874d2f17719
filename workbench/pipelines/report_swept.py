"""What a study's sweeps moved, as answers of its headline: the slopes that its tables judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.pipelines.report_effects import Effects
from workbench.pipelines.report_many import Candidate, shortened
from workbench.pipelines.report_truth import Row
from workbench.pipelines.report_words import at_blocks, many_doses, one_dose
from workbench.pipelines.study import Unit
from workbench.pipelines.sweeping import GUARDS
from workbench.pipelines.verb import Done

TABLE = "slopes.csv, over guarded doses"
KIND = ("readout", "measure", "condition", "edit", "layers", "scope", "dose_unit")
"""What answers that stand for one another are of."""


def swept_rows(units: Sequence[tuple[Unit, Done]], effects: Mapping[str, Effects]) -> Iterator[Row]:
    """Tell what each stage of sweeps moved; of several, a row says which it is of."""
    stages: dict[str, list[Effects]] = {}
    for unit, done in units:
        if done.verb == "sweep":
            stages.setdefault(unit.stage, []).append(effects[unit.title])
    windows = _windows([one for own in stages.values() for one in own])
    for stage, own in stages.items():
        label = f"{stage}: " if len(stages) > 1 else ""
        for row in sweep_rows(own, windows):
            yield replace(row, question=label + row.question, stage=stage)


def sweep_rows(found: Sequence[Effects], windows: int | None = None) -> Iterator[Row]:
    """Tell each slope as it is judged: over guarded doses, against random directions.

    Of more than three models and directions with one behavior, the largest is told. Blocks are
    told where sweeps edit several ``windows`` of them, of which these may be one alone.
    """
    several = (_windows(found) if windows is None else windows) > 1
    kinds: dict[tuple[Any, ...], list[Candidate]] = {}
    for effects in found:
        for row in effects.slopes.to_dict("records"):
            told = {str(name): value for name, value in row.items()}
            if told["readout"] not in GUARDS and len(_doses(told)) + told["n_unguarded"] > 1:
                kind = tuple(told[name] for name in KIND)
                kinds.setdefault(kind, []).append(_candidate(told, several))
    for many in kinds.values():
        yield from shortened(many, "beyond every random direction", TABLE)


def _windows(found: Sequence[Effects]) -> int:
    """Return how many windows of blocks one direction was added to."""
    import pandas as pd

    if not found:
        return 0
    slopes = pd.concat([effects.slopes for effects in found])
    return int(slopes.groupby(["direction", "edit", "scope"])["layers"].nunique().max())


def _candidate(told: Mapping[str, Any], several: bool) -> Candidate:
    """Return one curve's slope, or its change where there is but one dose beside none."""
    doses = _doses(told)
    moved = [dose for dose in doses if dose]
    alone = len(moved) == 1 and not told["n_unguarded"]
    scale = moved[0] if alone else 1.0
    at = f" at {at_blocks(told['layers'])}" if several else ""
    dose = f"per {one_dose(told['dose_unit'], told['edit'])}"
    if alone:
        dose = f"at dose {scale:g} in {many_doses(told['dose_unit'], told['edit'])}"
    elif told["n_unguarded"] and moved:
        dose += f", over doses {min(doses):g} to {max(doses):g}"
    question = (
        f"{'change' if alone else 'slope'} of {told['measure']} to {told['condition']} along "
        f"{told['direction']}{at}, {dose}"
    )
    low, high = sorted((scale * told["low"], scale * told["high"]))
    ends = (scale * told["slope"], low, high)
    row = Row(question, told["model"], *ends, told["n"], told["unit"], told["interval"],
              _control(told, abs(scale), alone))  # fmt: skip
    sure = told["verdict"].startswith(("beyond", "closes"))
    return Candidate(row, float(np.nan_to_num(abs(row.value), nan=-1)), sure)


def _doses(told: Mapping[str, Any]) -> list[float]:
    """Return the guarded doses of a curve."""
    return [float(dose) for dose in told["doses"].split(", ") if dose]


def _control(told: Mapping[str, Any], scale: float, alone: bool) -> str:
    """Say how far random directions reach, and the verdict."""
    if np.isnan(told["band"]):
        return str(told["verdict"])
    reach = f"{scale * told['band']:.{3 if alone else 2}f}"
    return f"{told['band_name']}: {reach}; {told['verdict']}"
