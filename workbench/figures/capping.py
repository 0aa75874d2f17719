"""A capped fleet: how far models lie from the reference, how often the cap acts, what it changes.

Each figure takes a table of a capping run as it is, and draws its controls in gray.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from workbench.effects.displacement import OWN, REFERENCE
from workbench.effects.engagement import CONDITION, FINAL, GENERATED, ORGANISM
from workbench.figures.theme import (
    Theme,
    add_hover,
    add_legend,
    add_note,
    arrays,
    blank_figure,
    theme_named,
)
from workbench.results import organism_of

ROW = 52
"""Pixels of a model's row."""
MARKERS = ("circle", "square", "diamond")


def cap_displacement(table: pd.DataFrame, *, theme: str = "light", title: str = "") -> Any:
    """Draw each model's displacement along the axis, uncapped and on replies written under the cap.

    Args:
        table: ``displacement.parquet`` of a capping run.
        theme: light or dark.
        title: of the figure.
    """
    look = theme_named(theme)
    own = table[(table["level"] == CONDITION) & (table["control"] == "none")]
    capped = own["dose"] > 0
    kinds = {
        "uncapped, own replies": own[(own["text"] == OWN) & ~capped],
        "uncapped, the reference's replies": own[own["text"] == REFERENCE],
        "capped, own replies (unhooked pass)": own[(own["text"] == OWN) & capped],
    }
    shown = kinds["uncapped, own replies"]
    told = [f"{row.model} {row.displacement:+.3g}" for row in shown.itertuples(index=False)]
    name = title or "Displacement from the reference"
    models = list(dict.fromkeys(own["model"]))
    figure = _rows(
        look, name, f"{name}, uncapped on own replies: {', '.join(told) or 'none'}.", models,
        f"residual-stream units along the axis, block {own['layer'].iloc[0]}",
    )  # fmt: skip
    bars = _add_bands(figure, look, shown.assign(low_end=-shown["band"], high_end=shown["band"]))
    _add_line(figure, look, 0.0)
    items = _add_kinds(figure, look, kinds, "displacement")
    seeds = table[(table["level"] == ORGANISM) & (table["control"] == "none")]
    seeds = seeds[(seeds["text"] == OWN) & (seeds["dose"] == 0)]
    items += _add_seeds(figure, look, _with_condition(seeds, models), "displacement")
    add_legend(figure, look, [*items, (_band_label(shown), bars)] if len(shown) else items)
    _add_basis(figure, look, own)
    return figure


def cap_engagement(table: pd.DataFrame, *, theme: str = "light", title: str = "") -> Any:
    """Draw the share of positions beyond the floor before the cap acts, beside the gate.

    Args:
        table: ``engagement.parquet`` of a capping run, of one ``text``.
        theme: light or dark.
        title: of the figure.
    """
    look = theme_named(theme)
    texts = sorted(set(table["text"]))
    if len(texts) != 1:
        raise ValueError(f"one text is drawn at a time; found {texts}")
    every = table[(table["level"] == CONDITION) & table["layer"].isna()]
    own = every[every["control"] == "none"]
    before = own[~own["hooked"]]
    kinds = {
        f"{position} positions, before the cap": before[before["position"] == position]
        for position in (FINAL, GENERATED)
    }
    kinds["generated positions, while it acts"] = own[
        own["hooked"] & (own["position"] == GENERATED)
    ]
    least = float(every["least"].iloc[0])
    shown = pd.concat(list(kinds.values())[:2])
    failed = shown[~shown["informative"].astype(bool)]
    name = title or f"Cap engagement: {texts[0].removeprefix('readout:')}"
    told = [f"{r.model} {r.position} {r.engaged:.0%}" for r in shown.itertuples(index=False)]
    figure = _rows(
        look, name, f"{name}, before the cap: {', '.join(told)}; gate {least:.0%}.",
        list(dict.fromkeys(own["model"])), "share of (token, block) positions beyond the floor",
    )  # fmt: skip
    figure.x_range.start, figure.x_range.end = -0.02, 1.02
    random = every[every["control"].str.startswith("random") & ~every["hooked"]]
    random = random[random["position"].isin([FINAL, GENERATED])]
    bars = _add_bands(figure, look, _spread(random, "engaged"))
    _add_line(figure, look, least, "dashed")
    items = _add_kinds(figure, look, kinds, "engaged")
    count = random["control"].nunique()
    add_legend(figure, look, [*items, (f"range of {count} random caps", bars)])
    _add_basis(figure, look, shown)
    if len(failed):
        add_note(
            figure, look, f"hollow: {len(failed)} of {len(shown)} under the gate of {least:.0%}",
            color=look.warning,
        )  # fmt: skip
    return figure


