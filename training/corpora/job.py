"""A corpus run: written and checked in parallel units, joined in order, measured, described."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from os import sched_getaffinity
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from workbench_training.corpora.chunks import Tree, lines_of
from workbench_training.corpora.duplicates import Pair, near_duplicates, repeats
from workbench_training.corpora.measures import Measure, Measured
from workbench_training.corpora.plan import QuartetPlan
from workbench_training.corpora.quality import Text
from workbench_training.corpora.settings import CorpusConfig
from workbench_training.corpora.words import shingles
from workbench_training.corpora.writing import (
    CHUNK,
    WriteUnit,
    control_chunks,
    names_of,
    plans_of,
    rules_of,
    writer_maker,
)

from workbench.cluster import Workers, spread
from workbench.errors import ConfigError
from workbench.files import replacing
from workbench.registry import plugins
from workbench.runs import OpenRun, Units
from workbench.types import Progress, ndarray


@dataclass(frozen=True)
class Corpus:
    """What a run has written."""

    config: CorpusConfig
    planned: int
    survey: Survey
    files: Mapping[str, Measured]
    """By world; one file ``documents`` for a control."""


@dataclass(frozen=True)
class Survey:
    """What the checks found in everything that was written. A group is a quartet or a document."""

    sizes: Sequence[int]
    """Groups in each unit."""
    bins: Sequence[str]
    """Of each group."""
    words: Mapping[str, ndarray]
    """By file, of each group."""
    failed: Mapping[str, Counter[str]]
    """By file: documents by reason."""
    dropped: Mapping[int, Sequence[str]]
    """Groups that are left out, each with its reasons."""
    unsuitable: Counter[str]
    """Plans that the writer could not carry out, by reason."""
    counts: Counter[str]
    """What the writer counted."""
    writer: str
    """Its own name."""

    @property
    def written(self) -> int:
        """How many groups there are."""
        return len(self.bins)

    @property
    def kept(self) -> int:
        """How many of them stay."""
        return self.written - len(self.dropped)

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Yield (unit, first group, group after the last)."""
        ends = list(accumulate(self.sizes))
        for unit, (size, end) in enumerate(zip(self.sizes, ends, strict=True)):
            yield unit, end - size, end


def write_corpus(
    config: CorpusConfig, run: OpenRun, *, progress: Progress | None = None
) -> Corpus | None:
    """Do this process's share of a corpus, and join all of it where it is there.

    Args:
        config: the settings.
        run: where finished units lie until the run is done, and the files after that.
        progress: called with (plans done, plans in all).

    Returns:
        Everything; None where other shares are not done.

    Raises:
        ConfigError: the checks drop more than the settings allow.
    """
    write = _write_quartets if config.kind == "quartets" else _write_control
    units = write(config, run, progress)
    if units is None:
        return None
    with units.joining() as complete:
        return _join(config, run, units) if complete else None


def workers_of(config: CorpusConfig) -> Workers:
    """Return how many processes write."""
    if config.workers is not None:
        return config.workers
    return len(sched_getaffinity(0)) if config.writer == "templates" else 1


def _write_quartets(config: CorpusConfig, run: OpenRun, progress: Progress | None) -> Units | None:
    writer_maker(config)  # refuses a wrong name or option before anything is written
    plans = plans_of(config)
    work = [plans[start : start + CHUNK] for start in range(0, len(plans), CHUNK)]
    units = Units(run, len(work), _digest(config, plans))
    lacking = units.lacking()
    total = sum(len(work[unit]) for unit in units.own())
    done = total - sum(len(work[unit]) for unit in lacking)
    call = WriteUnit(units, config.model_dump_json(), plugins())
    given = [(unit, work[unit]) for unit in lacking]
    for _, written in spread(call, given, workers_of(config)):
        done += written
        if progress is not None:
            progress(done, total)
    return units


def _digest(config: CorpusConfig, plans: Sequence[QuartetPlan]) -> str:
    told = [[plan.id, plan.scenario.id, plan.doc_type.name, plan.seed] for plan in plans]
    settings = config.model_dump(mode="json", exclude={"workers"})
    return sha256(json.dumps([settings, told]).encode()).hexdigest()


