"""What a readout does as the dose of an edit grows, never without its random-direction controls."""

from __future__ import annotations

import math
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

LINEAR = 4.0
"""Doses within plus and minus this are drawn to scale; beyond it the axis is logarithmic."""
LOW_MASS = 0.5
UNITS = {
    "raw": "multiples of the stored vector",
    "norm": "fractions of the mean residual norm",
    "gap": "multiples of the natural gap",
    "percentile": "percentile of the calibration set",
}


KINDS = {
    "sign": ("turned around", "dashed", "square"),
    "shuffled": ("shuffled labels", "dotted", "triangle"),
    "layers": ("moved between blocks", "dotdash", "diamond"),
    "noop": ("cap that nothing reaches", "dashdot", "x"),
}
"""Kind of control -> words, dash and marker."""
PROMPT = "prompt:"
DASHES = ([10, 5], [2, 4], [10, 4, 2, 4], [5, 3])
"""Of prompts: pixels on and off."""


def place(dose: float, unit: str) -> float:
    """Place a dose on its axis: percentiles to scale, other units as `symlog` does."""
    return float(dose) if unit == "percentile" else symlog(dose)


def symlog(dose: float) -> float:
    """Place a dose on an axis that is linear within ``LINEAR`` and logarithmic beyond it."""
    if abs(dose) <= LINEAR:
        return float(dose)
    return math.copysign(LINEAR * (1 + math.log(abs(dose) / LINEAR)), dose)


def dose_response(
    curve: pd.DataFrame,
    controls: pd.DataFrame,
    *,
    arms: pd.DataFrame | None = None,
    theme: str = "light",
    title: str = "",
    measure: str = "value",
    unit: str = "raw",
    color: int = 0,
    height: int = 320,
) -> Any:
    """Draw the mean by dose with its interval over the range of the random directions.

    Args:
        curve: columns ``dose, mean, low, high, n, unit, interval``, one row for each dose;
            doses whose ``guarded`` is false, where that column is there, are drawn hollow.
        controls: columns ``control, dose, mean``: one line for each random direction. May be
            empty; the figure then says that the curve has nothing to be compared with.
        arms: columns ``control, dose, mean, low, high, n, unit`` of other controls, each a line of
            its own through the curve's zero, never part of the random range; and of prompts
            (``prompt:NAME``, no dose), each a horizontal line.
        theme: light or dark.
        title: which subject, direction and condition.
        measure: name of the y axis.
        unit: unit of the dose: raw, norm, gap or percentile.
        color: position in the palette.
        height: in pixels.
    """
    if curve["dose"].duplicated().any():
        raise ValueError("one row for each dose is expected; choose one condition first")
    look = theme_named(theme)
    figure = blank_figure(
        look,
        title or f"{measure} by dose",
        _describe(curve, controls, arms, title or measure),
        height=height,
        x_axis_label=f"dose ({UNITS.get(unit, unit)})",
        y_axis_label=measure.replace("_", " "),
    )
    _set_ticks(figure, sorted(set(curve["dose"]) | set(controls["dose"])), unit)
    items = _add_controls(figure, look, _placed(controls, unit))
    if arms is not None and len(arms):
        items += _add_arms(figure, look, _placed(arms, unit), _placed(curve, unit))
    items = _add_curve(figure, look, _placed(curve, unit), color) + items
    add_legend(figure, look, items)
    if controls.empty:
        add_note(figure, look, "no random-direction controls in this run", color=look.warning)
    failed = int((~_guarded(curve)).sum())
    if failed:
        add_note(figure, look, f"hollow: {failed} of {len(curve)} doses left out")
    return figure


def realised_by_dose(
    curve: pd.DataFrame, *, theme: str = "light", unit: str = "raw", height: int = 190
) -> Any:
    """Draw the realised shift along the direction, and the nominal dose, both in raw units.

    Args:
        curve: columns ``dose, dose_raw, realised, n``, one row for each dose; ``dose_raw`` is the
            dose at one block, so that several blocks edited together lie above the dotted line. A
            cap has none, and no such line.
        theme: light or dark.
        unit: unit of the dose.
        height: in pixels.
    """
    look = theme_named(theme)
    ends = curve.sort_values("dose").iloc[[0, -1]]
    told = ", ".join(f"{r.realised:.3g} at dose {r.dose:g}" for r in ends.itertuples(index=False))
    figure = blank_figure(
        look,
        "Realised shift",
        f"Realised shift along the direction by dose: {told}.",
        height=height,
        x_axis_label=f"dose ({UNITS.get(unit, unit)})",
        y_axis_label="residual-stream units",
    )
    _set_ticks(figure, sorted(curve["dose"]), unit)
    curve = _placed(curve, unit)
    ink = look.palette[0]
    items, tips = [], [("dose", "@dose"), ("realised", "@realised{0.000}")]
    if curve["dose_raw"].notna().all():
        dotted = {"color": look.band, "line_width": 2, "line_dash": "dotted"}
        items.append(("nominal, one block", [_line(figure, curve, "dose_raw", **dotted)]))
        tips.append(("nominal", "@dose_raw{0.000}"))
    line = _line(figure, curve, "realised", color=ink, line_width=2.4)
    dots = figure.scatter("x", "realised", source=_source(curve), color=ink, size=8)
    add_hover(figure, [dots], tips)
    add_legend(figure, look, [("realised", [line, dots]), *items])
    return figure


