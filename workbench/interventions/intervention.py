"""An edit at chosen layers along one named direction, in units that travel between models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.errors import ConfigError, MismatchError, WorkbenchError
from workbench.given import Blocks, blocks_of
from workbench.interventions.dose import UNITS, Gap, to_raw
from workbench.interventions.keep_norm import KeepNorm
from workbench.interventions.scope import ScopeLike, check_scope, scope_of
from workbench.interventions.site import refuse_other_site
from workbench.interventions.thresholds import (
    Threshold,
    check_numbers,
    refuse_no_band,
    thresholds_of,
)
from workbench.interventions.weights import (
    CENTER,
    MAP,
    SUBSPACE,
    Weights,
    center_coordinates,
    refuse_other_parts,
    weights_of,
)
from workbench.registry import EDITS
from workbench.types import Arm, DirectionsLike, LayerEdit, LinearMapLike, ModelStamp, ndarray

_BEYOND = ("add", MAP)
"""Edits whose dose is not bound to 0 to 1: a shift, and a map that may be driven on."""


@dataclass(frozen=True, eq=False, repr=False)
class Intervention:
    """What to do, where, how strongly and at which tokens; `arm` makes it concrete.

    Make one with `add`, `ablate`, `cap` and the like; ``dataclasses.replace(one, dose=0.5)`` gives
    another dose of the same.
    """

    directions: DirectionsLike
    edit: str
    layers: tuple[int, ...]
    dose: float
    unit: str = "raw"
    scope: str = "all"
    rows: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Further numbers of the edit, by layer, such as ``floor``."""
    name: str = ""
    weights: Weights = field(default_factory=dict)
    """Arrays of the edit, by layer, such as a map's ``W`` and ``b``."""
    keep_norm: bool = False
    """Restore the length of every edited state."""

    def __post_init__(self) -> None:
        if self.edit != SUBSPACE:
            _check_single(self.directions)
        _check_layers(self.layers, self.directions)
        refuse_other_site(self.directions)
        check_scope(self.scope)
        refuse_other_parts(self.edit, self.rows, self.weights)
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r}; expected one of {', '.join(UNITS)}")
        if self.edit != "add" and self.unit != "raw":
            raise ValueError(
                f"unit {self.unit!r} for {self.edit}, whose dose is a blend (0 none, 1 full); "
                'expected unit="raw"'
            )
        _check_dose(self.edit, self.dose)

    def __repr__(self) -> str:
        blocks = ", ".join(map(str, self.layers))
        numbers = ", ".join(f"{name} {_shown(by)}" for name, by in self.rows.items())
        told = f"{self.name}; blocks {blocks}; dose {self.dose:g} {self.unit}; scope {self.scope}"
        kept = "; norm kept" if self.keep_norm else ""
        return f"Intervention({told}{'; ' + numbers if numbers else ''}{kept})"

    @classmethod
    def of(
        cls,
        edit: str,
        directions: DirectionsLike,
        *,
        layers: Blocks | None = None,
        dose: float | int = 1.0,
        unit: str = "raw",
        scope: ScopeLike = "all",
        name: str | None = None,
        keep_norm: bool = False,
        centered: bool = False,
        **thresholds: Threshold | str,
    ) -> Intervention:
        """Return the intervention of a registered edit, whose further numbers are ``thresholds``.

        Args:
            edit: name in the registry of edits.
            directions: exactly one; several for ``project_to_subspace``, a map for ``linear_map``.
            layers: block indices edited together, or one; by default all of the directions'.
            dose: in ``unit``; a blend (0 none, 1 full) for every edit but ``add``; a map alone may
                be given more, or turned around.
            unit: ``raw``, ``norm`` or ``gap``.
            scope: which tokens: ``all``, ``last``, ``prompt``, ``generated``, a role such as
                ``user``, a union such as ``user+tool``, or one boolean for each token of a row.
            name: for tables; by default the edit's and the direction's.
            keep_norm: restore the length of every edited state, so that only its direction changes.
            centered: measure a subspace from the directions' frozen center, not from the origin.
            thresholds: numbers of the edit, for all layers or by layer; for ``replace`` also
                ``value="center"``.

        Raises:
            WorkbenchError: an unknown edit or scope, or a layer that the directions lack.
            ValueError: several directions, a unit that the edit does not have, a dose that is not
                finite or is no blend, thresholds that make no band, or numbers that the edit does
                not take.
        """
        EDITS.factory(edit)
        _refuse_other_kind(directions)
        if edit != SUBSPACE:
            _check_single(directions)
        at = tuple(directions.layers) if layers is None else blocks_of(layers, directions.layers)
        _check_layers(at, directions)
        if edit == "replace" and thresholds.get("value") == CENTER:
            thresholds["value"] = center_coordinates(directions, at)
        refuse_no_band(edit, thresholds)
        rows = thresholds_of(edit, thresholds, at)
        check_numbers(edit, rows)
        weights = weights_of(edit, directions, at, centered=centered)
        title = name if name is not None else f"{edit} {'+'.join(directions.names)}"
        shown = (float(dose), unit, scope_of(scope), rows, title)
        return cls(directions, edit, at, *shown, weights=weights, keep_norm=keep_norm)

    @classmethod
    def add(cls, directions: DirectionsLike, **settings: Any) -> Intervention:
        """Shift along the direction.

        Args:
            directions: exactly one direction.
            settings: ``layers`` (all of the directions' by default), ``dose``, ``unit`` ("raw":
                multiples of the stored vector, "norm": fractions of the mean residual norm,
                "gap": natural gaps), ``scope`` and ``name``, as in `of`.

        Raises:
            WorkbenchError: a layer that the directions lack, or an unknown scope.
            ValueError: several directions, an unknown unit, or a dose that is not finite.
        """
        return cls.of("add", directions, **settings)

    @classmethod
    def ablate(cls, directions: DirectionsLike, **settings: Any) -> Intervention:
        """Remove the component along the direction; ``dose`` blends (0 none, 1 full).

        Args:
            directions: exactly one direction.
            settings: ``layers``, ``dose``, ``scope`` and ``name``, as in `of`.

        Raises:
            WorkbenchError: a layer that the directions lack, or an unknown scope.
            ValueError: several directions, a unit other than raw, or a dose outside 0 to 1.
        """
        return cls.of("ablate", directions, **settings)

    @classmethod
    def cap(
        cls,
        directions: DirectionsLike,
        *,
        floor: Threshold | None = None,
        ceiling: Threshold | None = None,
        **settings: Any,
    ) -> Intervention:
        """Keep the coordinate along the unit direction inside [floor, ceiling].

        Args:
            directions: exactly one direction.
            floor: residual-stream units, for all layers or by layer; -inf switches it off.
            ceiling: the same on the other side; +inf switches it off. One of the two is needed.
            settings: ``layers``, ``dose`` (a blend), ``scope`` and ``name``, as in `of`.

        Raises:
            WorkbenchError: a layer that the directions lack, or an unknown scope.
            ValueError: neither floor nor ceiling, a floor of +inf, a ceiling of -inf, a floor above
                its ceiling, NaN, a layer without a threshold, or a dose outside 0 to 1.
        """
        band = {"floor": floor, "ceiling": ceiling}
        given: dict[str, Any] = {k: number for k, number in band.items() if number is not None}
        return cls.of("cap", directions, **given, **settings)

    @classmethod
    def map(cls, linear_map: LinearMapLike, **settings: Any) -> Intervention:
        """Move every state by ``dose * (W h + b)``.

        Args:
            linear_map: as ``wb.fit_map`` or ``wb.open_map`` give.
            settings: ``layers`` (all of the map's by default), ``dose`` (0 none, 1 the whole map),
                ``scope``, ``keep_norm`` and ``name``, as in `of`.

        Raises:
            WorkbenchError: a layer that the map lacks, or an unknown scope.
            ValueError: a direction, a unit other than raw, or a dose that is not finite.
        """
        return cls.of(MAP, linear_map, **settings)

    @classmethod
    def rescale(
        cls, directions: DirectionsLike, *, factor: Threshold, **settings: Any
    ) -> Intervention:
        """Multiply the coordinate along the direction by ``factor`` (1 nothing, 0 ablates).

        Args:
            directions: exactly one direction.
            factor: for all layers or by layer.
            settings: ``layers``, ``dose`` (a blend), ``scope``, ``keep_norm`` and ``name``.

        Raises:
            WorkbenchError: a layer that the directions lack, or an unknown scope.
            ValueError: several directions, or a number that is not finite.
        """
        return cls.of("rescale", directions, factor=factor, **settings)

    @classmethod
    def affine(
        cls,
        directions: DirectionsLike,
        *,
        scale: Threshold = 1.0,
        offset: Threshold = 0.0,
        **settings: Any,
    ) -> Intervention:
        """Make the coordinate ``c`` along the unit direction into ``scale * c + offset``.

        Args:
            directions: exactly one direction.
            scale: for all layers or by layer.
            offset: residual-stream units, for all layers or by layer.
            settings: ``layers``, ``dose`` (a blend), ``scope``, ``keep_norm`` and ``name``.

        Raises:
            WorkbenchError: a layer that the directions lack, or an unknown scope.
            ValueError: several directions, or a number that is not finite.
        """
        return cls.of("affine", directions, scale=scale, offset=offset, **settings)

    @classmethod
    def replace(
        cls, directions: DirectionsLike, *, value: Threshold | str, **settings: Any
    ) -> Intervention:
        """Set the coordinate along the unit direction; at a mean coordinate, ablate to the mean.

        Args:
            directions: exactly one direction.
            value: residual-stream units, for all layers or by layer; ``center`` is the coordinate
                of the directions' frozen center.
            settings: ``layers``, ``dose`` (a blend), ``scope``, ``keep_norm`` and ``name``.

        Raises:
            WorkbenchError: a layer or center that the directions lack, or an unknown scope.
            ValueError: several directions, or a number that is not finite.
        """
        return cls.of("replace", directions, value=value, **settings)

    @classmethod
    def project_to_subspace(
        cls,
        directions: DirectionsLike,
        *,
        inside: Threshold = 1.0,
        outside: Threshold = 0.0,
        **settings: Any,
    ) -> Intervention:
        """Scale what lies in the span of all the directions, and what lies outside of it.

        Args:
            directions: one or more; the span is taken layer by layer.
            inside: 1 keeps the subspace; 0 with ``outside`` 1 removes it.
            outside: 0 removes all but the subspace.
            settings: ``centered`` (measure from the directions' center, not the origin),
                ``layers``, ``dose`` (a blend), ``scope``, ``keep_norm`` and ``name``.

        Raises:
            WorkbenchError: a layer or center that the directions lack, or an unknown scope.
            ValueError: a number that is not finite.
        """
        return cls.of(SUBSPACE, directions, inside=inside, outside=outside, **settings)

    def arm(
        self,
        stamp: ModelStamp | None = None,
        *,
        norms: Float[ndarray, " l"] | None = None,
        gap: Gap | None = None,
    ) -> Arm:
        """Return the edits in raw units, one a layer.

        Args:
            stamp: the subject's; the directions must belong to the same kind of model.
            norms: mean residual norm at each of the directions' layers; their own by default.
            gap: the natural gap along the direction.

        Raises:
            MismatchError: the directions belong to another model.
            WorkbenchError: a vector is zero or not finite, or a norm or gap is missing.
        """
        if stamp is not None:
            self.directions.model.refuse_other(stamp, f"direction {self.directions.names[0]!r}")
        norms = self.directions.norms if norms is None else norms
        if norms is not None and len(norms) != len(self.directions.layers):
            raise MismatchError(
                f"{len(norms)} norms for {len(self.directions.layers)} layers; give one for each "
                "layer of the directions, in their order"
            )
        return tuple(self._layer_edit(layer, norms, gap) for layer in self.layers)

    def _layer_edit(self, layer: int, norms: ndarray | None, gap: Gap | None) -> LayerEdit:
        row = self.directions.layers.index(layer)
        vector = np.asarray(self.directions.vectors[0, row], np.float64)
        length = _length(vector, self.directions.names[0], layer)
        norm = None if norms is None else float(norms[row])
        dose, edit = self.dose, EDITS.create(self.edit)
        if self.edit == "add":
            dose = to_raw(self.dose, self.unit, length=length, norm=norm, gap=gap)
        return LayerEdit(
            layer=layer,
            name=self.edit,
            edit=KeepNorm(edit) if self.keep_norm else edit,
            v=(vector / length).astype(np.float32),
            dose=dose,
            scope=self.scope,
            rows={name: by_layer[layer] for name, by_layer in self.rows.items()},
            weights=self.weights.get(layer, {}),
        )


