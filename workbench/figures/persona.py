"""Persona space as figures: the map of roles, where they lie along the axis, the axis by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.layers import add_curve
from workbench.figures.theme import (
    Theme,
    add_hover,
    add_legend,
    add_note,
    arrays,
    blank_figure,
    theme_named,
)

MOST_NAMED = 4
"""Roles named at each end of the axis."""
EDGE = 0.7
"""Share of the plot's width from which names stand at the left of their points."""
FEWEST_BINS, MOST_BINS = 6, 24
_COLUMNS = ["role", "axis", "pc1", "pc2"]


def persona_map(table: pd.DataFrame, *, theme: str = "light", title: str = "") -> Any:
    """Draw roles on the first two components, colored by their projection on the axis.

    The default Assistant and organisms stand on the map with marks of their own; the roles farthest
    out on the axis are named.

    Args:
        table: columns ``role, kind`` (role, default or organism), ``axis, pc1, pc2``, one layer.
            Roles with a coordinate that is missing are left out, and the title counts them.
        theme: light or dark.
        title: such as the layer; how many roles are shown is added.
    """
    look = theme_named(theme)
    roles, default, organisms = (
        table.loc[table["kind"] == kind, _COLUMNS] for kind in ("role", "default", "organism")
    )
    shown = roles.dropna()
    count = f"{len(shown):,} of {len(roles):,} roles shown"
    headed = f"{title} · {count}" if title else count
    places = zip(organisms["role"], organisms["axis"], strict=True)
    others = ", ".join(f"{name} at {value:.3g}" for name, value in places)
    figure = blank_figure(
        look,
        headed,
        f"Persona map: {headed}, colored by axis projection"
        + (f"; organisms along the axis: {others}." if others else "."),
        height=460,
        tools="pan,wheel_zoom,reset,save",
        toolbar_location="right",
        x_axis_label="first component (residual units)",
        y_axis_label="second component",
    )
    glyphs = [_add_roles(figure, look, shown)]
    items = []
    for name, rows, marker, color, size in (
        ("default Assistant", default, "star", look.ink, 20),
        ("organisms", organisms, "diamond", look.palette[1], 15),
    ):
        if len(rows):
            glyphs.append(_add_marks(figure, rows, marker, color, size))
            items.append((name, [glyphs[-1]]))
    _add_names(figure, look, pd.concat([_ends(shown), organisms, default]))
    if items:
        add_legend(figure, look, items)
    tips = [("", "@role"), ("axis", "@axis{0.000}")]
    add_hover(figure, glyphs, [*tips, ("components", "@pc1{0.00}, @pc2{0.00}")])
    return figure


def axis_histogram(
    table: pd.DataFrame,
    *,
    floor: float | None = None,
    floor_name: str = "floor of the cap",
    theme: str = "light",
    title: str = "",
) -> Any:
    """Count roles along the axis, beside the default Assistant, organisms and a cap's floor.

    Args:
        table: as for `persona_map`.
        floor: in residual units along the axis.
        floor_name: which percentile, in words.
        theme: light or dark.
        title: such as the layer.
    """
    from bokeh.models import BasicTicker

    look = theme_named(theme)
    values = table.loc[table["kind"] == "role", "axis"].to_numpy(float)
    values = values[np.isfinite(values)]
    marked = table[table["kind"] != "role"]
    marks = dict(zip(marked["role"].astype(str), marked["axis"].astype(float), strict=True))
    told = ", ".join(f"{name} {value:.3g}" for name, value in marks.items())
    figure = blank_figure(
        look,
        title or "Projections on the Assistant Axis",
        f"Histogram of {len(values)} roles along the Assistant Axis; {told or 'no marks'}.",
        height=300, x_axis_label="projection on the axis (residual units)",
        y_axis_label="roles",
    )  # fmt: skip
    counts, edges = np.histogram(values, bins=_bins(len(values)))
    top = float(counts.max(initial=1))
    bars = figure.quad(
        left=edges[:-1], right=edges[1:], bottom=0, top=counts, fill_color=look.palette[0],
        fill_alpha=0.55, line_color=look.surface,
    )  # fmt: skip
    add_hover(
        figure, [bars], [("roles", "@top"), ("from", "@left{0.000}"), ("to", "@right{0.000}")]
    )
    figure.y_range.start = 0
    figure.yaxis.ticker = BasicTicker(min_interval=1)
    items = [(f"roles ({len(values)})", [bars])]
    items += _upright(figure, look, marks, top)
    if floor is not None and np.isfinite(floor):
        style = {"color": look.warning, "line_dash": "dotted", "line_width": 2.2}
        items.append((floor_name, [figure.line([floor, floor], [0, top], **style)]))
    add_legend(figure, look, items)
    return figure


