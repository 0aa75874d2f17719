"""Cosines and components: a planted valence axis is found, marks without meaning are not."""

import numpy as np
import pytest
from scipy.stats import kstest

from workbench.directions import Directions
from workbench.emotions import read_emotions
from workbench.emotions.geometry import (
    coordinates_table,
    permuted_correlation,
    similarity_table,
    valence_table,
)
from workbench.errors import ConfigError

EMOTIONS = read_emotions()
NAMES = tuple(EMOTIONS)[:30:2] + tuple(EMOTIONS)[40:70:2]


@pytest.fixture(scope="module")
def directions(stamp):
    """Valence strongest, then arousal, then noise, at two layers of 48 dimensions."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((48, 2)))[0].T
    marks = np.array([[EMOTIONS[n].valence, EMOTIONS[n].arousal] for n in NAMES], float)
    marks -= marks.mean(axis=0)
    marks[:, 1] -= marks[:, 0] * (marks[:, 0] @ marks[:, 1]) / (marks[:, 0] @ marks[:, 0])
    planted = marks * [3.0, 1.5] @ axes
    noise = rng.standard_normal((2, len(NAMES), 48))
    vectors = np.stack([planted + 0.2 * noise[0], 0.2 * noise[1]], axis=1)
    return Directions(names=NAMES, layers=(1, 2), vectors=vectors, model=stamp())


def test_a_planted_valence_axis_is_the_first_component(directions):
    found = valence_table(directions, EMOTIONS, [[1], [2]], draws=500)
    found = found.set_index(["layer", "component", "against"])
    assert found.loc[(1, 1, "valence"), "r"] > 0.97
    assert found.loc[(1, 1, "valence"), "p"] == pytest.approx(1 / 501)
    assert found.loc[(1, 2, "arousal"), "r"] > 0.7
    assert found.loc[(2, 1, "valence"), "r"] < 0.7  # noise alone
    assert found["planned"].sum() == 2 * 2  # two pairs at each of two layers
    assert (found["n"] == len(NAMES)).all()


def test_components_are_turned_so_that_valence_and_arousal_rise(directions):
    table = coordinates_table(directions, EMOTIONS, [1])
    assert np.corrcoef(table["pc1"], table["valence"])[0, 1] > 0.9
    assert np.corrcoef(table["pc2"], table["arousal"])[0, 1] > 0.7
    flipped = coordinates_table(-directions, EMOTIONS, [1])
    np.testing.assert_allclose(flipped["pc1"], table["pc1"], atol=1e-5)


def test_a_window_puts_its_layers_side_by_side(directions):
    both = valence_table(directions, EMOTIONS, [[1, 2]], draws=200)
    assert set(both["layers"]) == {"1-2"}
    assert both[both["planned"]].set_index("component").loc[1, "r"] > 0.95


def test_p_is_uniform_where_marks_mean_nothing():
    rng = np.random.default_rng(5)
    orders = rng.permuted(np.tile(np.arange(15), (400, 1)), axis=1)
    found = [
        permuted_correlation(rng.standard_normal(15), rng.standard_normal(15), orders)[1]
        for _ in range(400)
    ]
    assert kstest(found, "uniform").pvalue > 0.01
    assert min(found) >= 1 / 401


def test_cosines_are_symmetric_with_ones_on_the_diagonal(directions):
    table = similarity_table(directions)
    assert set(table["layer"]) == {1, 2}
    own = table[table["layer"] == 1]
    square = own.pivot(index="first", columns="second", values="cosine")
    np.testing.assert_allclose(np.diag(square), 1, atol=1e-5)
    np.testing.assert_allclose(square, square.T, atol=1e-6)
    assert 0.2 < table["band"].iloc[0] < 0.35  # 1.96 / sqrt(48)


def test_too_few_emotions_or_marks_that_do_not_vary_are_refused(directions):
    with pytest.raises(ConfigError, match="3 emotions have no geometry"):
        valence_table(directions[(NAMES[0], NAMES[1], NAMES[-1])], EMOTIONS, [[1]])
    calm = [name for name in NAMES if EMOTIONS[name].arousal == 1]
    with pytest.raises(ConfigError, match="have one arousal"):
        valence_table(directions[calm], EMOTIONS, [[1]])
    with pytest.raises(ConfigError, match="has no marks"):
        valence_table(directions, {}, [[1]])
