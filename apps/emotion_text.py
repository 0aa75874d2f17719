"""The emotions page's live card: own text token by token, and two texts side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from workbench_apps import cards, downloads, emotions
from workbench_apps.emotion_reading import SINK, read_texts
from workbench_apps.emotion_state import EmotionState
from workbench_apps.live_card import Live, area, no_model, script
from workbench_apps.tokens import SIDE, Token, quoted, ramp_html, shades, token_html, token_pane
from workbench_apps.worker import WORKER, Ticket

from workbench.errors import ConfigError
from workbench.figures.emotion import emotion_profiles

NAMES = ("first text", "second text")
EXAMPLES = (
    "She read the letter twice, then ran down the stairs two at a time and hugged the postman. "
    "All the way to the shop she hummed, and everyone she met got a wave.",
    "He stood at the door and did not knock. His hands shook, his mouth was dry, and every sound "
    "from inside made him step back toward the dark street.",
)
MOST_CHARACTERS = 6_000
MOST_ROWS = 12
"""Emotions that are drawn: those by which the texts differ most, or that stand out in one."""
REACH = 0.95
"""Quantile of the distance from the middle that gets the full color."""
_SCRIPT = """\
import workbench as wb
from workbench.api import load_for_readouts

emotions = wb.open_directions({vectors!r})
ref, base = {model}
subject = load_for_readouts(ref) if base is None else load_for_readouts(ref, base=base)
texts = {texts}
acts = wb.capture(
    subject, wb.PromptSet.from_records([{{"text": text}} for text in texts], text="text"),
    layers=[{layer}], site=emotions.site, position="mean:content",
)
for text, values in zip(texts, emotions.select([{layer}]).project(acts)[:, 0].T, strict=True):
    print(text[:60])
    for value, name in sorted(zip(values, emotions.names, strict=True), reverse=True)[:5]:
        print(f"  {{name}} {{value:+.3f}} residual units")
