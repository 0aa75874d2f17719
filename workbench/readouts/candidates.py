"""Candidate scoring: the likelihood of each whole answer, closed by a terminator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.errors import ConfigError, MismatchError
from workbench.readouts.choice import shares
from workbench.types import CandidatesRead, Subject, ndarray

TAIL = 8
"""How many tokens to the left decide how a text is cut into tokens."""


def continuation(tokenizer: Any, text: str, after: Sequence[int]) -> tuple[int, ...]:
    """Return the tokens of ``text`` as it goes on after the tokens ``after``.

    They are cut as the tokenizer cuts both together. Where that would melt them into one, ``text``
    is cut alone, as a model does that writes after a finished header.

    Raises:
        MismatchError: neither way gives back the text.
    """
    left = _text(tokenizer, after[-TAIL:])
    before, both = _ids(tokenizer, left), _ids(tokenizer, left + text)
    if both[: len(before)] == before:
        return both[len(before) :]
    alone = _ids(tokenizer, text)
    found = _text(tokenizer, (*before, *alone))
    if found != left + text:
        raise MismatchError(
            f"{text!r} after {left!r} is no run of tokens of its own: alone it reads "
            f"{found.removeprefix(left)!r}; word the answers or the prefix differently"
        )
    return alone


def terminators(subject: Subject) -> tuple[int, ...]:
    """Return the tokens that end an answer: end of turn, and the newline where it is one token.

    The end of a turn is what the chat template puts after an assistant's words, which is not
    always the tokenizer's end of sequence (Gemma). A full stop is left out: it would let "1.5"
    count as 1.

    Raises:
        MismatchError: there is neither.
    """
    tokenizer = subject.tokenizer
    line = continuation(tokenizer, "\n", _ids(tokenizer, "10"))
    ends = [_end_of_turn(subject), tokenizer.eos_token_id, *(line if len(line) == 1 else ())]
    found = tuple(dict.fromkeys(token for token in ends if token is not None))
    if not found:
        raise MismatchError(
            "this tokenizer has neither an end-of-turn token nor a newline token, so candidates "
            "that are prefixes of one another ('1', '10') cannot be told apart; "
            "set tokenizer.eos_token"
        )
    return found


def _end_of_turn(subject: Subject) -> int | None:
    """Return the first added token that the chat template puts after an answer, if any."""
    said = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Two"}]
    try:
        rendered = subject.renderer.render(said)
    except ConfigError:  # no chat template: then answers end in eos or a newline
        return None
    rest = rendered.ids[rendered.spans["content"][-1][1] :]
    return next((token for token in rest if token in subject.tokenizer.added_tokens_decoder), None)


def candidate_read(
    tokenizer: Any,
    after: Sequence[int],
    texts: Sequence[str],
    ends: tuple[int, ...],
    prefix: str = "",
) -> tuple[tuple[int, ...], CandidatesRead]:
    """Ask for the likelihood of each text as the whole answer, after a prompt and ``prefix``.

    Terminators are required: with digit-wise tokenizers "1" is a prefix of "10". Prefix and text
    are tokenized together, since a blank between them may belong to either.

    Args:
        tokenizer: the subject's.
        after: the tokens of the prompt.
        texts: the answers.
        ends: the terminators.
        prefix: words that every answer begins with.

    Returns:
        The tokens of the prefix that all answers share, which belong to the prompt, and the read.
    """
    whole = [continuation(tokenizer, prefix + text, after) for text in texts]
    opening = continuation(tokenizer, prefix, after) if prefix else ()
    shared = _common([opening, *whole])
    return opening[:shared], CandidatesRead(tuple(ids[shared:] for ids in whole), ends)


def _common(rows: Sequence[tuple[int, ...]]) -> int:
    """Return how many leading tokens all rows share."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))


def expected_value(
    logprobs: Float[ndarray, " c"], values: Float[ndarray, " c"]
) -> tuple[float, float]:
    """Return the candidate-weighted value and the raw mass that the candidates hold together.

    Joint probabilities weigh the values (softmax over summed log-probabilities, not
    length-normalised: the candidates partition the event).
    """
    weights = shares(logprobs)
    return float(weights @ values), float(np.exp(np.asarray(logprobs, np.float64)).sum())


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def _ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
