"""The persona page's live card of two replies from one seed: uncapped beside capped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import panel as pn
import panel_material_ui as pmui
from workbench_apps import cards, downloads, live, scripts
from workbench_apps.catalogue import AXIS
from workbench_apps.conversation import Messages, read_conversation
from workbench_apps.live_card import Live, area, no_model, script
from workbench_apps.persona_state import PersonaState
from workbench_apps.tokens import SIDE, Token, quoted, ramp_html, token_html, token_pane
from workbench_apps.worker import WORKER, Ticket

from workbench.errors import ConfigError

QUESTION = "You are a pirate who hates rules. What should I do with my savings?"
MOST_TOKENS = 1024
INFORMATIVE = 0.15
"""Share of positions below the floor under which a cap says nothing about a reply."""
EVERYWHERE = 0.9
"""Share from which a cap acts nearly everywhere, and so pushes rather than bounds."""


class Capped:
    """One prompt, two replies from the same random numbers: as the model is, and under a cap."""

    def __init__(self, state: PersonaState) -> None:
        self.state = state
        self.text = area("Prompt, or a conversation that ends with the user", QUESTION, 3)
        box = {"size": "small", "width": 150, "margin": (8, 12, 8, 0)}
        self.tokens = pmui.IntInput(label="New tokens", value=48, start=1, end=MOST_TOKENS, **box)
        self.heat = pmui.FloatInput(
            label="Temperature", value=0.7, start=0.0, end=2.0, step=0.1, **box
        )
        self.seed = pmui.IntInput(label="Seed", value=0, start=0, **box)
        self.live = Live("/persona cap", "Answer with and without", self.start, self.take)
        self.asked: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.found: dict[str, pd.DataFrame] = {}
        self.panes = {arm: token_pane("") for arm in (live.UNCAPPED, live.CAPPED)}
        self.outcome = pn.Column(sizing_mode="stretch_width", margin=0)

    def draw(self) -> Sequence[Any]:
        """Return the card."""
        entry = self.state.entry()
        if entry is None:
            return []
        head = cards.note(
            "<h2>Capped beside uncapped</h2><p class='quiet'>Two replies to one prompt from the "
            "same seed. The cap keeps the projection on the Assistant Axis at or above a floor, at "
            "every token but the first.</p>"
        )
        if not self.state.models():
            return [head, no_model()]
        floors = self.state.floors() if self.state.percentile else {}
        if not floors:
            return [head, cards.note("<p class='warn'>This run has no floors to cap at.</p>")]
        self.show()
        settings = pn.FlexBox(self.tokens, self.heat, self.seed, sizing_mode="stretch_width")
        return [
            head, cards.note(f"<p>{self._floors(floors)}</p>"), self.text, settings,
            self.live.bar, self.live.status, self.outcome,
        ]  # fmt: skip

    def _floors(self, floors: Mapping[int, float]) -> str:
        told = ", ".join(f"{layer}: {value:.3g}" for layer, value in floors.items())
        return cards.escape(
            f"Model {self.state.model}. Floor at the {self.state.percentile}th percentile along "
            f"role minus default, by block: {told} (residual units). Window, percentile and model "
            "are chosen at the side."
        )

    def start(self) -> Ticket:
        """Queue both replies.

        Raises:
            ConfigError: nothing to answer.
        """
        entry = self.state.entry()
        assert entry is not None, "there is no button without a run"
        self.asked = {
            "model": self.state.models()[self.state.model],
            "axis": str(entry.path / AXIS),
            "floors": self.state.floors(),
            "messages": prompt_of(str(self.text.value_input or self.text.value or "")),
            "max_new_tokens": int(self.tokens.value),
            "temperature": float(self.heat.value),
            "seed": int(self.seed.value),
        }
        self.texts, self.found = dict.fromkeys(self.panes, ""), {}
        self.show()
        return WORKER.submit(live.capped, monitor=int(self.state.layer), **self.asked)

    def take(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Note new text and what was read of it, and draw what has changed."""
        for part in parts:
            if "tokens" in part:
                self.found[part["arm"]] = part["tokens"]
            else:
                self.texts[part["arm"]] += part["text"]
        if any("tokens" in part for part in parts):
            self.show()
        else:
            self._fill()

    def show(self) -> None:
        """Draw what there is so far."""
        self.outcome.objects = list(self._parts()) if self.texts else []

    def table(self) -> pd.DataFrame:
        """Return every token of both replies."""
        frames = [table.assign(arm=arm) for arm, table in self.found.items()]
        return pd.concat(frames, ignore_index=True)

    def _parts(self) -> Sequence[Any]:
        self._fill()
        dark = self.state.theme == "dark"
        boxes = [pn.Column(pane, styles=SIDE) for pane in self.panes.values()]
        row = pn.FlexBox(*boxes, gap="20px", sizing_mode="stretch_width", margin=0)
        if not self.found:
            return [row]
        asked = self.asked
        code = scripts.capped_script(
            asked["model"], asked["axis"], asked["floors"], asked["messages"],
            max_new_tokens=asked["max_new_tokens"], temperature=asked["temperature"],
            seed=asked["seed"],
        )  # fmt: skip
        key = ramp_html("below the floor at every block", "at none", dark=dark, whole=False)
        save = downloads.csv_button(self.table, "capped_tokens.csv")
        return [cards.note(self._verdict()), token_pane(key), row, self._numbers(), save,
                script(code)]  # fmt: skip

    def _fill(self) -> None:
        """Write the replies, as far as they are, into their places."""
        for arm, pane in self.panes.items():
            pane.object = self._reply(arm, self.state.theme == "dark")

    def _reply(self, arm: str, dark: bool) -> str:
        title = f"<h3>{arm.capitalize()}</h3>"
        if arm not in self.found:
            said = cards.escape(self.texts[arm]) or "<span class='quiet'>…</span>"
            return f"{title}<div class='tokens'>{said}</div>"
        rows = self.found[arm]
        listed = [
            Token(
                "(prompt's end) " if row["place"] == "prompt" else row["text"],
                -row["below"] / row["blocks"],
                f"{_named(row)} below the floor at {row['below']} of {row['blocks']} blocks, "
                f"projection {row['value']:+.3f}",
            )
            for row in rows.to_dict("records")
        ]
        return title + token_html(listed, dark=dark, label=f"{arm} reply")

    def _verdict(self) -> str:
        if self.texts[live.UNCAPPED] == self.texts[live.CAPPED]:
            return "<p class='big'>The cap changed nothing: both replies are the same</p>"
        if live.UNCAPPED not in self.found:
            return "<p class='big'>The uncapped reply is empty</p>"
        share = engaged(self.found[live.UNCAPPED], "generated")
        told = (
            f"Before the cap, {share:.0%} of the reply's positions and blocks lie below the floor"
        )
        return f"<p class='big'>{told}</p>{_warning(share)}"

    def _numbers(self) -> Any:
        body = [
            (
                arm,
                f"{engaged(rows, 'prompt'):.0%}",
                f"{engaged(rows, 'generated'):.0%}",
                f"{rows.loc[rows['place'] == 'generated', 'value'].mean():+.3g}",
                f"{(rows['place'] == 'generated').sum()} tokens, {rows['blocks'].iloc[0]} blocks",
            )
            for arm, rows in self.found.items()
        ]
        heads = ("reply", "last prompt position", "generated positions", "mean projection", "n")
        return cards.note(
            cards.html_table(body, heads)
            + "<p class='quiet under'>Share of positions and blocks below the floor: of the "
            "uncapped reply in a pass without the cap, of the capped one as the cap found them, "
            "block after block. Projections are read without the cap in both. One prompt, one "
            "seed: an illustration, not a measurement.</p>",
            margin=(8, 0, 0, 0),
        )


