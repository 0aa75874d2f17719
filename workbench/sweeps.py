"""Dose sweeps: behaviour against the strength of an edit, random directions in the same batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.directions import Directions
from workbench.directions.linear_map import LinearMap
from workbench.engine.answer import plan_for
from workbench.errors import ConfigError
from workbench.interventions import Gap, Intervention
from workbench.linalg import random_unit
from workbench.readouts.ask import Outcome, ReadoutLike, ask, make_readout
from workbench.readouts.ask_units import ask_in_units
from workbench.registry import EDITS
from workbench.results import table
from workbench.runs import OpenRun
from workbench.types import Arm, Progress, Subject

if TYPE_CHECKING:
    import pandas as pd

Layers = Sequence[Any]
"""Block indices, or windows of them."""
Steering = Directions | LinearMap
"""What an edit acts by: directions, each an arm of its own, or one map for ``linear_map``."""


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


@dataclass(frozen=True)
class Window:
    """One window of blocks: its cells, and for each the row of the arm that answers it."""

    settings: Settings
    cells: list[Cell]
    arms: list[Arm]
    rows: list[int]


@dataclass(frozen=True)
class Design:
    """What a sweep varies and what it keeps: see ``sweep`` for each."""

    doses: Sequence[float | int]
    edit: str = "add"
    layers: Layers | None = None
    unit: str = "raw"
    gap: Gap | None = None
    scope: str = "all"
    controls: int = 10
    seed: int = 0
    thresholds: Mapping[str, Any] = field(default_factory=dict)

    def windows(self, subject: Subject, directions: Steering) -> list[Window]:
        """Lay out every window of blocks with its cells.

        Raises:
            WorkbenchError: what ``sweep`` refuses.
        """
        _check(self.edit, directions, self.gap, self.thresholds)
        if not len(self.doses):
            raise ConfigError("a sweep needs at least one dose; give doses=[-1, 0, 1], say")
        doses = sorted({0.0, *map(float, self.doses)})
        found = []
        for blocks in _windows(directions, self.layers):
            settings = Settings(self.edit, blocks, self.unit, self.scope, self.gap, self.thresholds)
            cells = list(_cells(subject, directions, settings, doses, self.controls, self.seed))
            found.append(Window(settings, cells, *_distinct(cells)))
        return found


def sweep(
    subject: Subject,
    directions: Steering,
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
        directions: every name in it is an arm of its own; for ``linear_map``, a map.
        readouts: names, ``{name, **parameters}`` tables, or readout objects.
        doses: strengths; a zero dose is added where it is missing, since every curve is compared
            with its own zero.
        edit: a registered edit, such as ``add``, ``ablate``, ``cap`` or ``linear_map``.
        layers: one window of blocks edited together, or a list of windows.
        unit: ``raw``, ``norm`` or ``gap``.
        gap: the natural gap, for ``unit="gap"`` and for the ``dose_gap`` column.
        scope: which tokens are edited.
        controls: how many norm-matched random directions (a map turned at random, for
            ``linear_map``); one set for each window and seed, the same at all doses.
        seed: of the random directions.
        progress: called with (units done, units in all).
        thresholds: numbers of the edit, such as ``floor`` and ``ceiling`` of a cap; and
            ``keep_norm=True``, which restores the length of edited states.

    Returns:
        One row for each measurement, with the columns of ``workbench.results.COLUMNS``.

    Raises:
        UnknownNameError: an unknown edit or readout.
        MismatchError: directions of another model.
        ConfigError: no doses, layers that the directions do not hold, or a unit or thresholds that
            the edit does not have.
    """
    windows = Design(doses, edit, layers, unit, gap, scope, controls, seed, thresholds).windows(
        subject, directions
    )
    outcomes = [
        ask(subject, readouts, window.arms, progress=_share(progress, number, len(windows)))
        for number, window in enumerate(windows)
    ]
    return _table(subject, windows, outcomes)


def sweep_run(
    subject: Subject,
    directions: Steering,
    readouts: Sequence[ReadoutLike],
    design: Design,
    run: OpenRun,
    *,
    progress: Progress | None = None,
) -> pd.DataFrame | None:
    """Do this process's share of a sweep in a run folder, where finished units are kept.

    Returns:
        The table as ``sweep`` gives it; None where other shares are not done.
    """
    windows = design.windows(subject, directions)
    sets = [window.arms for window in windows]
    outcomes = ask_in_units(subject, readouts, sets, run, progress=progress)
    return None if outcomes is None else _table(subject, windows, outcomes)


def plan_sweep(
    subject: Subject, directions: Steering, readouts: Sequence[ReadoutLike], design: Design
) -> list[str]:
    """Say what a sweep would run and what that costs beside the plain way, without a forward.

    Returns:
        A few lines for each window of blocks.

    Raises:
        WorkbenchError: what ``sweep`` refuses.
    """
    requests = [r for one in readouts for r in make_readout(one).requests(subject)]
    return [
        plan_for(subject, requests, window.arms).explain()
        for window in design.windows(subject, directions)
    ]


def _table(
    subject: Subject, windows: Sequence[Window], outcomes: Sequence[Sequence[Outcome]]
) -> pd.DataFrame:
    import pandas as pd

    frames = [
        _rows(subject, window.settings, cell, found[row])
        for window, found in zip(windows, outcomes, strict=True)
        for cell, row in zip(window.cells, window.rows, strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


def _check(edit: str, directions: Steering, gap: Gap | None, thresholds: Mapping[str, Any]) -> None:
    """Refuse what would sweep nothing, or the wrong thing, without a word."""
    EDITS.factory(edit)
    if edit == "cap" and not thresholds:
        raise ConfigError("a cap without floor or ceiling changes nothing; give one of them")
    numbers = [name for name in thresholds if name != "keep_norm"]
    if edit in ("add", "ablate") and numbers:
        raise ConfigError(f"{edit} takes no {numbers[0]}; thresholds belong to cap")
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


def _windows(directions: Steering, layers: Layers | None) -> list[tuple[int, ...]]:
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
    directions: Steering,
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
    own: Steering, window: tuple[int, ...], controls: int, seed: int
) -> Iterator[tuple[str, Steering]]:
    """Norm-matched random directions, a function of the window, the seed and the number alone.

    For a map: the map followed by a random rotation, which moves every token by as much.
    """
    for number in range(controls):
        if isinstance(own, LinearMap):
            turned = own.select(window).rotated(_seed(window, 0, seed, number))
            yield f"random:{number}", turned
            continue
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
    directions: Steering,
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
            key = tuple(edit.key for edit in cell.arm)
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
