"""By layer, how well vectors of some topics tell the emotion of stories on other topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from workbench.directions.algebra import neutral_components, random_basis
from workbench.directions.rows import read_items
from workbench.emotions.vectors import (
    VARIANTS,
    Stories,
    emotion_weights,
    folds_of,
    label_of,
    run_of,
)
from workbench.errors import ConfigError
from workbench.linalg import remove_span
from workbench.stats import t_intervals
from workbench.types import ActivationsLike, Progress, ndarray

ALL = "all"
"""Stands for the mean over emotions in a table."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Held-out AUC of every emotion, layer and topic, and the window that they choose."""

    emotions: tuple[str, ...]
    layers: tuple[int, ...]
    topics: tuple[str, ...]
    fold: Int[ndarray, " m"]
    """Of each topic."""
    aucs: Mapping[str, Float[ndarray, "l k m"]]
    """By variant; one emotion's stories against the other stories of a topic, NaN without both."""
    null: Float[ndarray, " l"]
    """By layer, the 95% point of the mean AUC when emotions are shuffled within topics."""
    null_largest: float
    """The same of the largest over layers."""
    window: tuple[int, ...]
    """Neighboring layers with the largest mean AUC of the denoised vectors, or the fixed ones."""
    by_topic: Float[ndarray, " m"]
    """Mean AUC at the window that the other folds' topics choose, or at the fixed one."""
    stories: int

    @property
    def table(self) -> pd.DataFrame:
        """Rows variant, emotion (``all`` for the mean), layer, auc, low, high, n, unit, interval.

        ``null`` and ``null_largest`` stand with the mean of the denoised vectors; ``chosen`` says
        whether the layer is in the window.
        """
        return pd.DataFrame(list(self._rows()))

    def _rows(self) -> Iterator[dict[str, Any]]:
        for variant, aucs in self.aucs.items():
            for row, layer in enumerate(self.layers):
                each = dict(zip(self.emotions, aucs[row], strict=True))
                for emotion, values in {ALL: _mean(aucs[row], 0), **each}.items():
                    own = variant == VARIANTS[0] and emotion == ALL
                    yield {
                        "variant": variant,
                        "emotion": emotion,
                        "layer": layer,
                        **_interval(values),
                        "null": self.null[row] if own else np.nan,
                        "null_largest": self.null_largest if own else np.nan,
                        "chosen": layer in self.window,
                    }

    def summary(self) -> dict[str, Any]:
        """Return the AUC at a window that was chosen without the topics that it is of, or fixed."""
        told = {"window": label_of(self.window), "null_largest": self.null_largest}
        return {**told, **_interval(self.by_topic), "stories": self.stories}


