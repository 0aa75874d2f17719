"""A map of items in two dimensions, colored by one of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.theme import Theme, add_hover, add_legend, arrays, blank_figure, theme_named

SOURCE = "points"
"""Name of the glyphs' data source, so that a page can move the points without a new figure."""
OUTLINE = "outline"
"""Name of the source of the polygon that a selection was made with."""
MOST_CATEGORIES = 8
OTHER = "other values"
MISSING = "no value"
_WORDS = {
    "polarity": {1: "affirmed", -1: "negated", 0: "balanced"},
    "label": {1: "true (label 1)", 0: "false (label 0)"},
}


def scatter_map(
    table: pd.DataFrame,
    color: str,
    *,
    theme: str = "light",
    title: str = "",
    hover: Sequence[str] = ("id",),
    axes: tuple[str, str] = ("first axis", "second axis"),
) -> Any:
    """Draw one point per row.

    Args:
        table: columns ``x`` and ``y``, the column named by ``color`` and those of ``hover``; rows
            with a coordinate that is not finite are left out, and the title counts them.
        color: the column that colors points: few values give a legend, numbers a color bar.
        theme: light or dark.
        title: what the map shows; "n of N shown" is added.
        hover: columns shown under the pointer.
        axes: names of the two axes.
    """
    look = theme_named(theme)
    shown = table[np.isfinite(table["x"]) & np.isfinite(table["y"])]
    headed = map_title(title, len(shown), len(table))
    figure = blank_figure(
        look,
        headed,
        f"Map of items: {headed}, colored by {color}.",
        height=440,
        tools="pan,wheel_zoom,lasso_select,box_select,reset,save",
        toolbar_location="right",
        x_axis_label=axes[0],
        y_axis_label=axes[1],
        output_backend="canvas",
    )
    figure.toolbar.active_drag = figure.select_one({"type": _lasso()})
    _add_points(figure, look, shown, color, hover)
    _add_outline(figure, look)
    return figure


def map_title(title: str, shown: int, total: int) -> str:
    """Return the title with its count, which no map goes without."""
    count = f"{shown:,} of {total:,} shown"
    return f"{title} · {count}" if title else count


def is_categorical(values: pd.Series) -> bool:
    """Say whether a column gets a legend (text, truth values, few numbers) or a color bar."""
    return not pd.api.types.is_numeric_dtype(values) or values.nunique() <= MOST_CATEGORIES


def categories(values: pd.Series, name: str) -> pd.Series:
    """Return a word for each value; the rarest beyond the palette share one."""
    words = _WORDS.get(name, {})
    named = values.map(lambda value: _word(value, words))
    common = named.value_counts().index
    if len(common) > MOST_CATEGORIES:
        kept = set(common[: MOST_CATEGORIES - 1])
        named = named.where(named.isin(kept), OTHER)
    return named


def _word(value: Any, words: dict[int, str]) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return MISSING
    if isinstance(value, int | float | np.integer | np.floating) and float(value).is_integer():
        return words.get(int(value), str(int(value)))
    return str(value)


def _lasso() -> Any:
    from bokeh.models import LassoSelectTool

    return LassoSelectTool


def _add_points(
    figure: Any, look: Theme, shown: pd.DataFrame, color: str, hover: Sequence[str]
) -> None:
    from bokeh.models import ColumnDataSource

    source = ColumnDataSource(arrays(shown[["x", "y"]]), name=SOURCE)
    source.data["row"] = shown.index.to_numpy()
    for column in dict.fromkeys([*hover, color]):
        source.data[f"c_{column}"] = _readable(shown[column], column)
    values = shown[color]
    if is_categorical(values):
        renderers = _points_by_category(figure, look, source, values, color)
    else:
        renderers = [_points_by_number(figure, look, source, values, color)]
    tips = [(column, f"@{{c_{column}}}") for column in dict.fromkeys([*hover, color])]
    add_hover(figure, renderers, tips)


def _readable(values: pd.Series, column: str) -> np.ndarray:
    if pd.api.types.is_float_dtype(values) and not is_categorical(values):
        return values.map("{:.4g}".format).to_numpy(dtype=object)
    words = _WORDS.get(column, {})
    return values.map(lambda value: _word(value, words)).to_numpy(dtype=object)


def _style(look: Theme) -> dict[str, Any]:
    return {
        "size": 6,
        "line_color": None,
        "fill_alpha": 0.72,
        "nonselection_fill_alpha": 0.12,
        "selection_fill_alpha": 0.95,
        "selection_line_color": look.ink,
        "selection_line_width": 0.6,
    }


def _points_by_category(
    figure: Any, look: Theme, source: Any, values: pd.Series, color: str
) -> list[Any]:
    from bokeh.models import CDSView, GroupFilter

    source.data["category"] = categories(values, color).to_numpy(dtype=object)
    counts = pd.Series(source.data["category"]).value_counts()
    order = sorted(counts.index, key=lambda word: (word in (OTHER, MISSING), word))
    renderers, items = [], []
    for position, word in enumerate(order):
        plain = look.muted if word in (OTHER, MISSING) else look.palette[position]
        view = CDSView(filter=GroupFilter(column_name="category", group=word))
        glyph = figure.scatter("x", "y", source=source, view=view, fill_color=plain, **_style(look))
        renderers.append(glyph)
        items.append((f"{word} ({counts[word]:,})", [glyph]))
    if items:
        add_legend(figure, look, items).click_policy = "hide"
    return renderers


def _points_by_number(figure: Any, look: Theme, source: Any, values: pd.Series, color: str) -> Any:
    from bokeh.models import ColorBar, LinearColorMapper
    from bokeh.palettes import Viridis256

    source.data["number"] = values.to_numpy(dtype=float)
    colors = Viridis256[56:] if look.name == "dark" else Viridis256[:226]
    mapper = LinearColorMapper(colors, low=float(values.min()), high=float(values.max()))
    glyph = figure.scatter(
        "x", "y", source=source, fill_color={"field": "number", "transform": mapper}, **_style(look)
    )
    bar = ColorBar(
        color_mapper=mapper,
        title=color.replace("_", " "),
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


def _add_outline(figure: Any, look: Theme) -> None:
    from bokeh.models import ColumnDataSource

    source = ColumnDataSource({"x": [], "y": []}, name=OUTLINE)
    figure.patch(
        "x",
        "y",
        source=source,
        fill_color=look.ink,
        fill_alpha=0.05,
        line_color=look.ink,
        line_alpha=0.6,
        line_dash="dashed",
    )
