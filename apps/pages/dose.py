"""Dose-response: what a readout does as an edit grows, beside random directions at each dose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
from workbench_apps import shell, tables
from workbench_apps.catalogue import DEMO, read_catalogue
from workbench_apps.state import EVERY, DoseState

from workbench.figures.dose import UNITS, dose_response, mass_by_dose


class DoseView:
    """The curves, one box a condition, and the table below them."""

    def __init__(self, state: DoseState) -> None:
        self.state = state

    def curves(self) -> Sequence[Any]:
        """Draw each condition with its controls and its letter mass."""
        entry = self.state.catalogue.entry(self.state.run)
        if entry is None:
            return [shell.empty_card(self.state, "dose")]
        rows = self.state.rows()
        unit = str(rows["unit"].iloc[0])
        shown = self.state.conditions()
        parts = [
            pn.Column(*self._pair(rows[rows["condition"].astype(str) == name], name, unit, number))
            for number, name in enumerate(shown)
        ]
        width = "100%" if len(parts) == 1 else "min(100%, 480px)"
        for part in parts:
            part.styles = {"width": width, "flex": "1 1 320px" if len(parts) > 1 else "1 1 100%"}
        boxes = pn.FlexBox(*parts, gap="12px", sizing_mode="stretch_width", margin=0)
        return [
            shell.note(self._headline(rows, shown[0])),
            boxes,
            shell.note(
                f"<p class='quiet under'>{self._legend(rows)} {shell.provenance(entry)}</p>"
            ),
        ]

    def _pair(self, rows: pd.DataFrame, name: str, unit: str, number: int) -> list[Any]:
        curve = tables.dose_curve(rows)
        controls = tables.control_lines(rows, curve)
        theme = self.state.theme or "light"
        figures = [
            dose_response(
                curve,
                controls,
                theme=theme,
                title=f"{self.state.measure.replace('_', ' ')} · {name}",
                measure=self.state.measure,
                unit=unit,
                color=number,
            )
        ]
        if curve["mass"].notna().any():
            figures.append(mass_by_dose(curve, controls, theme=theme, unit=unit))
        return [pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=0) for figure in figures]

    def _headline(self, rows: pd.DataFrame, name: str) -> str:
        part = rows[rows["condition"].astype(str) == name]
        curve = tables.dose_curve(part)
        controls = tables.control_lines(part, curve)
        measure = self.state.measure.replace("_", " ")
        low, high = curve.sort_values("dose").iloc[0], curve.sort_values("dose").iloc[-1]
        words = (
            f"<p class='big'>{shell.escape(name)}: {shell.escape(measure)} goes from "
            f"{low['mean']:.3g} at dose {low['dose']:g} to {high['mean']:.3g} at {high['dose']:g}"
        )
        if controls.empty:
            return (
                f"{words}</p><p class='warn'>No random directions in this run, so nothing says "
                f"that the direction matters. Run <code>{DEMO}</code> or sweep again with "
                "<code>controls = 10</code>.</p>"
            )
        ends = controls[controls["dose"] == high["dose"]]["mean"]
        return f"{words}; random directions there: {ends.min():.3g} to {ends.max():.3g}</p>"

    def _legend(self, rows: pd.DataFrame) -> str:
        curve = tables.dose_curve(rows[rows["condition"].astype(str) == self.state.conditions()[0]])
        count = rows.loc[rows["control"].str.startswith("random:"), "control"].nunique()
        unit = str(rows["unit"].iloc[0])
        return (
            f"Band and whiskers: {shell.escape(curve['interval'].iloc[0])}, n = "
            f"{int(curve['n'].max())} items a dose. Gray: range and lines of {count} norm-matched "
            f"random directions. Dose in {UNITS.get(unit, unit)}; direction "
            f"{shell.escape(self.state.direction)} at layers {shell.escape(self.state.layers)} of "
            f"{shell.escape(self.state.subject)}. Beyond ±4 the axis is logarithmic."
        )

    def table(self) -> Sequence[Any]:
        """List the numbers behind the curves."""
        if self.state.catalogue.entry(self.state.run) is None:
            return []
        rows = self.state.rows()
        body = []
        for name in self.state.conditions():
            part = rows[rows["condition"].astype(str) == name]
            curve = tables.dose_curve(part)
            body += [
                _line(name, row, tables.control_lines(part, curve)) for row in curve.itertuples()
            ]
        heads = (
            "condition",
            "dose",
            "mean",
            "interval",
            "n",
            "random directions",
            "mass",
            "invalid",
        )
        return [shell.note("<h2>Numbers</h2>" + shell.html_table(body, heads))]


def _line(name: str, row: Any, controls: pd.DataFrame) -> tuple[object, ...]:
    span = "withheld" if pd.isna(row.low) else f"{row.low:.3f} to {row.high:.3f}"
    others = controls[controls["dose"] == row.dose]["mean"]
    null = f"{others.min():.3f} to {others.max():.3f}" if len(others) and row.dose else "—"
    mass = "—" if pd.isna(row.mass) else f"{row.mass:.2f}" + (" (low)" if row.mass < 0.5 else "")
    return name, f"{row.dose:g}", f"{row.mean:.3f}", span, row.n, null, mass, row.invalid or "none"


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with shell.Guard("/dose") as guard:
        return _build(root)
    return shell.broken_page("/dose", "Dose-response", guard)


def _build(root: Path) -> Any:
    state = DoseState(read_catalogue(root))
    refused = shell.take_address(state)
    view = DoseView(state)
    curves = shell.Section("/dose curves", view.curves, (*state.fields, "theme"))
    table = shell.Section("/dose table", view.table, state.fields)
    table.box.visible = bool(state.run)
    shell.bind(state, [curves, table])
    labels = {
        "run": "Sweep", "readout": "Readout", "measure": "Measure", "subject": "Model",
        "direction": "Direction", "layers": "Layers", "condition": "Condition",
    }  # fmt: skip
    controls = [shell.select(state, name, label) for name, label in labels.items()]
    lead = (
        "Does pushing along a direction change behavior more than a random push of the same size?"
    )
    page = shell.frame(state, "/dose", "Dose-response", lead, controls, [curves.box, table.box])
    shell.report(state, refused)
    return page


__all__ = ["EVERY", "DoseView", "build"]
