"""Planes keep distances and do not flip between layers; polygons choose the same points again."""

import numpy as np
import pytest
from workbench_apps import polygon
from workbench_apps.plane import Planes, align, pca_plane


class Stored:
    """Layers that are one cloud, turned and mirrored at random, with a little noise."""

    def __init__(self, layers=7, n=300, width=12, seed=0):
        self.rng = np.random.default_rng(seed)
        cloud = self.rng.normal(size=(n, width)) * np.array([6.0, 5.5, *[0.3] * (width - 2)])
        self.layers = tuple(range(10, 10 + layers))
        self.columns = {"id": np.arange(n).astype(str)}
        self.values = {layer: cloud @ self.turn(width) for layer in self.layers}

    def turn(self, width):
        return np.linalg.qr(self.rng.normal(size=(width, width)))[0]

    def at(self, layer):
        return self.values[layer].astype(np.float32)


def test_a_plane_holds_what_two_components_can():
    plane = pca_plane(Stored().at(10))
    assert plane.share == pytest.approx(0.985, abs=0.01)
    centered = plane.xy - plane.xy.mean(axis=0)
    assert abs(centered[:, 0] @ centered[:, 1]) < 1e-6 * len(centered)


def test_the_exact_and_the_randomized_solver_agree():
    X = Stored(width=40).at(10)
    wide = np.hstack([X, np.zeros((len(X), 1200), np.float32)])
    assert np.allclose(np.abs(pca_plane(X).xy), np.abs(pca_plane(wide).xy), atol=1e-2)


def test_alignment_undoes_a_turn_and_a_mirror_and_nothing_else():
    xy = np.random.default_rng(0).normal(size=(50, 2))
    turn = np.array([[0.6, -0.8], [-0.8, -0.6]])
    assert np.allclose(align(xy @ turn, xy), xy)
    assert np.allclose(align(3 * xy @ turn, xy), 3 * xy)


def test_neighboring_layers_do_not_flip():
    planes = Planes(Stored())
    moved = [np.abs(planes.at(n + 1).xy - planes.at(n).xy).max() for n in range(10, 16)]
    assert max(moved) < 0.2


def test_a_plane_does_not_depend_on_the_order_of_the_visit():
    forth, back = Planes(Stored()), Planes(Stored())
    one = [forth.at(layer).xy for layer in range(10, 17)]
    other = [back.at(layer).xy for layer in range(16, 9, -1)][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_an_item_that_is_not_finite_is_nowhere_and_harms_no_other():
    X = Stored().at(10)
    broken = X.copy()
    broken[7] = np.nan
    xy = pca_plane(broken).xy
    assert np.isnan(xy[7]).all()
    assert np.isfinite(np.delete(xy, 7, axis=0)).all()


def test_two_items_make_no_plane():
    assert np.isnan(pca_plane(np.ones((2, 5), np.float32)).xy).all()


def test_a_drawn_polygon_and_its_link_choose_the_same_points():
    rng = np.random.default_rng(1)
    xy = rng.normal(size=(5000, 2))
    angle = np.linspace(0, 2 * np.pi, 700, endpoint=False)
    loop = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 + 0.2 * np.sin(5 * angle))[:, None]
    drawn = polygon.selected("pca", 14, loop)
    assert len(drawn.vertices) <= polygon.MOST_VERTICES
    assert polygon.decode(drawn.encode()) == drawn
    assert np.array_equal(polygon.decode(drawn.encode()).rows(xy), drawn.rows(xy))
    exact = polygon.inside(xy, loop)
    assert (drawn.rows(xy) != exact).mean() < 0.01
    assert len(drawn.encode()) < 1200


def test_inside_is_the_even_odd_rule():
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2]], float)
    points = np.array([[1, 1], [3, 1], [1, 3], [-1, 1], [1.9, 0.1]], float)
    assert polygon.inside(points, square).tolist() == [True, False, False, False, True]
    star = np.array([[0, 3], [2, -3], [-3, 1], [3, 1], [-2, -3]], float)
    assert not polygon.inside(np.array([[0.0, 0.0]]), star)[0]


def test_a_point_that_is_nowhere_is_in_no_polygon():
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2]], float)
    assert not polygon.inside(np.array([[np.nan, np.nan]]), square)[0]


def test_boxes_and_lassos_have_corners_and_other_gestures_have_none():
    box = polygon.outline({"type": "rect", "x0": 2, "x1": 0, "y0": 1, "y1": 3})
    assert box.tolist() == [[0, 1], [2, 1], [2, 3], [0, 3]]
    lasso = polygon.outline({"type": "poly", "x": {0: 0, 1: 1, 2: 0}, "y": [0, 0, 1]})
    assert lasso.tolist() == [[0, 0], [1, 0], [0, 1]]
    assert polygon.outline({"type": "point", "x": 1, "y": 1}) is None
    assert polygon.outline({"type": "poly", "x": [0, 1], "y": [0, 1]}) is None
