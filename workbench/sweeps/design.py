"""The layout of a sweep: windows of blocks, and in each a cell for every dose and control."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from workbench.directions import Directions, thresholds
from workbench.directions.calibrate import matched
from workbench.directions.layer_choice import default_window
from workbench.directions.linear_map import LinearMap
from workbench.engine.norms import residual_norms
from workbench.errors import ConfigError, meant
from workbench.given import blocks_of
from workbench.interventions import Gap, Intervention
from workbench.interventions.site import refuse_other_site
from workbench.registry import EDITS
from workbench.sweeps.controls import RANDOM, Controls, Steering, order_of, versions
from workbench.types import ActivationsLike, Arm, Subject

logger = logging.getLogger(__name__)

Layers = str | int | Sequence[Any]
"""Block indices, one of them, windows of them, or ``all``."""
PERCENTILE = "percentile"
SIDES = ("floor", "ceiling")
PER_LAYER = ("accumulate", "residual_target")


@dataclass(frozen=True)
class Baseline:
    """A prompt that asks for what a direction is to do: a system text, example turns, or both."""

    name: str
    system: str = ""
    shots: Sequence[Mapping[str, str]] = ()


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
class Settings:
    """What all cells of one window have in common."""

    edit: str
    window: tuple[int, ...]
    unit: str
    scope: str
    gap: Gap | None
    thresholds: Mapping[str, Any]
    side: str = "floor"
    calibration: ActivationsLike | None = None
    match: ActivationsLike | None = None
    own: Steering | None = None
    """Of a control in percentiles: the direction that it acts as often as."""


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
    controls: int | str | Sequence[int | str] = RANDOM
    seed: int = 0
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    shuffled: Directions | None = None
    baselines: Sequence[Baseline] = ()
    per_layer: str = "accumulate"
    side: str = "floor"
    calibration: ActivationsLike | None = None
    match: ActivationsLike | None = None

    def windows(self, subject: Subject, directions: Steering) -> list[Window]:
        """Lay out every window of blocks with its cells.

        Raises:
            WorkbenchError: what ``sweep`` refuses.
        """
        self._check(directions)
        doses = sorted({0.0, *map(float, self.doses)})
        controls = Controls.of(self.controls)
        if self.unit == "norm" and directions.norms is None:
            measured = residual_norms(subject, tuple(directions.layers))
            directions = replace(directions, norms=measured)
        found = []
        for blocks in _windows(directions, self.layers):
            settings = Settings(
                self.edit, blocks, self.unit, self.scope, self.gap, self.thresholds, self.side,
                self.calibration, self.match,
            )  # fmt: skip
            cells = list(self._cells(subject, directions, settings, doses, controls))
            found.append(Window(settings, cells, *distinct(cells)))
        return found

    def _cells(
        self,
        subject: Subject,
        directions: Steering,
        settings: Settings,
        doses: Sequence[float],
        controls: Controls,
    ) -> Iterator[Cell]:
        for name in directions.names:
            own = directions[name]
            drawn = versions(own, settings.window, controls, self.seed, self.shuffled)
            for control, steering in [("none", own), *drawn]:
                for dose in doses:
                    if control == "none" or dose:
                        at = self._at(settings, control, own)
                        yield _cell(subject, at, name, control, steering, dose)
            for dose in doses if controls.noop else ():
                if dose:
                    idle = _cell(subject, _idle(settings), name, "noop", own, 1.0)
                    yield replace(idle, dose=dose)

    def _at(self, settings: Settings, control: str, own: Steering) -> Settings:
        """Return the settings of a control: thresholds by layer move with the vectors."""
        kind, _, number = control.partition(":")
        if settings.match is not None and kind in ("random", "layers"):
            return replace(settings, own=own)
        if kind != "layers":
            return settings
        order = order_of(settings.window, self.seed, int(number))
        moved = {
            name: {to: value[frm] for to, frm in zip(settings.window, order, strict=True)}
            if isinstance(value, Mapping)
            else value
            for name, value in settings.thresholds.items()
        }
        return replace(settings, thresholds=moved)

    def _check(self, directions: Steering) -> None:
        """Refuse what would sweep nothing, or the wrong thing, without a word."""
        EDITS.factory(self.edit)
        refuse_other_site(directions)
        if not len(self.doses):
            raise ConfigError("a sweep needs at least one dose; give doses=[-1, 0, 1], say")
        numbers = [name for name in self.thresholds if name != "keep_norm"]
        if self.edit in ("add", "ablate") and numbers:
            guess = meant(numbers[0], [one.name for one in fields(self)])
            raise ConfigError(
                f"{self.edit} takes no {numbers[0]}; thresholds belong to cap.{guess}"
            )
        if self.gap is not None and len(directions.names) > 1:
            raise ConfigError(
                f"a gap is along one direction, found {len(directions.names)}: "
                f"{', '.join(directions.names)}; sweep directions[name] with its own gap"
            )
        if self.per_layer not in PER_LAYER or (
            self.per_layer != PER_LAYER[0] and self.edit != "add"
        ):
            raise ConfigError(
                f"per_layer {self.per_layer!r} for {self.edit}; give {' or '.join(PER_LAYER)}, the "
                "second for add alone"
            )
        names = [one.name for one in self.baselines]
        if not all(names) or len(set(names)) < len(names):
            raise ConfigError(
                f"baselines are called {', '.join(map(repr, names))}; give each a name of its own, "
                "or their rows would be one"
            )
        if self.match is not None and self.unit != PERCENTILE:
            raise ConfigError('match is for caps with unit="percentile"; leave it out')
        if self.unit == PERCENTILE:
            self._check_percentiles(numbers)

    def _check_percentiles(self, numbers: Sequence[str]) -> None:
        if self.edit != "cap" or isinstance(self.calibration, type(None)):
            raise ConfigError(
                'unit "percentile" is for edit="cap", with calibration= the activations whose '
                "percentiles count; doses are the percent of them that the cap moves"
            )
        if self.side not in SIDES or numbers:
            raise ConfigError(
                f"side {self.side!r} with {', '.join(numbers) or 'no threshold'}; percentile doses "
                f"set the threshold themselves: give side={' or '.join(SIDES)} and no number"
            )
        wrong = [dose for dose in self.doses if not 0 <= dose < 100]
        if wrong:
            raise ConfigError(f"percentile dose {wrong[0]:g}; expected 0 (no cap) to under 100")


def _windows(directions: Steering, layers: Layers | None) -> list[tuple[int, ...]]:
    if layers is None:
        return [_own_window(directions)]
    chosen = [layers] if isinstance(layers, str | int) else list(layers)
    if not chosen:
        raise ConfigError(f"layers = {layers!r}; name at least one block, as in [14, 15]")
    nested = [isinstance(entry, Sequence) for entry in chosen]
    if any(nested) and not all(nested):
        raise ConfigError(f"layers = {chosen!r} mixes blocks and windows; give one or the other")
    windows: list[Any] = chosen if all(nested) else [chosen]
    found = [blocks_of(window, directions.layers) for window in windows]
    if len(set(found)) < len(found):
        raise ConfigError(f"layers = {chosen!r} names a window twice; give each once")
    return found


def _own_window(directions: Steering) -> tuple[int, ...]:
    """Return what the fit chose; or all that the directions hold, said where there are several."""
    window = default_window(directions)
    chosen = {"window", "layer"} & set(directions.info)
    if len(window) > 1 and not chosen and "scope" not in directions.info:  # trained ones have both
        logger.warning(
            "%s names no choice of layers, so its %d blocks are edited together; layers=[%d], say, "
            "edits one, and layers=[[%d], [%d]] sweeps each by itself",
            directions.label, len(window), window[-1], *window[:2],
        )  # fmt: skip
    return window


def _idle(settings: Settings) -> Settings:
    """Return a cap that no state reaches."""
    if settings.edit != "cap":
        raise ConfigError(f"control noop is for cap, not for {settings.edit}; leave it out")
    return replace(
        settings, unit="raw", thresholds={"floor": -math.inf, "ceiling": math.inf}, calibration=None
    )


def _cell(
    subject: Subject, settings: Settings, name: str, control: str, steering: Steering, dose: float
) -> Cell:
    try:
        intervention = _intervention(settings, steering, dose)
    except ValueError as error:
        raise ConfigError(f"sweep: {error}") from None
    arm = intervention.arm(subject.stamp, gap=settings.gap)
    if settings.edit != "add":  # a blend is no distance
        return Cell(name, control, dose, arm, None, None, None)
    return Cell(name, control, dose, arm, *amounts(arm, steering, settings))


def amounts(
    arm: Arm, steering: Steering, settings: Settings
) -> tuple[float, float | None, float | None]:
    """Return an added dose in raw units, residual norms and gaps, averaged over the window."""
    raw = np.array([edit.dose for edit in arm])
    norm = None
    if steering.norms is not None:
        rows = [steering.layers.index(edit.layer) for edit in arm]
        norm = float((raw / steering.norms[rows]).mean())
    gap = float(raw.mean()) / settings.gap.value if settings.gap is not None else None
    return float(raw.mean()), norm, gap


def _intervention(settings: Settings, steering: Steering, dose: float) -> Intervention:
    numbers, unit = dict(settings.thresholds), settings.unit
    if unit == PERCENTILE:
        unit = "raw"
        off = -math.inf if settings.side == "floor" else math.inf
        numbers[settings.side] = _threshold(settings, steering, dose) if dose else off
        dose = 1.0 if dose else 0.0
    return Intervention.of(
        settings.edit,
        steering,
        layers=settings.window,
        dose=dose,
        unit=unit,
        scope=settings.scope,
        **numbers,
    )


def _threshold(settings: Settings, steering: Steering, share: float) -> Mapping[int, float]:
    """Return the threshold beyond which ``share`` percent of the calibration lies, by layer.

    Of a control that is matched, that which moves as many of the matching states as the
    direction's own threshold does.
    """
    if isinstance(steering, LinearMap) or settings.calibration is None:
        raise ConfigError('unit "percentile" needs a direction and calibration= its activations')
    along = "direction" if settings.side == "floor" else "opposite"
    steered = settings.own or steering
    assert not isinstance(steered, LinearMap), "a map's control is a map"
    at = steered.select(settings.window)
    limits = dict(thresholds(at, settings.calibration, share, along=along, draws=2))
    if settings.own is None or settings.match is None:
        return limits
    return matched(limits, at, steering.select(settings.window), settings.match, side=settings.side)


def distinct(cells: Sequence[Cell]) -> tuple[list[Arm], list[int]]:
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