def capped_readout(
    table: pd.DataFrame,
    *,
    level: str = CONDITION,
    theme: str = "light",
    title: str = "",
    axis: str = "value",
) -> Any:
    """Draw one readout before and after the cap, by model or by contrast.

    Args:
        table: rows of ``behaviour.parquet`` with one readout, measure and condition.
        level: ``condition`` draws models, ``contrast`` the gaps between them.
        theme: light or dark.
        title: what was measured.
        axis: its unit, in words.
    """
    what = table[["readout", "measure", "condition"]].drop_duplicates()
    if len(what) != 1:
        raise ValueError(f"one measure and condition is drawn at a time; found {len(what)}")
    look = theme_named(theme)
    every = table[table["level"] == level]
    own = every[every["control"] == "none"]
    if own.empty:
        raise ValueError(f"no rows of level {level!r}; found {sorted(set(table['level']))}")
    kinds = {
        word: own.assign(low=own[f"{side}_low"], high=own[f"{side}_high"], at=own[side])
        for word, side in (("before the cap", "before"), ("under the cap", "after"))
    }
    name = title or " ".join(filter(None, what.iloc[0]))
    told = [f"{r.model} {r.before:.3g} to {r.after:.3g}" for r in own.itertuples(index=False)]
    models = list(dict.fromkeys(own["model"]))
    figure = _rows(look, name, f"{name}, before to after: {', '.join(told)}.", models, axis)
    random = every[every["control"].str.startswith("random")]
    bars = _add_bands(figure, look, _spread(random, "after"))
    items = _add_kinds(figure, look, kinds, "at")
    count = random["control"].nunique()
    label = f"range under {count} random caps" if count else "no random caps in this run"
    add_legend(figure, look, [*items, (label, bars)] if count else items)
    _add_basis(figure, look, own)
    failed = own[~own["informative"].astype(bool)]["model"].tolist()
    if failed:
        add_note(
            figure, look, f"hollow: the cap engages too little in {', '.join(failed)}",
            color=look.warning,
        )  # fmt: skip
    if not count:
        add_note(figure, look, label, color=look.warning)
    return figure


def _rows(look: Theme, name: str, described: str, models: list[str], axis: str) -> Any:
    figure = blank_figure(
        look, name, described, height=100 + ROW * len(models), x_axis_label=axis,
        y_range=models[::-1],
    )  # fmt: skip
    figure.ygrid.grid_line_color = None
    return figure


def _add_kinds(
    figure: Any, look: Theme, kinds: dict[str, pd.DataFrame], value: str
) -> list[tuple[str, list[Any]]]:
    """Draw each kind in a lane of its own within a model's row, with its interval."""
    from bokeh.models import ColumnDataSource
    from bokeh.transform import dodge

    items = []
    kinds = {word: rows for word, rows in kinds.items() if len(rows)}
    for number, (word, rows) in enumerate(kinds.items()):
        ink = look.palette[number]
        kept = rows["informative"] if "informative" in rows else [True] * len(rows)
        source = ColumnDataSource(arrays(rows[["model", value, "low", "high", "n", "unit"]]))
        source.data["fill"] = [ink if one else look.surface for one in kept]
        lane = dodge("model", 0.22 - 0.22 * number, range=figure.y_range)
        bars = figure.segment("low", lane, "high", lane, source=source, color=ink, line_width=2.4)
        dots = figure.scatter(
            value, lane, source=source, marker=MARKERS[number], fill_color="fill", line_color=ink,
            line_width=1.8, size=10,
        )  # fmt: skip
        tips = [("model", "@model"), (word, f"@{{{value}}}{{0.000}}")]
        add_hover(figure, [dots], [*tips, ("interval", "@low{0.000} to @high{0.000}"),
                                   ("n", "@n @unit")])  # fmt: skip
        items.append((word, [bars, dots]))
    return items


def _add_seeds(
    figure: Any, look: Theme, rows: pd.DataFrame, value: str
) -> list[tuple[str, list[Any]]]:
    from bokeh.models import ColumnDataSource
    from bokeh.transform import dodge

    if rows.empty:
        return []
    source = ColumnDataSource(arrays(rows[["model", value]]))
    lane = dodge("model", 0.38, range=figure.y_range)
    dots = figure.scatter(value, lane, source=source, color=look.palette[0], size=4)
    return [("single seeds", [dots])]


def _with_condition(rows: pd.DataFrame, models: list[str]) -> pd.DataFrame:
    """Call each organism by its condition, and keep those that are drawn."""
    names = [organism_of(name.rpartition("+")[2])[0] or name for name in rows["model"]]
    return rows.assign(model=names)[[name in models for name in names]]


def _spread(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    found = rows.groupby("model", sort=False)[value].agg(low_end="min", high_end="max")
    return found.reset_index()


def _add_bands(figure: Any, look: Theme, rows: pd.DataFrame) -> list[Any]:
    from bokeh.models import ColumnDataSource

    source = ColumnDataSource(arrays(rows[["model", "low_end", "high_end"]]))
    return [
        figure.hbar(
            "model", left="low_end", right="high_end", height=0.86, source=source,
            fill_color=look.band, fill_alpha=0.28, line_color=None,
        )
    ]  # fmt: skip


def _add_line(figure: Any, look: Theme, at: float, dash: str = "solid") -> None:
    from bokeh.models import Span

    figure.add_layout(
        Span(location=at, dimension="height", line_color=look.muted, line_dash=dash, line_width=1)
    )


def _band_label(rows: pd.DataFrame) -> str:
    return f"within {rows['band_name'].iloc[0]}"


def _add_basis(figure: Any, look: Theme, rows: pd.DataFrame) -> None:
    """Say what n and the intervals are over; what is added later stands above it."""
    units = ", ".join(
        f"{row.n} {row.unit}{'s' * (row.n != 1)}"
        for row in rows[["n", "unit"]].drop_duplicates().itertuples()
    )
    intervals = "; ".join(dict.fromkeys(rows["interval"].astype(str)))
    add_note(figure, look, f"n = {units}; {intervals}")
