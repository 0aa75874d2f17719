"""What the methods that learn a map promise, each against its formula on planted states."""

import numpy as np
import pytest
import scipy.linalg
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from workbench.directions.leace import Leace
from workbench.directions.null_space import NullSpace
from workbench.directions.ot_map import OtMap, covariance, transport
from workbench.directions.outer import Outer
from workbench.directions.pairs import pair_rows
from workbench.directions.reduced_rank import ReducedRank
from workbench.directions.ridge_map import GRID, RidgeMap, paired
from workbench.directions.spectrum import spectrum, top_axes
from workbench.errors import ConfigError
from workbench.linalg import cosine
from workbench.registry import METHODS, needs_model

D = 12
NAMES = [
    name
    for name in METHODS.names()
    if getattr(METHODS.factory(name), "gives", "") == "map"
    and not needs_model(METHODS.factory(name))
]
PARAMS = {"reduced_rank": {"rank": 3}, "null_space": {"share": 0.5}}
MOVES_THE_MEAN = [n for n in NAMES if n not in ("leace", "null_space")]


def pairs_of(m=60, d=D, seed=0, rank=None, noise=0.0, rotate=False):
    """States x of label 0 and x + A x + c (+ noise) of label 1, rows shuffled; and A, c."""
    rng = np.random.default_rng(seed)
    A = 0.3 * rng.standard_normal((d, d))
    if rank is not None:
        U, s, Vt = np.linalg.svd(A)
        A = (U[:, :rank] * s[:rank]) @ Vt[:rank]
    c = 3 * rng.standard_normal(d)
    lower = rng.standard_normal((m, d)) @ np.diag(np.linspace(0.5, 2, d)) + 4
    upper = lower + lower @ A.T + c + noise * rng.standard_normal((m, d))
    y = np.repeat([False, True], m)
    names = np.tile([f"p{n}" for n in range(m)], 2)
    order = rng.permutation(2 * m)
    return np.concatenate([lower, upper])[order], y[order], names[order], A, c


def make(name, **more):
    return METHODS.create(name, **PARAMS.get(name, {}) | more)


def fitted(name, X, y, names, **more):
    return make(name, **more).fit(X, y, pairs=names)


def test_the_registry_finds_the_maps_by_their_files():
    wanted = {"leace", "null_space", "ot_map", "outer", "reduced_rank", "ridge_map"}
    assert wanted <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_axis_points_from_label_0_to_label_1(name):
    X, y, names, *_ = pairs_of(noise=0.1)
    difference = X[y].mean(0) - X[~y].mean(0)
    one, other = fitted(name, X, y, names), fitted(name, X, ~y, names)
    np.testing.assert_allclose(one.axis_, difference)
    np.testing.assert_allclose(other.axis_, -difference)


