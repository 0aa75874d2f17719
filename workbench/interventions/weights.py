"""The arrays that an edit's arms share at each block: of a map, or of a subspace."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.errors import ConfigError, meant
from workbench.linalg import orthonormal, project
from workbench.registry import EDITS
from workbench.types import DirectionsLike, LinearMapLike, ndarray

Weights = Mapping[int, Mapping[str, ndarray]]
"""By layer, then by name."""
MAP = "linear_map"
SUBSPACE = "project_to_subspace"
CENTER = "center"
SETTINGS = ("layers", "dose", "unit", "scope", "name", "keep_norm", "centered")
ARRAYS = ("W", "b", "left", "right", "basis", CENTER)
"""What an edit takes from a map or directions, never from the caller."""


def weights_of(
    edit: str, directions: DirectionsLike, layers: Sequence[int], *, centered: bool = False
) -> Weights:
    """Return what an edit needs beside numbers; nothing for most.

    Raises:
        ValueError: a map where directions are expected, or the reverse.
        ConfigError: directions without the center that was asked for.
    """
    is_map = isinstance(directions, LinearMapLike)
    if is_map != (edit == MAP):
        takes = "a LinearMap, as wb.fit_map gives" if edit == MAP else "a direction"
        raise ValueError(f"{edit} takes {takes}; got a {type(directions).__name__}")
    if centered and edit != SUBSPACE:
        raise ValueError(f"{edit} is not measured from a center; only {SUBSPACE} is")
    if isinstance(directions, LinearMapLike):
        return {layer: directions.weights(layer) for layer in layers}
    if edit == SUBSPACE:
        return {layer: _subspace(directions, layer, centered) for layer in layers}
    return {}


def _subspace(directions: DirectionsLike, layer: int, centered: bool) -> dict[str, ndarray]:
    row = directions.layers.index(layer)
    found = {"basis": orthonormal(directions.vectors[:, row]).astype(np.float32)}
    if centered:
        found["center"] = _center(directions)[:, row].mean(axis=0)
    return found


def center_coordinates(directions: DirectionsLike, layers: Sequence[int]) -> dict[int, float]:
    """Return where the frozen center of one direction lies along it, by layer.

    Raises:
        ConfigError: directions without a center.
    """
    center, found = _center(directions), {}
    for layer in layers:
        row = directions.layers.index(layer)
        found[layer] = float(project(center[0, row], directions.vectors[0, row]))
    return found


def _center(directions: DirectionsLike) -> Float[ndarray, "k l d"]:
    center = getattr(directions, "center", None)
    if center is None:
        raise ConfigError(
            f"directions {', '.join(directions.names)} have no center; fit them with a method that "
            "stores one, or give numbers of your own (a subspace is measured from the origin "
            "where centered=False)"
        )
    return np.asarray(center)


def parts_of(edit: str) -> dict[str, inspect.Parameter] | None:
    """Return what an edit takes beside direction and dose; None where it takes anything."""
    parts = inspect.signature(type(EDITS.create(edit)).__call__).parameters.values()
    if any(part.kind is part.VAR_KEYWORD for part in parts):
        return None
    return {part.name: part for part in parts if part.kind is part.KEYWORD_ONLY}


def refuse_other_parts(edit: str, numbers: Mapping[str, Any], weights: Weights) -> None:
    """Check that an edit gets the numbers that it takes, all of them and no others.

    Raises:
        ValueError: one is missing, or is not the edit's.
    """
    named = parts_of(edit)
    if named is None:
        return
    shared = {name for by_layer in weights.values() for name in by_layer}
    given = {*numbers, *shared}
    missing = [n for n, part in named.items() if part.default is part.empty and n not in given]
    if missing:
        raise ValueError(f"{edit} needs {missing[0]}; give {missing[0]}=...")
    other = [name for name in numbers if name not in named]
    if other:
        takes = ", ".join(name for name in named if name not in shared) or "no such numbers"
        guess = meant(other[0], [*named, *SETTINGS])
        raise ValueError(f"{edit} takes no {other[0]}; it takes {takes}.{guess}")
