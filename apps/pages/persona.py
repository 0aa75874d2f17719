"""Personas: roles around the Assistant Axis, an organism among them, drift, capped replies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
import panel_material_ui as pmui
from workbench_apps import cards, downloads, personas, shell
from workbench_apps.catalogue import Entry, read_catalogue
from workbench_apps.persona_capped import Capped
from workbench_apps.persona_drift import Drift
from workbench_apps.persona_fleet import Fleet
from workbench_apps.persona_state import PersonaState

from workbench.figures.cosine import cosine_ranking
from workbench.figures.persona import axis_by_layer, axis_histogram, persona_map

PATH, HEADING = "/persona", "Personas"
PANEL = {"width": "min(100%, 420px)", "flex": "1 1 420px"}


class PersonaView:
    """The map, drawn anew for each layer beside its slider, and the cards drawn from tables."""

    def __init__(self, state: PersonaState) -> None:
        self.state = state
        self.pane = pn.pane.Bokeh(sizing_mode="stretch_width", margin=0)
        self.head = cards.note("")

    @property
    def theme(self) -> str:
        """Of the figures."""
        return self.state.theme or "light"

    def draw(self) -> Sequence[Any]:
        """Build the map anew: another run or theme."""
        entry = self.state.entry()
        if entry is None:
            return [cards.empty_card(self.state, "personas")]
        self.move()
        told = (
            f"Principal components of the role vectors about their mean. {personas.judged(entry)}. "
            "Every component points to the side of the default Assistant, and is refitted at each "
            "layer, so units do not compare between layers."
        )
        return [
            self.head,
            cards.layer_slider(self.state),
            self.pane,
            cards.note(
                f"<p class='quiet under'>{cards.escape(told)} {cards.provenance(entry)}</p>"
            ),
            downloads.csv_button(self.state.placed, "personas.csv"),
        ]

    def move(self) -> None:
        """Draw the layer on show; the slider, which may be held, stays as it is."""
        if self.state.entry() is not None:
            title = f"Layer {self.state.layer}"
            self.pane.object = persona_map(self.state.placed(), theme=self.theme, title=title)
            self._tell()

    def along(self) -> Sequence[Any]:
        """Draw roles along the axis, and the axis by layer."""
        entry = self.state.entry()
        if entry is None:
            return []
        layer = int(self.state.layer)
        floor, floor_told = personas.floor_at(entry, self.state.percentile, layer)
        histogram = axis_histogram(
            self.state.placed(),
            floor=floor,
            floor_name=f"floor, percentile {self.state.percentile}",
            theme=self.theme,
            title=f"Roles along the axis, layer {layer}",
        )
        strip = axis_by_layer(personas.pc1_of(entry), layer=layer, theme=self.theme)
        panels = [
            pn.Column(pn.pane.Bokeh(one, sizing_mode="stretch_width", margin=0), styles=PANEL)
            for one in (histogram, strip)
        ]
        told = (
            "Left: means over each role's replies. The floor is what a cap keeps the projection "
            "above; the percentile counts along role minus default, so 25 there is 75 along the "
            f"axis. {floor_told} Right: the axis is default minus the mean role, the component is "
            "of roles alone. The control puts each role in the Assistant's place: 95% of them lie "
            f"below the dashed line. {_basis(entry)}"
        )
        return [
            cards.note("<h2>The axis</h2>"),
            pn.FlexBox(*panels, gap="12px", sizing_mode="stretch_width", margin=0),
            cards.note(f"<p class='quiet under'>{cards.escape(told)}</p>"),
        ]

    def cosines(self) -> Sequence[Any]:
        """Draw the cosines of a direction with roles or traits beside their bands."""
        if self.state.entry() is None:
            return []
        head = "<h2>A direction among roles and traits</h2>"
        if not self.state.direction:
            return [cards.note(head + cards.making(self.state, "cosines"))]
        rows = self.shown()
        if rows.empty:
            return [
                cards.note(
                    f"{head}<p class='warn'>{cards.escape(self.state.direction)} was not compared "
                    f"at layer {cards.escape(self.state.layer)}; move the slider to one of "
                    f"{cards.escape(self._compared_at())}.</p>"
                )
            ]
        words = self.state.options("bank")[self.state.bank]
        figure = cosine_ranking(
            rows, theme=self.theme,
            title=f"{self.state.direction} with {words} at layer {self.state.layer}",
        )  # fmt: skip
        told = (
            "A cosine counts where it passes every band: what the largest |cosine| with this bank "
            "is for directions that mean nothing. Roles are taken from their common mean, traits "
            "as they are."
        )
        return [
            cards.note(f"{head}<p class='quiet'>{told}</p>"),
            pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(8, 0)),
            downloads.csv_button(self.shown, "cosines.csv"),
        ]

    def shown(self) -> pd.DataFrame:
        """Return the cosines of the direction on show with the bank on show, at the layer."""
        table = self._bank()
        return table[table["layer"] == int(self.state.layer)].reset_index(drop=True)

    def _bank(self) -> pd.DataFrame:
        table = self.state.cosines()
        chosen = (table["first"] == self.state.direction) & (table["bank"] == self.state.bank)
        found: pd.DataFrame = table.loc[chosen]
        return found

    def _compared_at(self) -> str:
        layers = sorted(int(layer) for layer in self._bank()["layer"].unique())
        return ", ".join(map(str, layers))

    def _tell(self) -> None:
        """Say how far the axis is the first component here, and where the default lies."""
        entry = self.state.entry()
        assert entry is not None, "a map is drawn for a run only"
        table = personas.pc1_of(entry)
        row = table[table["layer"] == int(self.state.layer)]
        placed = self.state.placed()
        roles = placed[placed["kind"] == personas.ROLE]["axis"]
        default = placed[placed["kind"] == personas.DEFAULT]["axis"].mean()
        parts = []
        if len(row):
            at = row.iloc[0]
            parts.append(
                f"cosine of axis and first component {at['cosine']:.2f} [{at['low']:.2f}, "
                f"{at['high']:.2f}], a role's own up to {at['control_high']:.2f}"
            )
        parts.append(
            f"the default lies beyond {int((roles < default).sum())} of {len(roles)} roles"
        )
        self.head.object = (
            f"<p class='big'>Layer {cards.escape(self.state.layer)}: "
            f"{cards.escape('; '.join(parts))}</p>"
        )


def _basis(entry: Entry) -> str:
    row = personas.pc1_of(entry).iloc[0]
    return f"Band: {row['interval']}, n = {row['n']} {row['unit']}s."


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with cards.Guard(PATH) as guard:
        return _build(root)
    return shell.broken_page(PATH, HEADING, guard)


def _build(root: Path) -> Any:
    state = PersonaState(read_catalogue(root))
    refused = shell.take_address(state)
    view, drift, capped, fleet = PersonaView(state), Drift(state), Capped(state), Fleet(state)
    figure = cards.Section(f"{PATH} map", view.draw, ("run", "theme"))
    along = cards.Section(f"{PATH} axis", view.along, ("run", "layer", "percentile", "theme"))
    cosines = cards.Section(
        f"{PATH} cosines", view.cosines, ("run", "layer", "direction", "bank", "theme")
    )
    read = cards.Section(f"{PATH} drift", drift.draw, ("run", "layer", "theme"))
    answer = cards.Section(
        f"{PATH} cap", capped.draw, ("run", "percentile", "window", "model", "theme")
    )
    held = cards.Section(f"{PATH} fleet", fleet.draw, ("run", "readout", "theme"))

    def moved(*events: Any) -> None:
        names = {event.name for event in events}
        if "layer" in names and not names & figure.fields:
            with cards.Guard(f"{PATH} layer"):
                view.move()

    def key(name: str) -> None:
        if name != "Escape":
            state.step(1 if name == "]" else -1)

    state.param.watch(moved, [*state.fields, "theme"])
    sections = [figure, along, cosines, read, answer, held]
    shell.bind(state, sections)
    labels = {
        "run": "Axis run", "direction": "Direction", "bank": "Compared with", "model": "Model",
        "other": "Compared model", "percentile": "Floor of the cap",
        "readout": "Readout under the cap",
    }  # fmt: skip
    controls = [shell.select(state, name, label) for name, label in labels.items()]
    controls.append(_window(state))
    lead = "Which persona is a model, where does a conversation take it, and what does a cap hold?"
    page = shell.frame(
        state, PATH, HEADING, lead, controls, [section.box for section in sections], key
    )
    shell.report(state, refused)
    return page


def _window(state: PersonaState) -> Any:
    """Return the slider for the blocks that a cap acts at."""
    from workbench_apps.persona_state import ends

    slider = pmui.IntRangeSlider(label="Blocks of the cap", margin=(8, 20), visible=False)
    slider.sizing_mode = "stretch_width"

    def sync(*_: Any) -> None:
        layers = [int(layer) for layer in state.options("layer")]
        if state.window and len(layers) > 1:
            slider.param.update(
                start=layers[0], end=layers[-1], value=ends(state.window), visible=True
            )

    with cards.Guard(f"{PATH} window"):
        sync()
    state.param.watch(sync, ["run", "window"])
    slider.param.watch(
        lambda event: state.choose(window="{}-{}".format(*event.new)), "value_throttled"
    )
    return slider
