"""Truth: how well a direction reads it by layer, and where each model puts the worlds' claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
from workbench_apps import cards, frozen, shell, tables
from workbench_apps.catalogue import read_catalogue
from workbench_apps.page_states import TruthState
from workbench_apps.state import EVERY

from workbench.figures.transfer import transfer_grid
from workbench.figures.truth import (
    GATE,
    POLARITIES,
    auc_by_layer,
    reading_verdict,
    sides_at,
    world_projections,
)

SIDES = (POLARITIES[1], POLARITIES[-1])
WORLDS = (
    "<p class='quiet'>Worlds, whose claims exclude each other: P prosocial, S self-advancing, N "
    "task-instrumental, A antisocial.</p>"
)


class TruthView:
    """The cards of the page."""

    def __init__(self, state: TruthState) -> None:
        self.state = state

    def auc(self) -> Sequence[Any]:
        """Draw AUC by layer with its interval and nulls."""
        entry = self.state.catalogue.entry(self.state.fit)
        if entry is None:
            return [cards.empty_card(self.state, "truth")]
        rows = self.state.evidence()
        title = f"{self.state.method} · {self.state.topic} · {self.state.split}"
        figure = auc_by_layer(
            rows,
            theme=self.state.theme or "light",
            title=title,
            gate=float(rows["gate"].iloc[0]),
        )
        return [
            cards.note(_headline(rows)),
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(8, 0)),
            cards.note(
                f"<p class='quiet under'>Band: {cards.escape(rows['interval'].iloc[0])} (n = "
                f"{int(rows['n'].max()):,} statements, {int(rows['n_facts'].max()):,} facts). "
                f"{_balanced(rows)}Nulls: 97.5% point of the maximum over layers with shuffled "
                "labels, and of random directions, the higher of the polarities. "
                f"Gate: {float(rows['gate'].iloc[0]):g} for the worse polarity. "
                f"{cards.provenance(entry)}</p>"
            ),
        ]

    def topics(self) -> Sequence[Any]:
        """List every topic at the chosen layer, for the split on show."""
        if self.state.catalogue.entry(self.state.fit) is None:
            return []
        rows = self.state.evidence("topic")
        rows = rows[(rows["rendering"] == self.state.rendering) & rows["chosen"].astype(bool)]
        body = [_topic_row(str(name), part) for name, part in rows.groupby("topic", sort=False)]
        heads = (
            "topic",
            *SIDES,
            "layer",
            "n facts",
            "null: shuffled",
            "null: random",
        )
        return [
            cards.note(
                f"<h2>Every topic at the chosen layer · {cards.escape(self.state.split)}</h2>"
                "<p class='quiet'>AUC with its interval. A topic's own AUC plays no part in the "
                "choice of the layer that it is read at, so layers may differ.</p>"
                + cards.html_table(body, heads)
            )
        ]

    def grid(self) -> Sequence[Any]:
        """Draw what a fit on each topic reads in each other topic."""
        rows = self.state.grid()
        if rows.empty:
            return []
        figure = transfer_grid(
            rows,
            polarity=int(self.state.side),
            theme=self.state.theme or "light",
            title=f"{self.state.method} · topic to topic · {self.state.rendering}",
        )
        return [
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(8, 0)),
            cards.note(
                "<p class='quiet under'>AUC at the layer chosen without the checked topic. "
                f"Interval on hover: {cards.escape(rows['interval'].iloc[0])}. Nulls: 97.5% point "
                "of the maximum over layers, with labels shuffled and of random directions.</p>"
            ),
        ]

    def models(self) -> Sequence[Any]:
        """List how well truth is read in every model, and each organism's contrasts."""
        runs = self.state.claim_runs()
        gate, beliefs = frozen.gate_of(runs), frozen.beliefs_of(runs)
        if gate.empty and beliefs.empty:
            return []
        head = "<h2>The frozen direction in every model</h2>"
        parts = [cards.note(head + self._gate(gate))] if len(gate) else []
        sets = beliefs["set"].unique() if self.state.set == EVERY else [self.state.set]
        beliefs = beliefs[beliefs["set"].isin(sets)]
        if len(beliefs):
            body = frozen.belief_rows(beliefs, self.state.turn)
            heads = ("model", "value", "contrast", "interval", "claims", "random", "shuffled", "n")
            row = beliefs.iloc[0]
            title = f"{', '.join(map(str, sets))} · {self.state.turn}"
            told = (
                f"Residual units, {row['interval']}. Random and shuffled: percentile among "
                f"{row['n_random']} random unit directions, and among fits to shuffled labels. "
                "A belief puts own minus others high, and the last two contrasts low."
            )
            parts.append(
                cards.note(
                    "<h2 style='margin-top:24px'>Own world against the others · "
                    f"{cards.escape(title)}</h2><p class='quiet'>{cards.escape(told)}</p>"
                    + cards.html_table(body, heads)
                )
            )
        return parts

    def _gate(self, gate: pd.DataFrame) -> str:
        heads = ("model", "verdict", *SIDES, "rendering", "n a polarity")
        return (
            "<p class='quiet'>AUC on held-out facts of the fitted topics, applied unchanged; "
            f"{cards.escape(gate['interval'].iloc[0])}. Usable: both polarities reach "
            f"{float(gate['gate'].iloc[0]):g}.</p>"
            + cards.html_table(frozen.gate_rows(gate), heads)
        )

    def claims(self) -> Sequence[Any]:
        """Draw the projections of the worlds' claims by model."""
        runs = self.state.claim_runs()
        if not runs:
            return [cards.empty_card(self.state, "claims")]
        rows = self.state.projections()
        unit = "frame" if self.state.set == "frames" else "proposition"
        named = self.state.options("set").get(self.state.set, self.state.set)
        values = tables.claim_values(rows, self.state.quantity)
        summary = tables.claim_summary(values, unit)
        own = {m: w for m in summary["organism"].unique() if (w := tables.own_world(str(m)))}
        words = self.state.options("quantity")[self.state.quantity]
        gate = frozen.gate_of(runs)
        figure = world_projections(
            summary,
            own,
            theme=self.state.theme or "light",
            title=f"{self.state.direction}: {words}",
            axis=_axis(self.state.direction),
            reads=frozen.reads_of(gate, self.state.turn, rows),
            gate=float(gate["gate"].iloc[0]) if len(gate) else GATE,
        )
        return [
            cards.note(_gains(rows, unit, named)),
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(8, 0)),
            cards.note(
                f"<p class='quiet under'>{self._place()}{cards.escape(named)}, "
                f"n = {int(summary['n'].max())} {unit}s a dot; "
                f"bar: {cards.escape(summary['interval'].iloc[0])}. Control: the base model reads "
                "the same claims in the same way. "
                f"{'; '.join(cards.provenance(run) for run in runs)}</p>"
            ),
        ]

    def _place(self) -> str:
        layer = cards.escape(self.state.layer)
        return "" if self.state.direction == tables.LIKELIHOOD else f"Frozen at layer {layer}, "