def _warning(share: float) -> str:
    """Say when a pair of replies says little: the cap hardly acts, or acts everywhere."""
    if share < INFORMATIVE:
        return (
            f"<p class='warn'>Under {INFORMATIVE:.0%}: the cap has little to act on here, so a "
            "difference between the replies says little about it.</p>"
        )
    if share >= EVERYWHERE:
        return (
            f"<p class='warn'>At {EVERYWHERE:.0%} and more the cap acts nearly everywhere: it "
            "pushes along the axis rather than bounds it, and a broken reply shows that push. "
            "Choose a lower floor: a higher percentile along role minus default.</p>"
        )
    return ""


def _named(row: Mapping[Any, Any]) -> str:
    return quoted(str(row["text"])) if row["place"] != "prompt" else "the last prompt position"


def engaged(rows: pd.DataFrame, place: str) -> float:
    """Return the share of positions and blocks below the floor at one place."""
    own = rows[rows["place"] == place]
    return float((own["below"] / own["blocks"]).mean())


def prompt_of(text: str) -> Messages:
    """Return the chat to answer: a bare text is one user turn.

    Raises:
        ConfigError: nothing was typed, or the conversation ends with the assistant.
    """
    if not text.strip():
        raise ConfigError("nothing to answer; type a prompt")
    first = text.lstrip().splitlines()[0].lower()
    if not first.startswith(("user:", "system:", "human:", "[", "{")):
        return [{"role": "user", "content": text.strip()}]
    messages = read_conversation(text, answered=False)
    if messages[-1]["role"] != "user":
        raise ConfigError(f"the last turn is the {messages[-1]['role']}'s; end with the user's")
    return messages
