"""Emotion vectors as figures: how alike they are, how well each layer reads them, profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.heat import diverging
from workbench.figures.layers import MARKERS, add_curve
from workbench.figures.theme import (
    Theme,
    add_hover,
    add_legend,
    add_note,
    arrays,
    blank_figure,
    theme_named,
)

CHANCE = 0.5
"""AUC of a coin."""
MOST_LABELED = 24
"""Emotions beyond which the columns go without names; they follow the rows in any case."""
ROW = 18
"""Pixels of height that a row gets."""


def similarity_order(table: pd.DataFrame) -> list[str]:
    """Return names so that like ones stand together: leaves of average linkage over 1 - cosine.

    Args:
        table: columns ``first, second, cosine``, every pair of one layer.

    Raises:
        ValueError: a pair is missing or given twice.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    square = _square(table)
    if len(square) < 3:
        return list(square.index)
    apart = 1 - np.clip(square.to_numpy(np.float64), -1, 1)
    near = squareform((apart + apart.T) / 2, checks=False)
    leaves = leaves_list(optimal_leaf_ordering(linkage(near, "average"), near))
    return [str(square.index[leaf]) for leaf in leaves]


def similarity_matrix(
    table: pd.DataFrame,
    *,
    order: Sequence[str] = (),
    marked: str = "",
    theme: str = "light",
    title: str = "",
) -> Any:
    """Draw the cosine of every emotion vector with every other at one layer.

    Args:
        table: columns ``first, second, cosine``, every pair of one layer; ``band``, where it is
            there, is what random directions reach.
        order: names from top to bottom; by default `similarity_order`.
        marked: an emotion whose row and column are framed.
        theme: light or dark.
        title: such as the layer.
    """
    from bokeh.models import ColumnDataSource

    look, square = theme_named(theme), _square(table)
    names = list(order) or similarity_order(table)
    if sorted(names) != sorted(square.index):
        raise ValueError(f"order names {len(names)} emotions; the table has {len(square)} others")
    cells = table[table["first"] != table["second"]]
    limit = float(np.ceil(20 * max(0.05, cells["cosine"].abs().max())) / 20)
    told = [_span_told(cells)]
    band = _band_of(cells)
    if band is not None:
        beyond = int((cells["cosine"].abs() > band).sum()) // 2
        told.append(f"{beyond} of {len(cells) // 2} pairs beyond random directions (±{band:.2f})")
    named = title or "Emotion vectors"
    figure = blank_figure(
        look, named, f"{named}: cosines of {len(names)} emotions; {'; '.join(told)}.",
        height=90 + ROW * max(len(names), 8), x_range=names, y_range=names[::-1],
        tools="save,reset,tap",
    )  # fmt: skip
    fill = [diverging(look, value) for value in np.clip(cells["cosine"] / limit, -1, 1)]
    source = ColumnDataSource({**arrays(cells[["first", "second", "cosine"]]), "fill": fill})
    drawn = figure.rect(
        "second", "first", width=1, height=1, source=source, fill_color="fill", line_color=None,
        nonselection_fill_alpha=1.0, name="cells",
    )  # fmt: skip
    add_hover(figure, [drawn], [("", "@first with @second"), ("cosine", "@cosine{0.000}")])
    if marked in names:
        _frame(figure, look, names, marked)
    _label(figure, names)
    _add_key(figure, look, names, limit)
    for line in reversed(told):
        add_note(figure, look, line)
    return figure


