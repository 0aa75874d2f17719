"""Figures of emotion vectors: like ones stand together, curves keep their controls."""

import numpy as np
import pandas as pd
import pytest
from tables import labels, notes

from workbench.figures.emotion import (
    emotion_curves,
    emotion_profiles,
    similarity_matrix,
    similarity_order,
)

NAMES = ("joy", "anger", "pride", "fear")
GROUP = {"joy": 0, "pride": 0, "anger": 1, "fear": 1}


def pairs(names=NAMES, band=0.3):
    def cosine(a, b):
        return 1.0 if a == b else (0.6 if GROUP[a] == GROUP[b] else -0.4)

    return pd.DataFrame(
        [{"first": a, "second": b, "cosine": cosine(a, b), "band": band}
         for a in names for b in names]
    )  # fmt: skip


def curves(emotions=("joy", "fear"), layers=4):
    rows = [
        {"emotion": name, "layer": layer, "auc": 0.6 + 0.05 * layer + 0.1 * number,
         "low": 0.5, "high": 0.95, "n": 24, "unit": "story", "interval": "95%", "null": 0.62}
        for number, name in enumerate(emotions)
        for layer in range(layers)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def profiles():
    rows = [
        {"emotion": name, "model": model, "value": value * number, "low": value * number - 0.1,
         "high": value * number + 0.1, "n": 3, "unit": "seed", "interval": "95% t"}
        for number, name in enumerate(NAMES)
        for model, value in (("P", -0.2), ("A", 0.5))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_like_emotions_stand_together_whatever_their_order_in_the_table():
    for names in (NAMES, NAMES[::-1]):
        order = similarity_order(pairs(names))
        assert {frozenset(order[:2]), frozenset(order[2:])} == {
            frozenset({"joy", "pride"}), frozenset({"anger", "fear"}),
        }  # fmt: skip


def test_an_order_of_two_or_one_needs_no_tree():
    assert similarity_order(pairs(NAMES[:2])) == ["anger", "joy"]
    assert similarity_order(pairs(NAMES[:1])) == ["joy"]


def test_the_matrix_has_a_cell_for_each_pair_and_counts_what_is_beyond_chance():
    figure = similarity_matrix(pairs(), title="Layer 3")
    cells = figure.select_one({"name": "cells"}).data_source.data
    assert len(cells["cosine"]) == 12
    assert notes(figure)[1] == "6 of 6 pairs beyond random directions (±0.30)"
    assert notes(figure)[0].startswith("from -0.40")
    assert figure.x_range.factors == figure.y_range.factors[::-1]
    assert "cosines of 4 emotions" in figure.html_attributes["aria-label"]


def test_one_color_means_one_cosine_and_opposite_signs_differ():
    cells = similarity_matrix(pairs()).select_one({"name": "cells"}).data_source.data
    fills = {
        round(float(c), 2): {
            f for f, d in zip(cells["fill"], cells["cosine"], strict=True) if d == c
        }
        for c in set(cells["cosine"])
    }
    assert [len(f) for f in fills.values()] == [1, 1]
    assert fills[0.6] != fills[-0.4]


def test_a_chosen_emotion_is_framed_and_an_unknown_one_is_not():
    plain, framed = (
        similarity_matrix(pairs(), marked="calm"),
        similarity_matrix(pairs(), marked="joy"),
    )
    assert len(framed.renderers) == len(plain.renderers) + 2


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pairs().drop(index=1), "1 of 16 pairs"),
        (pd.concat([pairs(), pairs()]), "choose one layer first"),
    ],
)
def test_a_table_with_holes_or_of_several_layers_is_refused(table, words):
    with pytest.raises(ValueError, match=words):
        similarity_matrix(table)
    with pytest.raises(ValueError, match="order names 2 emotions"):
        similarity_matrix(pairs(), order=["joy", "fear"])


def test_each_curve_has_its_peak_told_and_the_null_its_line():
    figure = emotion_curves(curves(), control=curves().assign(auc=0.55), window=(1, 2), layer=3)
    assert labels(figure) == ["joy", "fear", "control", "null"]
    told = figure.html_attributes["aria-label"]
    assert "joy 0.75 at layer 3; fear 0.85 at layer 3" in told
    assert figure.y_range.start < 0.5
    assert figure.y_range.end > 1


def test_an_emotion_that_no_layer_reads_is_told_as_such():
    table = curves(("joy",)).assign(auc=np.nan, low=0.4)
    assert "joy not read" in emotion_curves(table).html_attributes["aria-label"]


def test_more_emotions_than_colors_are_refused():
    with pytest.raises(ValueError, match="9 emotions"):
        emotion_curves(curves([f"e{n}" for n in range(9)]))
    with pytest.raises(ValueError, match="0 emotions"):
        emotion_curves(curves().iloc[:0])


def test_profiles_are_ordered_by_how_far_the_models_lie_apart():
    figure = emotion_profiles(profiles())
    assert figure.y_range.factors[::-1] == ["fear", "pride", "anger", "joy"]
    assert "fear: P -0.60, A +1.50" in figure.html_attributes["aria-label"]
    assert labels(figure) == ["P", "A"]
    assert emotion_profiles(profiles(), order=["joy", "fear"]).y_range.factors == ["fear", "joy"]