def _refuse_other_kind(directions: object) -> None:
    if isinstance(directions, str | Path):
        raise ConfigError(
            f"directions = {str(directions)!r}, which is a name; open the file first: "
            f"wb.open_directions({str(directions)!r}), or wb.open_map for a map"
        )


def _check_dose(edit: str, dose: float) -> None:
    if not math.isfinite(dose):
        raise ValueError(f"dose {dose}; expected a finite number")
    if edit not in _BEYOND and not 0 <= dose <= 1:
        other = f"rescale with factor={1 - dose:g}" if edit == "ablate" else "other numbers of it"
        raise ValueError(
            f"dose {dose:g} for {edit}, whose dose is a blend from 0 (none) to 1 (full); to go "
            f"further give {other}"
        )


def _shown(by_layer: Mapping[int, float]) -> str:
    """Return a number once where all layers have the same."""
    values = [f"{value:.4g}" for value in by_layer.values()]
    return values[0] if len(set(values)) == 1 else " ".join(values)


def _check_single(directions: DirectionsLike) -> None:
    if len(directions.names) != 1:
        listed = ", ".join(repr(name) for name in directions.names)
        raise ValueError(
            f"{len(directions.names)} directions ({listed}); an intervention takes one: pick "
            'directions["name"]'
        )


def _check_layers(layers: Sequence[int], directions: DirectionsLike) -> None:
    if not layers or len(set(layers)) != len(layers):
        raise ValueError(f"layers {list(layers)}; expected at least one, each once")
    missing = [layer for layer in layers if layer not in directions.layers]
    if missing:
        known = ", ".join(str(layer) for layer in directions.layers)
        raise WorkbenchError(
            f"no vector at layer {missing[0]} in direction {directions.names[0]!r}; its layers: "
            f"{known}; choose among them or fit that layer"
        )


def _length(vector: ndarray, name: str, layer: int) -> float:
    length = float(np.linalg.norm(vector))
    if not math.isfinite(length):
        raise WorkbenchError(
            f"direction {name!r} at layer {layer} has values that are not finite; fit it again, "
            "with activations checked for overflow"
        )
    if length == 0:
        raise WorkbenchError(
            f"direction {name!r} at layer {layer} is zero, so it points nowhere; choose other "
            "layers or fit it again"
        )
    return length
