"""Running a sweep: in memory, in a run folder, or as a plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.config import refuse_twice
from workbench.directions import Directions, open_directions, open_map
from workbench.engine.answer import plan_for
from workbench.errors import ConfigError
from workbench.given import numbers_of, refuse_name, several
from workbench.interventions import Gap
from workbench.models.prompted import prompted
from workbench.progress import Shown, shown
from workbench.readouts.ask import Asked, Outcome, Readouts, ask_all
from workbench.readouts.ask_units import ask_in_units
from workbench.results import table
from workbench.runs import OpenRun
from workbench.sweeps.controls import RANDOM, Steering
from workbench.sweeps.design import Baseline, Design, Layers, Window, amounts
from workbench.sweeps.shift import aim, realised, watch
from workbench.types import ActivationsLike, Progress, Subject

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


def sweep(
    subject: Subject | Sequence[Subject],
    directions: Steering | str | Path,
    *,
    readouts: Readouts,
    doses: float | int | Sequence[float | int],
    edit: str = "add",
    layers: Layers | None = None,
    unit: str = "raw",
    gap: Gap | None = None,
    scope: str = "all",
    controls: int | str | Sequence[int | str] = RANDOM,
    shuffled: Directions | None = None,
    baselines: Baseline | Mapping[str, Any] | Sequence[Baseline | Mapping[str, Any]] = (),
    per_layer: str = "accumulate",
    calibration: ActivationsLike | None = None,
    match: ActivationsLike | None = None,
    side: str = "floor",
    seed: int = 0,
    progress: Shown = True,
    **thresholds: Any,
) -> pd.DataFrame:
    """Measure behaviour at each dose of each direction, and of its controls in the same batches.

    Args:
        subject: the model under study, or several, one after another.
        directions: every name in it is an arm of its own; for ``linear_map``, a map. Or a file.
        readouts: names, ``{name, **parameters}`` tables or readout objects, or one of them.
        doses: strengths, or one; a zero dose is added where it is missing, since every curve is
            compared with its own zero.
        edit: a registered edit, such as ``add``, ``ablate``, ``cap`` or ``linear_map``.
        layers: one window of blocks edited together, or a list of windows; one block; or ``all``
            that the directions hold, edited together. By default what the fit chose
            (``info["window"]``, else ``info["layer"]``), and where it chose nothing, as after
            ``wb.fit``, all together.
        unit: ``raw``, ``norm`` or ``gap``; ``percentile`` for a cap, whose doses are then the
            percent of ``calibration`` beyond the threshold.
        gap: the natural gap, for ``unit="gap"`` and for the ``dose_gap`` column.
        scope: which tokens are edited.
        controls: a number of norm-matched random directions (a map turned at random), or a list of
            ``random:N``, ``sign`` (the direction turned around), ``shuffled``, ``layers:N`` (the
            window's vectors at one another's blocks) and ``noop`` (a cap that nothing reaches); the
            same at all doses. Random caps in percentiles have thresholds of their own, so that they
            act as often.
        shuffled: the direction that shuffled labels give by the same fit, for ``shuffled``.
        baselines: prompts that ask for the same, ``{name, system, shots}``; their rows have the
            control ``prompt:NAME`` and no dose.
        per_layer: ``accumulate`` adds the dose at every block of a window; ``residual_target`` adds
            only what is missing there to the nominal shift.
        calibration: activations for percentiles, one item a row or one token a row.
        match: states of the kind that a cap in percentiles acts on: random and moved caps then
            engage exactly as often on these as the direction's own.
        side: of a cap in percentiles: ``floor`` or ``ceiling``.
        seed: of the random controls.
        progress: a bar on stderr; False or None for none, or what is called with (units done, units
            in all).
        thresholds: numbers of the edit, such as ``floor`` and ``ceiling`` of a cap; and
            ``keep_norm=True``, which restores the length of edited states.

    Returns:
        One row for each measurement, with the columns of ``workbench.results.COLUMNS``.
        ``realised`` is the shift of `workbench.sweeps.shift`; ``engaged`` the share of edited
        positions that changed.

    Raises:
        UnknownNameError: an unknown edit or readout.
        MismatchError: directions of another model.
        ConfigError: no doses, layers that the directions do not hold, a unit, control or
            thresholds that the edit does not have, or a subject or readout that stands twice.
    """
    refuse_name(subject)
    if isinstance(directions, str | Path):
        directions = (open_map if edit == "linear_map" else open_directions)(directions)
    told_of = several(baselines, Mapping, Baseline)
    asked_for = [one if isinstance(one, Baseline) else _baseline(one) for one in told_of]
    design = Design(
        numbers_of(doses, "doses"), edit, layers, unit, gap, scope, controls, seed, thresholds,
        shuffled, asked_for, per_layer, side, calibration, match,
    )  # fmt: skip
    subjects = [subject] if isinstance(subject, Subject) else list(subject)
    if not subjects:
        raise ConfigError("no subject; give one model, or several")
    refuse_twice([f"{one.ref.key} (object {id(one):x})" for one in subjects], "subjects")
    with shown(progress, "sweep") as report:
        return _swept(subjects, directions, readouts, design, report)


def _swept(
    subjects: Sequence[Subject],
    directions: Steering,
    readouts: Readouts,
    design: Design,
    progress: Progress | None,
) -> pd.DataFrame:
    import pandas as pd

    frames = []
    for place, one in enumerate(subjects):
        asked, windows = lay_out(one, directions, readouts, design)
        total = len(windows) + len(design.baselines)
        outcomes = [
            ask_all(
                one,
                asked,
                window.arms,
                progress=_part(progress, place, number, total, len(subjects)),
            )
            for number, window in enumerate(windows)
        ]
        told = [
            (other, ask_all(told_to(one, other), Asked.of(told_to(one, other), readouts))[0])
            for other in design.baselines
        ]
        frames.append(tabulate(one, asked, windows, outcomes, told))
    return pd.concat(frames, ignore_index=True)


def sweep_run(
    subject: Subject,
    directions: Steering,
    readouts: Readouts,
    design: Design,
    run: OpenRun,
    *,
    progress: Progress | None = None,
) -> pd.DataFrame | None:
    """Do this process's share of a sweep in a run folder, where finished units are kept.

    Prompting baselines are one short pass each, which every process that concludes makes anew.

    Returns:
        The table as ``sweep`` gives it; None where other shares are not done.
    """
    asked, windows = lay_out(subject, directions, readouts, design)
    sets = [window.arms for window in windows]
    outcomes = ask_in_units(subject, asked, sets, run, progress=progress)
    if outcomes is None:
        return None
    told = [
        (one, ask_all(told_to(subject, one), Asked.of(told_to(subject, one), readouts))[0])
        for one in design.baselines
    ]
    return tabulate(subject, asked, windows, outcomes, told)


def plan_sweep(
    subject: Subject, directions: Steering, readouts: Readouts, design: Design
) -> list[str]:
    """Say what a sweep would run and what that costs beside the plain way, without a sweep.

    Returns:
        A few lines for each window of blocks.

    Raises:
        WorkbenchError: what ``sweep`` refuses.
    """
    asked, windows = lay_out(subject, directions, readouts, replace(design, per_layer="accumulate"))
    return [plan_for(subject, asked.requests, window.arms).explain() for window in windows]


def lay_out(
    subject: Subject, directions: Steering, readouts: Readouts, design: Design
) -> tuple[Asked, list[Window]]:
    """Return what is asked and under which arms."""
    _say_other_scope(directions, design.scope)
    windows = design.windows(subject, directions)
    asked = watch(Asked.of(subject, readouts), windows, subject.width)
    if design.per_layer == "residual_target":
        windows = [_described(aim(subject, asked, window), directions) for window in windows]
    return asked, windows


def _say_other_scope(directions: Steering, scope: str) -> None:
    """Warn where what was trained on some tokens is swept on others."""
    trained = directions.info.get("scope")
    if trained is not None and trained != scope:
        logger.warning(
            "%s was trained with scope %r and is swept with %r; what it does there was not trained",
            directions.label,
            trained,
            scope,
        )


def _described(window: Window, directions: Steering) -> Window:
    """Say in the cells what the aimed doses are."""
    cells = []
    for cell, row in zip(window.cells, window.rows, strict=True):
        arm = window.arms[row]
        raw, norm, gap = amounts(arm, directions[cell.direction], window.settings)
        cells.append(replace(cell, arm=arm, raw=raw, norm=norm, gap=gap))
    return replace(window, cells=cells)


def told_to(subject: Subject, baseline: Baseline) -> Subject:
    """Return the subject behind a baseline's prompt."""
    return prompted(subject, system=baseline.system, shots=baseline.shots)


