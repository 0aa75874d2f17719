"""Cosines between directions as a matrix or a ranking, never without the band that chance gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.heat import add_cells, grid_height
from workbench.figures.theme import (
    Theme,
    add_hover,
    add_legend,
    add_note,
    arrays,
    blank_figure,
    theme_named,
)

MOST = 24
"""Directions of the bank that are drawn, those with the largest |cosine|."""
WITHIN = "within a band"
"""How figures call what the widest null explains."""
DASHES = ([6, 4], [2, 4], [2, 4, 8, 4], [10, 4, 2, 4], [14, 5], [1, 7])
"""One for each null of a comparison, so that no two of them look alike."""
PAIR = ["first", "second", "layer"]
_TIPS = [
    ("pair", "@first with @second"),
    ("layer", "@layer"),
    ("cosine", "@cosine{0.000}"),
    ("interval", "@low{0.000} to @high{0.000} (@interval)"),
    ("n", "@n @unit"),
    ("widest band", "@band{0.000} (@null)"),
    ("chance", "@chance{0.0000}"),
]


def cosine_matrix(
    table: pd.DataFrame,
    *,
    layer: int | None = None,
    theme: str = "light",
    title: str = "",
    most: int = MOST,
) -> Any:
    """Draw every cosine at one layer; those within the widest band of any null are hatched.

    Args:
        table: rows of ``workbench.directions.cosines``.
        layer: which, where the table holds several.
        theme: light or dark.
        title: what is compared with what.
        most: directions of the bank shown; those with the largest |cosine| are kept, and the note
            counts the others.
    """
    look, at = theme_named(theme), _one_layer(table, layer)
    pairs = widest_band(at)
    kept, total = _largest(pairs, most)
    shown = pairs[pairs["second"].isin(kept)]
    rows, columns = list(dict.fromkeys(shown["first"])), kept
    others = shown[~shown["own"]]
    verdict = f"{int((~others['within']).sum())} of {len(others)} cosines beyond every band"
    figure = blank_figure(
        look,
        title or f"Cosines at layer {shown['layer'].iloc[0]}",
        f"{title or 'Cosines'}: {len(rows)} by {len(columns)} directions; {verdict}.",
        height=grid_height(len(rows), columns),
        x_range=columns,
        y_range=rows[::-1],
    )
    cells = shown.assign(x=shown["second"], y=shown["first"], value=shown["cosine"])
    add_cells(figure, look, cells, _TIPS, limit=_color_limit(shown), chance=WITHIN)
    add_notes(figure, look, [verdict + _counted(len(kept), total), *basis(at)])
    return figure


def cosine_ranking(
    table: pd.DataFrame,
    *,
    layer: int | None = None,
    theme: str = "light",
    title: str = "",
    most: int = MOST,
) -> Any:
    """Draw one direction's cosines with a bank, largest first, with intervals and every band.

    Args:
        table: rows of ``workbench.directions.cosines`` for one direction.
        layer: which, where the table holds several.
        theme: light or dark.
        title: whose cosines.
        most: directions of the bank shown, as in ``cosine_matrix``.
    """
    look, at = theme_named(theme), _one_layer(table, layer)
    if at["first"].nunique() != 1:
        raise ValueError(f"one direction is ranked at a time; found {sorted(set(at['first']))}")
    pairs = widest_band(at)
    kept, total = _largest(pairs, most)
    shown = pairs[pairs["second"].isin(kept)].sort_values("cosine", ascending=False)
    name = title or f"{shown['first'].iloc[0]} at layer {shown['layer'].iloc[0]}"
    order = list(shown["second"])
    figure = blank_figure(
        look,
        name,
        f"{name}: cosines with {len(order)} directions, from {order[0]} to {order[-1]}.",
        height=110 + 20 * len(order),
        x_axis_label="cosine",
        y_range=order[::-1],
    )
    reach = 1.08 * np.nanmax(np.abs(shown[["cosine", "low", "high", "band"]].to_numpy(float)))
    figure.x_range.start, figure.x_range.end = -reach, reach
    items = _add_bands(figure, look, at)
    items = _add_dots(figure, look, shown) + items
    add_legend(figure, look, items)
    beyond = int((~shown["within"]).sum())
    verdict = f"{beyond} of {len(shown)} beyond every band{_counted(len(kept), total)}"
    add_notes(figure, look, [verdict, *basis(at)])
    return figure


def widest_band(table: pd.DataFrame) -> pd.DataFrame:
    """Keep, for each pair and layer, the row of the null with the widest band.

    Adds ``within`` (that band) and ``own`` (a direction with itself, which says nothing).
    """
    if table.empty:
        raise ValueError("the table of cosines is empty")
    widest = table.loc[table.groupby(PAIR, sort=False)["band"].idxmax()]
    own = (widest["first"] == widest["second"]) & (widest["cosine"] > 1 - 1e-6)
    return widest.assign(within=widest["cosine"].abs() <= widest["band"], own=own)


def basis(table: pd.DataFrame) -> list[str]:
    """Return what stands behind the numbers: n and interval, then each null with its band."""
    said = []
    for row in table.drop_duplicates(["n", "unit", "interval"]).to_dict("records"):
        n = int(row["n"])
        counted = f"interval: {row['interval']}, n = {_counted_as(n, row['unit'])}"
        bare = "no interval: one direction a side, without seeds or items"
        said.append(counted if n > 1 else bare)
    for null, part in table.groupby("null", sort=False):
        low, high = part["band"].min(), part["band"].max()
        size = f"{low:.3f}" if high - low < 5e-4 else f"{low:.3f} to {high:.3f}"
        count = _counted_as(int(part["null_n"].iloc[0]), part["null_unit"].iloc[0])
        said.append(f"band {size}: {null}, from {count}")
    return said


def band_told(null: str) -> str:
    """Return a null's name without what its band is the quantile of."""
    return null.rpartition(", ")[0] or null


