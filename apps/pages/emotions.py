"""Emotions: how alike the vectors are, which layers read them, organisms along them, own text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
from workbench_apps import cards, downloads, emotions, shell
from workbench_apps.catalogue import read_catalogue
from workbench_apps.emotion_state import EmotionState
from workbench_apps.emotion_text import OwnText

from workbench.figures.emotion import emotion_curves, emotion_profiles, similarity_matrix

PATH, HEADING = "/emotions", "Emotions"
MOST_PROFILES = 30
"""Emotions that are drawn and listed."""
BELOW = (16, 0, 0, 0)
BANDS = {"random95": "isotropic", "matched95": "matched in covariance"}
"""Columns of what random directions reach, in words."""
VALENCE = ("layer", "component", "with", "r", "p by permutation", "n")


class EmotionView:
    """The cards that are drawn from tables."""

    def __init__(self, state: EmotionState) -> None:
        self.state = state

    @property
    def theme(self) -> str:
        """Of the figures."""
        return self.state.theme or "light"

    def matrix(self) -> Sequence[Any]:
        """Draw the likeness of all vectors at the layer on show; a click chooses an emotion."""
        entry = self.state.entry()
        if entry is None:
            return [cards.empty_card(self.state, "emotions")]
        table = self.state.similarity()
        figure = similarity_matrix(
            table, marked=self.state.emotion, theme=self.theme,
            title=f"Cosines at layer {self.state.layer}",
        )  # fmt: skip
        self._listen(figure)
        near = emotions.near_and_far(table, self.state.emotion)
        told = (
            "Ordered so that like ones stand together (average linkage); click a cell to choose "
            "the emotion of its row."
        )
        return [
            cards.note(self._headline(table)),
            cards.layer_slider(self.state, on_release=True),
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=0),
            cards.note(
                f"<p class='quiet under'>{told} {_neighbors(self.state.emotion, near)} "
                f"{cards.provenance(entry)}</p>"
            ),
            downloads.csv_button(self.state.similarity, "emotion_similarity.csv"),
        ]

    def _listen(self, figure: Any) -> None:
        source = figure.select_one({"name": "cells"}).data_source

        def chosen(_: str, __: Any, indices: list[int]) -> None:
            if indices:
                self.state.choose(emotion=str(source.data["first"][indices[0]]))

        source.selected.on_change("indices", chosen)

    def _headline(self, table: pd.DataFrame) -> str:
        entry = self.state.entry()
        assert entry is not None, "a matrix is drawn for a run only"
        names = table["first"].nunique()
        parts = [f"{names} emotions at layer {self.state.layer}"]
        valence = emotions.valence_of(entry)
        own = valence[
            (valence["layer"] == int(self.state.layer))
            & (valence["component"] == 1)
            & (valence["against"] == "valence")
        ]
        if len(own):
            row = own.iloc[0]
            parts.append(
                f"first component with valence r = {row['r']:+.2f} (p = {row['p']:.3g} by "
                f"permutation, n = {int(row['n'])})"
            )
        return f"<p class='big'>{cards.escape('; '.join(parts))}</p>"

    def curves(self) -> Sequence[Any]:
        """Draw AUC by layer of the emotion on show, its neighbors and the mean over all."""
        entry = self.state.entry()
        if entry is None:
            return []
        shown = self.shown_curves()
        if shown.empty:
            return []
        control = self._of_interest(emotions.curves_of(entry, emotions.CONTROL))
        figure = emotion_curves(
            shown, control=control if len(control) else None,
            window=emotions.window_of(entry), layer=int(self.state.layer), theme=self.theme,
            title="One emotion against the rest",
        )  # fmt: skip
        window = emotions.window_of(entry)
        blocks = f"Shaded: the window, blocks {window[0]} to {window[-1]}. " if window else ""
        dashed = (
            "Dashed: as many random directions removed in place of the neutral components. "
            if len(control)
            else ""
        )
        dotted = (
            "Dotted: what directions without the emotion reach. "
            if "null" in shown and shown["null"].notna().any()
            else ""
        )
        row = shown.iloc[0]
        n = cards.counted(row["n"], row["unit"])
        return [
            cards.note(
                "<h2>Layers</h2><p class='quiet'>AUC of one emotion against the rest on held-out "
                "stories: the emotion on show, the most and the least like it, and the mean over "
                "all.</p>"
            ),
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(8, 0)),
            cards.note(
                f"<p class='quiet under'>Band: {cards.escape(row['interval'])}, n = "
                f"{n}. {blocks}{dashed}{dotted}</p>"
            ),
            downloads.csv_button(self.shown_curves, "emotion_curves.csv"),
        ]

    def shown_curves(self) -> pd.DataFrame:
        """Return the curves on show."""
        entry = self.state.entry()
        assert entry is not None, "curves are asked for where a run was chosen"
        return self._of_interest(emotions.curves_of(entry))

    def _of_interest(self, table: pd.DataFrame) -> pd.DataFrame:
        near = emotions.near_and_far(self.state.similarity(), self.state.emotion)
        names = [self.state.emotion, *(near[key] for key in ("near", "far") if key in near)]
        wanted = list(dict.fromkeys([*names, emotions.ALL]))
        kept = table[table["emotion"].isin(wanted)]
        order = {name: number for number, name in enumerate(wanted)}
        return kept.sort_values(
            ["emotion", "layer"], key=lambda column: column.map(order) if column.name == "emotion"
            else column, kind="stable",
        ).reset_index(drop=True)  # fmt: skip

    def valence(self) -> Sequence[Any]:
        """List what the first two components go with at the layer on show."""
        entry = self.state.entry()
        if entry is None:
            return []
        table = emotions.valence_of(entry)
        table = table[table["layer"] == int(self.state.layer)]
        if table.empty:
            return []
        lines = [
            (row["layer"], row["component"], row["against"], f"{row['r']:+.2f}",
             f"{row['p']:.3g}", row["n"])
            for row in table.to_dict("records")
        ]  # fmt: skip
        return [
            cards.note(
                "<h2>Valence and arousal</h2><p class='quiet'>Correlation over emotions of each "
                "principal component with marks that were set beforehand.</p>"
                + cards.html_table(lines, VALENCE)
            )
        ]

    def profiles(self) -> Sequence[Any]:
        """Draw where each model lies along each emotion."""
        entry = self.state.entry()
        if entry is None:
            return []
        head = "<h2>Profiles of organisms</h2>"
        if not self.state.profiles:
            return [cards.note(head + cards.making(self.state, "profiles"))]
        table = self.state.placed()
        run = self.state.profile_entry()
        assert run is not None, "the field is empty where there is no run"
        order = emotions.apart(table)
        figure = emotion_profiles(
            table, order=order[:MOST_PROFILES], theme=self.theme,
            title=f"{self.state.options('window')[self.state.window]}, "
            f"{emotions.HALVES.get(self.state.half, self.state.half)}",
        )  # fmt: skip
        row = table.iloc[0]
        n = cards.counted(row["n"], row["unit"])
        told = (
            f"{cards.escape(row['interval'])}, n = {n}. "
            "Zero: the reference's mean; unit: the pooled standard deviation of the models "
            "compared. Rows are ordered by how far the models lie apart."
            f"{_left_out(len(order))}"
        )
        return [
            cards.note(head),
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(8, 0)),
            cards.note(f"<p class='quiet under'>Bars: {told} {cards.provenance(run)}</p>"),
            downloads.csv_button(self.state.placed, "emotion_profiles.csv"),
            *self._gaps(),
        ]

    def _gaps(self) -> list[Any]:
        """List the gaps beside what directions that mean nothing reach."""
        table = self.state.gaps()
        if table.empty:
            return []
        bands = [name for name in BANDS if name in table]
        named = " minus ".join(
            str(table[name].iloc[0])
            for name in ("high_condition", "low_condition")
            if name in table
        )
        lines = [_gap_line(row, bands) for row in table.head(MOST_PROFILES).to_dict("records")]
        heads = ("emotion", "layer", "gap", "interval", *(BANDS[name] for name in bands), "n")
        told = (
            f"{named or 'First minus second condition'}, in pooled standard deviations, largest "
            "first. Beside it what 95% of random directions stay under, read in the same organisms."
        )
        return [
            cards.note(
                f"<h2>Gaps beside controls</h2><p class='quiet'>{cards.escape(told)}</p>"
                + cards.html_table(lines, heads),
                margin=BELOW,
            ),
            downloads.csv_button(self.state.gaps, "emotion_gaps.csv"),
        ]


def _left_out(count: int) -> str:
    if count <= MOST_PROFILES:
        return ""
    return f" The first {MOST_PROFILES} of {count}; the file holds all."


def _gap_line(row: Mapping[Any, Any], bands: Sequence[str]) -> tuple[object, ...]:
    low, high = row["low"], row["high"]
    span = "withheld" if pd.isna(low) else f"{low:+.2f} to {high:+.2f}"
    reached = [
        f"±{row[name]:.2f} ({'beyond' if abs(row['zgap']) > row[name] else 'within'})"
        for name in bands
    ]
    count = cards.counted(row["n"], row["unit"])
    return row["emotion"], row["layer"], f"{row['zgap']:+.2f}", span, *reached, count


def _neighbors(emotion: str, near: Any) -> str:
    if not near:
        return ""
    return cards.escape(f"Most like {emotion}: {near['near']}; least: {near['far']}.")


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with cards.Guard(PATH) as guard:
        return _build(root)
    return shell.broken_page(PATH, HEADING, guard)


def _build(root: Path) -> Any:
    state = EmotionState(read_catalogue(root))
    refused = shell.take_address(state)
    view, text = EmotionView(state), OwnText(state)
    at = ("run", "layer", "emotion", "theme")
    sections = [
        cards.Section(f"{PATH} matrix", view.matrix, at),
        cards.Section(f"{PATH} curves", view.curves, at),
        cards.Section(f"{PATH} valence", view.valence, ("run", "layer")),
        cards.Section(
            f"{PATH} profiles", view.profiles, ("run", "profiles", "window", "half", "theme")
        ),
        cards.Section(f"{PATH} text", text.draw, (*at, "model")),
    ]

    def key(name: str) -> None:
        if name != "Escape":
            state.step(1 if name == "]" else -1)

    shell.bind(state, sections)
    labels = {
        "run": "Emotions run", "emotion": "Emotion", "profiles": "Profiles run",
        "window": "Blocks of the profiles", "half": "Items of the profiles", "model": "Model",
    }  # fmt: skip
    controls = [shell.select(state, name, label) for name, label in labels.items()]
    lead = "Which emotions does a model tell apart, where, and along which of them was it trained?"
    boxes = [section.box for section in sections]
    page = shell.frame(state, PATH, HEADING, lead, controls, boxes, key)
    shell.report(state, refused)
    return page
