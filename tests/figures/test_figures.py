"""Figures show what the table says, name their controls, and can be read on both pages."""

import math

import numpy as np
import pandas as pd
import pytest

from workbench.figures import (
    DARK,
    LIGHT,
    auc_by_layer,
    dose_response,
    engaged_by_dose,
    mass_by_dose,
    realised_by_dose,
    scatter_map,
    theme_named,
    world_projections,
)
from workbench.figures.dose import symlog
from workbench.figures.scatter import MOST_CATEGORIES, OTHER, SOURCE, categories
from workbench.figures.theme import (
    NARROW,
    PHONE,
    add_note,
    blank_figure,
    contrast,
    legend_columns,
    lines_of,
)
from workbench.figures.truth import reading_verdict


def evidence(affirmative=0.95, negated=0.92, chosen=2):
    rows = []
    for layer in range(4):
        for polarity, top in ((1, affirmative), (-1, negated), (0, (affirmative + negated) / 2)):
            value = top - 0.1 * abs(layer - 2)
            rows.append(
                {
                    "layer": layer,
                    "polarity": polarity,
                    "auc": value,
                    "low": value - 0.04,
                    "high": value + 0.03,
                    "n": 200,
                    "n_facts": 100,
                    "null_shuffled": 0.57,
                    "null_random": 0.66,
                    "chosen": layer == chosen,
                    "usable": min(affirmative, negated) >= 0.9,
                }
            )
    return pd.DataFrame(rows)


def curve(doses=(-1.0, 0.0, 1.0)):
    rows = pd.DataFrame({"dose": list(doses)})
    rows["mean"] = rows["dose"] + 5
    rows["low"], rows["high"] = rows["mean"] - 0.3, rows["mean"] + 0.4
    rows["n"], rows["unit"], rows["interval"] = 12, "item", "95% bootstrap over items"
    return rows


def controls(doses=(-1.0, 0.0, 1.0), count=3):
    rows = [(f"random:{i}", dose, 5 + 0.1 * i * dose) for i in range(count) for dose in doses]
    return pd.DataFrame(rows, columns=["control", "dose", "mean"])


def legend_labels(figure):
    return [item.label.value for item in figure.legend[0].items]


def sources(figure):
    return [renderer.data_source.data for renderer in figure.renderers]


def notes(figure):
    from bokeh.models import Title

    return [note.text.replace("\n", " ") for note in figure.above if isinstance(note, Title)]


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_every_color_that_carries_meaning_can_be_told_from_the_page(look):
    for color in (*look.palette, look.band, look.unusable, look.warning):
        assert contrast(color, look.surface) >= 2.5, color
    for color in (look.ink, look.muted):
        assert contrast(color, look.surface) >= 4.5, color


def test_contrast_is_the_ratio_that_wcag_defines():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_an_unknown_theme_is_refused_by_name():
    with pytest.raises(ValueError, match="sepia"):
        theme_named("sepia")


def test_a_legend_takes_no_more_than_a_phone_has():
    labels = ["steered", "range of 4 random directions", "own"]
    columns = legend_columns(labels)
    assert columns * (34 + 7 * max(map(len, labels))) <= PHONE
    assert legend_columns([]) == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_figure_is_an_image_with_a_spoken_description(theme):
    points = pd.DataFrame({"x": [0.0, 1.0], "y": [1.0, 0.0], "id": ["a", "b"], "topic": ["t", "u"]})
    worlds = pd.DataFrame(
        [("base", "P", 1.0, 0.5, 1.5, 9, "proposition")],
        columns=["organism", "world", "mean", "low", "high", "n", "unit"],
    )
    mass = pd.DataFrame({"dose": [0.0], "mass": [0.9], "n": [3]})
    for figure in (
        auc_by_layer(evidence(), theme=theme),
        world_projections(worlds, {}, theme=theme),
        dose_response(curve(), controls(), theme=theme),
        mass_by_dose(mass, pd.DataFrame({"control": [], "dose": [], "mass": []}), theme=theme),
        scatter_map(points, "topic", theme=theme),
    ):
        assert figure.html_attributes["role"] == "img"
        assert len(figure.html_attributes["aria-label"]) > 20
        assert figure.background_fill_color == theme_named(theme).surface


def test_auc_shows_both_polarities_both_nulls_and_the_chosen_layer():
    labels = legend_labels(auc_by_layer(evidence()))
    assert labels == [
        "affirmed",
        "negated",
        "balanced",
        "null: shuffled",
        "null: random",
        "chosen layer 2",
    ]


