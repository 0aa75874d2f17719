"""How well a direction reads truth by layer, and where it places the worlds' claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.figures.theme import (
    Theme,
    add_hover,
    add_legend,
    add_note,
    arrays,
    blank_figure,
    blend,
    theme_named,
)

GATE = 0.9
POLARITIES = {1: "affirmed", -1: "negated", 0: "balanced"}
_NULLS = {
    "null_shuffled": ("shuffled", "dashed"),
    "null_random": ("random", "dotted"),
}


def auc_by_layer(
    evidence: pd.DataFrame, *, theme: str = "light", title: str = "", gate: float = GATE
) -> Any:
    """Draw AUC by layer and polarity, its interval, both nulls and the chosen layer.

    Args:
        evidence: evidence rows of one method, topic, split and rendering; one row for each layer
            and polarity.
        theme: light or dark.
        title: whose AUC this is.
        gate: below this, at the chosen layer and for the worse polarity, the direction is drawn
            grey and called not usable.
    """
    if evidence.duplicated(["layer", "polarity"]).any():
        raise ValueError("one row for each layer and polarity is expected; choose one topic first")
    look = theme_named(theme)
    verdict = reading_verdict(evidence, gate)
    figure = blank_figure(
        look,
        title or "AUC by layer",
        f"{title or 'AUC'} by layer. {verdict.text}",
        x_axis_label="layer (0-based block)",
        y_axis_label="AUC, true against false",
        height=340,
    )
    figure.y_range.start, figure.y_range.end = _auc_range(evidence)
    legend = _add_curves(figure, look, evidence, gray=not verdict.usable)
    legend += _add_nulls(figure, look, evidence)
    legend += _mark(figure, look, verdict.layer, gate)
    add_legend(figure, look, legend)
    add_note(figure, look, verdict.text, color=None if verdict.usable else look.warning)
    return figure


class Verdict:
    """Whether a direction reads truth well enough at its chosen layer, and the sentence for it."""

    def __init__(self, layer: int | None, auc: float, usable: bool, text: str) -> None:
        self.layer = layer
        self.auc = auc
        self.usable = usable
        self.text = text


def reading_verdict(evidence: pd.DataFrame, gate: float = GATE) -> Verdict:
    """Judge the lower of the two polarities' AUCs at the chosen layer."""
    chosen = evidence[evidence["chosen"].astype(bool)]
    sides = chosen[chosen["polarity"] != 0] if (chosen["polarity"] != 0).any() else chosen
    if sides.empty:
        return Verdict(None, float("nan"), False, "no layer was chosen, so nothing is usable yet")
    worst = sides.sort_values("auc").iloc[0]
    layer, auc = int(worst["layer"]), float(worst["auc"])
    where = f"{auc:.2f} ({POLARITIES[int(worst['polarity'])]}) at layer {layer}"
    if auc >= gate:
        return Verdict(layer, auc, True, f"usable: lowest AUC {where}, gate {gate:.2f}")
    return Verdict(layer, auc, False, f"not usable: lowest AUC {where}, below {gate:.2f}")


def sides_at(evidence: pd.DataFrame, layer: int) -> list[dict[str, Any]]:
    """Return the evidence rows of both polarities at a layer, affirmed first, as dicts."""
    rows = evidence[(evidence["layer"] == layer) & (evidence["polarity"] != 0)]
    rows = rows.assign(side=rows["polarity"].map(POLARITIES))
    found = rows.sort_values("polarity", ascending=False).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in found]


def _auc_range(evidence: pd.DataFrame) -> tuple[float, float]:
    lowest = np.nanmin([0.45, float(evidence["low"].min()), float(evidence["auc"].min())])
    return max(0.0, float(lowest) - 0.03), 1.02


def _add_curves(figure: Any, look: Theme, evidence: pd.DataFrame, *, gray: bool) -> list[Any]:
    from bokeh.models import ColumnDataSource

    items, dots = [], []
    for position, polarity in enumerate((1, -1, 0)):
        rows = evidence[evidence["polarity"] == polarity].sort_values("layer")
        if rows.empty:
            continue
        color = look.palette[position]
        color = blend(color, look.unusable, 0.75) if gray else color
        columns = ["layer", "auc", "low", "high", "n", "n_facts"]
        source = ColumnDataSource(arrays(rows[columns]))
        source.data["side"] = [POLARITIES[polarity]] * len(rows)
        band = figure.varea(
            "layer", "low", "high", source=source, fill_color=color, fill_alpha=0.16
        )
        dash = ("solid", "dashed", "dotdash")[position] if gray else "solid"
        line = figure.line(
            "layer", "auc", source=source, color=color, line_width=2.4, line_dash=dash
        )
        marker = ("circle", "square", "diamond")[position]
        dot = figure.scatter("layer", "auc", source=source, color=color, size=6, marker=marker)
        dots.append(dot)
        items.append((POLARITIES[polarity], [line, dot, band]))
    tips = [("layer", "@layer"), ("polarity", "@side"), ("AUC", "@auc{0.000}")]
    tips += [("interval", "@low{0.000} to @high{0.000}"), ("n", "@n statements, @n_facts facts")]
    add_hover(figure, dots, tips)
    return items