def axis_by_layer(
    table: pd.DataFrame, *, layer: int | None = None, theme: str = "light", title: str = ""
) -> Any:
    """Draw the cosine of the axis with the first component by layer, and that component's share.

    Args:
        table: columns ``layer, cosine, low, high, n, unit, interval, explained`` (share of the
            variance of roles) and ``control_high``: what a role in the Assistant's place reaches.
        layer: the one on show, marked.
        theme: light or dark.
        title: what is compared.
    """
    from bokeh.models import ColumnDataSource, Span

    look = theme_named(theme)
    rows = table.sort_values("layer")
    named = title or "Axis and first component"
    least = rows.iloc[int(rows["cosine"].argmin())]
    beyond = int((rows["low"] > rows["control_high"]).sum())
    figure = blank_figure(
        look,
        named,
        f"{named} by layer: lowest cosine {least['cosine']:.2f} at layer {int(least['layer'])}; "
        f"above its control at {beyond} of {len(rows)} layers.",
        height=300,
        x_axis_label="layer (0-based block)",
        y_axis_label="cosine, share",
        y_range=(0.0, 1.04),
    )
    if layer is not None:
        figure.add_layout(
            Span(location=layer, dimension="height", line_color=look.muted, line_dash="dashed")
        )
    style = {"color": look.band, "line_dash": "dashed", "line_width": 1.8}
    limit = figure.line("layer", "control_high", source=ColumnDataSource(arrays(rows)), **style)
    axis = add_curve(figure, look, rows, "cosine", 0)
    source = ColumnDataSource(arrays(rows))
    share = [
        figure.line("layer", "explained", source=source, color=look.palette[1], line_width=2.4),
        figure.scatter(
            "layer", "explained", source=source, color=look.palette[1], size=6, marker="square"
        ),
    ]
    tips = [("layer", "@layer"), ("cosine", "@cosine{0.000}"), ("n", "@n @{unit}s")]
    tips += [("interval", "@low{0.000} to @high{0.000}"), ("control", "@control_high{0.000}")]
    add_hover(figure, [axis[1], share[1]], [*tips, ("share", "@explained{0.0%}")])
    items = [("cosine of axis and PC1", axis), ("control: a role's own", [limit])]
    add_legend(figure, look, [*items, ("variance that PC1 holds", share)])
    return figure


def drift_lines(
    turns: pd.DataFrame,
    *,
    band: Mapping[str, float] | None = None,
    band_name: str = "",
    theme: str = "light",
    title: str = "",
) -> Any:
    """Draw the mean projection of each assistant turn, one line a model, over the reference band.

    Args:
        turns: columns ``model, turn, mean, n`` (tokens), ``said`` (how the turn begins).
        band: ``mean``, and ``low`` and ``high`` where there is a band.
        band_name: of what the band is, with its n.
        theme: light or dark.
        title: such as the layer.
    """
    from bokeh.models import BoxAnnotation, ColumnDataSource, Span

    look = theme_named(theme)
    models = list(dict.fromkeys(turns["model"]))
    if not 0 < len(models) <= len(look.palette):
        raise ValueError(f"{len(models)} models; from 1 to {len(look.palette)} can be told apart")
    told = "; ".join(_told(turns, model) for model in models)
    named = title or "Drift"
    figure = blank_figure(
        look, named, f"{named}, mean projection by assistant turn: {told}.", height=320,
        x_axis_label="assistant turn", y_axis_label="mean projection (residual units)",
    )  # fmt: skip
    figure.xaxis.ticker = sorted({int(turn) for turn in turns["turn"]})
    items: list[tuple[str, list[Any]]] = []
    dots = []
    if band is not None:
        figure.add_layout(Span(location=band["mean"], dimension="width", line_color=look.band))
        if {"low", "high"} <= set(band):
            area = BoxAnnotation(
                bottom=band["low"], top=band["high"], fill_color=look.band, fill_alpha=0.2
            )
            area.line_color = None
            figure.add_layout(area)
    for number, model in enumerate(models):
        rows = turns[turns["model"] == model].sort_values("turn")
        source = ColumnDataSource(arrays(rows))
        style: dict[str, Any] = {"source": source, "color": look.palette[number]}
        line = figure.line("turn", "mean", line_width=2.4, **style)
        marker = ("circle", "square", "diamond", "triangle")[number % 4]
        dots.append(figure.scatter("turn", "mean", size=10, marker=marker, **style))
        items.append((str(model), [line, dots[-1]]))
    add_legend(figure, look, items)
    tips = [("model", "@model"), ("turn", "@turn"), ("mean", "@mean{0.000}")]
    add_hover(figure, dots, [*tips, ("tokens", "@n"), ("begins", "@said")])
    _keep_in_view(figure, turns, band)
    if band_name:
        add_note(figure, look, band_name)
    return figure


