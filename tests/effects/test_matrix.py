"""A steering matrix block by block, against numbers worked out by hand."""

import numpy as np
import pytest

from workbench.directions import Directions
from workbench.effects.matrix import by_block


def made(subject, rows, layers, norms=None):
    wide = np.zeros((len(rows), 32), np.float32)
    wide[:, :2] = rows
    return Directions(("v",), layers, wide[None], subject.stamp, norms=norms)


def test_lengths_shares_and_cosines_are_those_of_the_vectors(tiny_subject):
    own = made(tiny_subject, [[3, 0], [0, 2], [0, -1]], (0, 1, 3), np.array([6, 4, 2], np.float32))
    other = made(tiny_subject, [[1, 1], [0, 5]], (0, 3))
    table = by_block(own, other)
    assert table["layer"].tolist() == [0, 1, 3]
    assert table["norm"].tolist() == [3, 2, 1]
    assert table["share"].tolist() == [0.5, 0.5, 0.5]
    assert table["cosine_below"].tolist()[1:] == [0, -1]
    assert np.isnan(table["cosine_below"][0])
    assert table["cosine_other"][0] == pytest.approx(np.sqrt(0.5))
    assert np.isnan(table["cosine_other"][1])  # a block that the other does not hold
    assert table["cosine_other"][2] == -1


def test_what_is_not_known_is_no_number(tiny_subject):
    table = by_block(made(tiny_subject, [[0, 0], [1, 0]], (1, 2)))
    assert table["share"].isna().all()
    assert table["cosine_other"].isna().all()
    assert table["cosine_below"].isna().all()  # below is a zero vector, which points nowhere
