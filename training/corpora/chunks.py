"""Written and checked documents on their way to a corpus: chunks of lines beside what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from workbench_training.corpora.duplicates import PERMUTATIONS, minima
from workbench_training.corpora.quality import Text
from workbench_training.corpora.words import shingles

from workbench.plain import as_json
from workbench.types import ndarray

Row = dict[str, Any]
Tree = Mapping[str, Any]


@dataclass
class Shelf:
    """The documents of one file, in order: their lines, minima and lengths."""

    lines: list[bytes] = field(default_factory=list)
    signatures: list[ndarray] = field(default_factory=list)
    words: list[int] = field(default_factory=list)

    def add(self, row: Mapping[str, Any], text: Text) -> None:
        """Take one document."""
        self.lines.append((as_json(row) + "\n").encode())
        self.signatures.append(minima(shingles(text.numbers)))
        self.words.append(text.length)

    def tree(self) -> dict[str, ndarray]:
        """Return it as arrays."""
        joined = b"".join(self.lines)
        empty = np.zeros((0, PERMUTATIONS), np.uint32)
        return {
            "lines": np.frombuffer(joined, np.uint8),
            "ends": np.cumsum([len(line) for line in self.lines], dtype=np.int64),
            "signatures": np.stack(self.signatures) if self.signatures else empty,
            "words": np.array(self.words, np.int64),
        }


@dataclass
class Chunk:
    """Some groups of documents, one document a file each: quartets, or single documents."""

    shelves: dict[str, Shelf]
    writer: str
    """The writer's own name."""
    failed: list[tuple[int, str, str]] = field(default_factory=list)
    """(group in this chunk, file, reason)."""
    bins: list[str] = field(default_factory=list)
    """Of each group."""
    unsuitable: list[tuple[str, str]] = field(default_factory=list)
    """Plans that the writer could not carry out, each with its reason."""
    counts: dict[str, int] = field(default_factory=dict)
    """What the writer counted while it wrote, such as requests."""
    seconds: float = 0.0
    """Of a processor, to write and check."""

    @classmethod
    def of(cls, names: Sequence[str], writer: str) -> Chunk:
        """Begin with nothing for each file."""
        return cls({name: Shelf() for name in names}, writer)

    def add(
        self,
        rows: Mapping[str, Row],
        texts: Mapping[str, Text],
        reasons: Mapping[str, Sequence[str]],
    ) -> None:
        """Take one group: a document for each file, and what speaks against each."""
        group = len(self.bins)
        for name, shelf in self.shelves.items():
            shelf.add(rows[name], texts[name])
            self.failed += [(group, name, reason) for reason in reasons[name]]
        self.bins.append(str(next(iter(rows.values())).get("length_bin", "")))

    def tree(self) -> Tree:
        """Return it as ``Units.keep`` wants it."""
        shelves = {name: shelf.tree() for name, shelf in self.shelves.items()}
        rest = {name: getattr(self, name) for name in _KEPT}
        return {"shelves": shelves, **rest}


_KEPT = ("writer", "failed", "bins", "unsuitable", "counts", "seconds")


def lines_of(shelf: Mapping[str, ndarray], places: Iterable[int]) -> Iterator[bytes]:
    """Yield the lines at some places of a kept shelf."""
    joined, ends = shelf["lines"].tobytes(), shelf["ends"]
    for place in places:
        yield joined[ends[place - 1] if place else 0 : ends[place]]