def held_out_curves(
    stories: Stories,
    neutral: ActivationsLike,
    *,
    explained: float = 0.5,
    folds: int = 3,
    width: int = 3,
    fixed: Sequence[int] | None = None,
    draws: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Curves:
    """Fit on all folds of topics but one, score that one's stories, for every fold and layer.

    A story's score for an emotion is its coordinate along the emotion's vector; an AUC compares the
    emotion's stories with the others on the same topic, so that topics do not matter. The window is
    chosen from these curves alone; no behavior enters. ``by_topic`` chooses it again for each fold,
    from vectors fitted without that fold and scored on third folds; of two folds there is no third,
    so it is NaN. A fixed window was chosen by no topic: ``by_topic`` is read there.

    Args:
        stories: at least two emotions on two topics or more.
        neutral: activations whose principal components are removed; they have no emotion labels, so
            all of them serve in every fold.
        explained: share of the neutral variance that the components reach.
        folds: of topics; three or more let the window be chosen and reported on different topics.
        width: layers of a window, neighbors among those captured.
        fixed: the window's layers, neighbors in order, where it is not to be chosen.
        draws: of emotions shuffled among the stories of a topic.
        seed: of folds, shuffles and the random control.
        progress: called with (layers done, layers in all).

    Raises:
        ConfigError: too few topics or stories, or layers than the window is wide; a fixed window
            that is no run of neighboring layers.
    """
    layers = tuple(stories.acts.layers)
    fixed = None if fixed is None else run_of(fixed, layers, "fixed")
    if fixed is None and not 1 <= width <= len(layers):
        raise ConfigError(f"window = {width}; between 1 and the {len(layers)} layers captured")
    fold = folds_of(stories.topic, folds, seed)
    held = Held(stories, fold, folds)
    pairs, null = _by_layer(held, neutral, explained, draws, seed, progress)
    diagonal = np.stack([pairs[:, :, f, :, t] for t, f in enumerate(held.fold_of)], axis=-1)
    if fixed is None:
        rows = best_window(_mean(_mean(diagonal[:, 0], -1), -1), width)
        by_topic = _nested(pairs[:, 0], held.fold_of, width)
    else:
        rows = range(layers.index(fixed[0]), layers.index(fixed[-1]) + 1)
        by_topic = _mean(_mean(diagonal[list(rows), 0], 1), 0)
    return Curves(
        emotions=stories.emotions,
        layers=layers,
        topics=stories.topics,
        fold=held.fold_of,
        aucs={name: diagonal[:, number] for number, name in enumerate(VARIANTS)},
        null=np.quantile(null, 0.95, axis=1),
        null_largest=float(np.quantile(null.max(axis=0), 0.95)),
        window=tuple(layers[row] for row in rows),
        by_topic=by_topic,
        stories=len(stories),
    )


def _by_layer(
    held: Held,
    neutral: ActivationsLike,
    explained: float,
    draws: int,
    seed: int,
    progress: Progress | None,
) -> tuple[Float[ndarray, "l v f k m"], Float[ndarray, "l b"]]:
    """Return the AUCs of every layer and variant, and the mean ones of shuffled emotions."""
    acts, labelings = held.stories.acts, held.shuffled(draws, seed)
    pairs, null = [], []
    for layer in acts.layers:
        X = read_items(acts, layer).astype(np.float64)
        axes, _, _ = neutral_components(neutral, layer, explained)
        bases = (axes, None, random_basis(axes, seed, layer))  # as VARIANTS
        pairs.append([held.aucs(X, basis) for basis in bases])
        null.append(held.chance(X, axes, labelings))
        if progress is not None:
            progress(len(null), len(acts.layers))
    return np.array(pairs), np.array(null)


def best_window(worth: Float[ndarray, " l"], width: int) -> range:
    """Return the rows of the neighbors with the largest mean; the first of equals."""
    means = np.convolve(worth, np.ones(width) / width, "valid")
    first = int(np.argmax(np.round(means, 12)))
    return range(first, first + width)


class Held:
    """Which stories each fold holds out, and the weights that fit the others.

    Args:
        stories: with their topics.
        fold: of each story.
        folds: how many.
    """

    def __init__(self, stories: Stories, fold: Int[ndarray, " n"], folds: int) -> None:
        self.stories, self.fold, self.folds = stories, fold, folds
        self.topics = len(stories.topics)
        self.rows = [np.flatnonzero(stories.topic == topic) for topic in range(self.topics)]
        self.fold_of = np.array([fold[rows[0]] for rows in self.rows])
        self.weights = {pair: self._weights(pair) for pair in self._pairs()}

    def _pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of folds that vectors do without; with itself for one fold alone."""
        folds = range(self.folds)  # of two folds nothing is left without both
        return [(a, b) for a in folds for b in folds[a:] if a == b or self.folds > 2]

    def _weights(self, pair: tuple[int, int]) -> Float[ndarray, "k n"]:
        """Return the weights of emotions that have comparable stories left; zeros for others."""
        own, found = self.stories, np.zeros((len(self.stories.emotions), len(self.stories)))
        kept = np.flatnonzero(~np.isin(self.fold, pair))
        present, emotion = np.unique(own.emotion[kept], return_inverse=True)
        if len(present) < 2:
            return found
        try:
            weights = emotion_weights(emotion, own.topic[kept], len(present))
        except ConfigError:  # no topic in common: nothing to say without these folds
            return found
        found[np.ix_(present, kept)] = weights
        return found

    def scores(
        self, X: Float[ndarray, "n d"], basis: Float[ndarray, "r d"] | None, pair: tuple[int, int]
    ) -> Float[ndarray, "n k"]:
        """Return every story's coordinates along unit vectors that were fitted without a pair.

        NaN for emotions without a story to fit on.
        """
        vectors = self.weights[pair] @ X
        if basis is not None:
            vectors = remove_span(vectors, basis)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        missing = ~self.weights[pair].any(axis=1)
        lengths[missing] = np.nan
        return np.asarray(X @ (vectors / lengths).T)

    def aucs(
        self, X: Float[ndarray, "n d"], basis: Float[ndarray, "r d"] | None
    ) -> Float[ndarray, "f k m"]:
        """Return for each fold left out beside a topic's own the AUCs on that topic's stories."""
        found = np.full((self.folds, len(self.stories.emotions), self.topics), np.nan)
        for pair in self.weights:
            scores = self.scores(X, basis, pair)
            for topic, rows in enumerate(self.rows):
                own = int(self.fold_of[topic])
                if own in pair:
                    other = pair[0] if own == pair[1] else pair[1]
                    labels = self.stories.emotion[rows]
                    found[other, :, topic] = _aucs(scores[rows], labels[None])[0]
        return found

    def shuffled(self, draws: int, seed: int) -> list[ndarray]:
        """Return for each topic its stories' emotions in other orders, the same for all layers."""
        rng = np.random.default_rng([seed, 1])
        return [
            rng.permuted(np.tile(self.stories.emotion[rows], (draws, 1)), axis=1)
            for rows in self.rows
        ]

    def chance(
        self,
        X: Float[ndarray, "n d"],
        basis: Float[ndarray, "r d"],
        labelings: Sequence[ndarray],
    ) -> Float[ndarray, " b"]:
        """Return the mean AUC over emotions and topics of each shuffle of the held-out stories."""
        scores = {fold: self.scores(X, basis, (fold, fold)) for fold in range(self.folds)}
        found = [
            _aucs(scores[int(self.fold_of[topic])][rows], labelings[topic])
            for topic, rows in enumerate(self.rows)
        ]
        return _mean(_mean(np.stack(found, axis=-1), -1), -1)


def _aucs(scores: Float[ndarray, "n k"], labelings: Int[ndarray, "b n"]) -> Float[ndarray, "b k"]:
    """Return the AUC of column e for the stories labeled e, under each row of labels."""
    n, k = scores.shape
    ranks = rankdata(scores, axis=0, nan_policy="propagate")
    own = labelings[:, :, None] == np.arange(k)
    positive = own.sum(axis=1)
    sums = np.einsum("bnk,nk->bk", own, ranks)
    pairs = positive * (n - positive)
    wins = sums - positive * (positive + 1) / 2
    return np.asarray(np.divide(wins, pairs, out=np.full(sums.shape, np.nan), where=pairs > 0))


def _nested(
    pairs: Float[ndarray, "l f k m"], fold_of: Int[ndarray, " m"], width: int
) -> Float[ndarray, " m"]:
    """Choose the window without a fold's stories anywhere, then read that fold's own AUC there."""
    found = np.full(len(fold_of), np.nan)
    for fold in np.unique(fold_of):
        own = fold_of == fold
        inner = pairs[:, fold][:, :, ~own]  # vectors without the fold, on topics of third folds
        if np.isnan(inner).all():
            continue
        rows = best_window(_mean(_mean(inner, -1), -1), width)
        at = pairs[list(rows), fold][:, :, own]
        found[own] = _mean(_mean(at, 1), 0)
    return found


def _mean(values: ndarray, axis: int) -> ndarray:
    """Mean of what is there; NaN where nothing is."""
    there = ~np.isnan(values)
    count = there.sum(axis=axis)
    total = np.where(there, values, 0.0).sum(axis=axis)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def _interval(values: Float[ndarray, " m"]) -> dict[str, Any]:
    """Return mean and t interval over topics."""
    there = values[~np.isnan(values)]
    low = high = np.nan
    if len(there) > 1:
        _, low, high = (float(end) for end in t_intervals(there))
    named = "95% t over topics" if len(there) > 1 else f"none: {len(there)} topic"
    value = float(there.mean()) if len(there) else np.nan
    return {"auc": value, "low": low, "high": high, "n": len(there), "unit": "topic",
            "interval": named}  # fmt: skip