def engaged_by_dose(
    curve: pd.DataFrame, *, theme: str = "light", unit: str = "raw", height: int = 190
) -> Any:
    """Draw the share of edited positions that an edit changed, by dose: how often a cap acts.

    Args:
        curve: columns ``dose, engaged``, one row for each dose.
        theme: light or dark.
        unit: unit of the dose.
        height: in pixels.
    """
    look = theme_named(theme)
    top = curve.sort_values("dose").iloc[-1]
    figure = blank_figure(
        look,
        "Engagement",
        f"Share of edited positions that changed: {top['engaged']:.3g} at dose {top['dose']:g}.",
        height=height,
        x_axis_label=f"dose ({UNITS.get(unit, unit)})",
        y_axis_label="share of positions",
    )
    figure.y_range.start, figure.y_range.end = 0, 1.05
    _set_ticks(figure, sorted(curve["dose"]), unit)
    curve = _placed(curve, unit)
    ink = look.palette[0]
    _line(figure, curve, "engaged", color=ink, line_width=2.4)
    dots = figure.scatter("x", "engaged", source=_source(curve), color=ink, size=8)
    add_hover(figure, [dots], [("dose", "@dose"), ("engaged", "@engaged{0.000}")])
    return figure


def _guarded(curve: pd.DataFrame) -> pd.Series[bool]:
    if "guarded" not in curve:
        return pd.Series(True, index=curve.index)
    return curve["guarded"].astype(bool)


def mass_by_dose(
    curve: pd.DataFrame,
    controls: pd.DataFrame,
    *,
    theme: str = "light",
    unit: str = "raw",
    height: int = 190,
) -> Any:
    """Draw the mean probability on allowed answers by dose; below 0.5 it is flagged.

    Args:
        curve: columns ``dose, mass, n``.
        controls: columns ``control, dose, mass``.
        theme: light or dark.
        unit: unit of the dose.
        height: in pixels.
    """
    look = theme_named(theme)
    low = curve[curve["mass"] < LOW_MASS]
    warning = f"mean mass is under {LOW_MASS} at {len(low)} of {len(curve)} doses"
    figure = blank_figure(
        look,
        "Probability on allowed answers",
        f"Mean probability on allowed answers by dose; {warning}.",
        height=height,
        x_axis_label=f"dose ({UNITS.get(unit, unit)})",
        y_axis_label="mean mass",
    )
    figure.y_range.start, figure.y_range.end = 0, 1.05
    _set_ticks(figure, sorted(set(curve["dose"]) | set(controls["dose"])), unit)
    curve, controls = _placed(curve, unit), _placed(controls, unit)
    for _, rows in controls.groupby("control"):
        _line(figure, rows, "mass", color=look.band, line_width=1, line_alpha=0.5)
    _line(figure, curve, "mass", color=look.palette[0], line_width=2.4)
    _add_limit(figure, look)
    colors = [look.warning if mass < LOW_MASS else look.palette[0] for mass in curve["mass"]]
    dots = figure.scatter("x", "mass", source=_source(curve, ink=colors), color="ink", size=8)
    add_hover(figure, [dots], [("dose", "@dose"), ("mean mass", "@mass{0.000}"), ("n", "@n")])
    if len(low):
        add_note(figure, look, f"{warning}: read those with care", color=look.warning)
    return figure


def _describe(
    curve: pd.DataFrame, controls: pd.DataFrame, arms: pd.DataFrame | None, named: str
) -> str:
    ends = curve.sort_values("dose").iloc[[0, -1]] if len(curve) else curve
    parts = [f"{row.mean:.3g} at dose {row.dose:g}" for row in ends.itertuples(index=False)]
    told = f"{named}: {', '.join(parts)}; {controls['control'].nunique()} random directions"
    names = [] if arms is None else sorted(set(arms["control"]))
    return f"{told}{'; also ' + ', '.join(names) if names else ''}."


def _set_ticks(figure: Any, doses: list[float], unit: str) -> None:
    """Label positions with the doses themselves, whatever the axis does to them."""
    step = max(1, math.ceil(len(doses) / 11))
    kept = sorted({*doses[::step], *(d for d in doses if d == 0)})
    figure.xaxis.ticker = [place(dose, unit) for dose in kept]
    figure.xaxis.major_label_overrides = {place(dose, unit): f"{dose:g}" for dose in kept}
    figure.xgrid.ticker = figure.xaxis[0].ticker


