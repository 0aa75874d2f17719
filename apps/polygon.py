"""Polygons drawn on a map: thinned, written into a link, and asked again which points they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

ndarray = np.ndarray
MOST_VERTICES = 48
DIGITS = 4


@dataclass(frozen=True)
class Selection:
    """A polygon together with the layer and projection in which it was drawn.

    Points are always chosen by asking the polygon, never by remembering rows, so that the screen
    and a link agree.
    """

    projection: str
    layer: int
    vertices: tuple[tuple[float, float], ...]

    def rows(self, xy: Float[ndarray, "n 2"]) -> Bool[ndarray, " n"]:
        """Say which points lie inside."""
        return inside(xy, np.array(self.vertices, float))

    def encode(self) -> str:
        """Write the selection as link text: ``pca~14~x,y;x,y;...``."""
        points = ";".join(f"{x:.{DIGITS}g},{y:.{DIGITS}g}" for x, y in self.vertices)
        return f"{self.projection}~{self.layer}~{points}"


def decode(text: str) -> Selection:
    """Read link text.

    Raises:
        ValueError: it is not a polygon of 3 to 48 vertices.
    """
    parts = text.split("~")
    if len(parts) != 3:
        raise ValueError("a selection is written projection~layer~x,y;x,y;...")
    pairs = [point.split(",") for point in parts[2].split(";")]
    vertices = tuple((float(x), float(y)) for x, y in pairs)
    if not 3 <= len(vertices) <= MOST_VERTICES:
        raise ValueError(f"{len(vertices)} vertices; 3 to {MOST_VERTICES} are expected")
    if not np.isfinite(vertices).all():
        raise ValueError("a vertex is not a number")
    return Selection(parts[0], int(parts[1]), vertices)


def selected(projection: str, layer: int, vertices: Float[ndarray, "m 2"]) -> Selection:
    """Return the selection that a drawn polygon stands for, thinned and rounded as in a link."""
    points = tuple((float(x), float(y)) for x, y in thin(vertices, MOST_VERTICES))
    return decode(Selection(projection, layer, points).encode())


def outline(geometry: Mapping[str, Any]) -> Float[ndarray, "m 2"] | None:
    """Return the corners of what a lasso or box tool drew; None for any other gesture."""
    if geometry.get("type") == "rect":
        left, right = sorted((float(geometry["x0"]), float(geometry["x1"])))
        low, high = sorted((float(geometry["y0"]), float(geometry["y1"])))
        return np.array([[left, low], [right, low], [right, high], [left, high]])
    if geometry.get("type") == "poly" and len(geometry["x"]) >= 3:
        return np.stack([_numbers(geometry["x"]), _numbers(geometry["y"])], axis=1)
    return None


def _numbers(values: Any) -> Float[ndarray, " m"]:
    """Bokeh sends a sequence, or a mapping from position to value."""
    listed = [values[key] for key in values] if isinstance(values, Mapping) else list(values)
    return np.array(listed, float)


def thin(vertices: Float[ndarray, "m 2"], most: int) -> Float[ndarray, "k 2"]:
    """Drop the vertex whose triangle is smallest until ``most`` remain (Visvalingam 1993)."""
    points = [tuple(point) for point in np.asarray(vertices, float)]
    while len(points) > most:
        areas = _triangles(np.array(points))
        points.pop(int(np.argmin(areas)))
    return np.array(points)


def _triangles(points: Float[ndarray, "m 2"]) -> Float[ndarray, " m"]:
    before, after = np.roll(points, 1, axis=0) - points, np.roll(points, -1, axis=0) - points
    return np.asarray(np.abs(before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]) / 2)


def inside(xy: Float[ndarray, "n 2"], corners: Float[ndarray, "m 2"]) -> Bool[ndarray, " n"]:
    """Even-odd rule: count the edges that a ray to the right of each point crosses."""
    x, y = xy[:, :1], xy[:, 1:]
    x0, y0 = corners[:, 0], corners[:, 1]
    x1, y1 = np.roll(x0, -1), np.roll(y0, -1)
    spans = (y0 <= y) != (y1 <= y)
    rise = np.where(y1 == y0, 1.0, y1 - y0)
    crossing = x0 + (y - y0) * (x1 - x0) / rise
    return np.asarray((spans & (x < crossing)).sum(axis=1) % 2 == 1)


def bounds(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the polygon's x and y as two lists, as a patch glyph takes them."""
    return [x for x, _ in points], [y for _, y in points]
