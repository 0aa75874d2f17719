"""Trait vectors from pairs of judged rollouts, one for and one against (Lu et al., Chen et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_matrix

from workbench.directions.container import Directions
from workbench.directions.fit import column, layers_of, mean_norms
from workbench.directions.rollouts import (
    UNJUDGED,
    names_in,
    scores_of,
    tally,
    weighted_sums,
)
from workbench.directions.rows import count_items, read_items
from workbench.errors import ConfigError
from workbench.types import ActivationsLike, ndarray

READS = {
    "response-mean": "mean:assistant",
    "prompt-mean": "mean+first",
    "prompt-last": "last",
}
"""Positions of the three variants of a persona vector (Chen et al. 2025). The two of the prompt are
captured of the chat without its answer, with the generation prompt (``add_generation_prompt``)."""


@dataclass(frozen=True)
class PairRule:
    """Which pairs make a trait's vector; a pair that lacks a score it needs is left out."""

    name: str
    least: int
    """Pairs that a vector needs."""
    apart: float | int | None = None
    """Least difference of the scores, positive minus negative."""
    split: float | int | None = None
    """The positive scores this or more, the negative less."""
    coherent: float | int | None = None
    """Least coherence of both."""

    def keeps(
        self, scores: Float[ndarray, "p 2"], coherence: Float[ndarray, "p 2"]
    ) -> Bool[ndarray, " p"]:
        """Say which pairs (positive, negative) count; NaN never does."""
        kept = np.ones(len(scores), bool)
        if self.apart is not None:
            kept &= scores[:, 0] - scores[:, 1] >= self.apart
        if self.split is not None:
            kept &= (scores[:, 0] >= self.split) & (scores[:, 1] < self.split)
        if self.coherent is not None:
            kept &= (coherence >= self.coherent).all(axis=1)
        return kept


APART = PairRule("scores 50 or more apart, at least 10 pairs", least=10, apart=50)
"""Lu et al. 2026, appendix C.1."""
EFFECTIVE = PairRule(
    "positive >= 50 > negative, coherence of both >= 50", least=1, split=50, coherent=50
)
"""Chen et al. 2025."""


class TraitVectors(NamedTuple):
    """Vectors of the traits that had pairs enough, and how many pairs each had."""

    vectors: Directions
    counts: pd.DataFrame
    """trait, pairs, lacking (one side is missing), unscored, used, kept."""


class _Pairs(NamedTuple):
    """Pairs with both sides: their trait, and the rows (positive, negative)."""

    trait: Int[ndarray, " p"]
    rows: Int[ndarray, "p 2"]
    lacking: Int[ndarray, " k"]


class GoodPairs(NamedTuple):
    """The pairs that make the vectors, and how they were counted."""

    counts: pd.DataFrame
    """As of ``TraitVectors``."""
    trait: Int[ndarray, " p"]
    """Row of ``counts``, of kept traits alone."""
    rows: Int[ndarray, "p 2"]
    """Items of the activations: positive, negative."""


def trait_vectors(
    acts: ActivationsLike,
    *,
    judge: str,
    rule: PairRule = APART,
    trait: str = "trait",
    pole: str = "pole",
    pair: str = "pair",
    score: str = "score",
    coherence: str = "coherence",
    layers: Sequence[int] | None = None,
) -> TraitVectors:
    """Return, for each trait, the mean positive minus the mean negative response of its good pairs.

    Args:
        acts: one of ``READS`` of the rollouts, or another read.
        judge: who gave the scores; ``"none"`` counts every pair, reads no scores, and stands in
            ``info``.
        rule: ``APART``, ``EFFECTIVE`` or another.
        trait: column of trait names; rows where it is empty take no part.
        pole: column of +1 (shows the trait) and -1.
        pair: column that names the pair within its trait: one rollout a pole.
        score: column of trait scores 0 to 100; NaN where the judge gave none.
        coherence: column of coherence scores, read where the rule asks for it.
        layers: block indices; by default all.

    Raises:
        ConfigError: a missing column, a score that is none, a pair with two rollouts of one pole,
            or no trait with pairs enough.
    """
    chosen = layers_of(acts, layers)
    columns = {"trait": trait, "pole": pole, "pair": pair, "score": score, "coherence": coherence}
    found = good_pairs(acts, judge=judge, rule=rule, **columns)
    counts, vectors = found.counts, _vectors(acts, chosen, found)
    kept = counts[counts["kept"]]
    info = {
        "made_by": "mean positive minus mean negative of pairs",
        "rule": rule.name if judge != UNJUDGED else f"all pairs, at least {rule.least}",
        "judge": judge,
        "n_pairs": {str(n): int(c) for n, c in zip(kept["trait"], kept["used"], strict=True)},
        "n_unscored": int(counts["unscored"].sum()),
    }
    directions = Directions(
        names=tuple(kept["trait"]),
        layers=chosen,
        vectors=vectors,
        norms=mean_norms(acts, chosen),
        model=acts.model,
        site=acts.site,
        position=acts.position,
        info=info,
    )
    return TraitVectors(directions, counts)


