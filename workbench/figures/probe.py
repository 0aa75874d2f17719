"""What a probe found: changes from the base beside their null, and distances to known organisms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.theme import (
    Theme,
    add_hover,
    add_legend,
    add_note,
    arrays,
    blank_figure,
    theme_named,
)

BAR = 0.62
"""Height of a null's bar, as a share of its row."""


def probe_changes(
    rows: pd.DataFrame, *, theme: str = "light", title: str = "", axis: str = "value"
) -> Any:
    """Draw one measure by condition: its change from the base over the null, else its own mean.

    Args:
        rows: rows of a probe's table with one ``name``, one for each condition. A change lies over
            a gray bar to both sides of zero, as long as its null; one within it is hollow. Where no
            row has a base, the means are drawn.
        theme: light or dark.
        title: what was measured.
        axis: the unit, in words.
    """
    if rows["condition"].duplicated().any():
        raise ValueError("one row for each condition is expected; choose one measure first")
    look = theme_named(theme)
    against = bool(rows["change"].notna().any())
    drawn = _drawn(rows, against)
    named = title or str(rows["name"].iloc[0])
    what = f"change in {axis}" if against else axis
    figure = blank_figure(
        look,
        named,
        _describe(drawn, named, against),
        height=96 + 34 * len(drawn),
        x_axis_label=what,
        y_range=[str(name) for name in drawn["condition"]][::-1],
    )
    figure.ygrid.grid_line_color = None
    items = _add_nulls(figure, look, drawn)
    if against:
        _add_zero(figure, look)
    items = _add_dots(figure, look, drawn, against) + items
    add_legend(figure, look, items)
    if not against:
        add_note(figure, look, "no base to compare with: means as they are")
    return figure


def known_distances(rows: pd.DataFrame, *, theme: str = "light", title: str = "") -> Any:
    """Draw the distance to every known organism with its interval; the nearest is marked.

    Args:
        rows: columns ``name, value, low, high, nearest, n, unit``; ``nearest`` is the share of
            draws in which it is the nearest.
        theme: light or dark.
        title: whose distances.
    """
    look = theme_named(theme)
    drawn = rows.sort_values("value", kind="stable")
    first = drawn.iloc[0]
    named = title or "Distance from known organisms"
    told = f"nearest {first['name']} at {first['value']:.2f}, in {first['nearest']:.0%} of draws"
    figure = blank_figure(
        look,
        named,
        f"{named}: {len(drawn)} known, {told}.",
        height=90 + 34 * len(drawn),
        x_axis_label="distance (natural gaps)",
        y_range=[str(name) for name in drawn["name"]][::-1],
    )
    figure.ygrid.grid_line_color = None
    figure.x_range.start = 0
    dots = _add_places(figure, look, drawn)
    add_legend(figure, look, [("nearest", dots[:2]), ("other known", dots[2:])])
    tips = [("organism", "@name"), ("distance", "@value{0.000}")]
    tips += [("interval", "@low{0.000} to @high{0.000}"), ("n", "@n @unit")]
    tips += [("nearest in", "@nearest{0%} of draws")]
    add_hover(figure, [dots[1], *dots[3:]], tips)
    add_note(figure, look, told)
    return figure


def _drawn(rows: pd.DataFrame, against: bool) -> pd.DataFrame:
    """Return the rows with ``at, start, end`` (what is drawn) and ``within`` (its null)."""
    names = ["change", "change_low", "change_high"] if against else ["value", "low", "high"]
    given = rows[names].astype("float64")
    null = rows["null"].astype("float64")
    return rows.assign(
        condition=rows["condition"].astype(str),
        at=given[names[0]],
        start=given[names[1]],
        end=given[names[2]],
        null=null,
        within=against & (given[names[0]].abs() <= null),
    )


def _describe(drawn: pd.DataFrame, named: str, against: bool) -> str:
    cells = [f"{row.condition} {row.at:+.3g}" for row in drawn.itertuples(index=False)]
    word = "change from the base" if against else "mean"
    beyond = int((drawn["null"].notna() & ~drawn["within"]).sum())
    count = int(drawn["null"].notna().sum())
    told = f"; {beyond} of {count} beyond the null" if count else "; no null"
    return f"{named}, {word} by condition: {', '.join(cells)}{told}."


def _add_nulls(figure: Any, look: Theme, drawn: pd.DataFrame) -> list[Any]:
    from bokeh.models import ColumnDataSource

    rows = drawn[drawn["null"].notna()]
    if rows.empty:
        return []
    source = ColumnDataSource(arrays(rows[["condition", "null"]].assign(least=-rows["null"])))
    bars = figure.hbar(
        "condition", left="least", right="null", height=BAR, source=source,
        fill_color=look.band, fill_alpha=0.28, line_color=None,
    )  # fmt: skip
    return [(str(rows["null_name"].iloc[0]), [bars])]


def _add_zero(figure: Any, look: Theme) -> None:
    from bokeh.models import Span

    figure.add_layout(
        Span(location=0, dimension="height", line_color=look.muted, line_alpha=0.7, line_width=1)
    )


def _add_dots(figure: Any, look: Theme, drawn: pd.DataFrame, against: bool) -> list[Any]:
    from bokeh.models import ColumnDataSource

    ink = look.palette[0]
    columns = ["condition", "at", "start", "end", "value", "base", "null", "n", "unit"]
    source = ColumnDataSource(arrays(drawn[columns].assign(base=drawn["base"].astype("float64"))))
    source.data["fill"] = np.where(drawn["within"], look.surface, ink)
    bars = figure.segment(
        "start", "condition", "end", "condition", source=source, color=ink, line_width=2.4
    )
    dots = figure.scatter(
        "at", "condition", source=source, fill_color="fill", line_color=ink, line_width=1.8, size=10
    )
    tips = [("condition", "@condition"), ("mean", "@value{0.000}"), ("n", "@n @unit")]
    if against:
        tips += [("base", "@base{0.000}"), ("change", "@at{+0.000}"), ("null", "@null{0.000}")]
    add_hover(figure, [dots], [*tips, ("interval", "@start{0.000} to @end{0.000}")])
    word = "change from the base, with interval" if against else "mean, with interval"
    items = [(word, [bars, dots])]
    if drawn["within"].any():
        place = str(drawn["condition"].iloc[0])
        key = figure.scatter(
            [np.nan], [place], fill_color=look.surface, line_color=ink, line_width=1.8, size=10
        )
        items.append(("hollow: within the null", [key]))
    return items


def _add_places(figure: Any, look: Theme, drawn: pd.DataFrame) -> list[Any]:
    """Return bar and dot of the nearest, then of the others."""
    from bokeh.models import ColumnDataSource

    found = []
    parts = ((drawn.iloc[:1], 1, "diamond", 15), (drawn.iloc[1:], 0, "circle", 9))
    for rows, color, marker, size in parts:
        columns = ["name", "value", "low", "high", "nearest", "n", "unit"]
        source = ColumnDataSource(arrays(rows[columns]))
        ink = look.palette[color]
        found.append(
            figure.segment("low", "name", "high", "name", source=source, color=ink, line_width=2.4)
        )
        found.append(
            figure.scatter("value", "name", source=source, color=ink, marker=marker, size=size)
        )
    return found