def emotion_curves(
    table: pd.DataFrame,
    *,
    control: pd.DataFrame | None = None,
    window: Sequence[int] = (),
    layer: int | None = None,
    theme: str = "light",
    title: str = "",
    least: float | None = None,
) -> Any:
    """Draw how well each layer tells an emotion from the others, with interval and controls.

    Args:
        table: columns ``emotion, layer, auc, low, high, n, unit, interval``; ``null``, where it
            is there, is the AUC that directions without the emotion reach.
        control: the same columns for vectors made with the control's treatment.
        window: blocks that were chosen, shaded.
        layer: the one on show.
        theme: light or dark.
        title: of what.
        least: the lowest AUC drawn; by default a little below what there is.

    Raises:
        ValueError: no emotion, or more than the palette has colors.
    """
    from bokeh.models import BoxAnnotation, Span

    look = theme_named(theme)
    emotions = list(dict.fromkeys(table["emotion"]))
    if not 0 < len(emotions) <= len(look.palette):
        raise ValueError(f"{len(emotions)} emotions; from 1 to {len(look.palette)} can be drawn")
    best = "; ".join(_peak(table, name) for name in emotions)
    named = title or "AUC by layer"
    figure = blank_figure(
        look, named, f"{named}: {best}.", height=340, x_axis_label="layer (0-based block)",
        y_axis_label="AUC, one against the rest",
    )  # fmt: skip
    if len(window):
        shade = BoxAnnotation(
            left=min(window) - 0.5, right=max(window) + 0.5, fill_color=look.band, fill_alpha=0.14
        )
        shade.line_color = None
        figure.add_layout(shade)
    if layer is not None:
        figure.add_layout(
            Span(location=layer, dimension="height", line_color=look.muted, line_dash="dashed")
        )
    figure.add_layout(Span(location=CHANCE, dimension="width", line_color=look.band))
    items: list[tuple[str, list[Any]]] = []
    dots = []
    for number, name in enumerate(emotions):
        rows = table[table["emotion"] == name].sort_values("layer")
        glyphs = add_curve(figure, look, rows, "auc", number)
        dots.append(glyphs[1])
        items.append((str(name), glyphs))
    items += _add_controls(figure, look, table, control)
    add_legend(figure, look, items)
    tips = [("", "@emotion"), ("layer", "@layer"), ("AUC", "@auc{0.000}")]
    add_hover(figure, dots, [*tips, ("interval", "@low{0.00} to @high{0.00}"), ("n", "@n @unit")])
    _hold(figure, [table, control], least)
    return figure


def emotion_profiles(
    table: pd.DataFrame,
    *,
    order: Sequence[str] = (),
    theme: str = "light",
    title: str = "",
    axis: str = "pooled SD from the reference",
) -> Any:
    """Draw where each model lies along each emotion, one row an emotion, with intervals.

    Args:
        table: columns ``emotion, model, value, low, high, n, unit, interval``.
        order: emotions from top to bottom; by default by how far the models lie apart.
        theme: light or dark.
        title: such as the window.
        axis: the unit, in words.

    Raises:
        ValueError: no model, or more than the palette has colors.
    """
    from bokeh.models import ColumnDataSource, FactorRange, Span
    from bokeh.transform import dodge

    look = theme_named(theme)
    models = list(dict.fromkeys(table["model"]))
    if not 0 < len(models) <= len(look.palette):
        raise ValueError(f"{len(models)} models; from 1 to {len(look.palette)} can be told apart")
    wide = table.pivot_table(index="emotion", columns="model", values="value", sort=False)
    spread = (wide.max(axis=1) - wide.min(axis=1)).sort_values(ascending=False, kind="stable")
    names = list(order) or [str(name) for name in spread.index]
    top = names[0]
    told = ", ".join(f"{model} {wide.loc[top, model]:+.2f}" for model in models)
    named = title or "Emotion profiles"
    figure = blank_figure(
        look, named, f"{named}: {len(names)} emotions, {len(models)} models; {top}: {told}.",
        height=110 + (10 + 10 * len(models)) * len(names), x_axis_label=axis,
        y_range=FactorRange(factors=names[::-1]),
    )  # fmt: skip
    figure.add_layout(Span(location=0, dimension="height", line_color=look.band, line_width=1.4))
    items, dots = [], []
    step = min(0.26, 0.7 / len(models))
    for number, model in enumerate(models):
        rows = table[(table["model"] == model) & table["emotion"].isin(names)]
        source = ColumnDataSource(arrays(rows))
        shift = step * ((len(models) - 1) / 2 - number)
        place = dodge("emotion", shift, range=figure.y_range)
        ink = look.palette[number]
        bar = figure.segment(
            "low", place, "high", place, source=source, color=ink, line_width=2.2, line_alpha=0.7
        )
        dots.append(
            figure.scatter("value", place, source=source, color=ink, size=8,
                           marker=MARKERS[number % len(MARKERS)])
        )  # fmt: skip
        items.append((str(model), [bar, dots[-1]]))
    add_legend(figure, look, items)
    tips = [("", "@emotion, @model"), ("value", "@value{0.00}")]
    add_hover(figure, dots, [*tips, ("interval", "@low{0.00} to @high{0.00}"), ("n", "@n @unit")])
    return figure


