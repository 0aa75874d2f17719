"""Probe: a checkpoint's frozen directions and readouts beside its base, and whom it is like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
from workbench_apps import cards, downloads, probed, shell
from workbench_apps.catalogue import read_catalogue
from workbench_apps.page_states import ProbeState

from workbench.figures.probe import known_distances, probe_changes

BELOW = (16, 0, 0, 0)
PANEL = {"width": "min(100%, 420px)", "flex": "1 1 420px", "max-width": "560px"}
OWN = ("measure", "condition", "mean", "interval", "n")
AGAINST = ("base", "change", "interval", "null")


class ProbeView:
    """The cards of the page."""

    def __init__(self, state: ProbeState) -> None:
        self.state = state

    def verdict(self) -> Sequence[Any]:
        """Say what the doctor and the null say."""
        entry = self.state.entry()
        if entry is None:
            return [cards.empty_card(self.state, "probe")]
        model = ", ".join(entry.run.models) or entry.name
        found = probed.headline(self.state.table())
        return [
            cards.note(
                f"<p class='big'>{cards.escape(model)}: {cards.escape(found)}</p>"
                f"<p>{cards.escape(probed.doctor_line(entry))}</p>"
                f"<p class='quiet under'>{cards.provenance(entry)}</p>"
            ),
            downloads.csv_button(self.shown, "probe.csv"),
        ]

    def shown(self) -> pd.DataFrame:
        """Return the rows on show: of the chosen directions and readouts, and every organism."""
        table = self.state.table()
        chosen = table["kind"] == "known"
        for kind in ("direction", "readout"):
            chosen |= (table["kind"] == kind) & table["name"].isin(self.state.chosen(kind))
        return table[chosen]

    def known(self) -> Sequence[Any]:
        """Draw the distances to known organisms."""
        if self.state.entry() is None:
            return []
        places = probed.places_of(self.state.table())
        if places.empty:
            return [
                cards.note(
                    "<h2>Known organisms</h2><p class='quiet'>None to compare with. Measure the "
                    "projections of two or more on the same prompts and directions, and probe with "
                    "<code>--known runs</code>.</p>"
                )
            ]
        first = places.iloc[0]
        figure = known_distances(places, theme=self.state.theme or "light")
        body = [
            (
                row["name"],
                f"{row['value']:.2f}",
                f"{row['low']:.2f} to {row['high']:.2f}",
                f"{row['nearest']:.0%}",
            )
            for row in places.to_dict("records")
        ]
        left_out = f" Left out: {first['left_out']}." if first["left_out"] else ""
        told = (
            f"{first['interval']}, n = {first['n']} {first['unit']}s. One natural gap is how far "
            f"the two farthest known organisms lie apart. Along {first['along']}.{left_out} A "
            "distance is never below zero: compare it with the distances to the others."
        )
        heads = ("organism", "distance", "interval", "nearest in")
        return [
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(0, 0, 8, 0)),
            cards.note(cards.html_table(body, heads)),
            cards.note(f"<p class='quiet under'>{cards.escape(told)}</p>"),
        ]

    def directions(self) -> Sequence[Any]:
        """Draw what each direction reads, beside its null."""
        told = (
            "Mean projection by condition, frozen as saved. Gray: the change that 95% of random "
            "unit directions stay under, read in the same passes."
        )
        return self._measures("direction", "Directions", told)

    def readouts(self) -> Sequence[Any]:
        """Draw what each readout gives."""
        told = "A readout has no random-direction null: its interval alone is shown."
        return self._measures("readout", "Readouts", told)

    def _measures(self, kind: str, heading: str, told: str) -> Sequence[Any]:
        names = self.state.chosen(kind)
        if not names:
            return []
        table = self.state.table()
        rows = table[(table["kind"] == kind) & table["name"].isin(names)]
        panes = [self._panel(rows[rows["name"] == name], kind) for name in names]
        several = len(panes) > 1
        for pane in panes:
            pane.styles = PANEL if several else {"width": "100%", "flex": "1 1 100%"}
        boxes = pn.FlexBox(*panes, gap="12px", sizing_mode="stretch_width", margin=(8, 0))
        return [
            cards.note(
                f"<h2>{heading}</h2><p class='quiet'>{cards.escape(told)} {_basis(rows)}</p>"
            ),
            boxes,
            cards.note(_numbers(rows, names)),
        ]

    def _panel(self, rows: pd.DataFrame, kind: str) -> Any:
        name = str(rows["name"].iloc[0])
        axis = (
            "residual-stream units" if kind == "direction" else probed.UNITS.get(name, "own units")
        )
        figure = probe_changes(rows, theme=self.state.theme or "light", title=name, axis=axis)
        return pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=0)


def _basis(rows: pd.DataFrame) -> str:
    """Name the intervals and what was replicated."""
    kinds = rows["change_interval"].dropna()
    named = kinds if len(kinds) else rows["interval"]
    most, least = int(rows["n"].max()), int(rows["n"].min())
    count = f"{most}" if most == least else f"{least} to {most}"
    unit = str(rows["unit"].iloc[0])
    return cards.escape(f"Interval: {named.iloc[0]}, n = {count} {unit}s a condition.")


def _numbers(rows: pd.DataFrame, names: Sequence[str]) -> str:
    """Return the rows as a table, measure by measure; without a base its columns are left out."""
    found = [row for name in names for row in rows[rows["name"] == name].to_dict("records")]
    if rows["base"].isna().all():
        return cards.html_table([_own(row) for row in found], OWN)
    return cards.html_table([(*_own(row), *_against(row)) for row in found], (*OWN, *AGAINST))


def _own(row: dict[Any, Any]) -> tuple[object, ...]:
    told = (f"{row['value']:.3g}", _span(row["low"], row["high"]), f"{row['n']} {row['unit']}s")
    return row["name"], row["condition"], *told


def _against(row: dict[Any, Any]) -> tuple[object, ...]:
    null = "none" if pd.isna(row["null"]) else f"±{row['null']:.3g}{_beyond(row)}"
    return (
        "none" if pd.isna(row["base"]) else f"{row['base']:.3g}",
        "none" if pd.isna(row["change"]) else f"{row['change']:+.3g}",
        _span(row["change_low"], row["change_high"], "+"),
        null,
    )


def _beyond(row: dict[Any, Any]) -> str:
    return " (beyond)" if row["beyond_null"] else " (within)"


def _span(low: float | None, high: float | None, sign: str = "") -> str:
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return "none"
    return f"{low:{sign}.3g} to {high:{sign}.3g}"


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with cards.Guard("/probe") as guard:
        return _build(root)
    return shell.broken_page("/probe", "Probe", guard)


def _build(root: Path) -> Any:
    state = ProbeState(read_catalogue(root))
    refused = shell.take_address(state)
    view = ProbeView(state)
    sections = [
        cards.Section("/probe verdict", view.verdict, ("run",)),
        cards.Section("/probe known", view.known, ("run", "theme")),
        cards.Section("/probe directions", view.directions, ("run", "direction", "theme")),
        cards.Section("/probe readouts", view.readouts, ("run", "readout", "theme")),
    ]
    shell.bind(state, sections)
    labels = {"run": "Checkpoint", "direction": "Direction", "readout": "Readout"}
    controls = [shell.select(state, name, label) for name, label in labels.items()]
    lead = "What do saved directions read in a new checkpoint, and which known organism is it like?"
    boxes = [section.box for section in sections]
    page = shell.frame(state, "/probe", "Probe", lead, controls, boxes)
    shell.report(state, refused)
    return page
