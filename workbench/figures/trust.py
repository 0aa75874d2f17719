"""Trust steering as figures: replies' margins item by item, and what a matrix is block by block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.layers import MARKERS
from workbench.figures.theme import (
    Theme,
    add_hover,
    add_legend,
    add_note,
    arrays,
    blank_figure,
    theme_named,
)

ITEMS = "items"
"""Name of the glyphs whose selection says which item was clicked."""
BLOCK_MEASURES = {
    "norm": "norm (residual units)",
    "share": "share of the residual norm",
    "cosine_below": "cosine with the block below",
    "cosine_other": "cosine with the baseline",
}
"""Columns of a table by block, in words."""


def item_margins(
    table: pd.DataFrame,
    *,
    dose: float,
    chosen: str = "",
    theme: str = "light",
    title: str = "",
) -> Any:
    """Draw each item's margin at one dose against its margin without an edit; click to choose one.

    Args:
        table: columns ``item, facet, before, after``: log-odds a token of the trusting reply.
        dose: of ``after``.
        chosen: an item that is ringed.
        theme: light or dark.
        title: which steering.

    Raises:
        ValueError: no item, or more facets than the palette has colors.
    """
    from bokeh.models import ColumnDataSource, Span, TapTool

    look = theme_named(theme)
    facets = list(dict.fromkeys(table["facet"]))
    if not 0 < len(facets) <= len(look.palette):
        raise ValueError(f"{len(facets)} facets; from 1 to {len(look.palette)} can be told apart")
    up = int((table["after"] > table["before"]).sum())
    won = int((table["after"] > 0).sum())
    told = f"{up} of {len(table)} rise, the trusting reply leads in {won}"
    named = title or "Margin item by item"
    figure = blank_figure(
        look, named, f"{named}, dose {dose:g} against none: {told}.", height=360,
        x_axis_label="margin without an edit (nats a token)",
        y_axis_label=f"margin at dose {dose:g} (nats a token)", tools="save,reset,tap",
    )  # fmt: skip
    low, high = _ends(table[["before", "after"]].to_numpy(np.float64))
    figure.x_range.start, figure.x_range.end = low, high
    same = figure.line([low, high], [low, high], color=look.band, line_dash="dashed")
    for dimension in ("width", "height"):
        figure.add_layout(Span(location=0, dimension=dimension, line_color=look.band))
    rows = table.assign(
        ink=[look.palette[facets.index(facet)] for facet in table["facet"]],
        mark=[MARKERS[facets.index(facet) % len(MARKERS)] for facet in table["facet"]],
    )
    source = ColumnDataSource(arrays(rows))
    dots = figure.scatter(
        "before", "after", source=source, color="ink", marker="mark", size=9, fill_alpha=0.55,
        nonselection_alpha=0.9, name=ITEMS,
    )  # fmt: skip
    figure.select_one(TapTool).renderers = [dots]
    ringed = table[table["item"].astype(str) == chosen]
    if len(ringed):
        figure.scatter(
            ringed["before"], ringed["after"], size=18, fill_color=None, line_color=look.ink,
            line_width=2.2,
        )  # fmt: skip
    items = [(str(facet), [_swatch(figure, look, n)]) for n, facet in enumerate(facets)]
    add_legend(figure, look, [*items, ("no change", [same])])
    tips = [("", "@item"), ("facet", "@facet"), ("without", "@before{0.000}")]
    add_hover(figure, [dots], [*tips, (f"dose {dose:g}", "@after{0.000}")])
    add_note(figure, look, told)
    return figure


def by_block(
    table: pd.DataFrame, measure: str, *, theme: str = "light", title: str = "", height: int = 280
) -> Any:
    """Draw one measure of steering matrices by block, one line a method; controls are gray.

    Args:
        table: columns ``method, control, layer`` and the measure; ``control`` is "none" for a
            method itself.
        measure: a key of ``BLOCK_MEASURES``.
        theme: light or dark.
        title: by default the measure.
        height: in pixels.

    Raises:
        ValueError: nothing to draw, an unknown measure, or more methods than colors.
    """
    from bokeh.models import ColumnDataSource, Span

    if measure not in BLOCK_MEASURES:
        raise ValueError(f"measure = {measure!r}; known: {', '.join(BLOCK_MEASURES)}")
    look = theme_named(theme)
    rows = table.dropna(subset=measure)
    own = rows[rows["control"] == "none"]
    methods = list(dict.fromkeys(own["method"]))
    if not 0 < len(methods) <= len(look.palette):
        raise ValueError(f"{len(methods)} methods; from 1 to {len(look.palette)} can be drawn")
    words = BLOCK_MEASURES[measure]
    told = "; ".join(_ends_told(own[own["method"] == name], name, measure) for name in methods)
    named = title or words[:1].upper() + words[1:]
    figure = blank_figure(
        look, named, f"{named} by block: {told}.", height=height,
        x_axis_label="layer (0-based block)", y_axis_label=words,
    )  # fmt: skip
    if measure.startswith("cosine"):
        figure.y_range.start, figure.y_range.end = -1.05, 1.05
    figure.add_layout(Span(location=0, dimension="width", line_color=look.band))
    items: list[tuple[str, list[Any]]] = []
    dots = []
    for number, name in enumerate(methods):
        source = ColumnDataSource(arrays(own[own["method"] == name].sort_values("layer")))
        style: dict[str, Any] = {"source": source, "color": look.palette[number]}
        line = figure.line("layer", measure, line_width=2.4, **style)
        marker = MARKERS[number % len(MARKERS)]
        dots.append(figure.scatter("layer", measure, size=6, marker=marker, **style))
        items.append((str(name).replace("_", " "), [line, dots[-1]]))
    items += _add_controls(figure, look, rows[rows["control"] != "none"], measure)
    add_legend(figure, look, items)
    add_hover(figure, dots, [("", "@method"), ("layer", "@layer"), (words, f"@{measure}{{0.000}}")])
    return figure


def _add_controls(
    figure: Any, look: Theme, rows: pd.DataFrame, measure: str
) -> list[tuple[str, list[Any]]]:
    items = []
    for kind, dash in (("shuffled", "dotted"), ("random", "solid")):
        of_kind = rows[rows["control"].str.partition(":")[0] == kind]
        lines = [
            figure.line(
                part["layer"], part[measure], color=look.band, line_dash=dash, line_width=1.4
            )
            for _, part in of_kind.sort_values("layer").groupby(["method", "control"], sort=False)
        ]
        if lines:
            items.append((kind, lines[:1]))
    return items


def _swatch(figure: Any, look: Theme, number: int) -> Any:
    return figure.scatter(
        [np.nan], [np.nan], marker=MARKERS[number % len(MARKERS)], color=look.palette[number],
        size=9,
    )  # fmt: skip


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


def _ends_told(rows: pd.DataFrame, name: Sequence[str] | str, measure: str) -> str:
    best = rows.iloc[int(rows[measure].abs().argmax())]
    return f"{name} largest at layer {int(best['layer'])} ({best[measure]:.3g})"