def test_auc_draws_each_null_at_its_higher_polarity():
    table = evidence()
    table.loc[(table["polarity"] == -1) & (table["layer"] == 1), "null_random"] = 0.8
    drawn = [list(data["y"]) for data in sources(auc_by_layer(table)) if "y" in data]
    assert [0.66, 0.8, 0.66, 0.66] in drawn


def test_the_gate_is_on_the_worse_polarity_and_an_unusable_direction_is_grayed_not_hidden():
    good = auc_by_layer(evidence(0.95, 0.92))
    bad = auc_by_layer(evidence(0.95, 0.88))
    assert "usable: lowest AUC 0.92 (negated) at layer 2, gate 0.90" in notes(good)
    assert "not usable: lowest AUC 0.88 (negated) at layer 2, below 0.90" in notes(bad)
    inks = [[r.glyph.fill_color for r in figure.renderers[:3:2]] for figure in (good, bad)]
    assert inks[0] != inks[1]
    assert [len(next(iter(data.values()))) for data in sources(bad)[:3]] == [4, 4, 4]


def test_no_chosen_layer_means_nothing_is_usable():
    verdict = reading_verdict(evidence(chosen=9))
    assert not verdict.usable
    assert verdict.layer is None


def test_auc_of_two_topics_at_once_is_refused():
    with pytest.raises(ValueError, match="one topic"):
        auc_by_layer(pd.concat([evidence(), evidence()]))


def test_a_models_own_world_gets_the_ring_and_no_other():
    rows = [(o, w, 1.0, 0.5, 1.5, 9, "proposition") for o in ("base", "anti") for w in "PSNA"]
    table = pd.DataFrame(rows, columns=["organism", "world", "mean", "low", "high", "n", "unit"])
    figure = world_projections(table, {"anti": "A"})
    ringed = [
        (organism, world)
        for data in sources(figure)
        if "ring" in data
        for organism, world, size in zip(data["organism"], data["world"], data["size"], strict=True)
        if size > 9
    ]
    assert set(ringed) == {("anti", "A")}
    assert figure.y_range.factors == ["anti", "base"]


def test_symlog_is_linear_to_four_then_logarithmic_and_odd():
    assert [symlog(dose) for dose in (-4.0, 0.0, 2.5)] == [-4.0, 0.0, 2.5]
    assert symlog(8.0) - symlog(4.0) == pytest.approx(symlog(16.0) - symlog(8.0))
    assert symlog(-32.0) == -symlog(32.0)
    assert symlog(4.001) == pytest.approx(4.001, abs=1e-6)
    doses = np.linspace(-64, 64, 501)
    assert all(np.diff([symlog(dose) for dose in doses]) > 0)


def test_ticks_are_named_by_the_dose_itself_and_hover_shows_it():
    figure = dose_response(curve((-16.0, 0.0, 16.0)), controls((-16.0, 0.0, 16.0)))
    overrides = figure.xaxis[0].major_label_overrides
    assert overrides[symlog(16.0)] == "16"
    assert overrides[symlog(-16.0)] == "-16"
    assert any(tip == ("dose", "@dose") for tool in figure.hover for tip in tool.tooltips)
    assert any(list(data.get("dose", [])) == [-16.0, 0.0, 16.0] for data in sources(figure))


def test_a_dose_curve_comes_with_the_band_and_every_line_of_its_controls():
    figure = dose_response(curve(), controls(count=3))
    assert legend_labels(figure)[1] == "range of 3 random directions"
    band = next(data for data in sources(figure) if "min" in data)
    assert list(band["min"]) == pytest.approx([4.8, 5.0, 5.0])
    assert list(band["max"]) == pytest.approx([5.0, 5.0, 5.2])
    assert sum("control" in data for data in sources(figure)) == 3


def test_a_curve_without_controls_says_so():
    bare = dose_response(curve(), controls().iloc[:0])
    assert notes(bare)[-1] == "no random-direction controls in this run"


def test_two_conditions_in_one_curve_are_refused():
    with pytest.raises(ValueError, match="one condition"):
        dose_response(pd.concat([curve(), curve()]), controls())


