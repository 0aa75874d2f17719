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

from workbench.effects import side_by_side
from workbench.figures.dose import (
    LINEAR,
    UNITS,
    dose_response,
    engaged_by_dose,
    mass_by_dose,
    realised_by_dose,
)

VERDICTS = ("condition", "slope", "interval", "random directions", "doses", "n", "verdict")
BELOW = (16, 0, 0, 0)
MOST_TEXTS = 6
"""Prompts whose replies are shown; the run's table holds them all."""


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
            shell.note(self._headline(shown[0])),
            boxes,
            shell.note(
                f"<p class='quiet under'>{self._legend(rows)} {shell.provenance(entry)}</p>"
            ),
        ]

    def _pair(self, rows: pd.DataFrame, name: str, unit: str, number: int) -> list[Any]:
        curve = self._guarded(rows)
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
        if curve["dose_raw"].notna().all() and curve["realised"].notna().all():
            figures.append(realised_by_dose(curve, theme=theme, unit=unit))
        elif curve["engaged"].notna().all():
            figures.append(engaged_by_dose(curve, theme=theme, unit=unit))
        return [pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=0) for figure in figures]

    def _guarded(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Summarize by dose, with what the guards say of each dose."""
        entry = self.state.catalogue.entry(self.state.run)
        curve = tables.dose_curve(rows)
        assert entry is not None, "a curve is drawn of a chosen run"
        kept = tables.guarded_doses(tables.changes_of(entry), rows)
        return curve.assign(guarded=kept.reindex(curve["dose"]).to_numpy(bool))

    def _verdicts(self) -> pd.DataFrame:
        """Return the verdicts of the curves that share everything but the condition."""
        entry = self.state.catalogue.entry(self.state.run)
        assert entry is not None, "verdicts are of a chosen run"
        found = tables.verdicts_of(entry)
        for name in ("readout", "measure", "direction", "layers"):
            found = found[found[name] == getattr(self.state, name)]
        return found[found["model"].isin([self.state.subject, *self._organism()])]

    def _organism(self) -> list[str]:
        return [str(name) for name in self.state.rows()["organism"].dropna().unique()]

    def _headline(self, name: str) -> str:
        measure = self.state.measure.replace("_", " ")
        judged = self._verdicts()
        row = judged[judged["condition"] == name].iloc[0]
        if row["verdict"] == "not judged: no random directions":
            return (
                f"<p class='big'>{shell.escape(name)}: {shell.escape(measure)} changes by "
                f"{row['slope']:+.3g} a unit of dose</p><p class='warn'>No random directions in "
                f"this run, so nothing says that the direction matters. Run <code>{DEMO}</code> or "
                "sweep again with <code>controls = 10</code>.</p>"
            )
        if row["verdict"] == "not judged: no guarded dose":
            return (
                f"<p class='big'>{shell.escape(name)}: no dose but zero passes the guards, so "
                "nothing is said of the slope</p>"
            )
        return (
            f"<p class='big'>{shell.escape(name)}: {shell.escape(measure)} changes by "
            f"{row['slope']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}] a unit of dose over "
            f"{shell.escape(row['doses'])}; random directions: up to {row['band']:.3g}</p>"
            f"<p>{shell.escape(row['verdict'].capitalize())}"
            f"{_unguarded(int(row['n_unguarded']))}.</p>"
        )

    def _legend(self, rows: pd.DataFrame) -> str:
        curve = tables.dose_curve(rows[rows["condition"].astype(str) == self.state.conditions()[0]])
        count = rows.loc[rows["control"].str.startswith("random:"), "control"].nunique()
        unit = str(rows["unit"].iloc[0])
        return (
            f"Band and whiskers: {shell.escape(curve['interval'].iloc[0])}, n = "
            f"{int(curve['n'].max())} items a dose. Gray: range and lines of {count} norm-matched "
            f"random directions. Dose in {UNITS.get(unit, unit)}; direction "
            f"{shell.escape(self.state.direction)} at layers {shell.escape(self.state.layers)} of "
            f"{shell.escape(self.state.subject)}.{_axis(curve)}"
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
        return [
            shell.note("<h2>Verdicts</h2>" + shell.html_table(self._verdict_lines(), VERDICTS)),
            shell.note("<h2>Numbers</h2>" + shell.html_table(body, heads), margin=BELOW),
            *self._texts(),
        ]

    def _verdict_lines(self) -> list[tuple[object, ...]]:
        lines: list[tuple[object, ...]] = []
        for row in self._verdicts().to_dict("records"):
            reach = row["band_name"]
            if pd.notna(row["band"]):
                reach = f"{row['band']:.3g} ({reach})"
            span = _span(row["low"], row["high"], "+.3g")
            n = f"{row['n']} {row['unit']}s"
            told = (row["condition"], f"{row['slope']:+.3g}", span, reach)
            lines.append((*told, row["doses"], n, row["verdict"]))
        return lines

    def _texts(self) -> list[Any]:
        """Show replies side by side where the sweep kept them."""
        entry = self.state.catalogue.entry(self.state.run)
        assert entry is not None, "texts are of a chosen run"
        frame = tables.results_of(entry)
        frame = frame[frame["subject"] == self.state.subject]
        frame = frame[frame["direction"].isin([self.state.direction])]
        if not (frame["readout"] == "reply").any():
            return []
        wide = side_by_side(frame[frame["layers"] == self.state.layers]).head(MOST_TEXTS)
        lines = [tuple("" if pd.isna(cell) else cell for cell in row) for row in wide.to_numpy()]
        title = f"<h2>Replies</h2><p class='quiet'>{len(lines)} prompts, the same draws</p>"
        heads = tuple(map(str, wide.columns))
        return [shell.note(title + shell.html_table(lines, heads), margin=BELOW)]


def _span(low: float, high: float, form: str) -> str:
    return "withheld" if pd.isna(low) else f"{low:{form}} to {high:{form}}"


def _axis(curve: pd.DataFrame) -> str:
    return " Beyond ±4 the axis is logarithmic." if curve["dose"].abs().max() > LINEAR else ""


def _unguarded(count: int) -> str:
    return f"; {count} dose{'s' if count > 1 else ''} left out by the guards" if count else ""


def _line(name: str, row: Any, controls: pd.DataFrame) -> tuple[object, ...]:
    span = _span(row.low, row.high, ".3f")
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
