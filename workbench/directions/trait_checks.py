"""How far a trait's vector can be trusted: against swapped poles, between halves, between reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.directions.container import Directions
from workbench.directions.fit import layers_of
from workbench.directions.rows import layers_in_common, read_items
from workbench.directions.trait_pairs import GoodPairs
from workbench.linalg import cosine, random_band
from workbench.types import ActivationsLike, ndarray


def check_traits(
    acts: ActivationsLike,
    found: GoodPairs,
    *,
    layers: Sequence[int] | None = None,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare each trait's vector with what its pairs give where poles mean nothing.

    Args:
        acts: what the pairs are rows of.
        found: of ``good_pairs``.
        layers: block indices; by default all.
        draws: of swapped poles, and of halves.
        level: of the null.
        seed: of both.

    Returns:
        Rows trait, layer, length (of the vector, residual units), null (the ``level`` quantile of
        that length where the poles of each pair are swapped at random), halves (mean cosine of the
        vectors of two random halves of the pairs; NaN of one pair), n, unit, interval.
    """
    chosen, rows = layers_of(acts, layers), []
    kept = found.counts.index[found.counts["kept"]]
    for layer in chosen:
        values = read_items(acts, layer)
        for number in kept:
            pairs = found.rows[found.trait == number]
            difference = values[pairs[:, 0]].astype(np.float64) - values[pairs[:, 1]]
            gram = difference @ difference.T
            length, null, halves = _against_chance(gram, draws, level, (seed, int(number)))
            told = {"length": length, "null": null, "halves": halves, "n": len(pairs)}
            interval = f"{level:.0%} of {draws} random swaps of poles"
            name = str(found.counts["trait"][number])
            rows.append({"trait": name, "layer": layer, **told, "unit": "pair",
                         "interval": interval})  # fmt: skip
    return pd.DataFrame(rows)


def read_similarity(reads: Mapping[str, Directions]) -> pd.DataFrame:
    """Return the cosine of each trait's vectors between reads, such as response and prompt.

    Returns:
        Rows trait, layer, first, second, cosine, random (the 95% point of |cosine| of one isotropic
        direction), of the traits and layers that two reads share.
    """
    rows = []
    for (first, one), (second, other) in combinations(reads.items(), 2):
        layers = layers_in_common(None, one.layers, other.layers)
        for name in (name for name in one.names if name in other.names):
            for layer in layers:
                value = float(cosine(one[name].at(layer), other[name].at(layer))[0, 0])
                told = {"first": first, "second": second, "cosine": value}
                random = random_band(1, one.model.width)
                rows.append({"trait": name, "layer": layer, **told, "random": random})
    return pd.DataFrame(rows)


def _against_chance(
    gram: Float[ndarray, "p p"], draws: int, level: float, seed: tuple[int, int]
) -> tuple[float, float, float]:
    """Return (length of the mean, its null, mean cosine of halves) from inner products alone."""
    p, rng = len(gram), np.random.default_rng(seed)
    length = float(np.sqrt(gram.mean()))
    signs = rng.choice([-1.0, 1.0], size=(draws, p))
    null = np.sqrt(np.maximum(np.einsum("bp,pq,bq->b", signs, gram, signs), 0)) / p
    if p < 2:
        return length, float(np.quantile(null, level)), float("nan")
    first = rng.permuted(np.tile(np.arange(p) < p // 2, (draws, 1)), axis=1).astype(float)
    second = 1 - first
    products = [np.einsum("bp,pq,bq->b", a, gram, b)
                for a, b in ((first, second), (first, first), (second, second))]  # fmt: skip
    halves = products[0] / np.sqrt(np.maximum(products[1] * products[2], np.finfo(float).tiny))
    return length, float(np.quantile(null, level)), float(halves.mean())
