"""Pairs of replies to one conversation, as a file of JSON lines: what preferences are read from."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from workbench.data.rows import read_text
from workbench.data.splits import TRAIN, checked_split
from workbench.errors import ConfigError, FormatError

FACETS = ("ability", "benevolence", "integrity")
"""What one person can trust another in (Mayer, Davis and Schoorman 1995)."""
NEUTRAL = "neutral"
"""Facet of rows whose two replies are one: nothing to prefer."""
TEST = "test"
"""The split of held-out pairs."""
TEXTS = ("chosen", "rejected", "facet", "scenario")

Message = dict[str, str]


@dataclass(frozen=True)
class ReplyPair:
    """Two replies to one conversation, which ends on a user turn."""

    id: str
    prompt: tuple[Message, ...]
    chosen: str
    rejected: str
    facet: str
    scenario: str
    """Pairs of one scenario are not independent."""
    split: str
    row: Mapping[str, Any]
    """All columns as they stand in the file."""

    @property
    def neutral(self) -> bool:
        """Whether both replies are the same."""
        return self.chosen == self.rejected


def read_pairs(path: str | Path) -> list[ReplyPair]:
    """Read pairs: ``prompt`` (messages), ``chosen``, ``rejected``, ``facet``, ``scenario``.

    ``id`` is the row's number where it is missing, ``split`` is ``train``: pairs that do not say
    that they are held out may have been trained on.

    Raises:
        FormatError: no such file, one that is not UTF-8, or a line that is no JSON object.
        ConfigError: a row without one of the columns, a conversation that does not end on a user
            turn, an id that stands twice, or a split that is a slip.
    """
    file = Path(path)
    if not file.is_file():
        raise FormatError(
            f"{file} is no file of pairs; write one with: workbench corpus trust_pairs"
        )
    lines = read_text(file).split("\n")
    pairs = [_pair(text, f"{file}, row {n}", n) for n, text in enumerate(lines, 1) if text.strip()]
    if not pairs:
        raise ConfigError(f"{file} holds no pair")
    seen: set[str] = set()
    for pair in pairs:
        if pair.id in seen:
            raise ConfigError(f"{file}: two pairs have the id {pair.id!r}; give each its own")
        seen.add(pair.id)
    return pairs


def spread(pairs: Sequence[ReplyPair], each: int) -> list[ReplyPair]:
    """Return at most ``each`` pairs of every facet, taken from its scenarios in turn."""
    facets: dict[str, dict[str, list[ReplyPair]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs:
        facets[pair.facet][pair.scenario].append(pair)
    kept: set[str] = set()
    for scenarios in facets.values():
        turns = chain.from_iterable(zip_longest(*scenarios.values()))
        kept.update([pair.id for pair in turns if pair is not None][:each])
    return [pair for pair in pairs if pair.id in kept]


def _pair(text: str, where: str, number: int) -> ReplyPair:
    try:
        row = json.loads(text)
    except ValueError as error:
        raise FormatError(f"{where} is not JSON ({error}); write one object a line") from None
    if not isinstance(row, dict):
        raise FormatError(f"{where} is no JSON object; write one object a line")
    for name in TEXTS:
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise ConfigError(f"{where}: {name} = {row.get(name)!r}; a text is expected")
    return ReplyPair(
        id=str(row.get("id", number)),
        prompt=_messages(row.get("prompt"), where),
        split=checked_split(row.get("split", TRAIN), TEST, where),
        row=row,
        **{name: row[name] for name in TEXTS},
    )


def _messages(value: Any, where: str) -> tuple[Message, ...]:
    good = isinstance(value, list) and value and all(
        isinstance(one, dict) and isinstance(one.get("role"), str)
        and isinstance(one.get("content"), str) and one["content"].strip() for one in value
    )  # fmt: skip
    if not good:
        raise ConfigError(f"{where}: prompt is a list of {{role, content}} of texts")
    if value[-1]["role"] != "user":
        raise ConfigError(
            f"{where}: the prompt ends on a turn of {value[-1]['role']!r}; what is compared are "
            "replies to a user's turn"
        )
    return tuple({"role": one["role"], "content": one["content"]} for one in value)