def _placed(rows: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Add where each dose lies on the axis, as ``x``, and sort by dose."""
    xs = np.array([place(dose, unit) for dose in rows["dose"]], np.float64)
    return rows.assign(x=xs).sort_values("dose", kind="stable")


def _source(rows: pd.DataFrame, **more: Any) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource(arrays(rows) | {name: np.asarray(v) for name, v in more.items()})


def _line(figure: Any, rows: pd.DataFrame, column: str, **style: Any) -> Any:
    return figure.line("x", column, source=_source(rows), **style)


def _add_controls(figure: Any, look: Theme, controls: pd.DataFrame) -> list[Any]:
    if controls.empty:
        return []
    ends = controls.groupby(["dose", "x"])["mean"].agg(["min", "max"]).reset_index()
    band = figure.varea(
        "x", "min", "max", source=_source(ends), fill_color=look.band, fill_alpha=0.22
    )
    lines = [
        _line(figure, rows, "mean", color=look.band, line_width=1, line_alpha=0.75)
        for _, rows in controls.groupby("control")
    ]
    count = controls["control"].nunique()
    return [(f"range of {count} random directions", [band, *lines[:1]])]


def _add_arms(figure: Any, look: Theme, arms: pd.DataFrame, curve: pd.DataFrame) -> list[Any]:
    """Draw the controls that are no random directions, then the prompts."""
    asked = arms["control"].str.startswith(PROMPT)
    items, dots = [], []
    for kind, (words, dash, marker) in KINDS.items():
        own = arms[~asked & (arms["control"].str.partition(":")[0] == kind)]
        glyphs = []
        for name, rows in own.groupby("control"):
            zero = curve[curve["dose"] == 0].reindex(columns=rows.columns).assign(control=name)
            through = pd.concat([rows, zero]).drop_duplicates("dose")
            source = _source(through.sort_values("dose", kind="stable"))
            style = {"source": source, "color": look.muted}
            glyphs.append(figure.line("x", "mean", line_dash=dash, line_width=1.8, **style))
            glyphs.append(figure.scatter("x", "mean", marker=marker, size=7, **style))
            dots.append(glyphs[-1])
        if glyphs:
            count = own["control"].nunique()
            items.append((words if count == 1 else f"{words} ({count})", glyphs[:2]))
    items += [
        (str(name).replace(PROMPT, "prompt: "), [_add_prompt(figure, look, rows, curve, number)])
        for number, (name, rows) in enumerate(arms[asked].groupby("control"))
    ]
    tips = [("control", "@control"), ("dose", "@dose"), ("mean", "@mean{0.000}"), ("n", "@n")]
    add_hover(figure, dots, tips)
    return items


def _add_prompt(
    figure: Any, look: Theme, rows: pd.DataFrame, curve: pd.DataFrame, number: int
) -> Any:
    """Draw one prompt's mean from end to end: it has no dose."""
    source = _source(rows.assign(x=curve["x"].min(), end=curve["x"].max()))
    line = figure.segment(
        "x", "mean", "end", "mean", source=source, color=look.ink, line_width=1.8,
        line_dash=DASHES[number % len(DASHES)],
    )  # fmt: skip
    tips = [("asked by", "@control"), ("mean", "@mean{0.000}")]
    add_hover(figure, [line], [*tips, ("interval", "@low{0.000} to @high{0.000}"), ("n", "@n")])
    return line


def _add_curve(figure: Any, look: Theme, curve: pd.DataFrame, color: int) -> list[Any]:
    from bokeh.models import Whisker

    ink = look.palette[color % len(look.palette)]
    source = _source(curve)
    band = figure.varea("x", "low", "high", source=source, fill_color=ink, fill_alpha=0.16)
    line = figure.line("x", "mean", source=source, color=ink, line_width=2.6)
    fill = [ink if kept else look.surface for kept in _guarded(curve)]
    source = _source(curve, fill=fill)
    dots = figure.scatter(
        "x", "mean", source=source, line_color=ink, fill_color="fill", line_width=1.6, size=8
    )
    whisker = Whisker(base="x", lower="low", upper="high", source=source, line_color=ink)
    whisker.upper_head.line_color = whisker.lower_head.line_color = ink
    whisker.upper_head.size = whisker.lower_head.size = 6
    figure.add_layout(whisker)
    add_hover(
        figure,
        [dots],
        [
            ("dose", "@dose"),
            ("mean", "@mean{0.000}"),
            ("interval", "@low{0.000} to @high{0.000}"),
            ("n", "@n @unit"),
        ],
    )
    return [("steered: mean and interval", [line, dots, band])]


def _add_limit(figure: Any, look: Theme) -> None:
    from bokeh.models import Span

    figure.add_layout(
        Span(
            location=LOW_MASS,
            dimension="width",
            line_color=look.warning,
            line_alpha=0.6,
            line_dash="dashed",
        )
    )