def add_notes(figure: Any, look: Theme, lines: Sequence[str]) -> None:
    """Write lines under the title, the first one first."""
    for line in reversed(lines):
        add_note(figure, look, line)


def _counted_as(n: int, unit: str) -> str:
    return f"{n:,} {unit}{'s' if n != 1 else ''}"


def _color_limit(shown: pd.DataFrame) -> float:
    """Return the |cosine| of the full color; a direction with itself does not set it."""
    others = shown.loc[~shown["own"], "cosine"].abs()
    return float(np.ceil(20 * max(0.05, others.max() if len(others) else 1.0)) / 20)


def _one_layer(table: pd.DataFrame, layer: int | None) -> pd.DataFrame:
    held = sorted(set(table["layer"]))
    if layer is None and len(held) != 1:
        raise ValueError(f"the table holds layers {held}; choose one with layer=")
    if layer is not None and layer not in held:
        raise ValueError(f"the table holds no layer {layer}; it holds {held}")
    return table if layer is None else table[table["layer"] == layer]


def _largest(pairs: pd.DataFrame, most: int) -> tuple[list[str], int]:
    """Return the bank's names with the largest |cosine|, in the table's order, and how many."""
    size = pairs["cosine"].abs().groupby(pairs["second"], sort=False).max()
    kept = set(size.nlargest(most).index)
    return [name for name in size.index if name in kept], len(size)


def _counted(shown: int, total: int) -> str:
    return "" if shown == total else f"; the {shown} largest of {total} shown"


def _add_bands(figure: Any, look: Theme, at: pd.DataFrame) -> list[Any]:
    from bokeh.models import Span

    items = []
    figure.add_layout(Span(location=0, dimension="height", line_color=look.muted, line_width=1))
    bands = at.groupby("null", sort=False)["band"].max()
    for number, (null, value) in enumerate(bands.items()):
        dash = DASHES[number % len(DASHES)]
        for sign in (-1, 1):
            figure.add_layout(
                Span(
                    location=sign * value,
                    dimension="height",
                    line_color=look.band,
                    line_dash=dash,
                    line_width=1.8,
                )
            )
        key = figure.line(
            [np.nan], [figure.y_range.factors[0]], color=look.band, line_dash=dash, line_width=1.8
        )
        items.append((f"band: {band_told(str(null))}", [key]))
    return items


def _add_dots(figure: Any, look: Theme, shown: pd.DataFrame) -> list[Any]:
    from bokeh.models import ColumnDataSource

    items, dots = [], []
    for within, label, color in (
        (False, "beyond every band", look.palette[0]),
        (True, WITHIN, look.unusable),
    ):
        rows = shown[shown["within"] == within]
        if rows.empty:
            continue
        source = ColumnDataSource(arrays(rows))
        bar = figure.segment(
            "low", "second", "high", "second", source=source, color=color, line_width=2.4
        )
        dot = figure.scatter("cosine", "second", source=source, color=color, size=9)
        dots.append(dot)
        items.append((label, [bar, dot]))
    add_hover(figure, dots, _TIPS)
    return items
