"""Held-out evidence, one layer at a time: AUC with its interval, both nulls, accuracy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from sklearn.base import clone

from workbench.directions.fit import Columns, fit_many
from workbench.errors import ConfigError
from workbench.linalg import random_unit
from workbench.stats import (
    auc,
    auc_of_labels,
    cluster_weights,
    paired_aucs,
    permute_within,
    weighted_auc,
)
from workbench.types import ndarray

SIDES = (1, -1)
ALL_TOPICS = "all"
UNSEEN, WITHIN, TRANSFER = "unseen topic", "within:topic", "transfer"
OTHERS = "other topics"


@dataclass(frozen=True)
class Settings:
    """How much to draw; every draw comes from ``seed``."""

    draws: int = 200
    bootstrap: int = 1000
    shuffled: bool = True
    random: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Items:
    """What is known of the items, the same for every layer."""

    columns: Columns
    facts: Int[ndarray, " n"]
    unit: str = "fact"
    """What is split and resampled: ``item`` where no column says which items share a fact."""

    @cached_property
    def topic(self) -> Shaped[ndarray, " n"]:
        groups = self.columns.groups
        return np.full(len(self.facts), ALL_TOPICS) if groups is None else groups.astype(str)

    @cached_property
    def sides(self) -> Int[ndarray, " n"]:
        polarity = self.columns.polarity
        return np.ones(len(self.facts), np.int64) if polarity is None else polarity

    @cached_property
    def topics(self) -> list[str]:
        return [str(name) for name in np.unique(self.topic)]

    def rows_of(self, *topics: str) -> Bool[ndarray, " n"]:
        return np.isin(self.topic, topics)


@dataclass(frozen=True)
class Fold:
    """Rows to fit on, rows to check on, and what is drawn for the check, the same at each layer."""

    split: str
    fitted_on: str
    """A topic, ``other topics``, or what a frozen direction was fitted on."""
    topic: str
    train: Bool[ndarray, " all"]
    test: Int[ndarray, " n"]
    labels: Bool[ndarray, " n"]
    sides: Int[ndarray, " n"]
    weights: Float[ndarray, "b n"]
    """How often each checked item stands in each bootstrap draw over facts."""
    n_facts: int
    bootstrapped_at: int | None = None
    """The one layer that gets an interval; None for every layer."""


@dataclass(frozen=True)
class Cell:
    """One topic and polarity of one split and rendering at one layer."""

    split: str
    fitted_on: str
    topic: str
    rendering: str
    polarity: int
    """+1, -1, or 0 for the mean of the two."""
    n: int
    n_facts: int
    auc: float
    accuracy: float
    auc_classifier: float
    boot: Float[ndarray, " b"]
    """Empty where this layer gets no interval."""
    shuffled: Float[ndarray, " m"]
    random: Float[ndarray, " r"]


def make_folds(items: Items, splits: Sequence[str], settings: Settings) -> list[Fold]:
    """Lay the splits out: leave one topic out, halves of each topic's facts, topic to topic.

    On the diagonal of the transfer grid facts are held out.

    Raises:
        ConfigError: a topic of one fact, which has no halves, or what `lay_fold` refuses.
    """
    folds, lay = [], partial(lay_fold, items, settings=settings)
    for number, topic in enumerate(items.topics):
        own = items.rows_of(topic)
        facts = np.unique(items.facts[own])
        if len(facts) < 2 and set(splits) & {"within", "transfer"}:
            raise ConfigError(
                f"topic {topic!r} holds one {items.unit}, and the splits within and transfer fit "
                f"on half of a topic's {items.unit}s; add items, or leave these splits out"
            )
        rng = np.random.default_rng([settings.seed, number])
        fitted = np.isin(items.facts, rng.permutation(facts)[: len(facts) // 2])
        if "unseen" in splits and len(items.topics) > 1:
            folds.append(lay(UNSEEN, topic, ~own, own, fitted_on=OTHERS))
        if "within" in splits:
            folds.append(lay(WITHIN, topic, own & fitted, own & ~fitted, fitted_on=topic))
        if "transfer" in splits:
            for other in sorted(items.topics, key=lambda name: name != topic):
                same = other == topic
                train = own & fitted if same else own
                test = own & ~fitted if same else items.rows_of(other)
                folds.append(lay(TRANSFER, other, train, test, fitted_on=topic))
    return folds


def lay_fold(
    items: Items,
    split: str,
    topic: str,
    train: ndarray,
    test: ndarray,
    settings: Settings,
    fitted_on: str = "",
) -> Fold:
    """Draw what one split needs; without items to fit on (all of ``train`` false) it is frozen.

    Raises:
        ConfigError: the items to fit on, or those of one polarity to check on, are of one class.
    """
    if train.any():
        _refuse_one_class(items, train, f"{split} {topic!r}: the items to fit on")
    for side in np.unique(items.sides[test]):
        what = f"{split} {topic!r}: the items of polarity {side:+d} to check on"
        _refuse_one_class(items, test & (items.sides == side), what)
    rows = np.flatnonzero(test)
    seed = (settings.seed, items.topics.index(topic), len(split))
    weights, n_facts = cluster_weights(items.facts[rows], settings.bootstrap, seed)
    y, sides = items.columns.y[rows], items.sides[rows]
    return Fold(split, fitted_on, topic, train, rows, y, sides, weights, n_facts)


def _refuse_one_class(items: Items, rows: ndarray, what: str) -> None:
    y = items.columns.y[rows]
    if y.all() or not y.any():
        raise ConfigError(
            f"{what} hold {int(y.sum())} true and {int((~y).sum())} false; both are needed, so "
            "add items or leave the topic or this split out"
        )


def shuffled_labels(items: Items, draws: int, seed: int) -> Bool[ndarray, "n m"]:
    """Shuffle labels by fact inside each topic; a statement and its negation stay opposite.

    A slot is a content together with its negation. Where a fact has a true and a false slot, they
    trade places at random; where it has one kind alone, its label is traded with another such fact
    of the topic. So every topic and polarity keeps its number of true items.
    """
    content = items.columns.y ^ (items.sides < 0)
    slot = _slots(items, content)
    first = np.unique(slot, return_index=True)[1]
    topics = np.unique(items.topic, return_inverse=True)[1][first]
    facts, contents = items.facts[first], content[first]
    shares = np.bincount(facts, contents) / np.maximum(np.bincount(facts), 1)
    mixed = (shares[facts] > 0) & (shares[facts] < 1)
    strata = np.where(mixed, facts + len(items.topics), topics)
    drawn = permute_within(contents, strata, draws, seed)
    return (drawn[:, slot] ^ (items.sides < 0)).T


def _slots(items: Items, content: ndarray) -> Int[ndarray, " n"]:
    """Number the slots: the j-th affirmed and the j-th negated item of a fact and content."""
    cell = np.unique(np.stack([items.facts, content, items.sides]), axis=1, return_inverse=True)[
        1
    ].ravel()
    order = np.argsort(cell, kind="stable")
    start = np.searchsorted(cell[order], cell[order], "left")
    turn = np.empty(len(cell), np.int64)
    turn[order] = np.arange(len(cell)) - start
    return np.asarray(
        np.unique(np.stack([items.facts, content, turn]), axis=1, return_inverse=True)[1].ravel()
    )


def check_fits(
    Xs: Mapping[str, Float[ndarray, "n d"]],
    layer: int,
    estimator: Any,
    items: Items,
    folds: Sequence[Fold],
    labelings: Bool[ndarray, "n m"],
    settings: Settings,
) -> list[Cell]:
    """Fit each fold at one layer and check it on what was held out, in every rendering.

    Args:
        Xs: the same items by rendering; the fit reads the first one alone.
        layer: of the draws of random directions.
        estimator: is cloned for each fit.
        items: what is known of the rows.
        folds: those with the same rows to fit on stand together, and share one fit.
        labelings: shuffled labels.
        settings: how much is drawn.
    """
    X, found = next(iter(Xs.values())), list[Cell]()
    random = {name: Isotropic(_isotropic(v, layer, settings)) for name, v in Xs.items()}
    for _, same in itertools.groupby(folds, key=lambda fold: fold.train.tobytes()):
        group = list(same)
        train = group[0].train
        columns = items.columns.take(train)
        fitted = clone(estimator).fit(X[train], items.columns.y[train], **columns)
        null = np.empty((0, X.shape[1]), X.dtype)
        if labelings.shape[1]:
            null = fit_many(estimator, X[train], labelings[train], columns)
        for fold in group:
            for name, values in Xs.items():
                held_out = values[fold.test]
                decision = fitted.decision_function(held_out)
                shuffled = Null(held_out @ null.T, labelings[fold.test])
                scored = Scored(held_out @ fitted.coef_, decision, shuffled, random[name])
                found += score_cells(_at(fold, layer), scored, name)
    return [*found, *_means_over_topics(found)]


def _at(fold: Fold, layer: int) -> Fold:
    """Drop the bootstrap draws at a layer that gets no interval."""
    if fold.bootstrapped_at in (None, layer):
        return fold
    return replace(fold, weights=fold.weights[:0])


def check_frozen(
    X: Float[ndarray, "n d"],
    layer: int,
    v: Float[ndarray, " d"],
    center: Float[ndarray, " d"],
    folds: Sequence[Fold],
    labelings: Bool[ndarray, "n m"],
    settings: Settings,
    rendering: str = "",
) -> list[Cell]:
    """Score a frozen direction at one layer; the shuffled null shuffles the labels of the items."""
    random, found = Isotropic(_isotropic(X, layer, settings)), list[Cell]()
    for fold in folds:
        scores = (X[fold.test] - center) @ v
        shuffled = Null(scores, labelings[fold.test])
        found += score_cells(fold, Scored(scores, scores, shuffled, random), rendering)
    return [*found, *_means_over_topics(found)]


@dataclass(frozen=True)
class Null:
    """Scores under shuffled labels: one column for each labeling's own fit, or one for all."""

    scores: ndarray
    labels: ndarray

    def aucs(self, rows: Bool[ndarray, " n"]) -> Float[ndarray, " m"]:
        """Return the AUC of every draw on some rows, against the shuffled labels."""
        scores, labels = self.scores[rows], self.labels[rows]
        return (auc_of_labels if scores.ndim == 1 else paired_aucs)(scores, labels)


