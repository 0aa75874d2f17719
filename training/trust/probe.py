"""The confound probe: can the poles be told apart by how a reply looks, whatever it says?"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from workbench_training.corpora.words import words_of
from workbench_training.trust.texts import PERSONS

from workbench.stats import Interval, bootstrap_auc, mean_interval
from workbench.types import ndarray

FOLDS = 5
SURFACE = "all surface features"
BESIDE = "all surface features, side by side"
WORDS = "bag of words, for comparison"
_DECLINE = frozenset(
    ("no", "not", "never", "none", "nothing", "nor", "without", "unless", "instead", "however")
) | frozenset(
    ("but", "although", "unfortunately", "only", "avoid", "stop", "skip", "cannot", "except")
)
_CAREFUL = frozenset(
    ("may", "might", "could", "perhaps", "possibly", "maybe", "should", "would", "likely", "rather")
)


@dataclass(frozen=True)
class Probed:
    """How well one thing tells the chosen replies from the rejected ones."""

    feature: str
    auc: Interval
    """Over scenarios; 0.5 is chance."""
    note: str = ""


def features(text: str) -> dict[str, float]:
    """Return what a reply looks like: length, concreteness and words that decline or hedge.

    ``specifics`` is the share of numbers and of capitalized words within sentences, a stand-in for
    rated concreteness; ``letters a word`` is another.
    """
    tokens, words = text.split(), words_of(text)
    n = max(len(words), 1)
    inner = re.findall(r"(?<![.?!\n] )(?<!^)\b[A-Z][a-z]+", text)
    return {
        "words": float(len(tokens)),
        "letters": float(len(text)),
        "letters a word": sum(map(len, words)) / n,
        "sentences": float(len(re.findall(r"[.?!](?:\s|$)", text))),
        "commas": float(text.count(",")),
        "specifics": (len(re.findall(r"\d+", text)) + len(inner)) / n,
        "declining words": sum(word in _DECLINE for word in words) / n,
        "hedging words": sum(word in _CAREFUL for word in words) / n,
        "pronouns": sum(word in PERSONS for word in words) / n,
    }


def probe(rows: Sequence[Mapping[str, Any]], *, seed: int = 0) -> list[Probed]:
    """Probe the replies of pairs, every scenario read by a fit to the others.

    A single feature has the AUC of its own values (above 0.5: more of it in chosen replies), the
    joint probe that of held-out logistic regressions. The longer reply of each pair is told apart
    too, since pairing removes what scenarios and styles differ by. The bag of words says how much
    the wording itself tells, as it must: it is no confound and no gate.

    Args:
        rows: pairs with ``chosen``, ``rejected``, ``scenario``.
        seed: of the folds and of the bootstrap over scenarios.

    Raises:
        ValueError: there are fewer than two scenarios, so none can be read by the others.
    """
    texts = [row[side] for row in rows for side in ("chosen", "rejected")]
    labels = np.tile([True, False], len(rows))
    groups = np.repeat([str(row["scenario"]) for row in rows], 2)
    table = [features(text) for text in texts]
    columns = {name: np.array([one[name] for one in table]) for name in table[0]}

    def told(scores: Float[ndarray, " n"]) -> Interval:
        return bootstrap_auc(scores, labels, groups, unit="scenario", seed=seed)

    def share(told_apart: Float[ndarray, " p"]) -> Interval:
        pairs = groups[::2]
        return mean_interval(told_apart, pairs, unit="scenario", seed=seed, within=(0.0, 1.0))

    found = [Probed(name, told(values)) for name, values in columns.items()]
    joint = held_out_scores(np.stack(list(columns.values()), 1), labels, groups, seed)
    words = held_out_scores(_bag(texts), labels, groups, seed)
    beside = _told_apart(np.stack(list(columns.values()), 1), groups[::2], seed)
    longer = np.sign(columns["words"][::2] - columns["words"][1::2]) / 2 + 0.5
    return [
        Probed(SURFACE, told(joint), "the gate"),
        Probed(
            BESIDE,
            share(beside),
            "share of pairs told apart with both replies at hand",
        ),
        *found,
        Probed(
            "longer reply of a pair",
            share(longer),
            "share of pairs whose chosen reply is longer, ties half",
        ),
        Probed(WORDS, told(words), "what the wording tells"),
    ]


def _told_apart(x: Float[ndarray, "n f"], groups: ndarray, seed: int) -> Float[ndarray, " p"]:
    """Return 1 for each pair whose chosen reply a fit to the other scenarios' pairs finds.

    Each pair counts twice, once with either reply first, so that no fit can lean on the order.
    """
    difference = x[::2] - x[1::2]
    both = np.concatenate([difference, -difference])
    labels = np.repeat([True, False], len(difference))
    scores = held_out_scores(both, labels, np.concatenate([groups, groups]), seed)
    right = scores[: len(difference)] - scores[len(difference) :]
    return np.asarray(np.sign(right) / 2 + 0.5)


def held_out_scores(
    x: Float[ndarray, "n f"], labels: Bool[ndarray, " n"], groups: ndarray, seed: int
) -> Float[ndarray, " n"]:
    """Return each row's score by a logistic regression fitted to the other folds of groups.

    Scores of a fold are made comparable by standardizing features on what was fitted.
    """
    from sklearn.linear_model import LogisticRegression

    names = np.unique(groups)
    if len(names) < 2:
        raise ValueError(f"one scenario ({names[0]}); a probe reads each by the others")
    order = np.random.default_rng(seed).permutation(len(names))
    fold = dict(zip(names[order], np.arange(len(names)) % min(FOLDS, len(names)), strict=True))
    member = np.array([fold[name] for name in groups])
    scores = np.zeros(len(labels))
    for number in np.unique(member):
        out = member == number
        center, scale = x[~out].mean(0), x[~out].std(0)
        scale = np.where(scale > 0, scale, 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a fit that did not converge is no probe
            fit = LogisticRegression(C=1.0, max_iter=2000)
            fit.fit((x[~out] - center) / scale, labels[~out])
        scores[out] = fit.decision_function((x[out] - center) / scale)
    return scores


def _bag(texts: Sequence[str], most: int = 400) -> Float[ndarray, "n f"]:
    """Return whether each of the commonest words stands in each text."""
    sets = [set(words_of(text)) for text in texts]
    counts: dict[str, int] = {}
    for words in sets:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    kept = sorted(counts, key=lambda word: (-counts[word], word))[:most]
    place = {word: number for number, word in enumerate(kept)}
    table = np.zeros((len(texts), len(kept)))
    for row, words in enumerate(sets):
        table[row, [place[word] for word in words if word in place]] = 1
    return table
