"""Figures of trust steering: items before and after, and matrices by block."""

import numpy as np
import pandas as pd
import pytest
from bokeh.models import TapTool
from tables import labels, notes

from workbench.figures.trust import ITEMS, by_block, item_margins


def items():
    return pd.DataFrame(
        {
            "item": [f"pair-{n}" for n in range(6)],
            "facet": ["ability", "integrity"] * 3,
            "before": [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2],
            "after": [-0.2, 0.1, 0.2, 0.3, 0.0, 0.4],
        }
    )


def blocks():
    rows = [
        {"method": method, "control": control, "layer": layer, "norm": size * layer,
         "cosine_below": np.nan if layer == 0 else 0.5}
        for method, control, size in (("bipo", "none", 0.4), ("mean_difference", "none", 1.0),
                                      ("bipo", "shuffled", 0.1), ("bipo", "random:0", 0.4))
        for layer in range(4)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_every_item_is_one_point_that_can_be_tapped():
    figure = item_margins(items(), dose=2.0, title="bipo")
    source = figure.select_one({"name": ITEMS}).data_source
    assert list(source.data["item"]) == list(items()["item"])
    assert figure.select_one(TapTool).renderers == [figure.select_one({"name": ITEMS})]
    assert notes(figure) == ["5 of 6 rise, the trusting reply leads in 4"]
    assert labels(figure) == ["ability", "integrity", "no change"]


def test_a_chosen_item_is_ringed():
    plain, ringed = (
        item_margins(items(), dose=1.0),
        item_margins(items(), dose=1.0, chosen="pair-4"),
    )
    assert len(ringed.renderers) == len(plain.renderers) + 1


def test_facets_differ_in_mark_as_well_as_in_color():
    data = item_margins(items(), dose=1.0).select_one({"name": ITEMS}).data_source.data
    assert len(set(data["mark"])) == len(set(data["ink"])) == 2


def test_no_item_or_too_many_facets_are_refused():
    with pytest.raises(ValueError, match="0 facets"):
        item_margins(items().iloc[:0], dose=1.0)
    many = pd.concat([items().iloc[:1].assign(facet=f"f{n}") for n in range(9)])
    with pytest.raises(ValueError, match="9 facets"):
        item_margins(many, dose=1.0)


def test_each_method_is_a_line_by_block_and_controls_are_gray():
    figure = by_block(blocks(), "norm")
    assert labels(figure) == ["bipo", "mean difference", "shuffled", "random"]
    assert "bipo largest at layer 3 (1.2)" in figure.html_attributes["aria-label"]
    colors = {r.glyph.line_color for r in figure.renderers if hasattr(r.glyph, "line_color")}
    assert len(colors) == 3


def test_blocks_without_a_value_are_left_out():
    drawn = [r.data_source.data for r in by_block(blocks(), "cosine_below").renderers]
    assert {0} & {
        int(layer) for data in drawn if "layer" in data for layer in data["layer"]
    } == set()


def test_an_unknown_measure_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="known: norm, share, cosine_below, cosine_other"):
        by_block(blocks(), "angle")
    with pytest.raises(ValueError, match="0 methods"):
        by_block(blocks().assign(control="shuffled"), "norm")