def _keep_in_view(figure: Any, turns: pd.DataFrame, band: Mapping[str, float] | None) -> None:
    """Let the vertical range hold lines and band, which no glyph of the figure is."""
    held = [*turns["mean"], *(band or {}).values()]
    low, high = float(np.nanmin(held)), float(np.nanmax(held))
    room = 0.08 * (high - low) or 1.0
    figure.y_range.start, figure.y_range.end = low - room, high + room
    figure.x_range.start = min(turns["turn"]) - 0.5
    figure.x_range.end = max(turns["turn"]) + 0.5


def _told(turns: pd.DataFrame, model: str) -> str:
    rows = turns[turns["model"] == model].sort_values("turn")
    return f"{model} " + ", ".join(f"{value:.3g}" for value in rows["mean"])


def _bins(count: int) -> int:
    """Return how many bins: about the square root of the count, within what can be read."""
    return int(np.clip(round(2 * np.sqrt(count)), FEWEST_BINS, MOST_BINS))


def _ends(roles: pd.DataFrame) -> pd.DataFrame:
    ordered = roles.sort_values("axis")
    if len(ordered) <= 2 * MOST_NAMED:
        return ordered
    return pd.concat([ordered.head(MOST_NAMED), ordered.tail(MOST_NAMED)])


def _add_roles(figure: Any, look: Theme, roles: pd.DataFrame) -> Any:
    from bokeh.models import ColorBar, ColumnDataSource, LinearColorMapper
    from bokeh.palettes import Viridis256

    colors = Viridis256[56:] if look.name == "dark" else Viridis256[:226]
    low, high = (float(roles["axis"].min()), float(roles["axis"].max())) if len(roles) else (0, 1)
    mapper = LinearColorMapper(colors, low=low, high=high)
    glyph = figure.scatter(
        "pc1",
        "pc2",
        source=ColumnDataSource(arrays(roles)),
        size=9,
        line_color=None,
        fill_alpha=0.85,
        fill_color={"field": "axis", "transform": mapper},
    )
    bar = ColorBar(
        color_mapper=mapper,
        title="projection on the axis (more: the Assistant)",
        orientation="horizontal",
        height=10,
        width="auto",
        padding=6,
        background_fill_color=look.surface,
        major_label_text_color=look.muted,
        title_text_color=look.ink,
        title_text_font_style="normal",
        major_tick_line_color=look.muted,
        bar_line_color=None,
    )
    figure.add_layout(bar, "below")
    return glyph


def _add_marks(figure: Any, rows: pd.DataFrame, marker: str, color: str, size: int) -> Any:
    from bokeh.models import ColumnDataSource

    return figure.scatter(
        "pc1",
        "pc2",
        source=ColumnDataSource(arrays(rows)),
        marker=marker,
        size=size,
        fill_color=color,
        line_color=color,  # a rim of another color would hide the small one of the legend
    )


def _add_names(figure: Any, look: Theme, rows: pd.DataFrame) -> None:
    """Name points at their right; at their left where the plot ends soon."""
    from bokeh.models import ColumnDataSource, LabelSet

    right = rows["pc1"] > rows["pc1"].min() + EDGE * (rows["pc1"].max() - rows["pc1"].min())
    for part, offset, align in ((rows[~right], 8, "left"), (rows[right], -8, "right")):
        figure.add_layout(
            LabelSet(
                x="pc1",
                y="pc2",
                text="role",
                source=ColumnDataSource(arrays(part)),
                x_offset=offset,
                y_offset=4,
                text_align=align,
                text_font_size="11px",
                text_color=look.ink,
                background_fill_color=look.surface,
                background_fill_alpha=0.35,
            )
        )


def _upright(figure: Any, look: Theme, marks: Mapping[str, float], top: float) -> list[Any]:
    items = []
    for number, (name, value) in enumerate(marks.items()):
        color = look.ink if number == 0 else look.palette[number % len(look.palette)]
        dash = "solid" if number == 0 else "dashed"
        line = figure.line([value, value], [0, top], color=color, line_dash=dash, line_width=2.2)
        items.append((name, [line]))
    return items
