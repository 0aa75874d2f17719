"""Figures of a probe: the null lies below each change, and the nearest organism is marked."""

import numpy as np
import pandas as pd
import pytest

from workbench.figures import LIGHT, known_distances, probe_changes


def changes(against=True, null=0.5):
    moved = np.array([2.0, 0.25])
    rows = pd.DataFrame({"name": "truth@3", "condition": ["P", "A"], "n": 14, "unit": "item"})
    rows = rows.assign(value=1 + moved, low=moved + 0.5, high=moved + 1.5)
    nothing = np.full(2, np.nan)
    rows = rows.assign(base=1.0 if against else np.nan, change=moved if against else nothing)
    ends = (moved - 0.125, moved + 0.125) if against else (nothing, nothing)
    return rows.assign(change_low=ends[0], change_high=ends[1], null=null, null_name="95% of 200")


def data(figure, column):
    return next(
        renderer.data_source.data
        for renderer in figure.renderers
        if column in renderer.data_source.data
    )


def labels(figure):
    return [item.label.value for item in figure.legend[0].items]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_change_lies_over_its_null_and_is_hollow_within_it(theme):
    figure = probe_changes(changes(), theme=theme, axis="residual-stream units")
    bars = data(figure, "least")
    assert list(bars["least"]) == [-0.5, -0.5]
    assert list(bars["null"]) == [0.5, 0.5]
    fill = data(figure, "fill")["fill"]
    assert fill[0] != fill[1] == figure.background_fill_color
    assert labels(figure)[1:] == ["hollow: within the null", "95% of 200"]
    assert figure.html_attributes["role"] == "img"
    assert figure.html_attributes["aria-label"] == (
        "truth@3, change from the base by condition: P +2, A +0.25; 1 of 2 beyond the null."
    )


def test_without_a_base_the_means_are_drawn_and_the_figure_says_so():
    figure = probe_changes(changes(against=False, null=np.nan), axis="nats")
    assert list(data(figure, "at")["at"]) == [3.0, 1.25]
    assert list(data(figure, "start")["start"]) == [2.5, 0.75]
    assert figure.xaxis[0].axis_label == "nats"
    assert labels(figure) == ["mean, with interval"]
    assert "no null" in figure.html_attributes["aria-label"]
    assert any("no base" in part.text for part in figure.above if hasattr(part, "text"))


def test_a_readout_without_a_null_is_never_called_within_it():
    figure = probe_changes(changes(null=np.nan))
    assert set(data(figure, "fill")["fill"]) == {LIGHT.palette[0]}
    assert labels(figure) == ["change from the base, with interval"]


def test_two_measures_in_one_figure_are_refused():
    with pytest.raises(ValueError, match="one row for each condition"):
        probe_changes(pd.concat([changes(), changes()]))


def test_the_nearest_organism_is_first_and_marked_whatever_the_order():
    rows = pd.DataFrame(
        {
            "name": ["A", "P"], "value": [1.5, 0.25], "low": [1.0, 0.125], "high": [2.0, 0.5],
            "nearest": [0.04, 0.96], "n": 56, "unit": "item",
        }
    )  # fmt: skip
    figure = known_distances(rows)
    assert figure.y_range.factors == ["A", "P"]
    first = figure.renderers[0].data_source.data
    assert list(first["name"]) == ["P"]
    assert figure.renderers[1].glyph.marker == "diamond"
    assert figure.x_range.start == 0
    assert figure.html_attributes["aria-label"] == (
        "Distance from known organisms: 2 known, nearest P at 0.25, in 96% of draws."
    )
