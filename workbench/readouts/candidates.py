"""Candidate scoring: the likelihood of each whole answer, closed by a terminator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.errors import MismatchError
from workbench.types import CandidatesRead, ndarray


def continuation(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Return the tokens of ``text`` as it stands at the start of a line (after a chat header)."""
    line = _ids(tokenizer, "\n")
    both = _ids(tokenizer, "\n" + text)
    return both[len(line) :] if both[: len(line)] == line else _ids(tokenizer, text)


def terminators(tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end an answer: end of turn, and the newline where it is one token.

    A full stop is left out: it would let "1.5" count as 1.
    """
    line = _ids(tokenizer, "\n")
    ends = [tokenizer.eos_token_id, *(line if len(line) == 1 else ())]
    found = tuple(dict.fromkeys(token for token in ends if token is not None))
    if not found:
        raise MismatchError(
            "this tokenizer has neither an end-of-turn token nor a newline token, so candidates "
            "that are prefixes of one another ('1', '10') cannot be told apart; "
            "set tokenizer.eos_token"
        )
    return found


def candidate_read(
    tokenizer: Any, texts: Sequence[str], prefix: str = ""
) -> tuple[tuple[int, ...], CandidatesRead]:
    """Ask for the likelihood of each text as the whole answer, after ``prefix``.

    The terminator is required: with digit-wise tokenizers "1" is a prefix of "10". Prefix and text
    are tokenized together, since a blank between them may belong to either.

    Returns:
        The tokens that every answer begins with, which belong to the prompt, and the read.
    """
    whole = [continuation(tokenizer, prefix + text) for text in texts]
    shared = 0
    while len({ids[: shared + 1] for ids in whole}) == 1 and shared + 1 < min(map(len, whole)):
        shared += 1
    shared = shared if prefix else 0
    return whole[0][:shared], CandidatesRead(
        tuple(ids[shared:] for ids in whole), terminators(tokenizer)
    )


def expected_value(
    logprobs: Float[ndarray, " c"], values: Float[ndarray, " c"]
) -> tuple[float, float]:
    """Return the candidate-weighted value and the raw mass that the candidates hold together.

    Joint probabilities weigh the values (softmax over summed log-probabilities, not
    length-normalised: the candidates partition the event).
    """
    wide = np.asarray(logprobs, np.float64)
    weights = np.exp(wide - wide.max())
    return float(weights @ values / weights.sum()), float(np.exp(wide).sum())


def _ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
