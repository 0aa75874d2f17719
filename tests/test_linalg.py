import numpy as np
import pytest
from scipy.stats import ks_2samp, norm

from workbench import linalg

RNG = np.random.default_rng(0)


def test_a_residual_is_orthogonal_to_every_nuisance_even_to_dependent_ones():
    nuisances = RNG.standard_normal((3, 20))
    nuisances = np.concatenate([nuisances, nuisances[:1] * -2, nuisances[:1] + nuisances[1:2]])
    left = linalg.residualise(RNG.standard_normal((4, 20)), nuisances)
    assert np.abs(linalg.cosine(left, nuisances)).max() < 1e-12
    assert linalg.orthonormal(nuisances).shape == (3, 20)


def test_a_residual_keeps_what_was_orthogonal_and_repeats_itself():
    nuisance, v = RNG.standard_normal((1, 8)), RNG.standard_normal(8)
    once = linalg.residualise(v, nuisance)
    np.testing.assert_allclose(linalg.residualise(once, nuisance), once, atol=1e-14)
    np.testing.assert_allclose(once @ once, once @ v)


def test_a_projection_is_in_the_units_of_the_activations_and_blind_to_the_length_of_v():
    x, v = RNG.standard_normal((5, 8)), RNG.standard_normal(8)
    np.testing.assert_allclose(linalg.project(x, v), linalg.project(x, 30 * v))
    np.testing.assert_allclose(linalg.project(v[None], v), [np.linalg.norm(v)])


def test_a_zero_vector_has_no_direction():
    with pytest.raises(ValueError, match="1 of 2 vectors are zero"):
        linalg.unit(np.array([[0.0, 0.0], [1.0, 0.0]]))


def test_half_floats_do_not_overflow():
    v = np.full(4, 30000, np.float16)
    assert linalg.unit(v).dtype == np.float32
    np.testing.assert_allclose(linalg.unit(v), 0.5, rtol=1e-6)


def test_random_units_depend_on_the_seed_alone():
    a, b, c = (linalg.random_unit(3, 16, seed) for seed in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    np.testing.assert_allclose(np.linalg.norm(a, axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(("K", "d", "band"), [(275, 5120, 0.0522), (240, 5120, 0.0517)])
def test_the_random_band_is_the_published_one(K, d, band):
    assert linalg.random_band(K, d) == pytest.approx(band, rel=0.01)
    normal = norm.ppf(1 - (1 - 0.95 ** (1 / K)) / 2) / np.sqrt(d)
    assert linalg.random_band(K, d) == pytest.approx(normal, rel=0.01)


def test_the_simulated_band_meets_the_closed_form():
    bank = RNG.standard_normal((275, 5120)).astype(np.float32)
    simulated = linalg.simulated_band(bank, draws=3000, seed=1)
    assert simulated == pytest.approx(linalg.random_band(275, 5120), rel=0.03)


@pytest.mark.parametrize("K", [1, 5, 40], ids=["one vector", "a few", "more than axes"])
def test_drawing_inside_the_span_alone_is_drawing_whole_directions(K):
    bank = RNG.standard_normal((K, 16)) + 1
    bank[-1] = bank[0]  # a span smaller than the bank
    whole = np.abs(linalg.cosine(RNG.standard_normal((20_000, 16)), bank)).max(axis=1)
    inside = linalg.largest_cosines(bank, 20_000, seed=3)
    assert ks_2samp(whole, inside).pvalue > 0.001
    assert len(inside) == 20_000


def test_the_band_is_exact_for_one_vector_in_three_dimensions():
    assert linalg.random_band(1, 3, 0.5) == pytest.approx(0.5)  # |cos| is uniform on a sphere


def test_the_chance_of_a_cosine_is_the_inverse_of_the_band():
    for K, d, level in ((1, 5, 0.5), (275, 5120, 0.95), (10, 64, 0.99)):
        band = np.array([linalg.random_band(K, d, level)])
        assert linalg.chance_above(band, K, d)[0] == pytest.approx(1 - level, rel=1e-6)
        assert linalg.chance_above(-band, K, d)[0] == pytest.approx(1 - level, rel=1e-6)
    assert linalg.chance_above(np.array([0.0, 1.0]), 3, 5) == pytest.approx([1, 0])


@pytest.mark.parametrize("shape", [(12, 30), (60, 10)], ids=["few rows", "many rows"])
def test_principal_axes_are_those_of_the_singular_values(shape):
    x = RNG.standard_normal(shape) * np.arange(1, shape[1] + 1) + 100
    axes, shares = linalg.principal_axes(x)
    _, sizes, expected = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    rank = min(shape[0] - 1, shape[1])
    assert axes.shape == (rank, shape[1])
    np.testing.assert_allclose(shares, (sizes**2 / (sizes**2).sum())[:rank], rtol=1e-6)
    np.testing.assert_allclose(np.abs((axes * expected[:rank]).sum(axis=1)), 1, rtol=1e-6)
    np.testing.assert_allclose(axes @ axes.T, np.eye(rank), atol=1e-8)


def test_rows_that_do_not_differ_have_no_axes():
    with pytest.raises(ValueError, match="3 rows that do not differ"):
        linalg.principal_axes(np.ones((3, 4)))
