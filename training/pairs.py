"""Rows of preference data -> pairs of replies as token ids, with the tokens that are edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from workbench_training.pair_settings import PairFitConfig
from workbench_training.preference_data import Message, examples_of, read_rows

from workbench.data.splits import TRAIN, checked_split
from workbench.errors import ConfigError
from workbench.library import locate
from workbench.models.families import room_of
from workbench.types import Rendered, Subject

Range = tuple[int, int]
PairRows = str | Path | Sequence[Any]
"""A file, an item set's name, or rows as mappings."""


@dataclass(frozen=True)
class Reply:
    """A conversation up to the end of a reply."""

    ids: tuple[int, ...]
    """Of the prompt and the reply; what a template writes after the reply is left out."""
    first: int
    """Where the reply begins: its tokens are those that are scored."""
    marked: tuple[Range, ...]
    """Tokens that the edit acts on, half-open; never the first token of a row."""

    @property
    def size(self) -> int:
        """Tokens of the reply."""
        return len(self.ids) - self.first


@dataclass(frozen=True)
class Pair:
    """Two replies to one prompt."""

    name: str
    chosen: Reply
    rejected: Reply

    @property
    def length(self) -> int:
        """Tokens of the longer of both conversations."""
        return max(len(self.chosen.ids), len(self.rejected.ids))

    def swapped(self) -> Pair:
        return replace(self, chosen=self.rejected, rejected=self.chosen)


@dataclass(frozen=True)
class PairSet:
    """The pairs to train on, and those that only measure."""

    trained: tuple[Pair, ...]
    held_out: tuple[Pair, ...] = ()
    neutral: int = 0
    """Pairs of two equal replies, which were left out: no preference is learned from them."""
    other_splits: int = 0
    """Pairs of further splits, which were left out."""


def read_pairs(source: PairRows, subject: Subject, config: PairFitConfig) -> PairSet:
    """Read and render pairs.

    Args:
        source: a file, an item set's name, or rows as a file holds them.
        subject: whose chat template and tokenizer are used.
        config: span, length, split and shuffle.

    Raises:
        UnknownNameError: no such file or item set.
        FormatError: a line that is no JSON object.
        ConfigError: a row without prompt, chosen and rejected, or with a split that is a slip; an
            empty reply, or one that is not one turn; a prompt without the span; a pair that is
            too long; nothing to train on.
    """
    trained: list[Pair] = []
    held_out: list[Pair] = []
    neutral = others = 0
    for row, where in _rows(source):
        split = checked_split(row.get("split", TRAIN), config.held_out, where)
        if split not in (TRAIN, config.held_out):
            others += 1
            continue
        if split != TRAIN and len(held_out) == config.held_out_pairs:
            continue
        pair = _pair(row, where, subject, config)
        if pair.chosen.ids == pair.rejected.ids:
            neutral += 1
        else:
            (trained if split == TRAIN else held_out).append(pair)
    if not trained:
        raise _nothing(source, neutral, others)
    if config.shuffle is not None:
        trained = shuffled(trained, config.shuffle)
    return PairSet(tuple(trained), tuple(held_out), neutral, others)


def count_rows(source: PairRows, config: PairFitConfig) -> tuple[int, int, int]:
    """Return how many pairs train, are held out, and are of other splits, without a tokenizer.

    Raises:
        UnknownNameError, FormatError, ConfigError: as `read_pairs` for what a file itself shows.
    """
    counts, others = {TRAIN: 0, config.held_out: 0}, 0
    for row, where in _rows(source):
        split = checked_split(row.get("split", TRAIN), config.held_out, where)
        (example,) = examples_of("dpo", dict(row), "chat", where)
        if split not in counts:
            others += 1
        elif example["chosen"] != example["rejected"]:
            counts[split] += 1
    if not counts[TRAIN]:
        raise _nothing(source, 0, others)
    return counts[TRAIN], min(counts[config.held_out], config.held_out_pairs), others


def _nothing(source: PairRows, neutral: int, others: int) -> ConfigError:
    told = f" ({neutral} are equal)" if neutral else ""
    besides = f"; {others} pairs are of other splits" if others else ""
    called = repr(str(source)) if isinstance(source, str | Path) else "the rows that were given"
    return ConfigError(
        f"pairs = {called}: no pair of split {TRAIN!r} has two replies that differ{told}, so there "
        f"is nothing to train on{besides}"
    )


def shuffled(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """Swap the replies of half of the pairs, so that nothing is preferred on the whole."""
    turned = set(np.random.default_rng(seed).permutation(len(pairs))[: len(pairs) // 2].tolist())
    return [pair.swapped() if row in turned else pair for row, pair in enumerate(pairs)]


def _rows(source: PairRows) -> Iterator[tuple[Mapping[str, Any], str]]:
    if isinstance(source, str | Path):
        path = locate(source)
        yield from ((row, f"{path}, row {n}") for n, row in enumerate(read_rows(path), 1))
        return
    for number, row in enumerate(source, 1):
        if not isinstance(row, Mapping):
            raise ConfigError(
                f"pair {number} is a {type(row).__name__}; give a mapping with prompt, chosen and "
                "rejected"
            )
        yield row, f"pair {number}"


def _pair(row: Mapping[str, Any], where: str, subject: Subject, config: PairFitConfig) -> Pair:
    (example,) = examples_of("dpo", dict(row), "chat", where)
    chosen, rejected = (
        _reply(example["prompt"], example[key], key, where, subject, config)
        for key in ("chosen", "rejected")
    )
    return Pair(str(row.get("id", where)), chosen, rejected)


def _reply(
    prompt: list[Message],
    answer: list[Message],
    key: str,
    where: str,
    subject: Subject,
    config: PairFitConfig,
) -> Reply:
    if [turn["role"] for turn in answer] != ["assistant"]:
        roles = ", ".join(turn["role"] for turn in answer)
        raise ConfigError(f"{where}: {key} is {roles}; one turn of the assistant is expected")
    try:
        rendered = subject.renderer.render([*prompt, *answer])
    except ConfigError as error:
        raise ConfigError(f"{where}, {key}: {error}") from error
    ((first, last),) = rendered.spans["content"]
    _refuse_long(last, where, subject, config)
    return Reply(rendered.ids[:last], first, _marked(rendered, (first, last), where, config.span))


def _marked(rendered: Rendered, reply: Range, where: str, span: str) -> tuple[Range, ...]:
    users, tools = (rendered.spans.get(role, ()) for role in ("user", "tool"))
    ranges = {
        "user": users,
        "last_user": users[-1:],
        "user+tool": (*users, *tools),
        "assistant": (reply,),
    }[span]
    marked = tuple((max(a, 1), b) for a, b in ranges if b > 1)
    if not marked:
        raise ConfigError(
            f"{where}: span = {span!r} names no token of this prompt, whose spans are "
            f"{', '.join(sorted(rendered.spans))}; give prompts with that part, or another span"
        )
    return marked


def _refuse_long(tokens: int, where: str, subject: Subject, config: PairFitConfig) -> None:
    model = room_of(subject.model)
    room = min(config.length, model or config.length)
    if tokens > room:
        what = f"length = {config.length}" if room == config.length else "what the model can read"
        raise ConfigError(
            f"{where} has {tokens} tokens with a reply, over {what} ({room}); shorten it"
            + (", or raise length" if room == config.length else "")
        )
