"""Trust: margins by dose and facet beside controls, matrices by block, and the pairs behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
from workbench_apps import cards, downloads, shell, trust_lines, trusts
from workbench_apps.catalogue import read_catalogue
from workbench_apps.state import EVERY
from workbench_apps.trust_state import TrustState

from workbench.effects.scenarios import RULE
from workbench.figures.dose import dose_response
from workbench.figures.trust import BLOCK_MEASURES, ITEMS, by_block, item_margins

PATH, HEADING = "/trust", "Trust"
PANEL = {"width": "min(100%, 440px)", "flex": "1 1 440px"}
BELOW = (16, 0, 0, 0)
ARM = ["control", "dose", "mean", "low", "high", "n", "unit"]
REPLIES = ("the trusting reply", "the distrusting reply")


class TrustView:
    """The cards of the page."""

    def __init__(self, state: TrustState) -> None:
        self.state = state

    @property
    def theme(self) -> str:
        """Of the figures."""
        return self.state.theme or "light"

    def margins(self) -> Sequence[Any]:
        """Draw the margin by dose, one box a facet, beside shuffled labels and random matrices."""
        entry = self.state.entry()
        if entry is None:
            return [cards.empty_card(self.state, "trust")]
        table = self.state.margins()
        own = table[table["control"] == trusts.OWN]
        facets = trusts.facets_of(own)
        panels = [
            pn.Column(
                pn.pane.Bokeh(
                    self._curve(table[table["facet"] == facet], facet, number),
                    sizing_mode="stretch_width",
                    margin=0,
                ),
                styles=PANEL,
            )
            for number, facet in enumerate(facets)
        ]
        told = (
            f"Band and whiskers: {own['interval'].iloc[0]} of the level, which differs from "
            "scenario to scenario; the slope compares doses within the same pairs. "
            f"{trust_lines.counts(own, facets).capitalize()}. "
            "Margin: log-odds of the trusting reply over the distrusting one, nats a token, on "
            f"held-out pairs. {_controls_told(table)}Dose in multiples of the trained matrix; "
            "0 is no edit."
        )
        return [
            cards.note(_headline(own, trusts.monotone_of(entry), self.state.method)),
            pn.FlexBox(*panels, gap="12px", sizing_mode="stretch_width", margin=0),
            cards.note(
                f"<p class='quiet under'>{cards.escape(told)} {cards.provenance(entry)}</p>"
            ),
            downloads.csv_button(self.state.margins, "trust_margin.csv"),
        ]

    def _curve(self, rows: pd.DataFrame, facet: str, number: int) -> Any:
        kind = rows["control"].str.partition(":")[0]
        return dose_response(
            rows[rows["control"] == trusts.OWN],
            rows.loc[kind == trusts.RANDOM, ["control", "dose", "mean"]],
            arms=rows.loc[kind == trusts.SHUFFLED, ARM]
            if (kind == trusts.SHUFFLED).any()
            else None,
            theme=self.theme,
            title=f"{self.state.method.replace('_', ' ')} · {trust_lines.facet_words(facet)}",
            measure="margin",
            color=number,
        )

    def judged(self) -> Sequence[Any]:
        """List accuracy and monotonicity of every method beside its controls."""
        entry = self.state.entry()
        if entry is None:
            return []
        parts: list[Any] = []
        heads, rows = trust_lines.rises(trusts.monotone_of(entry), self.state.method)
        if rows:
            told = (
                "Does the margin rise from dose to dose? Every method over all facets, the one on "
                f"show by facet; nats a token and dose. {RULE} p of the steps: that not every one "
                "rises."
            )
            parts.append(
                cards.note(
                    f"<h2>Monotonicity</h2><p class='quiet'>{told}</p>"
                    + cards.html_table(rows, heads)
                )
            )
        table = self.accuracy()
        if len(table):
            facets = trusts.facets_of(table)
            told = (
                f"Share of held-out pairs with a margin above 0, without an edit and at dose "
                f"{self.state.dose}. {table['interval'].iloc[0]}; "
                f"{trust_lines.counts(table, facets)}."
            )
            heads = ["method", "control", "dose", *map(trust_lines.facet_words, facets)]
            parts += [
                cards.note(
                    f"<h2>Accuracy by facet</h2><p class='quiet'>{cards.escape(told)}</p>"
                    + cards.html_table(trust_lines.accuracies(table, facets), heads),
                    margin=BELOW,
                ),
                downloads.csv_button(self.accuracy, "trust_accuracy.csv"),
            ]
        return parts

    def accuracy(self) -> pd.DataFrame:
        """Return the accuracy of every method at the dose on show and without an edit."""
        entry = self.state.entry()
        assert entry is not None, "accuracy is asked for where a run was chosen"
        table = trusts.accuracy_of(entry)
        if table.empty or not self.state.dose:
            return table
        shown = table["dose"].isin([0.0, float(self.state.dose)])
        drawn = ~table["control"].str.startswith(trusts.RANDOM)
        return table[shown & drawn].reset_index(drop=True)

    def costs(self) -> Sequence[Any]:
        """List what the doses do to the replies' likelihoods and to the trust game."""
        entry = self.state.entry()
        if entry is None:
            return []
        parts: list[Any] = []
        table = trusts.displacement_of(entry)
        heads, rows = trust_lines.displacements(table, self.state.method)
        if rows:
            told = (
                f"Change of a reply's log-likelihood, nats a token; {_interval_of(table)}. A "
                "margin that grows while the trusting reply falls pushes both down."
            )
            parts.append(
                cards.note(
                    f"<h2>What a dose costs</h2><p class='quiet'>{told}</p>"
                    + cards.html_table(rows, heads)
                )
            )
        table = trusts.transfer_of(entry)
        heads, rows = trust_lines.transfers(table, self.state.method)
        if rows:
            told = (
                f"Change of what is sent, and of what is expected back, in the trust game; "
                f"{_interval_of(table)}, the frames of the game. Mass: "
                "the probability on allowed answers; where it is low the answer is not in the "
                "asked form, and its change says nothing of trust."
            )
            parts.append(
                cards.note(
                    f"<h2>Transfer</h2><p class='quiet'>{told}</p>" + cards.html_table(rows, heads),
                    margin=BELOW if parts else 0,
                )
            )
        return parts

    def items(self) -> Sequence[Any]:
        """Draw every held-out pair; a click shows its replies."""
        table = self.state.items()
        if table.empty:
            return []
        figure = item_margins(
            table, dose=float(self.state.dose), chosen=self.state.item, theme=self.theme,
            title=f"{self.state.method.replace('_', ' ')}, pair by pair",
        )  # fmt: skip
        self._listen(figure)
        shown = "every facet" if self.state.facet == EVERY else self.state.facet
        told = (
            f"{len(table)} held-out pairs, {shown}. Click a point to read its two replies; "
            "[ and ] go through them from the lowest margin."
        )
        return [
            cards.note(f"<h2>Pairs</h2><p class='quiet'>{cards.escape(told)}</p>"),
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(8, 0)),
            downloads.csv_button(self.state.items, "trust_items.csv"),
        ]

    def _listen(self, figure: Any) -> None:
        source = figure.select_one({"name": ITEMS}).data_source

        def chosen(_: str, __: Any, indices: list[int]) -> None:
            if indices:
                self.state.choose(item=str(source.data["item"][indices[0]]))

        source.selected.on_change("indices", chosen)

    def pair(self) -> Sequence[Any]:
        """Show the conversation and the two replies of the chosen item."""
        entry = self.state.entry()
        if entry is None or self.state.items().empty:
            return []
        head = "<h2>The pair</h2>"
        if not self.state.item:
            return [
                cards.note(f"{head}<p>Click a point above, or press ], to read a pair here.</p>")
            ]
        found = trusts.pair_of(entry, self.state.item)
        if found is None:
            return [
                cards.note(
                    f"{head}<p class='warn'>This run keeps no texts of "
                    f"{cards.escape(self.state.item)}; make it again with this version.</p>"
                )
            ]
        by_dose = trusts.item_by_dose(entry, self.state.item, trusts.methods_of(entry))
        heads = ("dose", *(str(name).replace("_", " ") for name in by_dose.columns))
        lines = [
            (f"{dose:+g}" if dose else "0", *("none" if pd.isna(v) else f"{v:+.3f}" for v in row))
            for dose, row in zip(by_dose.index, by_dose.to_numpy(), strict=True)
        ]
        texts = cards.html_table([(found["chosen"], found["rejected"])], REPLIES, texts=True)
        return [
            cards.note(
                f"{head}<p class='quiet'>{cards.escape(trust_lines.pair_words(found))}</p>"
                f"{_conversation(found['prompt'])}{texts}"
            ),
            cards.note(
                "<h2>Its margin</h2><p class='quiet'>Nats a token, by dose and method.</p>"
                + cards.html_table(lines, heads),
                margin=BELOW,
            ),
        ]

    def blocks(self) -> Sequence[Any]:
        """Draw norms and cosines of every method's matrix by block."""
        entry = self.state.entry()
        if entry is None:
            return []
        table = trusts.blocks_of(entry)
        drawn = [
            measure
            for measure in BLOCK_MEASURES
            if measure in table and table.loc[table["control"] == trusts.OWN, measure].notna().any()
        ]
        if not drawn:
            return []
        panels = [
            pn.Column(
                pn.pane.Bokeh(
                    by_block(table, measure, theme=self.theme),
                    sizing_mode="stretch_width",
                    margin=0,
                ),
                styles=PANEL,
            )
            for measure in drawn
        ]
        told = (
            "One vector a block, all trained or fitted together. A matrix trained on the user's "
            "span gets no gradient at the last block, whose vector stays zero. Baseline: the mean "
            "difference of the same replies."
        )
        return [
            cards.note("<h2>The matrix by block</h2>"),
            pn.FlexBox(*panels, gap="12px", sizing_mode="stretch_width", margin=0),
            cards.note(f"<p class='quiet under'>{told}</p>"),
            downloads.csv_button(lambda: trusts.blocks_of(entry), "trust_blocks.csv"),
        ]


