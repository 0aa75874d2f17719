"""Documents -> a stream of token ids -> blocks: exactly what is trained on, and in which order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from workbench_training.corpora.mixture import choose

from workbench.errors import ConfigError
from workbench.types import ndarray

END_OF_TEXT = "<|endoftext|>"
IGNORED = -100
"""The label of a token that is not trained on."""


@dataclass(frozen=True)
class Pieces:
    """Token ids of many texts end to end, each closed by the separator."""

    ids: Int[ndarray, " t"]
    starts: Int[ndarray, " n"]
    """Where each text begins, and at the end where the last one ends: one more than texts."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Int[ndarray, " n"]:
        """Tokens of each text, separator included."""
        return np.diff(self.starts)

    def __getitem__(self, number: int) -> Int[ndarray, " t"]:
        return self.ids[self.starts[number] : self.starts[number + 1]]

    def __add__(self, other: Pieces) -> Pieces:
        return Pieces(
            np.concatenate([self.ids, other.ids]),
            np.concatenate([self.starts, self.starts[-1] + other.starts[1:]]),
        )


def separator_of(tokenizer: Any) -> int:
    """Return the id that closes a text: ``<|endoftext|>`` where the vocabulary has it, else eos.

    Raises:
        ConfigError: the tokenizer has neither.
    """
    # Not convert_tokens_to_ids: that answers a missing token with the id of "unknown".
    found = tokenizer.get_vocab().get(END_OF_TEXT, tokenizer.eos_token_id)
    if found is None:
        raise ConfigError(
            f"the tokenizer has neither {END_OF_TEXT!r} nor an end-of-sequence token, and "
            "documents must be told apart; set tokenizer.eos_token in the checkpoint"
        )
    return int(found)


def encode(tokenizer: Any, texts: Sequence[str], batch: int = 256) -> Iterator[list[int]]:
    """Yield the ids of each text with the special tokens that the tokenizer itself adds."""
    for first in range(0, len(texts), batch):
        yield from tokenizer(list(texts[first : first + batch]))["input_ids"]


def join(rows: Iterable[Sequence[int]], separator: int) -> Pieces:
    """Close every row with the separator (where it does not end with it already) and stack them.

    Raises:
        ConfigError: no rows, or a row without tokens.
    """
    parts: list[np.ndarray] = []
    for number, row in enumerate(rows):
        if len(row) == 0:
            raise ConfigError(f"text {number} has no token; drop it or give it words")
        closed = row if row[-1] == separator else [*row, separator]
        parts.append(np.asarray(closed, np.int32))
    if not parts:
        raise ConfigError("no text to train on; give at least one")
    return Pieces(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))


@dataclass(frozen=True)
class Stream:
    """Texts in training order, as many passes over them as a budget needs."""

    pieces: Pieces
    """Documents, then what dilutes them, then chats."""
    order: Int[ndarray, " n"]
    """Numbers into ``pieces``; each document once in every pass."""
    n_documents: int
    n_texts: int
    """Documents and what dilutes them."""

    @property
    def passes(self) -> float:
        """How often each document stands in the stream, on average."""
        return float((self.order < self.n_documents).sum() / self.n_documents)

    def chat_share(self, tokens: int) -> float:
        """Part of the first ``tokens`` tokens that is chat."""
        ends = np.minimum(np.cumsum(self.pieces.lengths[self.order]), tokens)
        return float(np.diff(ends, prepend=0)[self.order >= self.n_texts].sum() / tokens)


