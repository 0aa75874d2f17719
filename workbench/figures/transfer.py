"""From topic to topic: what a direction fitted on one topic reads in another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.theme import (
    FONT,
    Theme,
    add_hover,
    add_note,
    blank_figure,
    blend,
    contrast,
    theme_named,
)
from workbench.figures.truth import POLARITIES

TRANSFER = "transfer"
CHANCE, FULL = 0.5, 1.0


def transfer_grid(
    evidence: pd.DataFrame, *, polarity: int = 0, theme: str = "light", title: str = ""
) -> Any:
    """Draw AUC of fits on each topic (rows) on each topic (columns), at the column's chosen layer.

    A cell that beats both nulls is filled, the fuller the higher its AUC; one that does not is left
    empty, its number gray.

    Args:
        evidence: evidence rows of one method and rendering; those of the split "transfer" are
            drawn.
        polarity: +1, -1, or 0 for the mean of the two.
        theme: light or dark.
        title: whose grid this is.

    Raises:
        ValueError: there is no such row, or two for one cell.
    """
    look, cells = theme_named(theme), grid_cells(evidence, polarity)
    topics = sorted(set(cells["topic"]))
    beaten = int(cells["beats_nulls"].sum())
    said = f"{beaten} of {len(cells)} cells beat both nulls ({POLARITIES[polarity]})"
    figure = blank_figure(
        look,
        title or "From topic to topic",
        f"{title or 'Transfer between topics'}: {said}.",
        height=150 + 44 * len(topics),
        x_axis_label="checked on",
        y_axis_label="fitted on",
        x_range=topics,
        y_range=topics[::-1],
    )
    figure.grid.grid_line_color = None
    figure.xaxis.major_label_orientation = 0.9
    _add_cells(figure, look, cells)
    add_note(figure, look, f"{said}; filled: beats both. On the diagonal facts are held out.")
    return figure


def grid_cells(evidence: pd.DataFrame, polarity: int = 0) -> pd.DataFrame:
    """Return one row for each pair of topics, at the layer chosen without the checked topic."""
    rows = evidence[
        (evidence["split"] == TRANSFER)
        & evidence["chosen"].astype(bool)
        & (evidence["polarity"] == polarity)
    ]
    if rows.empty:
        raise ValueError("no rows of the split 'transfer'; fit with split = [..., 'transfer']")
    if rows.duplicated(["fitted_on", "topic"]).any():
        raise ValueError("two rows for one cell; choose one method and one rendering first")
    return rows


def _add_cells(figure: Any, look: Theme, cells: pd.DataFrame) -> None:
    from bokeh.core.properties import value as fixed
    from bokeh.models import ColumnDataSource

    beats = cells["beats_nulls"].to_numpy(bool)
    share = np.clip((cells["auc"].to_numpy(float) - CHANCE) / (FULL - CHANCE), 0, 1)
    fill = [
        blend(look.surface, look.palette[0], 0.15 + 0.75 * part) if on else look.surface
        for part, on in zip(share, beats, strict=True)
    ]
    names = ["topic", "fitted_on", "auc", "low", "high", "n", "n_facts", "layer"]
    names += ["null_shuffled", "null_random"]
    source = ColumnDataSource({name: cells[name].to_numpy() for name in names})
    source.data["fill"] = fill
    source.data["text"] = [f"{found:.2f}" for found in cells["auc"]]
    source.data["ink"] = [
        _readable(color) if on else look.muted for color, on in zip(fill, beats, strict=True)
    ]
    boxes = figure.rect(
        "topic", "fitted_on", 0.94, 0.92, source=source, fill_color="fill", line_color=look.grid
    )
    figure.text(
        "topic", "fitted_on", text="text", source=source, text_color="ink", text_align="center",
        text_baseline="middle", text_font=fixed(FONT), text_font_size="12px",
    )  # fmt: skip
    tips = [("fitted on", "@fitted_on"), ("checked on", "@topic"), ("AUC", "@auc{0.000}")]
    tips += [("interval", "@low{0.000} to @high{0.000}"), ("n", "@n statements, @n_facts facts")]
    tips += [("null, shuffled", "@null_shuffled{0.000}"), ("null, random", "@null_random{0.000}")]
    add_hover(figure, [boxes], [*tips, ("layer", "@layer")])


def _readable(fill: str) -> str:
    """Return black or white, whichever can be read on the color."""
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, fill))