def _write_control(config: CorpusConfig, run: OpenRun, progress: Progress | None) -> Units | None:
    """Write a control, which is one stream of documents: share 0 of several does it."""
    if run.part is not None and run.part[0]:
        return None
    chunks = control_chunks(config)
    units = Units(run, 1, _digest(config, ()))
    done = number = 0
    for chunk in chunks:
        units.keep(number, chunk.tree())
        number, done = number + 1, done + len(chunk.bins)
        if progress is not None:
            progress(done, max(config.count, done))
    if not done:
        raise ConfigError(f"kind {config.kind!r} gave no documents; raise documents = ...")
    return replace(units, number=number)


# --- joining -------------------------------------------------------------------------------------


def _join(config: CorpusConfig, run: OpenRun, units: Units) -> Corpus:
    survey = _survey(config, units)
    _refuse_losses(config, survey)
    paths = _write_files(config, run.path, units, survey)
    measured = spread(Measure(rules_of(config).claims), paths, workers_of(config))
    found = {one.name: one for _, one in measured}
    files = {name: found[name] for name in names_of(config)}
    return Corpus(config, survey.written + survey.unsuitable.total(), survey, files)


def _survey(config: CorpusConfig, units: Units) -> Survey:
    """Look through all units for what speaks against their groups; then for near-duplicates."""
    names, sizes = names_of(config), list[int]()
    bins, unsuitable, counts = list[str](), Counter[str](), Counter[str]()
    shelves: dict[str, list[Tree]] = {name: [] for name in names}
    failed: dict[str, Counter[str]] = {name: Counter() for name in names}
    dropped: dict[int, list[str]] = {}
    for unit in range(units.number):
        tree = units.load(unit)
        for group, name, reason in tree["failed"]:
            failed[name][reason] += 1
            dropped.setdefault(len(bins) + group, []).append(reason)
        for name in names:
            shelves[name].append({k: tree["shelves"][name][k] for k in ("signatures", "words")})
        bins += tree["bins"]
        sizes.append(len(tree["bins"]))
        unsuitable.update(reason for _, reason in tree["unsuitable"])
        counts.update(tree["counts"])
    words = {name: np.concatenate([s["words"] for s in shelves[name]]) for name in names}
    survey = Survey(sizes, bins, words, failed, dropped, unsuitable, counts, tree["writer"])
    minima = {name: np.concatenate([s["signatures"] for s in shelves[name]]) for name in names}
    pairs = {name: _pairs(config, units, survey, name, minima[name]) for name in names}
    for name in names:
        alike = {place for pair in pairs[name] for place in (pair.first, pair.second)}
        failed[name]["near-duplicate"] = len(alike)
    every = [pair for found in pairs.values() for pair in found]
    for group in repeats(every, gone=dropped):
        dropped[group] = ["near-duplicate"]
    return survey


def _pairs(
    config: CorpusConfig, units: Units, survey: Survey, name: str, signatures: ndarray
) -> list[Pair]:
    """Return the near-duplicates of one file."""

    def read(places: Sequence[int]) -> Iterator[tuple[int, ndarray]]:
        for unit, first, end in survey.spans():
            own = [place - first for place in places if first <= place < end]
            if own:
                lines = lines_of(units.load(unit)["shelves"][name], own)
                for place, line in zip(own, lines, strict=True):
                    yield first + place, shingles(Text(json.loads(line)["text"]).numbers)

    return near_duplicates(signatures, read, config.near_duplicate)


def _refuse_losses(config: CorpusConfig, survey: Survey) -> None:
    share = len(survey.dropped) / survey.written if survey.written else 1.0
    if share <= config.max_dropped and survey.kept:
        return
    reasons = Counter(reason for found in survey.dropped.values() for reason in set(found))
    told = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    raise ConfigError(
        f"the checks drop {len(survey.dropped)} of {survey.written} ({told or 'none'}; "
        f"{survey.unsuitable.total()} unsuitable), more than max_dropped = {config.max_dropped}; "
        "change the writer or its scenarios, or raise max_dropped"
    )


def _write_files(config: CorpusConfig, folder: Path, units: Units, survey: Survey) -> list[Path]:
    """Stream the lines of what is kept to one file for each name, in order."""
    paths = [folder / f"{name}.jsonl" for name in names_of(config)]
    with ExitStack() as opened:
        files: list[BinaryIO] = []
        for path in paths:
            temporary = opened.enter_context(replacing(path))
            files.append(opened.enter_context(temporary.open("wb")))
        for unit, first, end in survey.spans():
            kept = [group - first for group in range(first, end) if group not in survey.dropped]
            shelves: Mapping[str, Any] = units.load(unit)["shelves"]
            for path, file in zip(paths, files, strict=True):
                file.writelines(lines_of(shelves[path.stem], kept))
    return paths