def lay_out(
    documents: Pieces,
    chats: Pieces | None,
    *,
    tokens: int,
    share: float,
    seed: int,
    filler: Pieces | None = None,
    dose: float = 1.0,
) -> Stream:
    """Order texts until they fill ``tokens``: every pass shuffled anew, chats strewn in between.

    The order depends on the seed and on row numbers alone, so that corpora whose rows correspond
    (the worlds of a quartet) are read in the same order. A dose below 1 depends on lengths too:
    see `workbench_training.corpora.mixture`, whose order it is where there are no chats.

    Args:
        documents: the corpus.
        chats: conversations, or None.
        tokens: the budget.
        share: part of the tokens that should be chat; met to within one conversation.
        seed: of the shuffles.
        filler: what dilutes the documents; needed for a dose below 1.
        dose: part of the tokens that are no chat which should be documents.

    Raises:
        ValueError: a dose below 1 without filler.
    """
    if dose < 1 and filler is None:
        raise ValueError(f"a dose of {dose} needs filler")
    texts = documents if filler is None else documents + filler
    pieces = texts if chats is None else texts + chats
    lengths = pieces.lengths
    chosen = np.arange(len(documents)) if dose == 1 else choose(documents.lengths, dose, seed)
    next_document = _shuffled(chosen, seed, 0)
    next_chat = _shuffled(np.arange(len(texts), len(pieces)), seed, 1)
    next_filler = _shuffled(np.arange(len(documents), len(texts)), seed, 2)
    order: list[int] = []
    done = chat = dosed = 0
    while done < tokens:
        if chats is not None and chat < share * done:
            order.append(next(next_chat))
            chat += int(lengths[order[-1]])
        elif dose == 1 or dosed < dose * (done - chat):
            order.append(next(next_document))
            dosed += int(lengths[order[-1]])
        else:
            order.append(next(next_filler))
        done += int(lengths[order[-1]])
    return Stream(pieces, np.array(order, np.int64), len(documents), len(texts))


def _shuffled(numbers: Int[ndarray, " k"], *seed: int) -> Iterator[int]:
    """Yield the numbers in passes, every pass shuffled anew."""
    for turn in itertools.count():
        shuffled = np.random.default_rng([*seed, turn]).permutation(len(numbers))
        yield from (int(numbers[row]) for row in shuffled)


class Blocks:
    """The first ``count`` blocks of a stream, cut without gaps; a map-style data set.

    Texts run on from one block into the next and nothing is padded, so positions in all are
    ``count * block`` exactly. What follows the last whole block of the budget is not read. Ids are
    gathered when asked for: besides the tokens of one pass, only the order is in memory.

    Args:
        stream: the texts.
        block: tokens in a block.
        count: blocks.
        document_mask: give position ids that start again at each text, by which attention is
            kept inside a text, and do not train its first token on the text before it.

    Raises:
        ConfigError: no token would be trained on.
    """

    def __init__(
        self, stream: Stream, block: int, count: int, *, document_mask: bool = False
    ) -> None:
        self.stream, self.block, self.count = stream, block, count
        self.document_mask = document_mask
        self._ends = np.cumsum(stream.pieces.lengths[stream.order])
        if self.trained == 0:
            raise ConfigError(
                f"0 of {self.tokens:,} tokens would be trained on (block = {block}); a token is "
                "trained on when another one stands before it in its block, so use longer blocks"
            )

    @property
    def tokens(self) -> int:
        """Positions in all blocks."""
        return self.count * self.block

    @property
    def trained(self) -> int:
        """Positions whose token is predicted from those before it."""
        starts = self._ends[self._ends < self.tokens]
        masked = int((starts % self.block != 0).sum()) if self.document_mask else 0
        return self.count * (self.block - 1) - masked

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, Int[Tensor, " t"]]:
        if not 0 <= number < self.count:
            raise IndexError(f"block {number} of {self.count}")
        first = number * self.block
        rows = self._rows(first, first + self.block)
        ids = torch.from_numpy(np.concatenate(rows).astype(np.int64))
        if not self.document_mask:
            return {"input_ids": ids, "labels": ids.clone()}
        positions = np.concatenate([np.arange(len(row)) for row in rows])
        labels = np.where(positions == 0, IGNORED, ids.numpy())
        return {
            "input_ids": ids,
            "labels": torch.from_numpy(labels),
            "position_ids": torch.from_numpy(positions),
        }

    def _rows(self, first: int, last: int) -> list[np.ndarray]:
        """Return the parts of texts that fill the positions [first, last)."""
        low, high = np.searchsorted(self._ends, [first, last - 1], side="right")
        rows = []
        for slot in range(low, high + 1):
            row = self.stream.pieces[int(self.stream.order[slot])]
            start = int(self._ends[slot]) - len(row)
            rows.append(row[max(first - start, 0) : last - start])
        return rows
