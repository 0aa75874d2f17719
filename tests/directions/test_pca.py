import numpy as np
import pytest
from planted import planted

from workbench.directions.pca import Pca, principal
from workbench.linalg import cosine

RNG = np.random.default_rng(2)


def pairs_of(differences, base=3.0):
    """Items whose differences within pairs are the rows given."""
    n, d = differences.shape
    low = base * RNG.standard_normal((n, d))
    X = np.concatenate([low + differences, low])
    return X, np.repeat([1, 0], n), np.tile(np.arange(n), 2)


def with_shift(n=200, d=12, shift=3.0):
    """A shift that all pairs share, along axis 0, and one along axis 1 whose size varies more."""
    differences = RNG.standard_normal((n, d)) * 0.3
    differences[:, 0] += shift
    differences[:, 1] += 1.5 * RNG.standard_normal(n)
    return differences


def test_differences_about_zero_keep_a_shared_shift_and_about_their_mean_lose_it():
    X, y, pairs = pairs_of(with_shift())
    axes = np.eye(12)
    kept = Pca().fit(X, y, pairs=pairs)
    lost = Pca(of="centered_differences").fit(X, y, pairs=pairs)
    assert cosine(kept.coef_[None], axes[:1])[0, 0] > 0.99
    assert abs(cosine(lost.coef_[None], axes[:1])[0, 0]) < 0.3
    assert abs(cosine(lost.coef_[None], axes[1:2])[0, 0]) > 0.95
    assert lost.info_["label_difference"][0] < 0.2 * kept.info_["label_difference"][0]


@pytest.mark.parametrize("shape", [(60, 7), (9, 30)])
@pytest.mark.parametrize("of", ["differences", "centered_differences"])
def test_components_are_the_singular_vectors_as_long_as_the_root_mean_square(shape, of):
    differences = RNG.standard_normal(shape) + 0.5
    X, y, pairs = pairs_of(differences)
    fit = Pca(of=of, components=3).fit(X, y, pairs=pairs)
    rows = differences - (differences.mean(axis=0) if of == "centered_differences" else 0)
    _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(
        np.abs(fit.components_), np.abs(basis[:3] * sizes[:3, None]) / np.sqrt(len(rows)), atol=1e-8
    )
    np.testing.assert_allclose(fit.info_["explained"], (sizes**2 / (sizes**2).sum())[:3], atol=1e-9)
    assert np.array_equal(fit.coef_, fit.components_[0])


def test_the_sign_is_that_of_the_mean_and_not_of_most_pairs():
    differences = 0.05 * RNG.standard_normal((30, 5))
    differences[:20, 0] -= 1.0  # most pairs point back,
    differences[20:, 0] += 5.0  # the mean points on
    X, y, pairs = pairs_of(differences)
    fit = Pca().fit(X, y, pairs=pairs)
    assert (differences @ fit.coef_ < 0).sum() == 20
    assert fit.coef_[0] > 0
    assert fit.info_["label_difference"][0] == pytest.approx(1.0, rel=0.05)


def test_every_component_of_items_points_to_label_one_whichever_way_the_solver_put_it():
    X = RNG.standard_normal((200, 6)) * np.array([5.0, 4, 3, 1, 1, 1])
    y = np.arange(200) < 20
    X[y] += np.array([-2.0, 1.5, -1, 0, 0, 0])
    fit = Pca(of="items", components=3).fit(X, y)
    gap = X[y].mean(axis=0) - X[~y].mean(axis=0)
    assert (fit.components_ @ gap > 0).all()
    assert np.sign([fit.components_[i, i] for i in range(3)]).tolist() == [-1, 1, -1]


def test_items_are_centered_within_their_topic_and_polarity():
    acts = planted(strength=(3.0,), apart=50, polar=9.0)
    y, topic, polarity = (acts.columns[name] for name in ("label", "topic", "polarity"))
    fit = Pca(of="items", components=2).fit(acts.at(0), y, groups=topic, polarity=polarity)
    plane = np.eye(24)[[0, 2]]  # truth, and truth times polarity
    shares = (cosine(fit.components_.astype(float), plane) ** 2).sum(axis=1)
    assert (shares > 0.95).all()


def test_one_decomposition_serves_labels_that_swap_the_sides_of_pairs(monkeypatch):
    acts = planted()
    fact = np.unique(acts.columns["fact"], return_inverse=True)[1]
    turned = RNG.random((fact.max() + 1, 20)) < 0.5
    Y = (acts.columns["label"] == 1)[:, None] ^ turned[fact]
    calls = []
    monkeypatch.setattr(
        "workbench.directions.pca.principal", lambda *given: calls.append(1) or principal(*given)
    )
    Pca().fit_many(acts.at(2), Y, pairs=acts.columns["fact"])
    assert len(calls) == 1
    Pca(of="centered_differences").fit_many(acts.at(2), Y, pairs=acts.columns["fact"])
    assert len(calls) == 21


def test_labels_that_differ_within_a_side_have_components_of_their_own():
    acts = planted(facts=10)
    y, pairs = acts.columns["label"] == 1, acts.columns["fact"]
    Y = np.stack([y, y ^ (acts.columns["polarity"] < 0)], axis=1)
    found = Pca().fit_many(acts.at(2), Y, pairs=pairs)
    for labels, coef in zip(Y.T, found, strict=True):
        np.testing.assert_allclose(
            Pca().fit(acts.at(2), labels, pairs=pairs).coef_, coef, atol=1e-5
        )
    assert abs(cosine(found[:1], found[1:])[0, 0]) < 0.3


def test_where_the_labels_tell_no_sign_the_largest_coordinate_is_positive():
    rows = RNG.standard_normal((40, 5)) * np.array([5.0, 4, 3, 2, 1])
    found, _ = principal(rows, 5)
    assert (found[np.arange(5), np.abs(found).argmax(axis=1)] > 0).all()
    np.testing.assert_allclose(principal(-rows, 5)[0], found, atol=1e-10)


def test_what_cannot_be_decomposed_is_refused():
    X, y, pairs = pairs_of(with_shift())
    with pytest.raises(ValueError, match="of='pairs'; expected one of differences, centered_diff"):
        Pca(of="pairs").fit(X, y, pairs=pairs)
    with pytest.raises(ValueError, match="13 components of 200 differences or items of width 12"):
        Pca(components=13).fit(X, y, pairs=pairs)
    flat = X.copy()
    flat[:, 2:] = 1.0
    with pytest.raises(ValueError, match=r"3 components, but 200 differences .* have fewer"):
        Pca(components=3).fit(flat, y, pairs=pairs)
