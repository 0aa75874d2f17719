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
    special = set(tokenizer.all_special_ids)
    ids = [token for token in range(len(tokenizer)) if token not in special]
    table: dict[str, list[int]] = {}
    for token, text in zip(ids, tokenizer.batch_decode([[token] for token in ids]), strict=True):
        label = text.strip()
        if 0 < len(label) <= 2:
            table.setdefault(label, []).append(token)
    return {label: tuple(tokens) for label, tokens in table.items()}


@dataclass(frozen=True)
class Letters:
    """The allowed labels of a question and the tokens that spell each one."""

    tokens: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, tokenizer: Any, labels: Sequence[str]) -> Letters:
        """Look the labels up in a tokenizer."""
        return cls(spellings(tokenizer, labels))

    @property
    def read(self) -> LogitsRead:
        """The read whose answer ``masses`` takes."""
        return LogitsRead(keep=tuple(t for tokens in self.tokens.values() for t in tokens))

    def masses(self, answer: Float[ndarray, " v"]) -> Float[ndarray, " o"]:
        """Sum probabilities over each label's spellings.

        Args:
            answer: natural log-probabilities in the order of ``read.keep``.

        Returns:
            Unnormalised probability of each label; their sum is the letter mass.
        """
        probability = np.exp(np.asarray(answer, np.float64))
        ends = np.cumsum([len(tokens) for tokens in self.tokens.values()])
        return np.array([part.sum() for part in np.split(probability, ends[:-1])])


def rotations(labels: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the k cyclic orders of k options; each option stands once at every position."""
    return [(*labels[shift:], *labels[:shift]) for shift in range(len(labels))]


def shares(mass: Float[ndarray, " o"]) -> Float[ndarray, " o"]:
    """Normalise masses over the allowed labels."""
    return np.asarray(mass / mass.sum())


def mass_reason(mass: float) -> str:
    """Return ``low_mass`` below the threshold, else ``ok``; the answer counts either way."""
    return "low_mass" if mass < LOW_MASS else "ok"