@pytest.mark.parametrize("name", MOVES_THE_MEAN)
def test_the_whole_dose_carries_the_mean_of_label_0_to_that_of_label_1(name):
    X, y, names, *_ = pairs_of(noise=0.5)
    moved = fitted(name, X, y, names).transform(X[~y])
    np.testing.assert_allclose(moved.mean(0), X[y].mean(0), atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("m", [60, 5])
def test_a_displacement_is_w_h_plus_b_for_more_and_for_fewer_items_than_dimensions(name, m):
    X, y, names, *_ = pairs_of(m=m, noise=0.1)
    found = fitted(name, X, y, names)
    np.testing.assert_allclose(found.displacement(X), X @ found.W_.T + found.b_, atol=1e-9)
    np.testing.assert_allclose(found.transform(X), X + found.displacement(X))
    assert (found.b_.shape, found.W_.shape) == ((D,), (D, D))
    assert np.linalg.matrix_rank(found.W_, tol=1e-9) <= found.rank_ <= D


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_the_same_each_time_in_any_order_and_leaves_its_input_alone(name):
    X, y, names, *_ = pairs_of(noise=0.3)
    before = X.copy()
    one, two = fitted(name, X, y, names), fitted(name, X, y, names)
    assert np.array_equal(one.W_, two.W_)
    assert np.array_equal(one.b_, two.b_)
    assert np.array_equal(X, before)
    order = np.random.default_rng(1).permutation(len(y))
    other = fitted(name, X[order], y[order], names[order])
    np.testing.assert_allclose(other.W_, one.W_, atol=1e-7)
    np.testing.assert_allclose(other.b_, one.b_, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_a_clone_has_the_same_parameters_and_no_fit(name):
    X, y, names, *_ = pairs_of(noise=0.3)
    one = fitted(name, X, y, names)
    two = clone(one)
    assert two.get_params() == one.get_params()
    assert not hasattr(two, "b_")


@pytest.mark.parametrize("name", NAMES)
def test_float32_states_are_solved_in_float64(name):
    X, y, names, *_ = pairs_of(noise=0.3)
    narrow = X.astype(np.float32)
    one, two = fitted(name, narrow, y, names), fitted(name, narrow.astype(np.float64), y, names)
    assert one.W_.dtype == np.float64
    assert np.array_equal(one.W_, two.W_)


@pytest.mark.parametrize("name", NAMES)
def test_states_that_are_not_finite_are_refused(name):
    X, y, names, *_ = pairs_of()
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="1 of 120 rows are not finite; the first is row 3"):
        fitted(name, X, y, names)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", [np.ones(120, bool), np.arange(120) % 3])
def test_labels_that_are_not_two_classes_are_refused(name, labels):
    X, _, names, *_ = pairs_of()
    with pytest.raises(ValueError, match="labels"):
        fitted(name, X, labels, names)


# pairs


def test_pairs_are_lined_up_by_name():
    y = np.array([True, False, False, True])
    plus, minus = pair_rows(y, np.array(["b", "a", "b", "a"]))
    assert (plus.tolist(), minus.tolist()) == ([3, 0], [1, 2])


@pytest.mark.parametrize(
    ("y", "names", "message"),
    [
        ([1, 0, 1], "aab", "'b' holds 1 items of label 1 and 0 of label 0"),
        ([1, 0, 0], "aaa", "'a' holds 1 items of label 1 and 2 of label 0"),
        ([1, 0, 1, 1], "aabb", r"\(1 of 2 pairs"),
    ],
)
def test_a_pair_is_one_item_of_each_label(y, names, message):
    with pytest.raises(ConfigError, match=message):
        pair_rows(np.array(y, bool), np.array(list(names)))


@pytest.mark.parametrize("name", ["ridge_map", "reduced_rank"])
def test_maps_from_pairs_refuse_to_go_without(name):
    X, y, *_ = pairs_of()
    with pytest.raises(ValueError, match="needs pairs"):
        make(name).fit(X, y)
    assert make(name).needs == ("pairs",)
    assert (Outer(rank=1).needs, Outer(rank=2).needs) == ((), ("pairs",))


# ridge


@pytest.mark.parametrize("m", [5, 12, 40])
@pytest.mark.parametrize("lam", [0.3, 50.0])
def test_the_ridge_is_the_same_in_its_primal_and_its_dual_form(m, lam):
    X, y, names, *_ = pairs_of(m=m, noise=1.0)
    found = paired(X, y, names)
    Xc, Dc = found.X, found.D
    plain = np.linalg.solve(Xc.T @ Xc + lam * np.eye(D), Xc.T @ Dc)
    dual = Xc.T @ np.linalg.solve(Xc @ Xc.T + lam * np.eye(m), Dc)
    np.testing.assert_allclose(plain, dual, atol=1e-9)
    for way in (True, False, None):
        np.testing.assert_allclose(
            spectrum(Xc, dual=way).solve(Xc, Dc, lam), plain, rtol=1e-7, atol=1e-9
        )


def test_a_planted_map_is_recovered_with_a_small_ridge():
    X, y, names, A, c = pairs_of()
    found = RidgeMap(ridge=1e-9).fit(X, y, pairs=names)
    np.testing.assert_allclose(found.W_, A, atol=1e-5)
    np.testing.assert_allclose(found.b_, c, atol=1e-4)
    np.testing.assert_allclose(
        found.transform(X[~y])[0], X[y][names[y] == names[~y][0]][0], atol=1e-4
    )


def test_a_large_ridge_leaves_the_mean_difference():
    X, y, names, *_ = pairs_of(noise=0.2)
    found = RidgeMap(ridge=1e12).fit(X, y, pairs=names)
    np.testing.assert_allclose(found.W_, 0, atol=1e-8)
    np.testing.assert_allclose(found.b_, X[y].mean(0) - X[~y].mean(0), atol=1e-6)


@pytest.mark.parametrize("m", [9, 30])
def test_the_error_on_left_out_pairs_is_that_of_refitting_without_each(m):
    X, y, names, *_ = pairs_of(m=m, noise=1.0)
    lam = 2.0
    plus, minus = pair_rows(y, names)
    states, differences = X[minus], X[plus] - X[minus]
    missed = bare = 0.0
    for out in range(m):
        keep = np.arange(m) != out
        mean, shift = states[keep].mean(0), differences[keep].mean(0)
        Xc, Dc = states[keep] - mean, differences[keep] - shift
        W = np.linalg.solve(Xc.T @ Xc + lam * np.eye(D), Xc.T @ Dc).T
        missed += np.square(differences[out] - shift - W @ (states[out] - mean)).sum()
        bare += np.square(differences[out] - shift).sum()
    (found,) = paired(X, y, names).left_out([lam])
    assert found == pytest.approx(1 - missed / bare, abs=1e-9)


@pytest.mark.parametrize("m", [9, 30])
def test_the_error_on_left_out_groups_is_that_of_refitting_without_each(m):
    X, y, names, *_ = pairs_of(m=m, noise=1.0)
    lam, groups = 2.0, np.array([int(name[1:]) % 3 for name in names])
    plus, minus = pair_rows(y, names)
    states, differences = X[minus], X[plus] - X[minus]
    missed = bare = 0.0
    for out in range(3):
        keep = groups[minus] != out
        mean, shift = states[keep].mean(0), differences[keep].mean(0)
        Xc, Dc = states[keep] - mean, differences[keep] - shift
        W = np.linalg.solve(Xc.T @ Xc + lam * np.eye(D), Xc.T @ Dc).T
        missed += np.square(differences[~keep] - shift - (states[~keep] - mean) @ W.T).sum()
        bare += np.square(differences[~keep] - shift).sum()
    (found,) = paired(X, y, names, groups).left_out([lam])
    assert found == pytest.approx(1 - missed / bare, abs=1e-8)


def test_the_ridge_is_chosen_by_groups_that_are_left_out_where_there_are_groups():
    """Each group has a map of its own, so that pairs foresee their group and no other."""
    rng = np.random.default_rng(0)
    lower = rng.standard_normal((120, D)) + 10 * np.repeat(rng.standard_normal((4, D)), 30, axis=0)
    maps = rng.standard_normal((4, D, D))
    upper = lower + 0.3 * np.einsum("gij,gnj->gni", maps, lower.reshape(4, 30, D)).reshape(-1, D)
    X, y = np.concatenate([lower, upper]), np.repeat([False, True], 120)
    pairs, groups = np.tile(np.arange(120), 2), np.tile(np.repeat(np.arange(4), 30), 2)
    alone = RidgeMap().fit(X, y, pairs=pairs)
    together = RidgeMap().fit(X, y, pairs=pairs, groups=groups)
    assert together.info_["r2_left_out"] < 0.2 < 0.5 < alone.info_["r2_left_out"]
    assert together.info_["lam"] > 9 * alone.info_["lam"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [(np.arange(120), "a pair lies in two groups"), (np.zeros(120), "all pairs are in group 0.0")],
)
def test_groups_that_cannot_be_left_out_are_refused(groups, message):
    X, y, names, *_ = pairs_of()
    with pytest.raises(ConfigError, match=message):
        ReducedRank().fit(X, y, pairs=names, groups=groups)


def test_left_out_pairs_tell_a_map_from_a_mere_shift():
    X, y, names, *_ = pairs_of(noise=0.1)
    real = RidgeMap().fit(X, y, pairs=names)
    rng = np.random.default_rng(3)
    shifted = X.copy()
    plus, minus = pair_rows(y, names)
    shifted[plus] = X[minus] + 3 + 0.5 * rng.standard_normal((len(plus), D))
    mere = RidgeMap().fit(shifted, y, pairs=names)
    assert real.info_["r2_left_out"] > 0.9
    assert mere.info_["r2_left_out"] < 0.02
    assert real.info_["lam"] < mere.info_["lam"]
    scale = np.square(paired(X, y, names).X).sum() / D
    assert mere.info_["lam"] / scale == pytest.approx(max(GRID), rel=0.02)


def test_states_that_never_differ_are_refused():
    X = np.ones((6, 3))
    X[3:] += np.random.default_rng(0).standard_normal((3, 3))
    with pytest.raises(ValueError, match="all the same"):
        RidgeMap().fit(X, np.arange(6) > 2, pairs=np.array([0, 1, 2, 0, 1, 2]))


# reduced rank


def squared_error(W, found):
    return np.square(found.D - found.X @ W.T).sum()


@pytest.mark.parametrize("rank", [1, 3])
def test_a_reduced_map_is_the_best_of_its_rank(rank):
    X, y, names, *_ = pairs_of(noise=2.0)
    found = paired(X, y, names)
    W = ReducedRank(rank=rank, ridge=1e-10).fit(X, y, pairs=names).W_
    assert np.linalg.matrix_rank(W, tol=1e-6) == rank
    whole = np.linalg.lstsq(found.X, found.D, rcond=None)[0].T
    beyond = np.linalg.svd(found.X @ whole.T, compute_uv=False)[rank:]
    best = squared_error(whole, found) + np.square(beyond).sum()  # Eckart and Young
    assert squared_error(W, found) == pytest.approx(best, rel=1e-6)
    U, s, Vt = np.linalg.svd(whole)
    assert squared_error((U[:, :rank] * s[:rank]) @ Vt[:rank], found) > best * 1.001


def test_the_reduced_map_is_the_ridge_map_projected_on_its_fitted_values():
    X, y, names, *_ = pairs_of(m=8, noise=1.0)
    whole = RidgeMap(ridge=0.5).fit(X, y, pairs=names)
    reduced = ReducedRank(rank=2, ridge=0.5).fit(X, y, pairs=names)
    axes = np.linalg.svd(paired(X, y, names).X @ whole.W_.T)[2][:2]
    np.testing.assert_allclose(reduced.W_, axes.T @ axes @ whole.W_, atol=1e-8)
    assert (reduced.left_.shape, reduced.right_.shape, reduced.rank_) == ((D, 2), (2, D), 2)


def test_a_planted_map_of_low_rank_is_recovered():
    X, y, names, A, c = pairs_of(rank=2)
    found = ReducedRank(rank=2, ridge=1e-9).fit(X, y, pairs=names)
    np.testing.assert_allclose(found.W_, A, atol=1e-5)
    np.testing.assert_allclose(found.b_, c, atol=1e-4)


def test_more_ranks_than_pairs_allow_are_refused():
    X, y, names, *_ = pairs_of(m=5)
    with pytest.raises(ValueError, match=r"at most|span only"):
        ReducedRank(rank=6).fit(X, y, pairs=names)


# outer products


@pytest.mark.parametrize("m", [6, 60])
def test_the_discriminant_coordinate_of_every_state_becomes_that_of_label_1(m):
    X, y, *_ = pairs_of(m=m, noise=1.0)
    found = Outer(ridge=0.1).fit(X, y)
    w = found.right_[0]
    after = found.transform(X) @ w
    np.testing.assert_allclose(after, (X[y].mean(0) @ w), rtol=1e-8)
    there = X[y].mean(0)[None]
    np.testing.assert_allclose(found.displacement(there), 0, atol=1e-8)
    assert np.linalg.matrix_rank(found.W_) == 1


@pytest.mark.parametrize("m", [5, 60])
def test_the_discriminant_is_that_of_the_regularised_covariance(m):
    X, y, *_ = pairs_of(m=m, noise=1.0)
    within = np.concatenate([X[y] - X[y].mean(0), X[~y] - X[~y].mean(0)])
    S = within.T @ within / len(within)
    S += 0.1 * np.trace(S) / D * np.eye(D)
    w = np.linalg.solve(S, X[y].mean(0) - X[~y].mean(0))
    found = Outer(ridge=0.1).fit(X, y)
    assert cosine(found.right_, w[None])[0, 0] == pytest.approx(1, abs=1e-9)


def test_without_a_ridge_too_few_items_are_refused():
    X, y, *_ = pairs_of(m=5)
    with pytest.raises(ValueError, match="no invertible covariance"):
        Outer(ridge=0.0).fit(X, y)


def test_rank_r_scales_what_lies_in_the_plane_of_the_differences():
    X, y, names, *_ = pairs_of(rank=1, noise=0.2)
    found = Outer(rank=2, scale=0.5).fit(X, y, pairs=names)
    plus, minus = pair_rows(y, names)
    differences = X[plus] - X[minus]
    values, U = np.linalg.eigh(differences.T @ differences)
    plane = U[:, -2:]
    np.testing.assert_allclose(found.W_, 0.5 * plane @ plane.T, atol=1e-8)
    np.testing.assert_allclose(found.b_, differences.mean(0))
    assert found.info_["retained"] == pytest.approx(values[-2:].sum() / values.sum())
    with pytest.raises(ValueError, match="outer of rank 2 needs pairs"):
        Outer(rank=2).fit(X, y)


# transport


def spd(rng, d=D):
    half = rng.standard_normal((d, 2 * d))
    return half @ half.T / d


def test_transport_carries_one_covariance_into_the_other():
    rng = np.random.default_rng(0)
    S0, S1 = spd(rng), spd(rng)
    T = transport(S0, S1)
    np.testing.assert_allclose(T @ S0 @ T.T, S1, atol=1e-9)
    np.testing.assert_allclose(T, T.T)
    assert np.linalg.eigvalsh(T).min() > 0
    root = scipy.linalg.sqrtm
    formula = np.linalg.inv(root(S0)) @ root(root(S0) @ S1 @ root(S0)) @ np.linalg.inv(root(S0))
    np.testing.assert_allclose(T, formula.real, atol=1e-8)


@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", 0.3, 0.0])
def test_the_fitted_transport_meets_the_shrunk_covariances(shrinkage):
    X, y, *_ = pairs_of(noise=1.0)
    found = OtMap(shrinkage=shrinkage).fit(X, y)
    T = found.W_ + np.eye(D)
    S0, S1 = (covariance(X[s] - X[s].mean(0), shrinkage)[0] for s in (~y, y))
    np.testing.assert_allclose(T @ S0 @ T.T, S1, atol=1e-8)
    if shrinkage == 0.0:
        np.testing.assert_allclose(np.cov(found.transform(X[~y]).T), np.cov(X[y].T), atol=1e-8)


def test_transport_in_a_plane_leaves_the_rest_but_its_mean():
    X, y, *_ = pairs_of(noise=1.0)
    found = OtMap(shrinkage=0.0, components=4).fit(X, y)
    axes, _ = top_axes(X - X.mean(0), 4)
    rest = np.eye(D) - axes.T @ axes
    moved = found.transform(X[~y])
    np.testing.assert_allclose(np.cov((moved @ axes.T).T), np.cov((X[y] @ axes.T).T), atol=1e-8)
    steady = (moved - X[~y]) @ rest
    np.testing.assert_allclose(steady, np.tile(steady[0], (len(steady), 1)), atol=1e-9)
    np.testing.assert_allclose(moved.mean(0), X[y].mean(0), atol=1e-9)
    assert found.rank_ == 4


@pytest.mark.parametrize("settings", [{}, {"shrinkage": 0.2}, {"components": 3}])
def test_equal_covariances_leave_the_difference_of_means(settings):
    rng = np.random.default_rng(0)
    lower = rng.standard_normal((40, D)) @ spd(rng)
    X, y = np.concatenate([lower, lower + np.arange(D)]), np.repeat([False, True], 40)
    found = OtMap(**settings).fit(X, y)
    np.testing.assert_allclose(found.W_, 0, atol=1e-6)
    np.testing.assert_allclose(found.displacement(X), np.tile(np.arange(D), (80, 1)), atol=1e-5)


def test_a_covariance_without_an_inverse_is_refused():
    X, y, *_ = pairs_of(m=5)
    with pytest.raises(ValueError, match="no inverse"):
        OtMap(shrinkage=0.0).fit(X, y)
    with pytest.raises(ValueError, match="expected ledoit_wolf or a number"):
        OtMap(shrinkage="oas").fit(X, y)
    assert np.isfinite(OtMap().fit(X, y).W_).all()


# erasure


@pytest.mark.parametrize("m", [60, 5])
def test_after_erasure_no_linear_classifier_beats_chance(m):
    X, y, *_ = pairs_of(m=m, noise=1.0)
    before = LogisticRegression(C=1e4, max_iter=10_000).fit(X, y)
    assert before.score(X, y) > 0.9
    erased = Leace().fit(X, y).transform(X)
    np.testing.assert_allclose(erased[y].mean(0), erased[~y].mean(0), atol=1e-8)
    after = LogisticRegression(C=1e4, max_iter=10_000, tol=1e-10).fit(erased, y)
    np.testing.assert_allclose(after.coef_, 0, atol=1e-5)
    np.testing.assert_allclose(after.predict_proba(erased), 0.5, atol=1e-4)


def test_a_ridge_erases_too_but_moves_more():
    X, y, *_ = pairs_of(noise=1.0)
    plain, ridged = Leace().fit(X, y), Leace(ridge=1.0).fit(X, y)
    erased = ridged.transform(X)
    np.testing.assert_allclose(erased[y].mean(0), erased[~y].mean(0), atol=1e-9)
    sizes = [np.square(one.displacement(X)).sum() for one in (plain, ridged)]
    assert sizes[0] < sizes[1]


def test_erasure_changes_no_more_than_any_other_projection_that_erases():
    X, y, *_ = pairs_of(noise=1.0)
    found = Leace().fit(X, y)
    least = np.square(found.displacement(X)).mean()
    m, rng = found.axis_, np.random.default_rng(0)
    others = [m, *(found.right_[0] + 0.1 * rng.standard_normal((20, D)))]
    for w in others:
        moved = -np.outer((X - X.mean(0)) @ w / (m @ w), m)
        assert np.square(moved).mean() > least
    np.testing.assert_allclose(found.W_ @ found.W_, -found.W_, atol=1e-9)  # a projection


def test_swapped_labels_erase_the_same():
    X, y, *_ = pairs_of(noise=1.0)
    one, two = Leace().fit(X, y), Leace().fit(X, ~y)
    np.testing.assert_allclose(one.W_, two.W_, atol=1e-10)
    np.testing.assert_allclose(one.b_, two.b_, atol=1e-9)


# null space


def states(benign, d=40, seed=0):
    """Benign states in a subspace of 8 dimensions, chosen ones beyond it; offsets in both."""
    rng = np.random.default_rng(seed)
    plane = rng.standard_normal((8, d))
    lower = (rng.standard_normal((benign, 8)) + 2) @ plane
    upper = (rng.standard_normal((30, 8)) + 2) @ plane + 3 * rng.standard_normal(d)
    upper += 0.05 * rng.standard_normal(upper.shape)
    return np.concatenate([lower, upper]), np.repeat([False, True], [benign, 30])


def test_benign_states_do_not_move_and_chosen_ones_get_the_target():
    X, y = states(200)
    target = np.random.default_rng(1).standard_normal(40)
    found = NullSpace(target=target).fit(X, y)
    moved = found.displacement(X)
    assert np.abs(moved[~y]).max() < 1e-5
    np.testing.assert_allclose(moved[y], np.tile(target, (30, 1)), atol=0.02)
    fresh, labels = states(100, seed=0)
    assert np.abs(found.displacement(fresh[~labels])).max() < 1e-5
    assert found.info_["null_dimensions"] == 32
    assert found.info_["reach"] == pytest.approx(1, abs=0.01)


def test_the_map_is_the_published_one():
    X, y = states(200)
    found = NullSpace(ridge=0.05).fit(X, y)
    values, V = np.linalg.eigh(X[~y].T @ X[~y])
    P = V[:, :32] @ V[:, :32].T
    assert values[31] < 1e-6 * values[32]
    R = np.tile(found.axis_, (30, 1)).T
    PH = P @ X[y].T
    a = 0.05 * np.square(PH).sum() / 30
    delta = R @ PH.T @ np.linalg.pinv(PH @ PH.T + a * P, rcond=1e-12) @ P
    np.testing.assert_allclose(found.W_, delta, atol=1e-6)


def test_benign_states_everywhere_need_a_share_and_then_leak():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20)) @ np.diag(np.geomspace(10, 0.01, 20))
    X[200:] += 1
    y = np.arange(300) >= 200
    with pytest.raises(ValueError, match="reach all 20 dimensions"):
        NullSpace().fit(X, y)
    found = NullSpace(share=0.5).fit(X, y)
    assert found.info_["null_dimensions"] == 10
    assert 0 < found.info_["leak"] < 0.2 < found.info_["reach"]
    assert found.info_["leak"] == pytest.approx(np.abs(X[~y] @ found.right_[0]).mean())