def tabulate(
    subject: Subject,
    asked: Asked,
    windows: Sequence[Window],
    outcomes: Sequence[Sequence[Outcome]],
    told: Sequence[tuple[Baseline, Outcome]],
) -> pd.DataFrame:
    """Put the measurements of all cells, and of prompting baselines beside each, into one table."""
    import pandas as pd

    frames = []
    for window, found in zip(windows, outcomes, strict=True):
        shifts = realised(window, [one.states for one in found], asked.watched_layers)
        settings = window.settings
        shared = {
            "edit": settings.edit, "layers": settings.window, "scope": settings.scope,
            "unit": settings.unit,
        }  # fmt: skip
        for cell, row, shift in zip(window.cells, window.rows, shifts, strict=True):
            frames.append(
                table(
                    found[row].measurements, subject=subject, direction=cell.direction,
                    dose=cell.dose, dose_raw=cell.raw, dose_norm=cell.norm, dose_gap=cell.gap,
                    realised=shift, engaged=found[row].engaged, control=cell.control, **shared,
                )
            )  # fmt: skip
        for name in dict.fromkeys(cell.direction for cell in window.cells):
            frames += [
                table(
                    outcome.measurements, subject=subject, direction=name,
                    control=f"prompt:{baseline.name}", **shared,
                )
                for baseline, outcome in told
            ]  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def _baseline(given: Mapping[str, Any]) -> Baseline:
    known = ("name", "system", "shots")
    if "name" not in given or not set(given) <= set(known):
        raise ConfigError(f"baseline {dict(given)!r}; keys are name (required), system, shots")
    return Baseline(**given)


def _part(
    progress: Progress | None, place: int, number: int, parts: int, subjects: int
) -> Progress | None:
    if progress is None:
        return None

    def report(done: int, total: int) -> None:
        assert progress is not None
        progress((place * parts + number) * total + done, subjects * parts * total)

    return report