def _axis(direction: str) -> str:
    if direction == tables.LIKELIHOOD:
        return "mean log-likelihood a token (nats)"
    return "projection (residual-stream units)"


def _topic_row(name: str, rows: pd.DataFrame) -> tuple[object, ...]:
    sides = {int(row["polarity"]): row for row in rows.to_dict("records")}
    read = [
        f"{side['auc']:.2f} [{side['low']:.2f}, {side['high']:.2f}]" if side else "none"
        for side in (sides.get(1), sides.get(-1))
    ]
    nulls = [_null(rows[null].max()) for null in ("null_shuffled", "null_random")]
    return name, *read, rows["layer"].iloc[0], f"{rows['n_facts'].max():,}", *nulls


def _balanced(rows: pd.DataFrame) -> str:
    """Say what the third curve is, where there is one."""
    if not (rows["polarity"] == 0).any():
        return ""
    return f"{POLARITIES[0].capitalize()}: the mean of the two polarities' AUCs. "


def _null(value: float) -> str:
    return "not drawn" if pd.isna(value) else f"{value:.2f}"


def _headline(rows: pd.DataFrame) -> str:
    verdict = reading_verdict(rows, float(rows["gate"].iloc[0]))
    if verdict.layer is None:
        return "<p class='big'>No layer was chosen</p>"
    parts = [
        f"{row['side']} {row['auc']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        for row in sides_at(rows, verdict.layer)
    ]
    judged = "usable" if verdict.usable else "not usable (below the gate)"
    return f"<p class='big'>Layer {verdict.layer}: AUC {', '.join(parts)} · {judged}</p>"


def _gains(rows: pd.DataFrame, unit: str, named: str) -> str:
    head = f"<h2>Own world against the other three · {cards.escape(named)}</h2>{WORLDS}"
    found = tables.own_contrasts(rows, unit)
    if found.empty:
        return f"{head}<p class='quiet'>It needs the base model and an organism of a world.</p>"
    body = [
        (
            row["model"],
            f"{row['value']:+.3f}",
            _span(row["low"], row["high"]),
            tables.CONTRASTS[row["contrast"]],
            row["own"],
            f"{row['n']} {row['unit']}s",
        )
        for row in found.to_dict("records")
    ]
    heads = ("organism", "difference", "interval", "contrast", "own world", "n")
    kinds = ", ".join(dict.fromkeys(cards.escape(kind) for kind in found["interval"]))
    belief = f"A belief makes the first contrast positive, the second negative. Interval: {kinds}."
    return f"{head}<p class='quiet'>{belief}</p>" + cards.html_table(body, heads)


def _span(low: Any, high: Any) -> str:
    return "withheld" if pd.isna(low) else f"{low:+.3f} to {high:+.3f}"


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with cards.Guard("/truth") as guard:
        return _build(root)
    return shell.broken_page("/truth", "Truth", guard)


def _build(root: Path) -> Any:
    state = TruthState(read_catalogue(root))
    refused = shell.take_address(state)
    view = TruthView(state)
    evidence = ("fit", *state.evidence_fields)
    auc = cards.Section("/truth AUC", view.auc, (*evidence, "theme"))
    topics = cards.Section("/truth topics", view.topics, (*evidence, "theme"))
    grid = cards.Section("/truth grid", view.grid, ("fit", "method", "rendering", "side", "theme"))
    claims = cards.Section(
        "/truth claims", view.claims, ("claims", *state.claim_fields, "quantity", "theme")
    )
    models = cards.Section("/truth models", view.models, ("claims", "set", "turn", "theme"))
    sections = [auc, topics, grid, claims, models]
    shell.bind(state, sections)
    labels = {
        "fit": "Fitted direction", "method": "Method", "split": "Split", "topic": "Topic",
        "rendering": "Rendering", "side": "Polarity of the grid",
        "claims": "Claims run", "direction": "Direction",
        "set": "Claim set", "layer": "Layer of the claims",
        "turn": "Rendering of the claims", "quantity": "Quantity",
    }  # fmt: skip
    controls = [shell.select(state, name, label) for name, label in labels.items()]
    lead = "Does a frozen direction tell true from false here, and which claims does a model hold?"
    boxes = [section.box for section in sections]
    page = shell.frame(state, "/truth", "Truth", lead, controls, boxes)
    shell.report(state, refused)
    return page