@dataclass
class Isotropic:
    """Projections of all items on random directions; items checked by several fits count once."""

    scores: Float[ndarray, "n r"]
    found: dict[bytes, ndarray] = field(default_factory=dict)

    def aucs(self, rows: Int[ndarray, " n"], labels: Bool[ndarray, " n"]) -> Float[ndarray, " r"]:
        """Return the AUC of every direction on some items."""
        key = rows.tobytes()
        if key not in self.found:
            self.found[key] = np.asarray(auc(self.scores[rows], labels))
        return self.found[key]


def _isotropic(X: ndarray, layer: int, settings: Settings) -> Float[ndarray, "n r"]:
    """Project on random directions, drawn anew at every layer (the severer null for a maximum)."""
    count = settings.draws if settings.random else 0
    return np.asarray(X @ random_unit(count, X.shape[1], (settings.seed, layer)).T)


@dataclass(frozen=True)
class Scored:
    """What the checked items of one fold score."""

    scores: Float[ndarray, " n"]
    decision: Float[ndarray, " n"]
    """Positive where the method says true."""
    shuffled: Null
    random: Isotropic


def score_cells(fold: Fold, scored: Scored, rendering: str = "") -> list[Cell]:
    """Score one fold on affirmed items, on negated items, and balanced (the mean of the two)."""
    cells = [
        _side_cell(fold, side, scored, rendering) for side in SIDES if (fold.sides == side).any()
    ]
    if len(cells) == 2:
        cells.append(mean_cell(cells, fold.topic, fold.n_facts, polarity=0))
    return cells


