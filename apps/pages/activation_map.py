"""Activations map: one layer in two dimensions, colored by a column; a lasso fills the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
import panel_material_ui as pmui
from workbench_apps import cards, downloads, looks, polygon, shell
from workbench_apps.catalogue import read_catalogue
from workbench_apps.page_states import MapState
from workbench_apps.plane import Plane

from workbench.figures.scatter import OUTLINE, SOURCE, map_title, scatter_map

PROJECTION = "pca"


class MapView:
    """The figure, moved in place from layer to layer, and the table of what is selected."""

    def __init__(self, state: MapState) -> None:
        self.state = state
        self.figure: Any = None
        self.pane = pn.pane.Bokeh(sizing_mode="stretch_width", margin=0)
        self.caption = cards.note("")
        self.items = pd.DataFrame()

    # --- the figure ---

    def draw(self) -> Sequence[Any]:
        """Build the figure anew: another run, color, filter or theme."""
        if self.state.entry() is None:
            return [cards.empty_card(self.state, "map")]
        plane = self.plane()
        self.items = self.state.items()
        table = self._placed(plane)
        hover = [name for name in ("text", "id") if name in table.columns][:1]
        self.figure = scatter_map(
            table,
            self.state.color,
            theme=self.state.theme or "light",
            title=self._title(),
            hover=hover,
            axes=("first axis of the PCA plane", "second axis"),
        )
        self._listen()
        self.pane.object = self.figure
        self._tell(plane)
        self.mark()
        return [cards.layer_slider(self.state), self.pane, self.caption]

    def move(self) -> None:
        """Move the points to another layer without a new figure."""
        if self.figure is None:
            return
        plane = self.plane()
        source = self.figure.select_one({"name": SOURCE})
        rows = source.data["row"]
        table = self._placed(plane)
        if not np.isfinite(plane.xy[rows]).all() or np.isfinite(table["x"]).sum() != len(rows):
            self.draw()
            return
        with pn.io.hold():
            xy = plane.xy[rows]
            source.data.update(x=xy[:, 0], y=xy[:, 1])
            title = map_title(self._title(), len(rows), len(table))
            self.figure.title.text = title
            self.figure.html_attributes = {
                "role": "img",
                "aria-label": f"Map of items: {title}, colored by {self.state.color}.",
            }
            self._tell(plane)
            self.mark()

    def plane(self) -> Plane:
        """Return the plane of the layer on show."""
        planes = self.state.planes()
        assert planes is not None, "a map is drawn for a run only"
        return planes.at(int(self.state.layer))

    def _placed(self, plane: Plane) -> pd.DataFrame:
        shown = self._filtered()
        xy = np.where(shown[:, None], plane.xy, np.nan)
        return self.items.assign(x=xy[:, 0], y=xy[:, 1])

    def _filtered(self) -> np.ndarray:
        name, _, value = self.state.only.partition(":")
        if not name:
            return np.ones(len(self.items), bool)
        return np.asarray(self.items[name].astype(str) == value)

    def _title(self) -> str:
        return f"Layer {self.state.layer}"

    def _tell(self, plane: Plane) -> None:
        entry = self.state.entry()
        assert entry is not None, "a map is drawn for a run only"
        self.caption.object = (
            f"<p class='quiet under'>The PCA plane of this layer holds {plane.share:.0%} "
            "of its variance, so distances here are a part of the distances in the full space. "
            "Neighboring layers are turned onto each other (Procrustes), never stretched. "
            f"{cards.provenance(entry)}</p>"
        )

    # --- the selection ---

    def _listen(self) -> None:
        from bokeh.events import Reset, SelectionGeometry

        self.figure.on_event(SelectionGeometry, self._take)
        self.figure.on_event(Reset, lambda _: self.clear())

    def _take(self, event: Any) -> None:
        corners = polygon.outline(event.geometry) if event.final else None
        if corners is None:
            return
        drawn = polygon.selected(PROJECTION, int(self.state.layer), corners)
        self.state.choose(sel=drawn.encode())

    def clear(self) -> None:
        """Select nothing."""
        self.state.choose(sel="")

    def chosen(self) -> np.ndarray:
        """Return the rows inside the polygon, asked in the layer that it was drawn in."""
        drawn = self.state.selection()
        planes = self.state.planes()
        if drawn is None or planes is None:
            return np.zeros(0, int)
        return np.flatnonzero(drawn.rows(planes.at(drawn.layer).xy) & self._filtered())

    def mark(self) -> None:
        """Show the selection on the figure; the outline only in its own layer."""
        if self.figure is None:
            return
        drawn = self.state.selection()
        source = self.figure.select_one({"name": SOURCE})
        source.selected.indices = np.flatnonzero(
            np.isin(source.data["row"], self.chosen())
        ).tolist()
        here = drawn is not None and drawn.layer == int(self.state.layer)
        x, y = polygon.bounds(drawn.vertices) if drawn is not None and here else ([], [])
        self.figure.select_one({"name": OUTLINE}).data = {"x": x, "y": y}

    def table(self) -> Sequence[Any]:
        """Return the table of selected items, or how to select."""
        if self.state.entry() is None:
            return []
        if not self.state.sel:
            return [
                cards.note(
                    "<h2>Selected items</h2><p class='quiet'>Draw around points with the lasso "
                    "(or choose the box tool) to read their statements here. The address then "
                    "holds the selection: share it, and the same items come back.</p>"
                )
            ]
        rows = self.items.iloc[self.chosen()]
        drawn = self.state.selection()
        assert drawn is not None, "sel was checked when it was taken"
        head = cards.note(
            f"<h2>{len(rows):,} of {len(self.items):,} items selected</h2>"
            f"<p class='quiet'>Inside the outline drawn at layer {drawn.layer}</p>"
        )
        ordered = ["id", *(name for name in rows.columns if name != "id")]
        save = downloads.csv_button(lambda: rows[ordered], "selected_items.csv")
        buttons = pn.FlexBox(save, self._clear_button())
        return [head, buttons, item_table(rows)]

    def _clear_button(self) -> Any:
        return pmui.Button(
            label="Clear (Esc)",
            variant="text",
            size="small",
            on_click=lambda _: self.clear(),
            margin=(4, 8, 8, 0),
        )


def item_table(rows: pd.DataFrame) -> Any:
    """Return a paged table in which the statement takes the room."""
    shown = rows.drop(columns=[name for name in ("source",) if name in rows.columns])
    widths: dict[str, int | str] = {}
    if "text" in shown:
        widths["text"] = 240 if shell.on_phone() else 400
    return pn.widgets.Tabulator(
        shown,
        pagination="remote",
        page_size=10,
        show_index=False,
        disabled=True,
        layout="fit_data_stretch",
        widths=widths,
        stylesheets=[looks.TABLE_STYLES],
        sizing_mode="stretch_width",
        theme="simple",
        margin=0,
    )


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with cards.Guard("/map") as guard:
        return _build(root)
    return shell.broken_page("/map", "Activations map", guard)


def _build(root: Path) -> Any:
    state = MapState(read_catalogue(root))
    refused = shell.take_address(state)
    view = MapView(state)
    figure = cards.Section("/map figure", view.draw, ("run", "color", "only", "theme"))
    table = cards.Section("/map table", view.table, ("run", "only", "sel"))
    if state.entry() is None:
        table.box.visible = False

    def moved(*events: Any) -> None:
        names = {event.name for event in events}
        if names & figure.fields:
            return
        if "layer" in names:
            view.move()
        elif "sel" in names:
            view.mark()

    def key(name: str) -> None:
        if name == "Escape":
            view.clear()
        else:
            state.step(1 if name == "]" else -1)

    state.param.watch(moved, [*state.fields, "theme"])
    shell.bind(state, [figure, table])
    controls = [
        shell.select(state, "run", "Activations"),
        shell.select(state, "color", "Color by"),
        shell.select(state, "only", "Show"),
    ]
    lead = "Where a layer puts each statement. Draw around points to read them."
    page = shell.frame(
        state, "/map", "Activations map", lead, controls, [figure.box, table.box], key
    )
    shell.report(state, refused)
    return page