"""


class OwnText:
    """Type one text or two, see each token along an emotion, and the texts' means along all."""

    def __init__(self, state: EmotionState) -> None:
        self.state = state
        self.areas = [
            area(name.capitalize(), text, 5) for name, text in zip(NAMES, EXAMPLES, strict=True)
        ]
        self.live = Live("/emotions text", "Read the texts", self.start, self.take)
        self.found: dict[int, Mapping[str, Any]] = {}
        self.texts: list[str] = []
        self.outcome = pn.Column(sizing_mode="stretch_width", margin=0)

    def draw(self) -> Sequence[Any]:
        """Return the card."""
        if self.state.entry() is None:
            return []
        head = cards.note(
            "<h2>Your own text</h2><p class='quiet'>Read bare, as the stories were; colored along "
            "the emotion on show, at the layer on show. Leave the second empty to read one. What "
            "is typed stays in this window and is not in the address.</p>"
        )
        if not self.state.models():
            return [head, no_model()]
        self.show()
        boxes = [pn.Column(one, styles=SIDE) for one in self.areas]
        both = pn.FlexBox(*boxes, gap="20px", sizing_mode="stretch_width", margin=0)
        return [head, both, self.live.bar, self.live.status, self.outcome]

    def start(self) -> Ticket:
        """Queue the reading.

        Raises:
            ConfigError: nothing was typed, or too much.
        """
        typed = [str(one.value_input or one.value or "").strip() for one in self.areas]
        self.texts = [text for text in typed if text]
        if not self.texts:
            raise ConfigError("both texts are empty; type one, a few sentences or more")
        longest = max(map(len, self.texts))
        if longest > MOST_CHARACTERS:
            raise ConfigError(
                f"a text has {longest:,} characters; at most {MOST_CHARACTERS:,} are read at once"
            )
        entry = self.state.entry()
        assert entry is not None, "there is no button without a run"
        self.found = {}
        return WORKER.submit(
            read_texts, model=self.state.models()[self.state.model],
            vectors=emotions.vectors_path(entry), texts=self.texts,
        )  # fmt: skip

    def take(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Note what was read and draw it."""
        self.found |= {int(part["text"]): part for part in parts}
        self.show()

    def show(self) -> None:
        """Draw what was read, along the emotion and at the layer on show."""
        whole = self.found and len(self.found) == len(self.texts)
        self.outcome.objects = list(self._parts()) if whole else []

    def tokens(self) -> pd.DataFrame:
        """Return every token along every emotion at the layer on show, in the page's unit.

        ``token`` is its place in the row that the model reads.
        """
        entry = self.state.entry()
        assert entry is not None, "what was read belongs to a run"
        names = emotions.vector_names(entry)
        row = emotions.vector_layers(entry).index(int(self.state.layer))
        frames = []
        for number in sorted(self.found):
            values = np.asarray(self.found[number]["values"])[:, :, row]
            count, first = len(values), int(self.found[number]["first"])
            frames.append(
                pd.DataFrame(
                    {
                        "text": NAMES[number],
                        "token": np.repeat(np.arange(first, first + count), len(names)),
                        "piece": np.repeat(
                            np.array(self.found[number]["pieces"], object), len(names)
                        ),
                        "emotion": np.tile(np.array(names, object), count),
                        "layer": int(self.state.layer),
                        "value": values.reshape(-1),
                    }
                )
            )
        return self._scaled(pd.concat(frames, ignore_index=True))

    def _scaled(self, tokens: pd.DataFrame) -> pd.DataFrame:
        """Measure from the reference in its unit, or from the mean of all that was read."""
        zero, scale = self._reference()
        if not zero:
            kept = tokens[tokens["token"] >= SINK]
            means = kept.groupby("emotion")["value"].mean()
            return tokens.assign(value=tokens["value"] - tokens["emotion"].map(means))
        middle, spread = tokens["emotion"].map(zero), tokens["emotion"].map(scale)
        return tokens.assign(value=(tokens["value"] - middle) / spread)

    def _reference(self) -> tuple[dict[str, float], dict[str, float]]:
        entry = self.state.entry()
        assert entry is not None, "what was read belongs to a run"
        table = emotions.reference_of(entry)
        table = table[(table["layer"] == int(self.state.layer)) & (table["sd"] > 0)]
        names = emotions.vector_names(entry)
        if not set(names) <= set(table["emotion"]):
            return {}, {}
        found = [
            dict(zip(table["emotion"].astype(str), table[column].astype(float), strict=True))
            for column in ("mean", "sd")
        ]
        return found[0], found[1]

    def _unit(self) -> str:
        entry = self.state.entry()
        assert entry is not None, "what was read belongs to a run"
        if not self._reference()[0]:
            return "residual units from the mean of what was read (this run has no reference)"
        row = emotions.reference_of(entry).iloc[0]
        return f"standard deviations from the mean of {cards.counted(row['n'], row['unit'])}"

    def _parts(self) -> Sequence[Any]:
        tokens = self.tokens()
        means = text_means(tokens)
        own = tokens[tokens["emotion"] == self.state.emotion]
        reach = float(np.quantile(own["value"].abs(), REACH))
        dark = self.state.theme == "dark"
        key = ramp_html(
            f"{-reach:.2g} and less",
            f"{reach:.2g} and more: {self.state.emotion}",
            self._unit(),
            dark=dark,
        )
        boxes = [
            pn.Column(token_pane(self._told(rows, str(name), reach, dark)), styles=SIDE)
            for name, rows in own.groupby("text", sort=False)
        ]
        parts = [
            cards.note(_headline(means, self.state.emotion)),
            token_pane(key),
            pn.FlexBox(*boxes, gap="20px", sizing_mode="stretch_width", margin=0),
        ]
        if len(self.found) > 1 or self._reference()[0]:
            parts.append(
                pn.pane.Bokeh(self._profiles(means), sizing_mode="stretch_width", margin=(8, 0))
            )
        entry = self.state.entry()
        assert entry is not None, "what was read belongs to a run"
        code = script_of(
            self.state.models()[self.state.model], emotions.vectors_path(entry),
            int(self.state.layer), self.texts,
        )  # fmt: skip
        return [*parts, downloads.csv_button(self.tokens, "emotion_tokens.csv"), script(code)]

    def _profiles(self, means: pd.DataFrame) -> Any:
        table = means.rename(columns={"text": "model"}).assign(low=np.nan, high=np.nan)
        return emotion_profiles(
            table, order=stand_out(means), theme=self.state.theme or "light",
            title=f"Means at layer {self.state.layer}, most telling emotions",
            axis=self._unit().partition(" (")[0],
        )  # fmt: skip

    def _told(self, rows: pd.DataFrame, name: str, reach: float, dark: bool) -> str:
        mean = float(rows.loc[rows["token"] >= SINK, "value"].mean())
        title = f"{name.capitalize()}, mean {mean:+.2f}"
        listed = [
            Token(row["piece"], shade, f"{quoted(row['piece'])} {row['value']:+.2f}")
            for row, shade in zip(
                rows.to_dict("records"), shades(rows["value"], 0.0, reach), strict=True
            )
        ]
        label = f"{title}, along {self.state.emotion}"
        return f"<p class='quiet'>{cards.escape(title)}</p>" + token_html(
            listed, dark=dark, label=label
        )


def script_of(model: tuple[str, str | None], vectors: str, layer: int, texts: Sequence[str]) -> str:
    """Return a script that reads the same texts and prints their largest coordinates."""
    told = pformat(list(texts), width=100)
    return _SCRIPT.format(vectors=vectors, model=repr(model), layer=layer, texts=told)


def text_means(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return each text's mean along each emotion; the row's first token, a sink, is left out.

    Returns:
        Rows text, emotion, value, n (tokens), unit, interval.
    """
    kept = tokens[tokens["token"] >= SINK]
    found = kept.groupby(["text", "emotion"], sort=False)["value"].agg(value="mean", n="size")
    return found.reset_index().assign(unit="token", interval="none: one text")


def stand_out(means: pd.DataFrame, most: int = MOST_ROWS) -> list[str]:
    """Return the emotions by which two texts differ most, or the largest of one text."""
    wide = means.pivot(index="emotion", columns="text", values="value")
    if wide.shape[1] == 1:
        kept = wide.iloc[:, 0].nlargest(most)
        return [str(name) for name in kept.index]
    first, second = (wide[name] for name in NAMES)
    apart = (first - second).abs().nlargest(most).index
    return [str(name) for name in (first - second)[apart].sort_values(ascending=False).index]


def _headline(means: pd.DataFrame, emotion: str) -> str:
    said = []
    for name, rows in means.groupby("text", sort=False):
        ordered = rows.sort_values("value", ascending=False, kind="stable")
        top = ", ".join(f"{row.emotion} {row.value:+.2f}" for row in ordered.head(3).itertuples())
        place = list(ordered["emotion"]).index(emotion) + 1
        said.append(
            f"<p class='big'>{cards.escape(str(name).capitalize())}: {cards.escape(top)}; "
            f"{cards.escape(emotion)} is {place} of {len(ordered)}</p>"
        )
    return "".join(said)
