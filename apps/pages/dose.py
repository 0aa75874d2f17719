"""Dose-response: what a readout does as an edit grows, beside random directions at each dose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
from workbench_apps import cards, doses, downloads, shell
from workbench_apps.catalogue import DEMO, read_catalogue
from workbench_apps.page_states import DoseState
from workbench_apps.state import EVERY

from workbench.effects import side_by_side
from workbench.figures.dose import (
    LINEAR,
    UNITS,
    dose_response,
    engaged_by_dose,
    mass_by_dose,
    realised_by_dose,
)
from workbench.pipelines.report_words import at_blocks

VERDICTS = ("condition", "slope", "verdict", "interval", "random directions", "doses", "n")
NUMBERS = (
    *("condition", "arm", "dose", "mean", "interval", "n", "random directions", "mass", "left out"),
    "invalid",
)
SAVED = (
    *("run", "readout", "measure", "model", "direction", "layers", "condition", "control", "dose"),
    *("mean", "low", "high", "interval", "n", "unit", "random_low", "random_high", "mass"),
    *("guarded", "left_out", "invalid"),
)
"""Columns of the file; ``control`` is ``none`` for the direction itself."""
CONTROLS = ("condition", "control", "what", "value", "interval", "n")
CURVES = ("readout", "measure", "model", "direction", "layers")
"""What the curves on show have in common."""
BELOW = (16, 0, 0, 0)
MOST_TEXTS = 6
"""Prompts whose replies are shown; the run's table holds them all."""
FIRST = "random:0"
"""The random direction whose replies are shown."""


