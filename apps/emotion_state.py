"""The settings of the emotions page: what they may be, given the runs."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import param
from workbench_apps import emotions, personas
from workbench_apps.catalogue import Entry
from workbench_apps.state import Options, PageState


class EmotionState(PageState):
    """Emotion vectors at a layer, an emotion among them, and organisms along them."""

    run = param.String("")
    layer = param.String("")
    emotion = param.String("")
    profiles = param.String("")
    window = param.String("")
    half = param.String("")
    model = param.String("")
    kind = "emotions"
    fields = ("run", "layer", "emotion", "profiles", "window", "half", "model")

    def entry(self) -> Entry | None:
        """Return the emotions run on show."""
        return self.catalogue.entry(self.run)

    def similarity(self) -> pd.DataFrame:
        """Return the cosines at the layer on show."""
        entry = self.entry()
        assert entry is not None, "likeness is asked for where a run was chosen"
        table = emotions.similarity_of(entry)
        return table[table["layer"] == int(self.layer)].reset_index(drop=True)

    def profile_entry(self) -> Entry | None:
        """Return the run of the profiles on show."""
        return self.catalogue.entry(self.profiles)

    def placed(self, upto: str | None = None) -> pd.DataFrame:
        """Return the profiles' rows that the window and half on show (before ``upto``) leave."""
        entry = self.profile_entry()
        if entry is None:
            return pd.DataFrame(columns=["window", "half"])
        table = emotions.profiles_of(entry)
        for name in ("window", "half"):
            if name == upto:
                break
            table = table[table[name].astype(str) == getattr(self, name)]
        return table.reset_index(drop=True)

    def gaps(self) -> pd.DataFrame:
        """Return the gaps at the window and half on show, largest first."""
        entry = self.profile_entry()
        if entry is None:
            return pd.DataFrame()
        table = emotions.gaps_of(entry)
        own = table[
            (table["window"].astype(str) == self.window) & (table["half"].astype(str) == self.half)
        ]
        order = own["zgap"].abs().sort_values(ascending=False, kind="stable").index
        found: pd.DataFrame = own.loc[order].reset_index(drop=True)
        return found

    def models(self) -> Mapping[str, personas.Source]:
        """Return what loads each model, by the name that is shown."""
        entry = self.entry()
        return personas.models_of(self.catalogue, entry) if entry else {}

    def known(self, name: str) -> Options:
        if name == "run":
            return self.entries("emotions")
        entry = self.entry()
        if entry is None:
            return {}
        if name == "layer":
            return {str(layer): str(layer) for layer in emotions.layers_of(entry)}
        if name == "emotion":
            return {one: one for one in sorted(emotions.emotions_of(entry))}
        if name == "profiles":
            runs = emotions.profile_runs(self.catalogue, entry)
            return {key: run.label for key, run in runs.items()}
        if name == "window":
            found = self.placed("window")["window"].astype(str).unique()
            return {one: _window_words(one) for one in found}
        if name == "half":
            found = self.placed("half")["half"].astype(str).unique()
            return {one: emotions.HALVES.get(one, one) for one in found}
        return {one: one for one in self.models()}

    def default(self, name: str) -> str:
        """Begin at the chosen window, and with the held-out half."""
        known = self.options(name)
        entry = self.entry()
        if name == "layer" and entry is not None and known:
            window = [str(layer) for layer in emotions.window_of(entry) if str(layer) in known]
            return window[len(window) // 2] if window else list(known)[len(known) // 2]
        if name == "half" and "second" in known:
            return "second"
        return super().default(name)

    def step(self, by: int) -> None:
        """Move ``by`` layers and stop at the ends."""
        layers = list(self.options("layer"))
        if layers:
            place = layers.index(self.layer) + by
            self.choose(layer=layers[min(max(place, 0), len(layers) - 1)])


def _window_words(window: str) -> str:
    return "each emotion's own peak" if window == emotions.PEAK else f"blocks {window}"
