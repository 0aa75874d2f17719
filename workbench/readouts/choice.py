"""Letter mass: the probability that the next token is one of the allowed answer letters."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.errors import MismatchError
from workbench.types import LogitsRead, ndarray

LOW_MASS = 0.5
"""An answer with less unnormalised mass on the allowed letters is marked ``low_mass``."""

_spelled: weakref.WeakKeyDictionary[Any, dict[str, tuple[int, ...]]] = weakref.WeakKeyDictionary()


def spellings(tokenizer: Any, labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return, for each label, the single tokens that decode to it, blanks aside ("A", " A").

    The vocabulary is scanned once for each tokenizer. Case is kept: "a" is an article.

    Raises:
        MismatchError: a label has no single-token spelling in this vocabulary.
    """
    if tokenizer not in _spelled:
        _spelled[tokenizer] = _scan(tokenizer)
    table = _spelled[tokenizer]
    missing = [label for label in labels if label not in table]
    if missing:
        raise MismatchError(
            f"no single token of this tokenizer spells {missing[0]!r}; letter mass needs labels of "
            "one token, so use candidate scoring for longer ones"
        )
    return {label: table[label] for label in labels}


def _scan(tokenizer: Any) -> dict[str, tuple[int, ...]]:
    ids = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
    table: dict[str, list[int]] = {}
    for token, text in zip(ids, tokenizer.batch_decode([[token] for token in ids]), strict=True):
        table.setdefault(text.strip(), []).append(token)
    return {label: tuple(tokens) for label, tokens in table.items() if label}


@dataclass(frozen=True)
class Letters:
    """The allowed labels of a question and the tokens that spell each one.

    Masses stay logarithms until they are shares: an edit may push every label under the smallest
    float, and the shares are still what they are.
    """

    tokens: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, tokenizer: Any, labels: Sequence[str]) -> Letters:
        """Look the labels up in a tokenizer."""
        return cls(spellings(tokenizer, labels))

    @property
    def read(self) -> LogitsRead:
        """The read whose answer ``log_masses`` takes."""
        return LogitsRead(keep=tuple(t for tokens in self.tokens.values() for t in tokens))

    def log_masses(self, answer: Float[ndarray, " v"]) -> Float[ndarray, " o"]:
        """Sum probabilities over each label's spellings.

        Args:
            answer: natural log-probabilities in the order of ``read.keep``.

        Returns:
            Log of the unnormalised probability of each label.
        """
        ends = np.cumsum([len(tokens) for tokens in self.tokens.values()])
        parts = np.split(np.asarray(answer, np.float64), ends[:-1])
        return np.array([np.logaddexp.reduce(part) for part in parts])


def rotations(labels: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the k cyclic orders of k options; each option stands once at every position."""
    return [(*labels[shift:], *labels[:shift]) for shift in range(len(labels))]


def shares(log_masses: Float[ndarray, " o"]) -> Float[ndarray, " o"]:
    """Normalise masses over the allowed labels; NaN where none of them is possible at all."""
    wide = np.asarray(log_masses, np.float64)
    if not np.isfinite(wide.max()):
        return np.full(len(wide), np.nan)
    weights = np.exp(wide - wide.max())
    return np.asarray(weights / weights.sum())


def letter_mass(log_masses: Float[ndarray, " o"]) -> float:
    """Return the probability that the labels hold together."""
    return float(np.exp(log_masses).sum())


def mass_reason(mass: float) -> str:
    """Return ``low_mass`` below the threshold, else ``ok``; the answer counts either way."""
    return "low_mass" if mass < LOW_MASS else "ok"