class DoseView:
    """The curves, one box a condition, and the tables below them."""

    def __init__(self, state: DoseState) -> None:
        self.state = state

    def curves(self) -> Sequence[Any]:
        """Draw each condition with its controls and its letter mass."""
        entry = self.state.catalogue.entry(self.state.run)
        if entry is None:
            return [cards.empty_card(self.state, "dose")]
        shown = dict(self._parts())
        parts = [
            pn.Column(*self._pair(rows, name, number))
            for number, (name, rows) in enumerate(shown.items())
        ]
        width = "100%" if len(parts) == 1 else "min(100%, 480px)"
        for part in parts:
            part.styles = {"width": width, "flex": "1 1 320px" if len(parts) > 1 else "1 1 100%"}
        boxes = pn.FlexBox(*parts, gap="12px", sizing_mode="stretch_width", margin=0)
        name, rows = next(iter(shown.items()))
        return [
            cards.note(self._headline(name)),
            boxes,
            cards.note(
                f"<p class='quiet under'>{self._legend(rows)} {cards.provenance(entry)}</p>"
            ),
        ]

    def _parts(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield each condition on show with its rows."""
        rows = self.state.rows()
        for name in self.state.conditions():
            yield name, rows[rows["condition"].astype(str) == name]

    def _pair(self, rows: pd.DataFrame, name: str, number: int) -> list[Any]:
        curve = self._guarded(rows)
        controls = doses.control_lines(rows, curve)
        look: dict[str, Any] = {
            "theme": self.state.theme or "light",
            "unit": str(rows["dose_unit"].iloc[0]),
        }
        figures = [
            dose_response(
                curve,
                controls,
                arms=doses.other_arms(rows),
                title=f"{self.state.measure.replace('_', ' ')} · {name}",
                measure=self.state.measure,
                color=number,
                **look,
            )
        ]
        if curve["mass"].notna().any():
            figures.append(mass_by_dose(curve, controls, **look))
        if curve["realised"].notna().all():
            figures.append(realised_by_dose(curve, **look))
        if str(rows["edit"].iloc[0]) == "cap" and curve["engaged"].notna().all():
            figures.append(engaged_by_dose(curve, **look))
        return [pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=0) for figure in figures]

    def _guarded(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Summarize by dose, with what the guards say of each dose."""
        curve = doses.dose_curve(rows)
        kept = doses.guarded_doses(self.state.sweep().changes, rows)
        return curve.assign(guarded=kept.reindex(curve["dose"]).to_numpy(bool))

    def _verdicts(self) -> pd.DataFrame:
        """Return the verdicts of the curves that share everything but the condition, in order."""
        order = list(self.state.options("condition"))
        found = self.state.chosen(self.state.sweep().slopes, CURVES)
        return found.sort_values("condition", key=lambda names: names.map(order.index))

    def _headline(self, name: str) -> str:
        found = self._verdicts()
        row = found[found["condition"] == name].iloc[0].to_dict()
        what = cards.escape(doses.measured(row))
        left_out = f"left out: {cards.escape(self._left_out(name))}"
        if row["verdict"] == "not judged: no random directions":
            return (
                f"<p class='big'>{what} by {row['slope']:+.3g} {cards.escape(doses.per_dose(row))}"
                "</p><p class='warn'>No random directions in "
                f"this run, so nothing says that the direction matters. Run <code>"
                f"{cards.escape(DEMO)} --runs {cards.escape(self.state.catalogue.root)}</code> or "
                "sweep again with <code>controls = 10</code>.</p>"
            )
        if row["verdict"] == "not judged: no guarded dose":
            return (
                f"<p class='big'>{what}: nothing is said of a slope</p>"
                f"<p>{_capital(left_out)}.</p>{self._others()}"
            )
        return (
            f"<p class='big'>{what} by {row['slope']:+.3g} "
            f"{_bracket(row['low'], row['high'])} {cards.escape(doses.per_dose(row))}; "
            f"random directions: up to {row['band']:.3g}</p>"
            f"<p>{cards.escape(_capital(doses.judged(row)))}, "
            f"n = {cards.counted(row['n'], row['unit'])}, over doses {cards.escape(row['doses'])}"
            f"{f'; {left_out}' if row['n_unguarded'] else ''}.</p>"
            f"{self._others()}"
        )

    def _others(self) -> str:
        """Say that there are other conditions, and where they are chosen."""
        known = [name for name in self.state.options("condition") if name != EVERY]
        if len(known) < 2 or self.state.condition == EVERY:
            return ""
        rest = ", ".join(name for name in known if name != self.state.condition)
        return (
            f"<p class='quiet'>1 of {len(known)} conditions; not on show: {cards.escape(rest)}. "
            "Choose at the side, or have them side by side.</p>"
        )

    def _left_out(self, name: str) -> str:
        """Say which of a condition's doses are left out, and why."""
        (rows,) = (rows for one, rows in self._parts() if one == name)
        failed = doses.failures(self.state.sweep().rows, rows)
        count = rows.loc[rows["control"] == "none", "dose"].nunique()
        return doses.left_out(failed, count)

    def _legend(self, rows: pd.DataFrame) -> str:
        curve = doses.dose_curve(rows)
        is_random = rows["control"].str.startswith(doses.RANDOM)
        count = rows.loc[is_random, "control"].nunique()
        gray = f"Gray: range and lines of {count} norm-matched random directions. " if count else ""
        others = (rows["control"] != "none") & ~is_random
        more = "Other controls and prompts are lines of their own, outside that range. "
        unit = str(rows["dose_unit"].iloc[0])
        return (
            f"Band and whiskers: {cards.escape(curve['interval'].iloc[0])}, n = "
            f"{int(curve['n'].max())} {cards.escape(curve['unit'].iloc[0])}s a dose. {gray}"
            f"{more if others.any() else ''}Dose in {UNITS.get(unit, unit)}; "
            f"{cards.escape(rows['edit'].iloc[0])} along {cards.escape(self.state.direction)} at "
            f"{cards.escape(at_blocks(self.state.layers))} of {cards.escape(self.state.model)}."
            f"{_axis(curve, unit)}"
        )

    def table(self) -> Sequence[Any]:
        """List the numbers behind the curves."""
        if self.state.catalogue.entry(self.state.run) is None:
            return []
        controls = self._control_lines()
        verdicts = cards.html_table(self._verdict_lines(), VERDICTS)
        parts = [cards.note("<h2>Verdicts</h2>" + verdicts)]
        if controls:
            told = (
                "<h2>Other controls</h2><p class='quiet'>Each beside the same zero dose; slopes "
                "over those doses of the direction itself that are not left out.</p>"
            )
            parts.append(cards.note(told + cards.html_table(controls, CONTROLS), margin=BELOW))
        listed = cards.html_table([_line(row) for row in self.numbers().itertuples()], NUMBERS)
        save = downloads.csv_button(self._saved, "dose_response.csv")
        parts += [cards.note("<h2>Numbers</h2>" + listed, margin=BELOW), save]
        return [*parts, *self._texts()]

    def numbers(self) -> pd.DataFrame:
        """Return a row for each dose, then for each dose of each other control, then prompts."""
        found = [self._numbers(rows).assign(condition=name) for name, rows in self._parts()]
        return pd.concat(found, ignore_index=True)

    def _saved(self) -> pd.DataFrame:
        """Return the numbers with what the curves have in common, for a file that stands alone."""
        common = {name: getattr(self.state, name) for name in ("run", *CURVES)}
        return self.numbers().assign(**common)[list(SAVED)]

    def _numbers(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Summarize one condition: ``ARMS``, guards, and how far random directions reach."""
        curve = doses.dose_curve(rows)
        arms = [curve.assign(control="none")[list(doses.ARMS)], doses.other_arms(rows)]
        found = pd.concat([arm for arm in arms if len(arm)], ignore_index=True)
        failed = doses.failures(self.state.sweep().rows, rows)
        pairs = zip(found["control"], found["dose"], strict=True)
        why = [", ".join(failed.get((arm, doses.dose_key(dose)), ())) for arm, dose in pairs]
        drawn = doses.control_lines(rows, curve).groupby("dose")["mean"]
        steered = (found["control"] == "none") & (found["dose"] != 0)
        reach = {
            f"random_{end}": found["dose"].map(values).where(steered)
            for end, values in (("low", drawn.min()), ("high", drawn.max()))
        }
        return found.assign(guarded=[not one for one in why], left_out=why, **reach)

    def _verdict_lines(self) -> list[tuple[object, ...]]:
        lines: list[tuple[object, ...]] = []
        for row in self._verdicts().to_dict("records"):
            reach = "—" if pd.isna(row["slope"]) else row["band_name"]
            if pd.notna(row["band"]):
                reach = f"{row['band']:.3g} ({reach})"
            span = _span(row["low"], row["high"], "+.3g")
            n = f"{row['n']} {row['unit']}s"
            slope = "none" if pd.isna(row["slope"]) else f"{row['slope']:+.3g}"
            doses_kept = row["doses"] or "—"
            lines.append((row["condition"], slope, doses.judged(row), span, reach, doses_kept, n))
        return lines

    def _control_lines(self) -> list[tuple[object, ...]]:
        """Return slopes of the controls that are no random directions, and what prompts change."""
        sweep, shown = self.state.sweep(), self.state.conditions()
        slopes = self.state.chosen(sweep.controls, CURVES)
        prompts = self.state.chosen(sweep.changes, CURVES)
        prompts = prompts[prompts["control"].str.startswith(doses.PROMPT)]
        told = (("slope a unit of dose", "slope", slopes), ("change", "change", prompts))
        return [
            (
                row["condition"],
                _arm(row["control"]),
                what,
                "none" if pd.isna(row[column]) else f"{row[column]:+.3g}",
                _span(row["low"], row["high"], "+.3g"),
                f"{row['n']} {row['unit']}s",
            )
            for what, column, table in told
            for row in table[table["condition"].isin(shown)].to_dict("records")
        ]

    def _texts(self) -> list[Any]:
        """Show replies side by side where the sweep kept them."""
        frame = self.state.chosen(self.state.sweep().rows, ("model", "direction", "layers"))
        is_random = frame["control"].str.startswith(doses.RANDOM)
        frame = frame[~is_random | (frame["control"] == FIRST)]
        if not (frame["readout"] == "reply").any():
            return []
        wide = side_by_side(frame).head(MOST_TEXTS)
        lines = [tuple("" if pd.isna(cell) else cell for cell in row) for row in wide.to_numpy()]
        first = "; of the random directions the first" if (frame["control"] == FIRST).any() else ""
        title = f"<h2>Replies</h2><p class='quiet'>{len(lines)} prompts, the same draws{first}</p>"
        heads = tuple(map(str, wide.columns))
        return [cards.note(title + cards.html_table(lines, heads, texts=True), margin=BELOW)]


def _span(low: float, high: float, form: str) -> str:
    return "withheld" if pd.isna(low) else f"{low:{form}} to {high:{form}}"


def _bracket(low: float, high: float) -> str:
    return "(no interval)" if pd.isna(low) else f"[{low:+.3g}, {high:+.3g}]"


def _axis(curve: pd.DataFrame, unit: str) -> str:
    if unit == "percentile" or curve["dose"].abs().max() <= LINEAR:
        return ""
    return " Beyond ±4 the axis is logarithmic."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _arm(control: str) -> str:
    return "steered" if control == "none" else control.replace(doses.PROMPT, "prompt: ")


def _line(row: Any) -> tuple[object, ...]:
    reached = not pd.isna(row.random_low)
    null = f"{row.random_low:.3f} to {row.random_high:.3f}" if reached else "—"
    mass = "—" if pd.isna(row.mass) else f"{row.mass:.2f}" + (" (low)" if row.mass < 0.5 else "")
    dose = "—" if pd.isna(row.dose) else f"{row.dose:g}"
    told = (
        f"{row.mean:.3f}",
        _span(row.low, row.high, ".3f"),
        f"{row.n} {row.unit}s",
        null,
        mass,
        row.left_out or "no",
    )
    return row.condition, _arm(str(row.control)), dose, *told, row.invalid or "none"


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with cards.Guard("/dose") as guard:
        return _build(root)
    return shell.broken_page("/dose", "Dose-response", guard)


def _build(root: Path) -> Any:
    state = DoseState(read_catalogue(root))
    refused = shell.take_address(state)
    view = DoseView(state)
    curves = cards.Section("/dose curves", view.curves, (*state.fields, "theme"))
    table = cards.Section("/dose table", view.table, state.fields)
    table.box.visible = bool(state.run)
    shell.bind(state, [curves, table])
    labels = {
        "run": "Sweep", "readout": "Readout", "measure": "Measure", "model": "Model",
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