def _headline(own: pd.DataFrame, monotone: pd.DataFrame, method: str) -> str:
    rows = own[own["facet"] == trusts.facets_of(own)[0]].sort_values("dose")
    ends = [
        f"{row['mean']:+.3f} {trust_lines.bracket(row['low'], row['high'])} at dose {row['dose']:g}"
        for row in (rows.iloc[0], rows.iloc[-1])
    ]
    named = f"{trust_lines.method_words(method)}: margin {' and '.join(ends)}"
    said = trust_lines.verdict(monotone, method)
    return f"<p class='big'>{cards.escape(named)}</p><p>{cards.escape(said)}</p>"


def _interval_of(table: pd.DataFrame) -> str:
    return str(table["interval"].iloc[0])


def _controls_told(table: pd.DataFrame) -> str:
    kinds = table["control"].str.partition(":")[0]
    count = table.loc[kinds == trusts.RANDOM, "control"].nunique()
    parts = [f"Gray: {count} norm-matched random matrices. "] if count else []
    if (kinds == trusts.SHUFFLED).any():
        parts.append("Dotted: made from pairs with shuffled labels. ")
    return "".join(parts)


def _conversation(turns: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        f"<p><b>{cards.escape(str(turn['role']).capitalize())}</b>: "
        f"{cards.escape(turn['content'])}</p>"
        for turn in turns
    ]
    return "".join(lines)


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with cards.Guard(PATH) as guard:
        return _build(root)
    return shell.broken_page(PATH, HEADING, guard)


