"""Figures of persona space: what stands where, what is named, and what moves with the layer."""

import numpy as np
import pandas as pd
import pytest

from workbench.figures import axis_by_layer, axis_histogram, drift_lines, persona_map
from workbench.figures.persona import MOST_NAMED


def space(count=12, organisms=("P-s0",)):
    roles = pd.DataFrame(
        {
            "role": [f"role {number}" for number in range(count)],
            "kind": "role",
            "axis": np.arange(count) - 3.0,
            "pc1": np.arange(count) * 0.5,
            "pc2": np.cos(np.arange(count)),
        }
    )
    rows = [{"role": "default", "kind": "default", "axis": 14.0, "pc1": 7.0, "pc2": 0.0}]
    rows += [
        {"role": name, "kind": "organism", "axis": 2.5, "pc1": 1.0, "pc2": 0.5}
        for name in organisms
    ]
    return pd.concat([roles, pd.DataFrame(rows)], ignore_index=True)


def points(figure):
    """Roles, the default, organisms: the data of each glyph in turn."""
    return [glyph.data_source.data for glyph in figure.renderers]


def named(figure):
    sets = [part for part in figure.center if hasattr(part, "text")]
    return sorted(name for one in sets for name in one.source.data["role"])


def labels(figure):
    return [item.label.value for item in figure.legend[0].items]


def notes(figure):
    return [part.text for part in figure.above if hasattr(part, "text")]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_role_is_colored_by_its_projection_and_the_others_have_marks(theme):
    figure = persona_map(space(), theme=theme, title="Layer 3")
    roles, default, organisms = points(figure)
    assert list(roles["axis"]) == list(np.arange(12) - 3.0)
    assert list(default["pc1"]) == [7.0]
    assert list(organisms["role"]) == ["P-s0"]
    mapper = figure.renderers[0].glyph.fill_color.transform
    assert (mapper.low, mapper.high) == (-3.0, 8.0)
    assert labels(figure) == ["default Assistant", "organisms"]
    assert figure.html_attributes["aria-label"] == (
        "Persona map: Layer 3 · 12 of 12 roles shown, colored by axis projection; organisms along "
        "the axis: P-s0 at 2.5."
    )


def test_names_of_points_at_the_right_stand_at_their_left():
    from bokeh.models import LabelSet

    sets = [part for part in persona_map(space(20)).center if isinstance(part, LabelSet)]
    ends = {one.text_align: one.source.data["pc1"] for one in sets}
    assert ends["left"].max() < ends["right"].min()


def test_the_roles_at_both_ends_are_named_and_those_between_are_not():
    ends = [f"role {number}" for number in (*range(MOST_NAMED), *range(20 - MOST_NAMED, 20))]
    assert named(persona_map(space(20))) == sorted([*ends, "P-s0", "default"])
    assert len(named(persona_map(space(5, organisms=())))) == 6


def test_a_role_without_a_place_is_counted_and_left_out():
    table = space()
    table.loc[2, ["pc1", "pc2"]] = np.nan
    figure = persona_map(table, title="Layer 4")
    assert figure.title.text == "Layer 4 · 11 of 12 roles shown"
    assert "role 2" not in points(figure)[0]["role"]


def test_a_histogram_counts_every_role_once_and_marks_default_organisms_and_floor():
    figure = axis_histogram(space(), floor=1.25, floor_name="floor, percentile 25")
    bars = figure.renderers[0].data_source.data
    assert sum(bars["top"]) == 12
    assert (min(bars["left"]), max(bars["right"])) == (-3.0, 8.0)
    assert labels(figure) == ["roles (12)", "default", "P-s0", "floor, percentile 25"]
    places = [set(line.data_source.data["x"]) for line in figure.renderers[1:]]
    assert places == [{14.0}, {2.5}, {1.25}]
    assert "floor, percentile 25" not in labels(axis_histogram(space(), floor=None))


def test_the_axis_by_layer_names_its_weakest_layer_and_marks_the_one_on_show():
    cosine = np.array([0.9, 0.8, 0.4])
    table = pd.DataFrame({"layer": [2, 0, 1], "cosine": cosine, "explained": 0.5, "n": 20})
    table = table.assign(low=cosine - 0.1, high=cosine + 0.05, control_high=0.75, unit="role")
    figure = axis_by_layer(table, layer=2)
    assert figure.html_attributes["aria-label"] == (
        "Axis and first component by layer: lowest cosine 0.40 at layer 1; above its control at 1 "
        "of 3 layers."
    )
    assert list(figure.renderers[0].data_source.data["layer"]) == [0, 1, 2]
    assert [part.location for part in figure.center if hasattr(part, "location")] == [2]
    assert labels(figure)[1] == "control: a role's own"


def turns(models=("base", "P-s0")):
    return pd.DataFrame(
        [
            {"model": model, "turn": turn, "mean": turn - 2.0 * number, "n": 9, "said": "Yes"}
            for number, model in enumerate(models)
            for turn in (1, 2, 3)
        ]
    )


def test_drift_has_a_line_a_model_over_a_band_that_stays_in_view():
    band = {"mean": 6.0, "low": 5.0, "high": 7.0}
    figure = drift_lines(turns(), band=band, band_name="band: of 12 replies", title="Drift")
    assert labels(figure) == ["base", "P-s0"]
    (area,) = [part for part in figure.center if hasattr(part, "bottom")]
    assert (area.bottom, area.top) == (5.0, 7.0)
    assert figure.y_range.start < -1.0
    assert figure.y_range.end > 7.0
    assert notes(figure) == ["band: of 12 replies"]
    told = figure.html_attributes["aria-label"]
    assert told == "Drift, mean projection by assistant turn: base 1, 2, 3; P-s0 -1, 0, 1."
    assert list(figure.xaxis[0].ticker.ticks) == [1, 2, 3]


def test_drift_without_a_band_draws_the_mean_alone_and_one_turn_is_enough():
    figure = drift_lines(turns(("base",)).head(1), band={"mean": 1.0})
    assert not [part for part in figure.center if hasattr(part, "bottom")]
    assert figure.y_range.start < 1.0 < figure.y_range.end
    with pytest.raises(ValueError, match="0 models"):
        drift_lines(turns().head(0))
