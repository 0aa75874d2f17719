"""Near-duplicates: MinHash to find pairs that may be alike, the exact Jaccard index to decide.

128 minima over five-word shingles, in 32 bands of 4 (Broder 1997; Leskovec et al., Mining of
Massive Datasets, 3.4): a pair at the threshold 0.7 shares a band with probability 0.9998.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt32, UInt64
from workbench_training.corpora.words import mix

from workbench.errors import ConfigError
from workbench.types import ndarray

PERMUTATIONS = 128
BAND = 4
MOST_PAIRS = 2_000_000
"""Pairs that are verified; a corpus with more repeats itself throughout."""
_SLACK = 0.2
"""How far below the threshold an estimate may lie: five standard errors at 0.7."""


@dataclass(frozen=True)
class Pair:
    """Two documents by their place, the earlier first, and how alike they are."""

    first: int
    second: int
    jaccard: float


def minima(shingles: UInt64[ndarray, " r"]) -> UInt32[ndarray, " d"]:
    """Return the least value of the shingles under each permutation."""
    low = (shingles >> np.uint64(32)).astype(np.uint32)
    return np.asarray((low[None] * _FACTORS[:, None] + _OFFSETS[:, None]).min(axis=1))


def _permutations() -> tuple[UInt32[ndarray, " d"], UInt32[ndarray, " d"]]:
    seeds = mix(np.arange(1, 2 * PERMUTATIONS + 1, dtype=np.uint64))
    numbers = (seeds >> np.uint64(32)).astype(np.uint32)
    return numbers[:PERMUTATIONS] | np.uint32(1), numbers[PERMUTATIONS:]


_FACTORS, _OFFSETS = _permutations()


def jaccard(first: UInt64[ndarray, " r"], second: UInt64[ndarray, " s"]) -> float:
    """Return the shared part of two sets, each sorted without repeats."""
    shared = len(np.intersect1d(first, second, assume_unique=True))
    whole = len(first) + len(second) - shared
    return shared / whole if whole else 0.0


def candidates(signatures: UInt32[ndarray, "n d"], threshold: float) -> Int64[ndarray, "p 2"]:
    """Return the pairs that share a band and whose minima do not rule the threshold out.

    Raises:
        ConfigError: there are more than ``MOST_PAIRS``.
    """
    n = len(signatures)
    wanted = round(max(threshold - _SLACK, 0.0) * signatures.shape[1])
    codes = np.zeros(0, np.int64)
    for first, second in _sharing_a_band(signatures):
        fresh = np.setdiff1d(first * n + second, codes)
        agreeing = _agreements(signatures, fresh // n, fresh % n)
        codes = np.union1d(codes, fresh[agreeing >= wanted])
        if len(codes) > MOST_PAIRS:
            raise ConfigError(
                f"more than {MOST_PAIRS:,} pairs of documents are nearly alike; the writer repeats "
                "itself: give it more scenarios or fewer quartets"
            )
    return np.stack([codes // n, codes % n], axis=1)


def _agreements(
    signatures: UInt32[ndarray, "n d"], first: Int64[ndarray, " p"], second: Int64[ndarray, " p"]
) -> Int64[ndarray, " p"]:
    """Count the equal minima of each pair, some pairs at a time."""
    counts = [
        (signatures[first[at : at + 65536]] == signatures[second[at : at + 65536]]).sum(axis=1)
        for at in range(0, len(first), 65536)
    ]
    return np.concatenate([np.zeros(0, np.int64), *counts])


def _sharing_a_band(signatures: UInt32[ndarray, "n d"]) -> Iterator[tuple[ndarray, ndarray]]:
    """Yield pairs (first < second) with equal minima in a band; a pair may come again."""
    for start in range(0, signatures.shape[1], BAND):
        keys = _keys(signatures[:, start : start + BAND])
        order = np.argsort(keys, kind="stable")
        arranged, shift = keys[order], 1
        while True:
            (places,) = np.nonzero(arranged[shift:] == arranged[:-shift])
            if not len(places):
                break
            yield order[places], order[places + shift]
            shift += 1


def _keys(band: UInt32[ndarray, "n d"]) -> UInt64[ndarray, " n"]:
    keys = np.zeros(len(band), np.uint64)
    for column in band.T:
        keys = mix(keys ^ column.astype(np.uint64))
    return keys


def near_duplicates(
    signatures: UInt32[ndarray, "n d"],
    read: Callable[[Sequence[int]], Iterator[tuple[int, ndarray]]],
    threshold: float,
) -> list[Pair]:
    """Return every pair at or above the threshold that shares a band, in order.

    Args:
        signatures: the minima of each document.
        read: yields (place, shingles) of the documents asked for, in ascending order.
        threshold: of the exact Jaccard index.
    """
    pairs = candidates(signatures, threshold)
    sets = dict(read(sorted({int(place) for place in pairs.flat})))
    found = (Pair(int(i), int(j), jaccard(sets[int(i)], sets[int(j)])) for i, j in pairs)
    return [pair for pair in found if pair.jaccard >= threshold]


def repeats(pairs: Iterable[Pair], gone: Collection[int] = ()) -> set[int]:
    """Return the later ones of pairs, in order, so that no pair is left.

    Args:
        pairs: of near-duplicates.
        gone: what is dropped already, and so is nobody's earlier one.
    """
    dropped: set[int] = set()
    for pair in sorted(pairs, key=lambda pair: (pair.second, pair.first)):
        if not {pair.first, pair.second} & dropped and not (
            pair.first in gone or pair.second in gone
        ):
            dropped.add(pair.second)
    return dropped