def _build(root: Path) -> Any:
    state = TrustState(read_catalogue(root))
    refused = shell.take_address(state)
    view = TrustView(state)
    chosen = ("run", "method", "facet", "dose", "item")
    sections = [
        cards.Section(f"{PATH} margins", view.margins, ("run", "method", "theme")),
        cards.Section(f"{PATH} verdicts", view.judged, ("run", "method", "dose")),
        cards.Section(f"{PATH} costs", view.costs, ("run", "method")),
        cards.Section(f"{PATH} items", view.items, (*chosen, "theme")),
        cards.Section(f"{PATH} pair", view.pair, ("run", "item")),
        cards.Section(f"{PATH} blocks", view.blocks, ("run", "theme")),
    ]

    def key(name: str) -> None:
        if name == "Escape":
            state.choose(item="")
        else:
            state.step(1 if name == "]" else -1)

    shell.bind(state, sections)
    labels = {
        "run": "Trust run", "method": "Method", "facet": "Facet of the pairs",
        "dose": "Dose of the pairs", "item": "Pair",
    }  # fmt: skip
    controls = [shell.select(state, name, label) for name, label in labels.items()]
    lead = "Does a steering matrix make the trusting reply likelier, in every facet, dose by dose?"
    boxes = [section.box for section in sections]
    page = shell.frame(state, PATH, HEADING, lead, controls, boxes, key, steps="pair")
    shell.report(state, refused)
    return page