def _add_nulls(figure: Any, look: Theme, evidence: pd.DataFrame) -> list[Any]:
    items = []
    for column, (words, dash) in _NULLS.items():
        worst = evidence.groupby("layer")[column].max().dropna().sort_index()
        if worst.empty:
            continue
        line = figure.line(
            worst.index.to_numpy(),
            worst.to_numpy(),
            color=look.band,
            line_width=1.8,
            line_dash=dash,
        )
        items.append((f"null: {words}", [line]))
    return items


def _mark(figure: Any, look: Theme, layer: int | None, gate: float) -> list[Any]:
    from bokeh.models import Span

    figure.add_layout(
        Span(location=gate, dimension="width", line_color=look.ink, line_alpha=0.35, line_width=1)
    )
    if layer is None:
        return []
    figure.add_layout(
        Span(location=layer, dimension="height", line_color=look.ink, line_alpha=0.12, line_width=9)
    )
    key = figure.line([layer, layer], [gate, gate], color=look.ink, alpha=0.25, line_width=9)
    return [(f"chosen layer {layer}", [key])]


def world_projections(
    summary: pd.DataFrame,
    own: Mapping[str, str],
    *,
    theme: str = "light",
    title: str = "",
    axis: str = "projection (residual-stream units)",
    worlds: Sequence[str] = ("P", "S", "N", "A"),
    reads: Mapping[str, float] | None = None,
    gate: float = GATE,
) -> Any:
    """Draw, for every model, the mean projection of each world's claims with its interval.

    Args:
        summary: columns ``organism, world, mean, low, high, n, unit``; the base model first, as
            rows come.
        own: organism -> the world that its documents come from; that dot gets a ring.
        theme: light or dark.
        title: what was projected, where.
        axis: what is read, with its unit.
        worlds: the order of the worlds.
        reads: model -> AUC at which truth is read in it, the worse polarity's. Models below the
            gate are drawn grayer, and the header says so.
        gate: see above.
    """
    look = theme_named(theme)
    reads = reads or {}
    models = list(dict.fromkeys(summary["organism"]))
    known = [*worlds, *sorted(set(summary["world"]) - set(worlds))]
    figure = blank_figure(
        look,
        title or "Projection of each world's claims",
        f"{title or 'Projections of claims'}: {len(models)} models, {len(known)} worlds.",
        height=90 + 84 * len(models),
        x_axis_label=axis,
        y_range=models[::-1],
    )
    figure.ygrid.grid_line_color = None
    items, dots = [], []
    for position, world in enumerate(known):
        rows = summary[summary["world"] == world]
        if rows.empty:
            continue
        offset = 0.28 - 0.56 * position / max(1, len(known) - 1)
        gray = [reads.get(model, 1.0) < gate for model in rows["organism"]]
        glyphs = _add_world(figure, look, rows, world, (position, offset), own, gray)
        dots.append(glyphs[-1])
        items.append((f"world {world}", glyphs))
    items += _own_key(figure, look, own)
    add_legend(figure, look, items)
    tips = [("model", "@organism"), ("world", "@world"), ("mean", "@mean{0.000}")]
    tips += [("interval", "@low{0.000} to @high{0.000}"), ("n", "@n @unit")]
    add_hover(figure, dots, tips)
    if reads:
        below = any(value < gate for value in reads.values())
        add_note(figure, look, gate_text(reads, gate), color=look.warning if below else None)
    return figure


def gate_text(reads: Mapping[str, float], gate: float = GATE) -> str:
    """Say how well truth is read in each model, and where that is not usable."""
    told = ", ".join(f"{model} {value:.2f}" for model, value in reads.items())
    below = [model for model, value in reads.items() if value < gate]
    verdict = f"not usable below {gate:.2f}: {', '.join(below)}" if below else "usable in all"
    return f"Held-out truth AUC: {told}; {verdict}"


def _add_world(
    figure: Any,
    look: Theme,
    rows: pd.DataFrame,
    world: str,
    place: tuple[int, float],
    own: Mapping[str, str],
    gray: Sequence[bool],
) -> list[Any]:
    from bokeh.models import ColumnDataSource

    position, offset = place
    source = ColumnDataSource(arrays(rows))
    source.data["at"] = [(model, offset) for model in rows["organism"]]
    color = look.palette[position % len(look.palette)]
    colors = [blend(color, look.unusable, 0.6) if dull else color for dull in gray]
    source.data["color"] = colors
    bar = figure.segment("low", "at", "high", "at", source=source, color="color", line_width=2.4)
    is_own = [own.get(model) == world for model in rows["organism"]]
    pairs = zip(is_own, colors, strict=True)
    source.data["ring"] = [look.ink if mine else drawn for mine, drawn in pairs]
    source.data["size"] = [15 if mine else 9 for mine in is_own]
    dot = figure.scatter(
        "mean",
        "at",
        source=source,
        fill_color="color",
        line_color="ring",
        line_width=2,
        size="size",
    )
    return [bar, dot]


def _own_key(figure: Any, look: Theme, own: Mapping[str, str]) -> list[Any]:
    if not own:
        return []
    key = figure.scatter(
        [float("nan")],
        [figure.y_range.factors[0]],
        fill_color=None,
        line_color=look.ink,
        line_width=2,
        size=15,
    )
    return [("own world", [key])]
