"""The persona page's card of a capped fleet: engagement, displacement, readouts beside controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import panel as pn
from workbench_apps import cards, downloads
from workbench_apps.capped import readouts_of, table_of
from workbench_apps.catalogue import BEHAVIOR, DISPLACEMENT, ENGAGEMENT
from workbench_apps.persona_state import PersonaState

from workbench.effects.engagement import CONTRAST
from workbench.figures.capping import cap_displacement, cap_engagement, capped_readout

OWN = "own"
"""Text of a reply that the model wrote itself without the cap."""
MATCHED = (
    "Random caps act as often as the axis's on the states that they were set by, block by block."
)
SAME = "Random caps have the same percentile of the same states along random directions."
PANEL = {"width": "min(100%, 460px)", "flex": "1 1 420px"}


class Fleet:
    """What a capping run measured over a base and its organisms."""

    def __init__(self, state: PersonaState) -> None:
        self.state = state

    def draw(self) -> Sequence[Any]:
        """Draw engagement before the cap, displacement, and one readout before and after."""
        if self.state.entry() is None:
            return []
        head = "<h2>The cap over a fleet</h2>"
        entry = self.state.capped()
        if entry is None:
            return [cards.note(head + cards.making(self.state, "capping"))]
        theme = self.state.theme or "light"
        engagement = table_of(entry, ENGAGEMENT)
        figures = [
            cap_engagement(engagement[engagement["text"] == OWN], theme=theme),
            cap_displacement(table_of(entry, DISPLACEMENT), theme=theme),
        ]
        rows = self.rows() if self.state.readout else pd.DataFrame({"level": []})
        if len(rows):
            figures.append(capped_readout(rows, theme=theme))
        if CONTRAST in set(rows["level"]):
            title = f"Gap between conditions: {self.state.readout}"
            figures.append(capped_readout(rows, level=CONTRAST, theme=theme, title=title))
        panels = [
            pn.Column(pn.pane.Bokeh(one, sizing_mode="stretch_width", margin=0), styles=PANEL)
            for one in figures
        ]
        matched = MATCHED if entry.run.config.get("match") else SAME
        told = (
            "Measured, unlike the pair above. A cap that acts at fewer positions than the gate "
            f"says is not informative, and is drawn hollow. {matched} A gap is of one condition "
            "minus another, paired by training seed. A cap that engages does not by itself mean "
            "that the whole persona came back."
        )
        return [
            cards.note(head),
            pn.FlexBox(*panels, gap="16px", sizing_mode="stretch_width", margin=0),
            cards.note(f"<p class='quiet under'>{told} {cards.provenance(entry)}</p>"),
            downloads.csv_button(self.saved, "capped_fleet.csv"),
        ]

    def rows(self) -> pd.DataFrame:
        """Return the readout on show."""
        entry = self.state.capped()
        assert entry is not None, "a readout is chosen where there is a run"
        table = table_of(entry, BEHAVIOR)
        found: pd.DataFrame = table[readouts_of(table) == self.state.readout]
        return found.reset_index(drop=True)

    def saved(self) -> pd.DataFrame:
        """Return all tables on show, one below the other, with the table's name first."""
        entry = self.state.capped()
        assert entry is not None, "the button stands where there is a run"
        frames = {name: table_of(entry, name) for name in (ENGAGEMENT, DISPLACEMENT)}
        if self.state.readout:
            frames[BEHAVIOR] = self.rows()
        named = [frame.assign(table=name.partition(".")[0]) for name, frame in frames.items()]
        joined = pd.concat(named, ignore_index=True)
        return joined[["table", *joined.columns.drop("table")]]