def test_low_mass_is_flagged_at_its_doses():
    table = pd.DataFrame({"dose": [0.0, 1.0, 2.0], "mass": [0.9, 0.49, 0.5], "n": [3, 3, 3]})
    figure = mass_by_dose(table, pd.DataFrame({"control": [], "dose": [], "mass": []}))
    inks = next(data["ink"] for data in sources(figure) if "ink" in data)
    assert list(inks) == [LIGHT.palette[0], LIGHT.warning, LIGHT.palette[0]]
    assert notes(figure)[-1].startswith("mean mass is under 0.5 at 1 of 3 doses")


def test_the_map_counts_what_it_leaves_out():
    table = pd.DataFrame(
        {"x": [0.0, 1.0, math.nan], "y": [0.0, 1.0, 2.0], "id": list("abc"), "topic": list("tuv")}
    )
    figure = scatter_map(table, "topic", title="layer 3")
    assert figure.title.text.replace("\n", " ") == "layer 3 · 2 of 3 shown"
    assert list(figure.select_one({"name": SOURCE}).data["row"]) == [0, 1]


def test_numbers_get_a_color_bar_and_words_a_legend_with_counts():
    table = pd.DataFrame({"x": np.arange(40.0), "y": np.arange(40.0), "id": map(str, range(40))})
    table["length"], table["polarity"] = np.linspace(0, 1, 40), [1, -1] * 20
    by_number = scatter_map(table, "length")
    assert by_number.legend == []
    assert any(type(part).__name__ == "ColorBar" for part in by_number.below)
    assert legend_labels(scatter_map(table, "polarity")) == ["affirmed (20)", "negated (20)"]


def test_rare_categories_share_one_color_and_are_not_dropped():
    values = pd.Series([f"topic {i % 12:02d}" for i in range(100)] + [None])
    words = categories(values, "topic")
    assert words.nunique() == MOST_CATEGORIES
    assert len(words) == 101
    assert (words == OTHER).sum() == 101 - words[words != OTHER].count()


def test_doses_that_fail_a_guard_are_drawn_hollow_and_counted():
    shown = curve().assign(guarded=[True, True, False])
    figure = dose_response(shown, controls())
    fills = [
        renderer.data_source.data["fill"]
        for renderer in figure.renderers
        if "fill" in renderer.data_source.data
    ]
    assert [fill == LIGHT.surface for fill in fills[0]] == [False, False, True]
    assert "hollow: 1 of 3 doses left out" in notes(figure)
    assert notes(dose_response(curve(), controls())) == []


def test_realised_and_nominal_shift_stand_beside_each_other():
    shown = curve().assign(dose_raw=[-2.0, 0.0, 2.0], realised=[-3.9, 0.0, 4.1])
    figure = realised_by_dose(shown)
    drawn = [renderer.glyph.y for renderer in figure.renderers]
    assert {"realised", "dose_raw"} <= set(drawn)
    assert "4.1 at dose 1" in figure.html_attributes["aria-label"]


def test_engagement_is_a_share():
    figure = engaged_by_dose(curve().assign(engaged=[0.0, 0.2, 0.7]))
    assert (figure.y_range.start, figure.y_range.end) == (0, 1.05)
    assert "0.7 at dose 1" in figure.html_attributes["aria-label"]


def test_what_stands_above_a_plot_beside_names_begins_over_the_names():
    named = blank_figure(LIGHT, "title", "", y_range=["a", "a long name"])
    plain = blank_figure(LIGHT, "title", "")
    for figure, left in ((named, 11 * NARROW), (plain, 0)):
        add_note(figure, LIGHT, "a note")
        assert [one.offset for one in (figure.title, *figure.above)] == [-left, -left]


def test_a_long_axis_label_is_broken_for_a_phone_and_a_short_one_stays():
    told = "share of (token, block) positions beyond the floor"
    broken = blank_figure(LIGHT, "title", "", height=300, x_axis_label=told, y_range=["smollm2"])
    assert broken.xaxis[0].axis_label == told.replace(" the floor", "\nthe floor")
    assert broken.height == 315
    assert blank_figure(LIGHT, "", "", x_axis_label="layer").xaxis[0].axis_label == "layer"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "21 of 24 rise, the trusting reply leads in 17",
            ["21 of 24 rise, the", "trusting reply leads in 17"],
        ),
        ("layer 3", ["layer 3"]),
        ("", []),
        ("x" * 50, ["x" * 25] * 2),
    ],
)
def test_notes_wrap_into_few_and_even_lines(text, lines):
    assert lines_of(text, 42) == lines
