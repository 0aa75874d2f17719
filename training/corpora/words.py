"""Texts as arrays: a number for each word and for each run of words, so that sets are sorts."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from jaxtyping import UInt64
from workbench_training.quartets import words_of

from workbench.types import ndarray

__all__ = [
    "contains_any",
    "different",
    "mix",
    "number_words",
    "run_numbers",
    "shingles",
    "words_of",
]

_STEP = np.uint64(0x9E3779B97F4A7C15)


class _Numbers(dict[str, int]):
    """A 64-bit number for each word, the same in every process; collisions are 1 in 10^13."""

    def __missing__(self, word: str) -> int:
        self[word] = number = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
        return number


_NUMBERS = _Numbers()


def number_words(words: Sequence[str]) -> UInt64[ndarray, " n"]:
    """Return the number of each word."""
    return np.fromiter(map(_NUMBERS.__getitem__, words), np.uint64, len(words))


def run_numbers(numbers: UInt64[ndarray, " n"], length: int) -> UInt64[ndarray, " r"]:
    """Return a number for every run of ``length`` words, in order."""
    count = max(len(numbers) - length + 1, 0)
    runs = np.zeros(count, np.uint64)
    for start in range(length):
        runs = runs * _STEP + numbers[start : start + count]
    return mix(runs)


def shingles(numbers: UInt64[ndarray, " n"], length: int = 5) -> UInt64[ndarray, " r"]:
    """Return the set of runs, sorted; a text that is shorter than a run is one run of its own."""
    return different(run_numbers(numbers, min(length, max(len(numbers), 1))))


def different(numbers: UInt64[ndarray, " n"]) -> UInt64[ndarray, " m"]:
    """Return the different numbers, sorted: ``np.unique`` without its hash table."""
    arranged = np.sort(numbers)
    fresh = np.ones(len(arranged), bool)
    fresh[1:] = arranged[1:] != arranged[:-1]
    return arranged[fresh]


def mix(values: UInt64[ndarray, "*shape"]) -> UInt64[ndarray, "*shape"]:
    """Spread every bit over all bits (the finalizer of MurmurHash3)."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.asarray(values ^ (values >> np.uint64(33)))


def contains_any(runs: UInt64[ndarray, " r"], known: UInt64[ndarray, " k"]) -> ndarray:
    """Say of each run whether it is among ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(runs), bool)
    places = np.minimum(np.searchsorted(known, runs), len(known) - 1)
    return np.asarray(known[places] == runs)