def good_pairs(
    acts: ActivationsLike,
    *,
    judge: str,
    rule: PairRule = APART,
    trait: str = "trait",
    pole: str = "pole",
    pair: str = "pair",
    score: str = "score",
    coherence: str = "coherence",
) -> GoodPairs:
    """Return the pairs that a rule takes, of the traits that have enough of them.

    Args and errors are those of ``trait_vectors``; only columns are read.
    """
    names, member = names_in(acts, trait)
    found = _pair(acts, names, member, pole, pair)
    scores = scores_of(acts, score, judge, 0, 100)
    asked = rule.coherent is not None and judge != UNJUDGED
    coherent = scores_of(acts, coherence, judge, 0, 100) if asked else scores
    good = np.ones(len(found.rows), bool)
    missing = np.zeros(len(found.rows), bool)
    if judge != UNJUDGED:
        good = rule.keeps(scores[found.rows], coherent[found.rows])
        missing = np.isnan(scores[found.rows] + coherent[found.rows]).any(axis=1)
    k, every = len(names), np.ones(len(found.trait), bool)
    counts = pd.DataFrame(
        {
            "trait": names,
            "pairs": tally(found.trait, every, k),
            "lacking": found.lacking,
            "unscored": tally(found.trait, missing, k),
            "used": tally(found.trait, good, k),
        }
    )
    counts["kept"] = counts["used"] >= rule.least
    if not counts["kept"].any():
        most = counts.sort_values("used").iloc[-1] if len(counts) else None
        told = "there are no pairs" if most is None else f"{most['trait']} has {most['used']}"
        raise ConfigError(
            f"no trait has good pairs enough for a vector (the most: {told}); sample more, or take "
            "another rule"
        )
    good &= counts["kept"].to_numpy()[found.trait]
    return GoodPairs(counts, found.trait[good], found.rows[good])


def _pair(
    acts: ActivationsLike, names: list[str], member: Int[ndarray, " n"], pole: str, pair: str
) -> _Pairs:
    """Find the positive and the negative row of every pair."""
    signs, labels = column(acts, pole), column(acts, pair).astype(str)
    used = np.flatnonzero(member >= 0)
    if not np.isin(signs[used], (-1, 1)).all():
        strange = np.unique(signs[used])[:5].tolist()
        raise ConfigError(f"column {pole!r} holds {strange}; +1 (shows the trait) and -1 expected")
    numbers = np.unique(labels, return_inverse=True)[1]
    keys = member * (numbers.max(initial=0) + 1) + numbers
    known, key = np.unique(keys[used], return_inverse=True)
    rows = np.full((len(known), 2), -1)
    for side, sign in enumerate((1, -1)):
        of = signs[used] == sign
        twice = np.bincount(key[of], minlength=len(known)) > 1
        if twice.any():
            row = used[of & twice[key]][0]
            raise ConfigError(
                f"pair {str(labels[row])!r} of {names[member[row]]} has several rollouts of pole "
                f"{sign:+d} ({int(twice.sum())} pairs do); name each pair of rollouts on its own"
            )
        rows[key[of], side] = used[of]
    whole = (rows >= 0).all(axis=1)
    of_trait = known // (numbers.max(initial=0) + 1)
    return _Pairs(of_trait[whole], rows[whole], tally(of_trait, np.logical_not(whole), len(names)))


def _vectors(
    acts: ActivationsLike, layers: Sequence[int], found: GoodPairs
) -> Float[ndarray, "k l d"]:
    kept = found.counts.index[found.counts["kept"]].to_numpy()
    place = np.full(len(found.counts), -1)
    place[kept] = np.arange(len(kept))
    number = place[found.trait]
    share = 1 / np.bincount(number)[number]
    cells = (np.concatenate([number, number]), found.rows.T.reshape(-1))
    shape = (len(kept), count_items(acts))
    weights = csr_matrix((np.concatenate([share, -share]), cells), shape=shape)
    parts = [weighted_sums(read_items(acts, layer), weights) for layer in layers]
    return np.stack(parts, axis=1)
