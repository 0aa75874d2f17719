"""Colors and the blank figure that every drawing starts from, for a light and a dark page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

FONT = "Inter, system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"
PHONE = 330
"""Pixels that a legend or a title may take, so that nothing is clipped on a phone."""

NARROW = 5.5
"""Pixels that a character of a name at the side takes at the least, on average."""
WIDE = 6.4
"""And what a character of an axis label takes."""


@dataclass(frozen=True)
class Theme:
    """One page's colors; ``palette`` is Okabe and Ito's, shifted where it would be hard to see."""

    name: str
    surface: str
    ink: str
    muted: str
    grid: str
    band: str
    """Controls and nulls: always this grey, so that no control is taken for a result."""
    unusable: str
    warning: str
    palette: tuple[str, ...]


LIGHT = Theme(
    name="light",
    surface="#ffffff",
    ink="#1c2430",
    muted="#5b6675",
    grid="#e6e9ee",
    band="#8a94a3",
    unusable="#9aa2ad",
    warning="#b3261e",
    palette=(
        "#0072b2",
        "#d55e00",
        "#009e73",
        "#b8558c",
        "#b87700",
        "#2a93cf",
        "#8c8000",
        "#4d4d4d",
    ),
)
DARK = Theme(
    name="dark",
    surface="#121212",
    ink="#eceff4",
    muted="#a7b0bd",
    grid="#2b3038",
    band="#8d97a5",
    unusable="#7d8590",
    warning="#ff8a80",
    palette=(
        "#56b4e9",
        "#ff8f4a",
        "#2fcf9f",
        "#e79bc6",
        "#f0b43c",
        "#9cc9ff",
        "#e8dc50",
        "#c9ced6",
    ),
)


def theme_named(name: str) -> Theme:
    """Return the theme called "light" or "dark"."""
    themes = {theme.name: theme for theme in (LIGHT, DARK)}
    if name not in themes:
        raise ValueError(f"theme is {name!r}; expected light or dark")
    return themes[name]


def contrast(first: str, second: str) -> float:
    """WCAG contrast ratio of two ``#rrggbb`` colors, 1 to 21."""
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    channels = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def blend(color: str, other: str, share: float) -> str:
    """Mix ``share`` of ``other`` into ``color``."""
    pairs = [(int(color[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def blank_figure(
    theme: Theme, title: str, description: str, *, height: int = 380, **options: Any
) -> Any:
    """Return a styled Bokeh figure; ``description`` is what a screen reader says."""
    from bokeh.plotting import figure

    options = {"tools": "save,reset", "toolbar_location": None} | options
    made = figure(
        title="\n".join(lines_of(title, 34)),
        height=height,
        sizing_mode="stretch_width",
        background_fill_color=theme.surface,
        border_fill_color=theme.surface,
        outline_line_color=None,
        html_attributes={"role": "img", "aria-label": description},
        min_border_right=12,
        **options,
    )
    made.toolbar.logo = None
    _style_title(made.title, theme)
    made.title.offset = -_indent(made)
    for axis in made.axis:
        _style_axis(axis, theme)
    _wrap_labels(made)
    made.grid.grid_line_color = theme.grid
    return made


def _style_title(title: Any, theme: Theme) -> None:
    title.text_color = theme.ink
    title.text_font = FONT
    title.text_font_size = "14px"
    title.text_font_style = "bold"


def _style_axis(axis: Any, theme: Theme) -> None:
    axis.axis_line_color = theme.muted
    axis.major_tick_line_color = theme.muted
    axis.minor_tick_line_color = None
    axis.major_label_text_color = theme.muted
    axis.major_label_text_font = FONT
    axis.major_label_text_font_size = "12px"
    axis.axis_label_text_color = theme.ink
    axis.axis_label_text_font = FONT
    axis.axis_label_text_font_size = "12px"
    axis.axis_label_text_font_style = "normal"


def arrays(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the columns as plain arrays, which is what a Bokeh source takes without a copy."""
    return {str(name): table[name].to_numpy() for name in table.columns}


def add_legend(figure: Any, theme: Theme, items: Sequence[tuple[str, Sequence[Any]]]) -> Any:
    """Put a legend below the plot, in as many columns as a phone has room for."""
    from bokeh.models import Legend

    columns = legend_columns([label for label, _ in items])
    legend = Legend(
        items=[(label, list(glyphs)) for label, glyphs in items],
        orientation="horizontal",
        ncols=columns,
        location="top_left",
        label_text_color=theme.ink,
        label_text_font=FONT,
        label_text_font_size="12px",
        background_fill_color=theme.surface,
        border_line_color=None,
        margin=8,
        padding=0,
        spacing=6,
        label_standoff=4,
        glyph_width=18,
        glyph_height=18,
        label_height=18,
    )
    figure.add_layout(legend, "below")
    figure.height += 24 * math.ceil(len(items) / columns)
    return legend


def legend_columns(labels: Sequence[str], width: int = PHONE) -> int:
    """Return how many equal columns of these labels fit in ``width`` pixels, at least one."""
    longest = max((len(label) for label in labels), default=1)
    return max(1, min(len(labels), int(width // (34 + 7 * longest))))


def add_hover(figure: Any, renderers: Sequence[Any], tooltips: Sequence[tuple[str, str]]) -> None:
    """Add one hover tool for these glyphs."""
    from bokeh.models import HoverTool

    figure.add_tools(HoverTool(renderers=list(renderers), tooltips=list(tooltips)))


def add_note(figure: Any, theme: Theme, text: str, *, color: str | None = None) -> None:
    """Write a short line under the title, wrapped for a phone."""
    from bokeh.models import Title

    lines = lines_of(text, 42)
    figure.height += 18 * len(lines)
    figure.add_layout(
        Title(
            text="\n".join(lines),
            text_color=color or theme.muted,
            text_font=FONT,
            text_font_size="12px",
            text_font_style="normal",
            offset=-_indent(figure),
        ),
        "above",
    )


def lines_of(text: str, width: int) -> list[str]:
    """Wrap a text into the fewest lines of at most ``width``, and those even."""
    count = len(textwrap.wrap(text, width))
    even = (textwrap.wrap(text, w) for w in range(max(len(text) // max(count, 1), 1), width + 1))
    return next((lines for lines in even if len(lines) <= count), [])


def _wrap_labels(figure: Any) -> None:
    """Break what is written below the plot where a phone has no more room."""
    for axis in figure.xaxis:
        lines = textwrap.wrap(axis.axis_label or "", int((PHONE - 20 - _indent(figure)) / WIDE))
        if len(lines) > 1:
            axis.axis_label = "\n".join(lines)
            figure.height += 15 * (len(lines) - 1)


def _indent(figure: Any) -> float:
    """Return how far a title goes left of the plot, over names at its side, and not out of view.

    A plot beside long names is narrow on a phone, and what is written above it would be cut off.
    """
    names = getattr(figure.y_range, "factors", None) or ()
    return float(NARROW * max((len(str(name)) for name in names), default=0))