def test_a_target_of_another_width_is_refused():
    X, y = states(50)
    with pytest.raises(ValueError, match="target has shape"):
        NullSpace(target=[1.0, 2.0]).fit(X, y)


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("ridge_map", {"ridge": -1.0}, "ridge -1.0; expected 0 or more"),
        ("ridge_map", {"ridge": np.nan}, "ridge nan"),
        ("reduced_rank", {"rank": 0}, "rank 0; expected a whole number"),
        ("reduced_rank", {"rank": 3, "ridge": -0.5}, "ridge -0.5"),
        ("outer", {"ridge": -1.0}, "ridge -1.0"),
        ("outer", {"ridge": np.inf}, "ridge inf"),
        ("leace", {"ridge": -0.5}, "ridge -0.5"),
        ("null_space", {"share": 0.5, "ridge": -0.1}, "ridge -0.1"),
        ("null_space", {"share": 0.5, "target": [np.nan] * D}, "zero or not finite"),
        ("null_space", {"share": 0.5, "target": [0.0] * D}, "zero or not finite"),
        ("ot_map", {"components": 0}, "rank 0"),
    ],
)
def test_a_parameter_that_makes_no_map_is_refused(method, params, message):
    """A negative ridge gave a map without a word; a rank of 1.5 was cut to some other rank."""
    X, y, names, _, _ = pairs_of(m=20)
    with pytest.raises(ValueError, match=message):
        METHODS.create(method, **params).fit(X, y, pairs=names)


def test_a_rank_between_two_is_refused():
    X, y, names, _, _ = pairs_of(m=20)
    estimator = ReducedRank().set_params(rank=1.5)
    with pytest.raises(ValueError, match=r"rank 1\.5"):
        estimator.fit(X, y, pairs=names)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "ot_map"])
def test_classes_of_the_same_states_give_no_map(name):
    X, y, names, _, _ = pairs_of(m=20)
    X[np.argsort(names, kind="stable")[1::2]] = X[np.argsort(names, kind="stable")[::2]]
    with pytest.raises(ValueError, match=r"same|zero"):
        METHODS.create(name, **PARAMS.get(name, {})).fit(X, y, pairs=names)


def test_a_class_of_one_item_is_not_transported():
    X, y, _, _, _ = pairs_of(m=20)
    kept = ~y | (np.cumsum(y) == 1)
    with pytest.raises(ValueError, match="at least two of each"):
        OtMap().fit(X[kept], y[kept])