def _side_cell(fold: Fold, side: int, scored: Scored, rendering: str) -> Cell:
    rows = fold.sides == side
    y, scores, decision = fold.labels[rows], scored.scores[rows], scored.decision[rows]
    return Cell(
        split=fold.split,
        fitted_on=fold.fitted_on,
        topic=fold.topic,
        rendering=rendering,
        polarity=side,
        n=int(rows.sum()),
        n_facts=fold.n_facts,
        auc=float(auc(scores, y)),
        accuracy=float(((decision > 0) == y).mean()),
        auc_classifier=float(auc(decision, y)),
        boot=weighted_auc(scores, y, fold.weights[:, rows]),
        shuffled=scored.shuffled.aucs(rows),
        random=scored.random.aucs(fold.test[rows], y),
    )


def mean_cell(cells: Sequence[Cell], topic: str, n_facts: int, polarity: int) -> Cell:
    """Average cells, draw by draw, so that intervals and nulls are those of the mean."""

    def mean(value: Callable[[Cell], Any]) -> Any:
        return np.mean([value(cell) for cell in cells], axis=0)

    return Cell(
        split=cells[0].split,
        fitted_on=cells[0].fitted_on
        if len({cell.fitted_on for cell in cells}) == 1
        else "own topic",
        topic=topic,
        rendering=cells[0].rendering,
        polarity=polarity,
        n=sum(cell.n for cell in cells),
        n_facts=n_facts,
        auc=float(mean(lambda cell: cell.auc)),
        accuracy=float(mean(lambda cell: cell.accuracy)),
        auc_classifier=float(mean(lambda cell: cell.auc_classifier)),
        boot=mean(lambda cell: cell.boot),
        shuffled=mean(lambda cell: cell.shuffled),
        random=mean(lambda cell: cell.random),
    )


def _means_over_topics(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Average over topics, for every split, rendering and polarity that has more than one.

    A cell of the transfer grid is one pair of topics, and has no mean.
    """

    def kind(cell: Cell) -> tuple[str, str, int]:
        return cell.split, cell.rendering, cell.polarity

    for key in sorted({kind(cell) for cell in cells if cell.split != TRANSFER}):
        own = [cell for cell in cells if kind(cell) == key]
        if len(own) > 1:
            yield mean_cell(own, ALL_TOPICS, sum(cell.n_facts for cell in own), key[2])
