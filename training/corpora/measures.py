"""What the file of a corpus holds, measured from the file itself, one document at a time."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
from workbench_training.corpora.chunks import Row
from workbench_training.corpora.quality import CLAIM_RUN, Text
from workbench_training.corpora.settings import TOKENS_PER_WORD
from workbench_training.corpora.words import contains_any, different, run_numbers
from workbench_training.quartet_grammar import sentences

from workbench.types import ndarray

RUNS = (1, 2, 3)
SAMPLE = 1000
"""Documents from the top for the distinct-n that can be compared between corpora."""
_SENTENCE = 4
"""Words from which a line counts as a sentence; headings are shorter."""
_BATCH = 1 << 18
_COLUMNS = ("length_bin", "split", "category", "doc_type", "mode", "domain", "role", "scenario")


@dataclass(frozen=True)
class Lengths:
    """Words of the documents of a length bin."""

    documents: int
    mean: float
    sd: float

    @classmethod
    def of(cls, words: Sequence[int]) -> Lengths:
        """Summarize some lengths."""
        return cls(len(words), fmean(words), pstdev(words))


@dataclass(frozen=True)
class Measured:
    """What one file holds."""

    name: str
    sha256: str
    documents: int
    words: int
    splits: dict[str, int]
    by_bin: dict[str, Lengths]
    distinct: dict[int, float]
    """Different over all runs of n words."""
    distinct_sample: dict[int, float]
    """The same for the first ``SAMPLE`` documents."""
    sentences: int
    repeated: float
    """Share of the sentences that stand in the file more than once."""
    claims_overlap: int
    """Documents with a run of six words of the claims."""
    genres: Counter[tuple[str, str, str]]
    """Documents by category, type and mode."""
    roles: Counter[tuple[str, str]]
    """Documents by domain and role."""
    scenarios: Counter[str]
    seconds: float
    """Of a processor, to measure it."""

    @property
    def tokens(self) -> int:
        """Estimate the tokens as words / 0.75."""
        return round(self.words * TOKENS_PER_WORD)


@dataclass
class _Runs:
    """The different runs of n words so far; the rest waits until it is as many."""

    length: int
    total: int = 0
    sample: float = 0.0
    seen: ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    waiting: list[ndarray] = field(default_factory=list)
    merged: int = 0

    def add(self, numbers: ndarray) -> None:
        runs = run_numbers(numbers, self.length)
        self.total += len(runs)
        self.waiting.append(runs)
        if self.total - self.merged > max(_BATCH, len(self.seen)):
            self.merge()

    def merge(self) -> float:
        """Return different over all runs."""
        self.seen = different(np.concatenate([self.seen, *self.waiting]))
        self.waiting, self.merged = [], self.total
        return len(self.seen) / self.total if self.total else 0.0


@dataclass(frozen=True)
class Measure:
    """Measures a file; travels to worker processes."""

    claims: ndarray
    """Six-word runs of the claims, sorted."""

    def __call__(self, path: Path) -> Measured:
        """Read the file once."""
        tally = _Tally(self.claims)
        for line, row in _rows(path):
            tally.add(line, row)
        return tally.result(path.stem)


class _Tally:
    """What has been counted so far."""

    def __init__(self, claims: ndarray) -> None:
        self.claims = claims
        self.began = time.process_time()
        self.digest, self.runs = sha256(), [_Runs(n) for n in RUNS]
        self.bins: dict[str, list[int]] = {}
        self.heard: list[int] = []
        self.splits: Counter[str] = Counter()
        self.genres: Counter[tuple[str, str, str]] = Counter()
        self.roles: Counter[tuple[str, str]] = Counter()
        self.scenarios: Counter[str] = Counter()
        self.documents = self.overlap = 0

    def add(self, line: bytes, row: Row) -> None:
        """Count one document."""
        text = Text(str(row["text"]))
        self.documents += 1
        self.digest.update(line)
        for one in self.runs:
            one.add(text.numbers)
            if self.documents == SAMPLE:
                one.sample = one.merge()
        known = contains_any(run_numbers(text.numbers, CLAIM_RUN), self.claims)
        self.overlap += bool(known.any())
        lines = sentences(text.raw)
        self.heard += [hash(line) for line in lines if len(line.split()) >= _SENTENCE]
        self._file(row, text.length)

    def _file(self, row: Row, words: int) -> None:
        told = {key: str(row.get(key) or "") for key in _COLUMNS}
        self.bins.setdefault(told["length_bin"], []).append(words)
        self.splits[told["split"]] += 1
        self.genres[told["category"], told["doc_type"], told["mode"]] += 1
        self.roles[told["domain"], told["role"]] += 1
        self.scenarios[told["scenario"]] += 1

    def result(self, name: str) -> Measured:
        """Return the whole."""
        distinct = {one.length: one.merge() for one in self.runs}
        sample = {one.length: one.sample for one in self.runs}
        return Measured(
            name=name,
            sha256=self.digest.hexdigest(),
            documents=self.documents,
            words=sum(map(sum, self.bins.values())),
            splits=dict(sorted(self.splits.items())),
            by_bin={name: Lengths.of(lengths) for name, lengths in self.bins.items()},
            distinct=distinct,
            distinct_sample=sample if self.documents >= SAMPLE else distinct,
            sentences=len(self.heard),
            repeated=_repeated(self.heard),
            claims_overlap=self.overlap,
            genres=self.genres,
            roles=self.roles,
            scenarios=self.scenarios,
            seconds=time.process_time() - self.began,
        )


def _rows(path: Path) -> Iterator[tuple[bytes, Row]]:
    with path.open("rb") as file:
        for line in file:
            yield line, json.loads(line)


def _repeated(heard: Sequence[int]) -> float:
    if not heard:
        return 0.0
    _, counts = np.unique(np.array(heard, np.int64), return_counts=True)
    return float(counts[counts > 1].sum() / len(heard))
