"""Dose sweeps: behaviour against the strength of an edit, random directions in the same batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.directions import Directions
from workbench.engine.answer import plan_for
from workbench.errors import ConfigError
from workbench.interventions import Gap, Intervention
from workbench.linalg import random_unit
from workbench.readouts.ask import Outcome, ReadoutLike, ask, make_readout
from workbench.registry import EDITS
from workbench.results import table
from workbench.types import Arm, Progress, Subject

if TYPE_CHECKING:
    import pandas as pd

Layers = Sequence[Any]
"""Block indices, or windows of them."""


@dataclass(frozen=True)
class Cell:
    """One arm of a sweep and what its rows say about it."""

    direction: str
    control: str
    dose: float
    arm: Arm
    raw: float | None
    """Residual-stream units, averaged over the window; None for edits whose dose is a blend."""
    norm: float | None
    gap: float | None


def sweep(
    subject: Subject,
    directions: Directions,
    *,
    readouts: Sequence[ReadoutLike],
    doses: Sequence[float | int],
    edit: str = "add",
    layers: Layers | None = None,
    unit: str = "raw",
    gap: Gap | None = None,
    scope: str = "all",
    controls: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
    **thresholds: Any,
) -> pd.DataFrame:
    """Measure behaviour at each dose of each direction, and at each dose of random directions.

    Args:
        subject: the model under study.
        directions: every name in it is an arm of its own.
        readouts: names, ``{name, **parameters}`` tables, or readout objects.
        doses: strengths; a zero dose is added where it is missing, since every curve is compared
            with its own zero.
        edit: ``add``, ``ablate`` or ``cap``.
        layers: one window of blocks edited together, or a list of windows.
        unit: ``raw``, ``norm`` or ``gap``.
        gap: the natural gap, for ``unit="gap"`` and for the ``dose_gap`` column.
        scope: which tokens are edited.
        controls: how many norm-matched random directions; one set for each window and seed, the
            same at all doses.
        seed: of the random directions.
        progress: called with (units done, units in all).
        thresholds: ``floor`` and ``ceiling`` of a cap.

    Returns:
        One row for each measurement, with the columns of ``workbench.results.COLUMNS``.

    Raises:
        UnknownNameError: an unknown edit or readout.
        MismatchError: directions of another model.
        ConfigError: no doses, layers that the directions do not hold, or a unit or thresholds that
            the edit does not have.
    """
    import pandas as pd

    _check(edit, directions, gap, thresholds)
    laid = Laid(edit, unit, scope, gap, thresholds, controls, seed)
    windows = list(_lay_out(subject, directions, doses, layers, laid))
    frames = []
    for number, window in enumerate(windows):
        report = _share(progress, number, len(windows))
        outcomes = ask(subject, readouts, window.arms, progress=report)
        frames += [
            _rows(subject, window.settings, cell, outcomes[row])
            for cell, row in zip(window.cells, window.rows, strict=True)
        ]
    return pd.concat(frames, ignore_index=True)


def plan_sweep(
    subject: Subject,
    directions: Directions,
    *,
    readouts: Sequence[ReadoutLike],
    doses: Sequence[float | int],
    edit: str = "add",
    layers: Layers | None = None,
    unit: str = "raw",
    gap: Gap | None = None,
    scope: str = "all",
    controls: int = 10,
    seed: int = 0,
    **thresholds: Any,
) -> list[str]:
    """Say what `sweep` would run and what that costs beside the plain way, without a forward.

    Returns:
        A few lines for each window of blocks.

    Raises:
        WorkbenchError: what `sweep` refuses.
    """
    _check(edit, directions, gap, thresholds)
    laid = Laid(edit, unit, scope, gap, thresholds, controls, seed)
    requests = [r for one in readouts for r in make_readout(one).requests(subject)]
    return [
        plan_for(subject, requests, window.arms).explain()
        for window in _lay_out(subject, directions, doses, layers, laid)
    ]


@dataclass(frozen=True)
class Laid:
    """What the windows of a sweep have in common."""

    edit: str
    unit: str
    scope: str
    gap: Gap | None
    thresholds: Mapping[str, Any]
    controls: int
    seed: int


@dataclass(frozen=True)
class Window:
    """One window of blocks: its cells, and for each the row of the arm that answers it."""

    settings: Settings
    cells: list[Cell]
    arms: list[Arm]
    rows: list[int]


def _lay_out(
    subject: Subject,
    directions: Directions,
    doses: Sequence[float | int],
    layers: Layers | None,
    laid: Laid,
) -> Iterator[Window]:
    if not len(doses):
        raise ConfigError("a sweep needs at least one dose; give doses=[-1, 0, 1], say")
    strengths = sorted({0.0, *map(float, doses)})
    for window in _windows(directions, layers):
        settings = Settings(laid.edit, window, laid.unit, laid.scope, laid.gap, laid.thresholds)
        cells = list(_cells(subject, directions, settings, strengths, laid.controls, laid.seed))
        yield Window(settings, cells, *_distinct(cells))


def _check(
    edit: str, directions: Directions, gap: Gap | None, thresholds: Mapping[str, Any]
) -> None:
    """Refuse what would sweep nothing, or the wrong thing, without a word."""
    EDITS.factory(edit)
    if edit == "cap" and not thresholds:
        raise ConfigError("a cap without floor or ceiling changes nothing; give one of them")
    if edit in ("add", "ablate") and thresholds:
        raise ConfigError(f"{edit} takes no {next(iter(thresholds))}; thresholds belong to cap")
    if gap is not None and len(directions.names) > 1:
        raise ConfigError(
            f"a gap is along one direction, found {len(directions.names)}: "
            f"{', '.join(directions.names)}; sweep directions[name] with its own gap"
        )


@dataclass(frozen=True)
class Settings:
    """What all cells of one window have in common."""

    edit: str
    window: tuple[int, ...]
    unit: str
    scope: str
    gap: Gap | None
    thresholds: Mapping[str, Any]


def _windows(directions: Directions, layers: Layers | None) -> list[tuple[int, ...]]:
    chosen = list(directions.layers) if layers is None else list(layers)
    if not chosen:
        raise ConfigError("layers is empty; name at least one block")
    nested = [isinstance(entry, Sequence) for entry in chosen]
    if any(nested) and not all(nested):
        raise ConfigError(f"layers = {chosen!r} mixes blocks and windows; give one or the other")
    windows: list[Any] = chosen if all(nested) else [chosen]
    return [tuple(int(layer) for layer in window) for window in windows]


def _cells(
    subject: Subject,
    directions: Directions,
    settings: Settings,
    doses: Sequence[float],
    controls: int,
    seed: int,
) -> Iterator[Cell]:
    for name in directions.names:
        own = directions[name]
        banks = [("none", own), *_random(own, settings.window, controls, seed)]
        for control, vectors in banks:
            for dose in doses:
                if control == "none" or dose:
                    yield _cell(subject, settings, name, control, vectors, dose)


def _random(
    own: Directions, window: tuple[int, ...], controls: int, seed: int
) -> Iterator[tuple[str, Directions]]:
    """Norm-matched random directions, a function of the window, the seed and the number alone."""
    for number in range(controls):
        raw = np.array(own.vectors, np.float32)
        for layer in window:
            if layer in own.layers:
                row = own.layers.index(layer)
                drawn = random_unit(1, raw.shape[-1], seed=_seed(window, layer, seed, number))[0]
                raw[:, row] = drawn * np.linalg.norm(raw[:, row], axis=-1, keepdims=True)
        yield f"random:{number}", replace(own, vectors=raw)


def _seed(window: tuple[int, ...], layer: int, seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number, layer, *window]).generate_state(1)[0])


def _cell(
    subject: Subject,
    settings: Settings,
    name: str,
    control: str,
    directions: Directions,
    dose: float,
) -> Cell:
    try:
        intervention = Intervention.of(
            settings.edit,
            directions,
            layers=settings.window,
            dose=dose,
            unit=settings.unit,
            scope=settings.scope,
            **settings.thresholds,
        )
    except ValueError as error:
        raise ConfigError(f"sweep: {error}") from None
    arm = intervention.arm(subject.stamp, gap=settings.gap)
    if settings.edit != "add":  # a blend is no distance
        return Cell(name, control, dose, arm, None, None, None)
    raw = np.array([edit.dose for edit in arm])
    norm = None
    if directions.norms is not None:
        norm = float((raw / directions.norms[directions.rows(settings.window)]).mean())
    gap = float(raw.mean()) / settings.gap.value if settings.gap is not None else None
    return Cell(name, control, dose, arm, float(raw.mean()), norm, gap)


def _distinct(cells: Sequence[Cell]) -> tuple[list[Arm], list[int]]:
    """Merge arms that would do the same, such as the zero doses of all directions."""
    arms: list[Arm] = []
    seen: dict[Any, int] = {}
    rows = []
    for cell in cells:
        key: Any = "zero"
        if cell.dose:
            key = tuple((e.layer, e.v.tobytes(), e.dose, tuple(e.rows.items())) for e in cell.arm)
        if key not in seen:
            seen[key] = len(arms)
            arms.append(cell.arm)
        rows.append(seen[key])
    return arms, rows


def _share(progress: Progress | None, part: int, parts: int) -> Progress | None:
    if progress is None:
        return None

    def report(done: int, total: int) -> None:
        assert progress is not None
        progress(part * total + done, parts * total)

    return report


def _rows(subject: Subject, settings: Settings, cell: Cell, outcome: Outcome) -> pd.DataFrame:
    return table(
        outcome.measurements,
        subject=subject,
        direction=cell.direction,
        edit=settings.edit,
        layers=settings.window,
        scope=settings.scope,
        dose=cell.dose,
        unit=settings.unit,
        dose_raw=cell.raw,
        dose_norm=cell.norm,
        dose_gap=cell.gap,
        realised=outcome.realised,
        engaged=outcome.engaged,
        control=cell.control,
    )
