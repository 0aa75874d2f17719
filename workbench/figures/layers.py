"""What changes with the layer: cosines as curves, and one concept's likeness across layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.cosine import DASHES, WITHIN, add_notes, band_told, basis
from workbench.figures.heat import add_cells, grid_height
from workbench.figures.theme import (
    Theme,
    add_hover,
    add_legend,
    arrays,
    blank_figure,
    theme_named,
)

MARKERS = ("circle", "square", "diamond", "triangle", "inverted_triangle", "hex", "star", "plus")


def cosine_by_layer(table: pd.DataFrame, *, theme: str = "light", title: str = "") -> Any:
    """Draw the cosine of a few pairs by layer with its interval, and every null's band.

    Args:
        table: rows of ``workbench.directions.cosines``, of at most as many pairs as the palette
            has colors.
        theme: light or dark.
        title: what is compared with what.
    """
    look = theme_named(theme)
    pairs = list(dict.fromkeys(zip(table["first"], table["second"], strict=True)))
    if not 0 < len(pairs) <= len(look.palette):
        raise ValueError(
            f"{len(pairs)} pairs; from 1 to {len(look.palette)} can be told apart, so choose some"
        )
    figure = blank_figure(
        look,
        title or "Cosine by layer",
        f"{title or 'Cosine'} by layer: {len(pairs)} pairs of directions.",
        x_axis_label="layer (0-based block)",
        y_axis_label="cosine",
        height=340,
    )
    items, dots = [], []
    for number, (first, second) in enumerate(pairs):
        rows = table[(table["first"] == first) & (table["second"] == second)]
        rows = rows.drop_duplicates("layer").sort_values("layer")
        glyphs = add_curve(figure, look, rows, "cosine", number)
        dots.append(glyphs[1])
        items.append((f"{first} with {second}", glyphs))
    items += _add_bands(figure, look, table)
    add_legend(figure, look, items)
    tips = [("pair", "@first with @second"), ("layer", "@layer"), ("cosine", "@cosine{0.000}")]
    tips += [("interval", "@low{0.000} to @high{0.000}"), ("n", "@n @unit")]
    add_hover(figure, dots, tips)
    add_notes(figure, look, basis(table))
    return figure


def layer_similarity_map(table: pd.DataFrame, *, theme: str = "light", title: str = "") -> Any:
    """Draw the cosine of one direction at each layer with itself at each other layer.

    Args:
        table: rows of ``workbench.directions.layer_similarity`` for one direction.
        theme: light or dark.
        title: whose layers.
    """
    look = theme_named(theme)
    names = sorted(set(table["direction"]))
    if len(names) != 1:
        raise ValueError(f"one direction is drawn at a time; found {names}")
    cells = table.loc[table.groupby(["layer", "other_layer"], sort=False)["band"].idxmax()]
    own = cells["layer"] == cells["other_layer"]
    rows, columns = (list(dict.fromkeys(cells[axis])) for axis in ("layer", "other_layer"))
    cells = cells.assign(
        x=cells["other_layer"].map(columns.index),
        y=cells["layer"].map(rows.index),
        value=cells["cosine"],
        within=(cells["cosine"].abs() <= cells["band"]) & ~own,
    )
    apart = cells[~own]
    verdict = f"{int((~apart['within']).sum())} of {len(apart)} pairs of layers beyond every band"
    name = title or f"{names[0]} across layers"
    figure = blank_figure(
        look,
        name,
        f"{name}: {len(rows)} by {len(columns)} layers; {verdict}.",
        height=max(260, min(560, grid_height(len(rows), []))),
        x_range=(-0.5, len(columns) - 0.5),
        y_range=(len(rows) - 0.5, -0.5),
        x_axis_label="layer (0-based block)",
        y_axis_label="layer (0-based block)",
    )
    tips = [("layers", "@layer with @other_layer"), ("cosine", "@cosine{0.000}")]
    tips += [("interval", "@low{0.000} to @high{0.000} (@interval)"), ("n", "@n @unit")]
    tips += [("widest band", "@band{0.000} (@null)")]
    add_cells(figure, look, cells, tips, limit=1.0, chance=WITHIN)
    _name_ticks(figure.xaxis, columns)
    _name_ticks(figure.yaxis, rows)
    add_notes(figure, look, [verdict, *basis(table[table["layer"] != table["other_layer"]])])
    return figure


def add_curve(figure: Any, look: Theme, rows: pd.DataFrame, y: str, number: int) -> list[Any]:
    """Draw one curve over ``layer`` with the interval ``low`` to ``high``: line, dots, band."""
    from bokeh.models import ColumnDataSource

    color = look.palette[number % len(look.palette)]
    source = ColumnDataSource(arrays(rows))
    band = figure.varea("layer", "low", "high", source=source, fill_color=color, fill_alpha=0.16)
    line = figure.line("layer", y, source=source, color=color, line_width=2.4)
    marker = MARKERS[number % len(MARKERS)]
    dot = figure.scatter("layer", y, source=source, color=color, size=6, marker=marker)
    return [line, dot, band]


def _add_bands(figure: Any, look: Theme, table: pd.DataFrame) -> list[Any]:
    """Draw each null's band by layer on both sides of zero."""
    items = []
    for number, (null, rows) in enumerate(table.groupby("null", sort=False)):
        limit = rows.groupby("layer")["band"].max().sort_index()
        style = {"color": look.band, "line_dash": DASHES[number % len(DASHES)], "line_width": 1.8}
        lines = [
            figure.line(limit.index.to_numpy(), sign * limit.to_numpy(), **style)
            for sign in (1, -1)
        ]
        items.append((f"band: {band_told(str(null))}", lines))
    return items


def _name_ticks(axis: Any, layers: list[int]) -> None:
    """Name places by their layer: every one up to twelve, then every second, third and so on."""
    step = int(np.ceil(len(layers) / 12))
    axis.ticker = list(range(0, len(layers), step))
    axis.major_label_overrides = {n: str(layers[n]) for n in range(0, len(layers), step)}
