"""What the persona page shows: a run, a layer, a direction, a floor and its window, models."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd
import param
from workbench_apps import personas
from workbench_apps.capped import readouts_of, table_of
from workbench_apps.catalogue import BEHAVIOR, Entry
from workbench_apps.state import Options, PageState

BANKS = {"role": "roles", "trait": "traits"}
PAPER = "25"
"""The percentile along role minus default of the released caps."""


class PersonaState(PageState):
    """The persona map and what lies around it."""

    run = param.String("")
    layer = param.String("")
    direction = param.String("")
    bank = param.String("")
    percentile = param.String("")
    window = param.String("")
    model = param.String("")
    other = param.String("")
    readout = param.String("")
    kind = "personas"
    fields = (
        *("run", "layer", "direction", "bank", "percentile", "window", "model", "other"),
        "readout",
    )

    def entry(self) -> Entry | None:
        """Return the axis run on show."""
        return self.catalogue.entry(self.run)

    def placed(self) -> pd.DataFrame:
        """Return roles, default and organisms at the layer on show."""
        entry = self.entry()
        if entry is None:
            return pd.DataFrame(columns=personas.PLACED)
        table = personas.coordinates_of(entry)
        return table[table["layer"] == int(self.layer)].reset_index(drop=True)

    def cosines(self) -> pd.DataFrame:
        """Return every cosine with the roles and traits of the run on show."""
        entry = self.entry()
        assert entry is not None, "cosines are asked for where a run was chosen"
        return personas.cosines_of(self.catalogue, entry)

    def capped(self) -> Entry | None:
        """Return the newest capping run along the axis on show."""
        runs = self.catalogue.usable("capping")
        return next((run for run in runs if self.run in personas.inputs_of(run)), None)

    def models(self) -> Mapping[str, personas.Source]:
        """Return what loads each model, by the name that is shown."""
        entry = self.entry()
        return personas.models_of(self.catalogue, entry) if entry else {}

    def floors(self) -> dict[int, float]:
        """Return the floor at each block of the window."""
        entry = self.entry()
        assert entry is not None, "floors are asked for where a run was chosen"
        first, last = ends(self.window)
        table = personas.floors_of(entry)
        table = table[table["percentile"].map("{:g}".format) == self.percentile]
        table = table[table["layer"].between(first, last)]
        return dict(zip(table["layer"].astype(int), table["floor"].astype(float), strict=True))

    def known(self, name: str) -> Options:
        if name == "run":
            return self.entries("personas")
        entry = self.entry()
        if entry is None:
            return {}
        if name == "layer":
            return {str(layer): str(layer) for layer in personas.layers_of(entry)}
        if name in ("direction", "bank"):
            return self._compared(name)
        if name == "percentile":
            found = sorted(personas.floors_of(entry)["percentile"].unique())
            return {f"{value:g}": f"{value:g}% along role minus default" for value in found}
        if name == "window":
            return {one: one for one in [self._window(entry)] if one}
        if name == "readout":
            return self._readouts()
        models = self.models()
        if name == "model":
            return {one: one for one in models}
        return {"": "none", **{one: one for one in models if one != self.model}}

    def default(self, name: str) -> str:
        known = self.options(name)
        if name == "layer" and known:
            return self._told_layer(known)
        if name == "percentile" and PAPER in known:
            return PAPER
        return super().default(name)

    def check(self, name: str, value: str) -> str | None:
        if name != "window" or not self.options(name):
            return super().check(name, value)
        if not re.fullmatch(r"\d{1,4}-\d{1,4}", value):
            return f"window={value[:24]} is none; give the first and the last block, such as 22-25"
        first, last = ends(value)
        held = self.options("layer")
        if first > last or str(first) not in held or str(last) not in held:
            return f"window={value} is not there; blocks {', '.join(held)[:60]} are known"
        return None

    def step(self, by: int) -> None:
        """Move ``by`` layers and stop at the ends."""
        layers = list(self.options("layer"))
        if layers:
            place = layers.index(self.layer) + by
            self.choose(layer=layers[min(max(place, 0), len(layers) - 1)])

    def _told_layer(self, known: Options) -> str:
        """Return the layer that the run tells of, else the middle one."""
        entry = self.entry()
        told = "" if entry is None else str(personas.axis_of(entry).info.get("layer", ""))
        return told if told in known else list(known)[len(known) // 2]

    def _compared(self, name: str) -> Options:
        table = self.cosines()
        if name == "direction":
            return {str(one): str(one) for one in table["first"].unique()}
        held = table[table["first"] == self.direction]["bank"].unique()
        return {str(bank): BANKS.get(str(bank), str(bank)) for bank in held}

    def _readouts(self) -> Options:
        entry = self.capped()
        if entry is None or entry.file(BEHAVIOR) is None:
            return {}
        found = readouts_of(table_of(entry, BEHAVIOR)).unique()
        return {str(one): str(one) for one in found}

    def _window(self, entry: Entry) -> str:
        layers = sorted(int(layer) for layer in personas.floors_of(entry)["layer"].unique())
        if not layers:
            return ""
        return "{}-{}".format(*personas.window_of(layers, personas.axis_of(entry).model.n_layers))


def ends(window: str) -> tuple[int, int]:
    """Return the first and last block of a window such as ``22-25``."""
    first, last = window.split("-")
    return int(first), int(last)
