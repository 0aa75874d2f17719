"""The persona page's live card of a pasted conversation: drift by turn and by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from workbench_apps import cards, downloads, live, personas, scripts
from workbench_apps.catalogue import AXIS
from workbench_apps.conversation import HOW, Messages, read_conversation
from workbench_apps.live_card import Live, area, no_model, script
from workbench_apps.persona_state import PersonaState
from workbench_apps.tokens import SIDE, Token, quoted, ramp_html, shades, token_html, token_pane
from workbench_apps.worker import WORKER, Ticket

from workbench.figures.persona import drift_lines

EXAMPLE = """\
User: Can you help me plan a small vegetable garden?
Assistant: Yes. Begin with a sunny bed, and choose beans, lettuce and tomatoes.
User: Now answer as an old pirate who has buried gold in that garden.
Assistant: Arr, matey! Keep yer spade away from me beans, for under them lies me treasure!
User: Thank you. As yourself again: how often should I water the beans?
Assistant: About twice a week, early in the morning, and more often in hot weather.
"""
REACH = 0.95
"""Quantile of the distance from the middle that gets the full color."""
SAID = 60


class Drift:
    """Paste a conversation, see each assistant turn and each token on the axis."""

    def __init__(self, state: PersonaState) -> None:
        self.state = state
        self.text = area("Conversation", EXAMPLE, 8)
        self.live = Live("/persona drift", "Read the conversation", self.start, self.take)
        self.found: dict[str, pd.DataFrame] = {}
        self.messages: Messages = []
        self.read: dict[str, personas.Source] = {}
        self.outcome = pn.Column(sizing_mode="stretch_width", margin=0)

    def draw(self) -> Sequence[Any]:
        """Return the card."""
        if self.state.entry() is None:
            return []
        head = cards.note(
            "<h2>Drift of a conversation</h2><p class='quiet'>Each turn and each token on the "
            "Assistant Axis at the layer on show; the models are chosen at the side. "
            f"{cards.escape(HOW)} What is pasted stays in this window and is not in the "
            "address.</p>"
        )
        if not self.state.models():
            return [head, no_model()]
        self.show()
        return [head, self.text, self.live.bar, self.live.status, self.outcome]

    def start(self) -> Ticket:
        """Queue the reading.

        Raises:
            ConfigError: the text is no conversation.
        """
        self.messages = read_conversation(str(self.text.value_input or self.text.value or ""))
        entry, models = self.state.entry(), self.state.models()
        assert entry is not None, "there is no button without a run"
        names = [self.state.model, *([self.state.other] if self.state.other else [])]
        self.read = {name: models[name] for name in names}
        self.found = {}
        return WORKER.submit(
            live.drift, models=self.read, axis=str(entry.path / AXIS),
            messages=self.messages,
        )  # fmt: skip

    def take(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Note the tokens of each model and draw them."""
        self.found |= {str(part["model"]): part["tokens"] for part in parts}
        self.show()

    def show(self) -> None:
        """Draw what was read, at the layer on show."""
        self.outcome.objects = list(self._parts()) if self.found else []

    def tokens(self) -> pd.DataFrame:
        """Return every token of every model at the layer on show."""
        layer = int(self.state.layer)
        frames = [
            table[table["layer"] == layer].assign(model=name) for name, table in self.found.items()
        ]
        return pd.concat(frames, ignore_index=True)

    def _parts(self) -> Sequence[Any]:
        entry = self.state.entry()
        assert entry is not None, "what was read belongs to a run"
        tokens = self.tokens()
        turns = assistant_turns(tokens)
        band, told = personas.reference_at(entry, int(self.state.layer))
        figure = drift_lines(
            turns, band=band or None, band_name=told, theme=self.state.theme or "light",
            title=f"Assistant turns at layer {self.state.layer}",
        )  # fmt: skip
        middle = band.get("mean", float(turns["mean"].mean()))
        reach = float(np.quantile((tokens["value"] - middle).abs(), REACH))
        dark = self.state.theme == "dark"
        key = ramp_html(
            f"{middle - reach:.3g} and less",
            f"{middle + reach:.3g} and more: the Assistant",
            f"middle {middle:.3g}, the default's mean",
            dark=dark,
        )
        boxes = [
            pn.Column(token_pane(self._told(rows, str(name), middle, reach, dark)), styles=SIDE)
            for name, rows in tokens.groupby("model", sort=False)
        ]
        save = downloads.csv_button(self.tokens, "drift_tokens.csv")
        code = scripts.drift_script(
            list(self.read.values()), entry.path / AXIS, int(self.state.layer),
            self.messages,
        )  # fmt: skip
        return [
            cards.note(_headline(turns, band)),
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(8, 0)),
            token_pane(key),
            pn.FlexBox(*boxes, gap="20px", sizing_mode="stretch_width", margin=0),
            save,
            script(code),
        ]

    def _told(self, rows: pd.DataFrame, name: str, middle: float, reach: float, dark: bool) -> str:
        parts = [f"<h3>{cards.escape(name)}</h3>"] if len(self.found) > 1 else []
        for (_, role), turn in rows.groupby(["turn", "role"], sort=False):
            title = f"{str(role).capitalize()}, mean {turn['value'].mean():.3g}"
            listed = [
                Token(row["text"], shade, f"{quoted(row['text'])} {row['value']:+.3f} · {name}")
                for row, shade in zip(
                    turn.to_dict("records"), shades(turn["value"], middle, reach), strict=True
                )
            ]
            parts.append(f"<p class='quiet'>{cards.escape(title)}</p>")
            parts.append(token_html(listed, dark=dark, label=f"{title}, {name}"))
        return "".join(parts)


def assistant_turns(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each assistant turn, counted from 1 among the assistant's.

    Returns:
        Rows model, turn, mean, n (tokens), said (how it begins).
    """
    own = tokens[(tokens["role"] == "assistant") & (tokens["position"] > 0)]
    found = own.groupby(["model", "turn"], sort=False).agg(
        mean=("value", "mean"), n=("value", "size"), said=("text", "".join)
    )
    found = found.reset_index()
    order = {turn: number for number, turn in enumerate(sorted(found["turn"].unique()), 1)}
    return found.assign(turn=found["turn"].map(order), said=found["said"].str.slice(0, SAID))


def _headline(turns: pd.DataFrame, band: Mapping[str, float]) -> str:
    said = []
    for name, rows in turns.groupby("model", sort=False):
        ordered = rows.sort_values("turn")["mean"]
        told = f"{name}, turn by turn: {', '.join(f'{value:.3g}' for value in ordered)}"
        if "low" in band:
            out = int(((ordered < band["low"]) | (ordered > band["high"])).sum())
            told += f" ({out} of {len(ordered)} turns outside the band)"
        said.append(f"<p class='big'>{cards.escape(told)}</p>")
    return "".join(said)
