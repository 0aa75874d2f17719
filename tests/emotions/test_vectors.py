"""Planted emotions are recovered; topics, neutral components and unequal counts do not leak in."""

import numpy as np
import pytest

from workbench.emotions.vectors import (
    Stories,
    common_length,
    composite,
    contrast_fit,
    emotion_vectors,
    emotion_weights,
    variants_of,
)
from workbench.errors import ConfigError, UnknownNameError
from workbench.linalg import cosine, unit


def test_planted_emotions_are_recovered_with_their_sign(plant, names):
    made = plant()
    found = emotion_vectors(Stories.of(made.stories, names))
    assert found.names == names
    for layer in (1, 2, 3):
        diagonal = np.diag(cosine(found.at(layer), made.emotion[:, layer].astype(np.float32)))
        assert (diagonal > 0.93).all()


def test_on_equal_counts_a_vector_is_its_mean_minus_the_mean_of_means(plant, names):
    made = plant(noise=2.0)
    stories = Stories.of(made.stories, names)
    means = np.stack([made.stories.where(emotion=name).at(2).mean(axis=0) for name in names])
    found = emotion_vectors(stories).at(2)
    np.testing.assert_allclose(found, means - means.mean(axis=0), atol=1e-4)


def test_topics_cancel_where_stories_were_sifted_out(plant, names):
    made = plant(drop=0.4, noise=0.0)
    found = emotion_vectors(Stories.of(made.stories, names))
    np.testing.assert_allclose(found.vectors, made.emotion, atol=1e-4)
    means = np.stack([made.stories.where(emotion=name).at(2).mean(axis=0) for name in names])
    plain = means - means.mean(axis=0)
    assert np.abs(plain - made.emotion[:, 2]).max() > 0.1  # what a plain mean would have let in


def test_vectors_sum_to_zero_and_do_not_see_what_all_stories_share(plant, names):
    made = plant(drop=0.2)
    stories = Stories.of(made.stories, names)
    weights = emotion_weights(stories.emotion, stories.topic, len(names))
    np.testing.assert_allclose(weights.sum(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(weights.sum(axis=1), 0, atol=1e-10)
    for topic in range(len(stories.topics)):
        np.testing.assert_allclose(weights[:, stories.topic == topic].sum(axis=1), 0, atol=1e-10)


def test_neutral_components_are_removed_exactly_and_random_ones_are_no_substitute(plant, names):
    made = plant(leak=6.0)
    raw = emotion_vectors(Stories.of(made.stories, names))
    found = variants_of(raw, made.neutral, explained=0.9)
    assert found["denoised"].info["components"].tolist() == [2.0] * 4
    for layer in (1, 2, 3):
        planted = made.emotion[:, layer].astype(np.float32)
        along = {n: np.abs(unit(d.at(layer)) @ made.basis[layer].T).max() for n, d in found.items()}
        assert along["denoised"] < 0.02
        assert along["raw"] > 0.5
        assert along["random control"] > 0.5
        assert np.diag(cosine(found["denoised"].at(layer), planted)).min() > 0.93
        assert np.diag(cosine(found["random control"].at(layer), planted)).min() < 0.8
    assert found["random control"].info["components"].tolist() == [2.0] * 4


@pytest.mark.parametrize(
    ("emotion", "topic", "message"),
    [
        ([0, 0, 2, 2], [0, 1, 0, 1], "emotion 1 has no story"),
        ([0, 1, 2, 2], [0, 0, 1, 1], "some share no topic"),
    ],
)
def test_emotions_that_nothing_compares_are_refused(emotion, topic, message):
    with pytest.raises(ConfigError, match=message):
        emotion_weights(np.array(emotion), np.array(topic), 3)


def test_stories_without_labels_or_of_unknown_emotions_are_refused(plant, names):
    made = plant()
    with pytest.raises(ConfigError, match="no column 'emotion'"):
        Stories.of(made.neutral)
    with pytest.raises(ConfigError, match="no story of 'envy'"):
        Stories.of(made.stories, [*names, "envy"])
    with pytest.raises(ConfigError, match=r"stories of \['sadness'\]"):
        Stories.of(made.stories, names[:-1])


def test_a_composite_is_the_signed_sum_of_unit_vectors(plant, names):
    raw = emotion_vectors(Stories.of(plant().stories, names))
    signs = {"anger": 1, "fear": 1, "joy": -1}
    found = composite(raw, signs)
    expected = sum(sign * unit(raw[name].at(2)[0]) for name, sign in signs.items())
    np.testing.assert_allclose(found.at(2)[0], expected, atol=1e-5)
    turned = composite(raw, {name: -sign for name, sign in signs.items()})
    np.testing.assert_allclose(turned.vectors, -found.vectors, atol=1e-5)
    long = composite(raw * 7, signs)
    np.testing.assert_allclose(long.vectors, found.vectors, atol=1e-4)
    with pytest.raises(ConfigError, match="signs are 1 or -1"):
        composite(raw, {"anger": 2})
    with pytest.raises(UnknownNameError, match="envy"):
        composite(raw, {"envy": 1})


def test_a_fitted_contrast_is_the_part_of_the_gap_inside_the_emotions_span(plant, names):
    raw = emotion_vectors(Stories.of(plant(active=(0, 1, 2, 3)).stories, names))
    chosen = raw[("anger", "fear", "joy")]
    mix = np.array([2.0, -1.0, 0.5])
    inside = np.einsum("k,kld->ld", mix, chosen.vectors.astype(np.float64))
    outside = np.random.default_rng(3).standard_normal(inside.shape)
    for l in range(len(outside)):
        basis = np.linalg.qr(chosen.vectors[:, l].T.astype(np.float64))[0]
        outside[l] -= basis @ (basis.T @ outside[l])
    found = contrast_fit(chosen, inside + 50 * outside, ridge=0.0)
    np.testing.assert_allclose(found.vectors[0], inside, atol=1e-3)
    np.testing.assert_allclose(found.info["weights"], np.tile(mix, (4, 1)), atol=1e-4)
    assert (contrast_fit(chosen, inside, ridge=0.0).info["share"] > 0.999).all()
    heavy = contrast_fit(chosen, inside, ridge=1e6).vectors[0]
    toward = np.einsum(
        "kld,kl->ld", chosen.vectors, np.einsum("kld,ld->kl", chosen.vectors, inside)
    )
    assert (np.einsum("ld,ld->l", unit(heavy), unit(toward)) > 0.9999).all()
    with pytest.raises(ValueError, match="ridge"):
        contrast_fit(chosen, inside, ridge=-1.0)


def test_single_emotions_get_one_length_over_the_window(plant, names):
    raw = emotion_vectors(Stories.of(plant().stories, names))
    found, common = common_length(raw, [1, 2])
    lengths = np.linalg.norm(raw.select([1, 2]).vectors, axis=-1)
    assert common == pytest.approx(lengths.mean(), rel=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=-1), common, rtol=1e-5)
    np.testing.assert_allclose(unit(found.at(1)), unit(raw.at(1)), atol=1e-5)
    assert found.layers == (1, 2)
