"""Curves by layer and the map across layers."""

import numpy as np
import pandas as pd
import pytest
from tables import cells, labels, notes, rows

from workbench.figures import cosine_by_layer, layer_similarity_map


def curves():
    table = rows([[0.1, 0.5], [-0.2, 0.4]], layers=(2, 0, 1), second=("a", "b"))
    table["cosine"] += table["layer"] / 10
    return table


def across(layers=(0, 1, 2), direction="truth"):
    made = []
    for null, band in (("isotropic, closed form, 95%", 0.2), ("split-half, 95%", 0.7)):
        for a in layers:
            for b in layers:
                made.append(
                    {
                        "direction": direction, "layer": a, "other_layer": b,
                        "cosine": 1 - 0.4 * abs(a - b), "low": np.nan, "high": np.nan, "n": 1,
                        "unit": "direction", "interval": "none", "null": null,
                        "band": 1.0 if a == b and null[0] == "s" else band, "null_n": 90,
                        "null_unit": "item",
                    }
                )  # fmt: skip
    return pd.DataFrame(made)


def test_every_pair_is_one_curve_in_order_of_layers_whatever_the_number_of_nulls():
    figure = cosine_by_layer(curves())
    drawn = [r.data_source.data for r in figure.renderers if "cosine" in r.data_source.data]
    assert len(drawn) == 4 * 3
    assert all(list(data["layer"]) == [0, 1, 2] for data in drawn)
    first = drawn[0]
    np.testing.assert_allclose(first["cosine"], [0.1, 0.2, 0.3])
    assert labels(figure) == [
        "p with a", "p with b", "q with a", "q with b", "band: isotropic", "band: split-half",
    ]  # fmt: skip


def test_bands_stand_on_both_sides_of_zero_at_every_layer():
    figure = cosine_by_layer(curves())
    lines = [
        sorted(set(r.data_source.data["y"])) for r in figure.renderers if "y" in r.data_source.data
    ]
    assert lines == [[0.1], [-0.1], [0.3], [-0.3]]
    assert notes(figure)[0] == "interval: 95% t over seeds, n = 3 seeds"


def test_more_pairs_than_colors_or_none_are_refused():
    many = rows([[0.1] * 9], first=("p",), second=tuple("abcdefghi"))
    with pytest.raises(ValueError, match="9 pairs; from 1 to 8"):
        cosine_by_layer(many)
    with pytest.raises(ValueError, match="0 pairs"):
        cosine_by_layer(many.iloc[:0])


def test_the_map_hatches_by_the_widest_band_and_leaves_the_diagonal_alone():
    figure = layer_similarity_map(across())
    data = cells(figure)
    found = dict(zip(zip(data["y"], data["x"], strict=True), data["hatch"], strict=True))
    assert {found[n, n] for n in range(3)} == {" "}
    assert {found[pair] for pair in ((0, 1), (1, 2), (0, 2))} == {"/"}
    assert notes(figure)[0] == "0 of 6 pairs of layers beyond every band"
    assert "band 0.700: split-half, 95%, from 90 items" in notes(figure)
    assert (figure.y_range.start, figure.y_range.end) == (2.5, -0.5)


def test_places_are_named_by_their_layer_and_few_enough_to_read():
    layers = (*range(0, 40, 2), 47)
    figure = layer_similarity_map(across(layers=layers))
    data = cells(figure)
    assert all(layers[x] == layer for x, layer in zip(data["x"], data["other_layer"], strict=True))
    assert all(layers[y] == layer for y, layer in zip(data["y"], data["layer"], strict=True))
    for axis in (figure.xaxis[0], figure.yaxis[0]):
        assert len(axis.ticker.ticks) <= 12
        assert [axis.major_label_overrides[n] for n in axis.ticker.ticks] == [
            str(layers[n]) for n in axis.ticker.ticks
        ]


def test_two_directions_in_one_map_are_refused():
    both = pd.concat([across(), across(direction="axis")])
    with pytest.raises(ValueError, match="one direction"):
        layer_similarity_map(both)