def _square(table: pd.DataFrame) -> pd.DataFrame:
    if table.duplicated(["first", "second"]).any():
        raise ValueError("one cosine for each pair is expected; choose one layer first")
    square = table.pivot(index="first", columns="second", values="cosine")
    square = square.reindex(index=square.index, columns=square.index)
    blank = square.isna().to_numpy() & ~np.eye(len(square), dtype=bool)
    if blank.any() or not len(square):
        raise ValueError(f"{int(blank.sum())} of {square.size} pairs have no cosine")
    return square


def _span_told(cells: pd.DataFrame) -> str:
    if cells.empty:
        return "one emotion"
    high, low = (cells.iloc[int(i)] for i in (cells["cosine"].argmax(), cells["cosine"].argmin()))
    return (
        f"from {low['cosine']:.2f} ({low['first']}, {low['second']}) to {high['cosine']:.2f} "
        f"({high['first']}, {high['second']})"
    )


def _band_of(cells: pd.DataFrame) -> float | None:
    if "band" not in cells or cells["band"].isna().all():
        return None
    return float(cells["band"].max())


def _frame(figure: Any, look: Theme, names: Sequence[str], marked: str) -> None:
    style = {"fill_color": None, "line_color": look.ink, "line_width": 1.6}
    middle = (len(names)) / 2
    figure.rect(x=[middle], y=[marked], width=len(names), height=1, **style)
    figure.rect(x=[marked], y=[middle], width=1, height=len(names), **style)


def _label(figure: Any, names: Sequence[str]) -> None:
    figure.grid.grid_line_color = None
    figure.axis.major_tick_line_color = None
    figure.yaxis.major_label_text_font_size = "11px"
    figure.xaxis.major_label_text_font_size = "11px"
    figure.xaxis.major_label_orientation = np.pi / 3
    if len(names) > MOST_LABELED:
        figure.xaxis.major_label_text_font_size = "0px"
        figure.xaxis.axis_label = "the same emotions, in the same order"


def _add_key(figure: Any, look: Theme, names: Sequence[str], limit: float) -> None:
    items = []
    for value in (limit, limit / 2, 0.0, -limit / 2, -limit):
        fill = diverging(look, value / limit)
        swatch = figure.rect(
            x=[names[0]], y=[names[0]], width=0, height=0, fill_color=fill, line_color=look.grid
        )
        items.append((f"{value:+.2f}" if value else "0", [swatch]))
    add_legend(figure, look, items)


def _peak(table: pd.DataFrame, name: str) -> str:
    rows = table[table["emotion"] == name].dropna(subset="auc")
    if rows.empty:
        return f"{name} not read"
    best = rows.iloc[int(rows["auc"].argmax())]
    return f"{name} {best['auc']:.2f} at layer {int(best['layer'])}"


def _add_controls(
    figure: Any, look: Theme, table: pd.DataFrame, control: pd.DataFrame | None
) -> list[tuple[str, list[Any]]]:
    items: list[tuple[str, list[Any]]] = []
    if control is not None and len(control):
        lines = []
        for number, (_, rows) in enumerate(control.groupby("emotion", sort=False)):
            rows = rows.sort_values("layer")
            color = look.palette[number % len(look.palette)]
            style: dict[str, Any] = {"color": color, "line_dash": "dashed", "line_width": 1.6}
            lines.append(figure.line(rows["layer"], rows["auc"], **style))
        items.append(("control", lines[:1]))
    if "null" in table and table["null"].notna().any():
        limit = table.groupby("layer")["null"].max().sort_index()
        line = figure.line(
            limit.index.to_numpy(), limit.to_numpy(), color=look.band, line_dash="dotted",
            line_width=2,
        )  # fmt: skip
        items.append(("null", [line]))
    return items


def _hold(figure: Any, tables: Sequence[pd.DataFrame | None], least: float | None) -> None:
    """Let the range hold curves and intervals, but not more than an AUC can be."""
    columns = [
        table[column].to_numpy(np.float64)
        for table in tables
        if table is not None
        for column in ("auc", "low", "high")
        if column in table
    ]
    values = np.concatenate(columns)
    low = float(np.nanmin(values)) if least is None else least
    figure.y_range.start = max(0.0, min(low, CHANCE) - 0.03)
    figure.y_range.end = 1.02
