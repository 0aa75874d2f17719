"""A grid of colored cells on two named axes; what chance explains is hatched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.theme import Theme, add_hover, add_legend, arrays, blend, contrast

CELL = 26
"""Pixels of height a row gets."""
MOST_TEXT = 7
"""Columns beyond which a cell has no room for its number, which the pointer still shows."""


def diverging(look: Theme, share: float | int) -> str:
    """Return the color of a value in -1 to 1: the page at 0, orange above, blue below."""
    end = look.palette[1] if share > 0 else look.palette[0]
    return blend(look.surface, end, min(1.0, float(abs(share))))


def grid_height(rows: int, labels: Sequence[str]) -> int:
    """Return the height of a figure with so many rows and slanted column labels."""
    longest = max((len(label) for label in labels), default=1)
    return 70 + CELL * max(rows, 3) + int(5 * min(longest, 24))


def add_cells(
    figure: Any,
    look: Theme,
    cells: pd.DataFrame,
    tips: Sequence[tuple[str, str]],
    *,
    limit: float,
    chance: str,
) -> None:
    """Draw one cell for each row.

    Args:
        figure: with axes that hold every ``x`` and ``y``: names, or places one apart.
        look: the page's theme.
        cells: columns ``x``, ``y``, ``value``, ``within`` (chance explains it) and what the
            tips name.
        tips: rows of the hover box.
        limit: value that gets the full color.
        chance: what "within" is called in the legend.
    """
    from bokeh.models import ColumnDataSource

    share = np.clip(cells["value"].to_numpy(float) / limit, -1, 1)
    fill = [diverging(look, s) for s in share]
    within = cells["within"].to_numpy(bool)
    source = ColumnDataSource(arrays(cells))
    source.data["fill"] = fill
    source.data["text"] = [_readable(look, color) for color in fill]
    source.data["shown"] = [f"{value:.2f}" for value in cells["value"]]
    source.data["hatch"] = np.where(within, "/", " ")
    drawn = figure.rect(
        "x",
        "y",
        width=0.96,
        height=0.92,
        source=source,
        fill_color="fill",
        line_color=None,
        hatch_pattern="hatch",
        **_hatch(look),
    )
    if cells["x"].nunique() <= MOST_TEXT:
        figure.text(
            "x", "y", "shown", source=source, text_color="text", text_font_size="12px",
            text_align="center", text_baseline="middle",
        )  # fmt: skip
    add_hover(figure, [drawn], tips)
    _add_key(figure, look, cells.iloc[0], limit, chance)
    figure.grid.grid_line_color = None
    figure.xaxis.major_label_orientation = math.pi / 4
    figure.axis.major_tick_line_color = None


def _readable(look: Theme, fill: str) -> str:
    return max((look.ink, look.surface), key=lambda color: contrast(color, fill))


def _hatch(look: Theme) -> dict[str, Any]:
    return {
        "hatch_color": look.muted,
        "hatch_alpha": 0.55,
        "hatch_weight": 1.0,
        "hatch_scale": 9,
    }


def _add_key(figure: Any, look: Theme, cell: pd.Series, limit: float, chance: str) -> None:
    nowhere = {"x": [cell["x"]], "y": [cell["y"]]}
    items = []
    for value, label in ((limit, f"+{limit:.2f}"), (-limit, f"-{limit:.2f}")):
        color = diverging(look, value / limit)
        swatch = figure.rect(**nowhere, width=0, height=0, fill_color=color, line_color=None)
        items.append((label, [swatch]))
    hatched = figure.rect(
        **nowhere,
        width=0,
        height=0,
        fill_color=look.surface,
        line_color=None,
        hatch_pattern="/",
        **_hatch(look),
    )
    add_legend(figure, look, [*items, (chance, [hatched])])
