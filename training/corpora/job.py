"""A corpus run: written and checked in parallel units, joined in order, measured, described."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from os import sched_getaffinity
from pathlib import Path
from typing import Any, BinaryIO

from workbench_training.corpora.chunks import lines_of
from workbench_training.corpora.measures import Measure, Measured
from workbench_training.corpora.plan import QuartetPlan
from workbench_training.corpora.settings import CorpusConfig
from workbench_training.corpora.survey import Survey, survey_units
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
from workbench.types import Progress


@dataclass(frozen=True)
class Corpus:
    """What a run has written."""

    config: CorpusConfig
    planned: int
    survey: Survey
    files: Mapping[str, Measured]
    """By world; one file ``documents`` for a control."""
    seconds: float
    """Of processors, over all workers."""


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
    began = time.process_time()
    for chunk in chunks:
        began, chunk.seconds = time.process_time(), time.process_time() - began
        units.keep(number, chunk.tree())
        number, done = number + 1, done + len(chunk.bins)
        if progress is not None:
            progress(done, max(config.count, done))
    if not done:
        raise ConfigError(f"kind {config.kind!r} gave no documents; raise documents = ...")
    return replace(units, number=number)


# --- joining -------------------------------------------------------------------------------------


def _join(config: CorpusConfig, run: OpenRun, units: Units) -> Corpus:
    began = time.process_time()
    survey = survey_units(config, units)
    _refuse_losses(config, survey)
    paths = _write_files(config, run.path, units, survey)
    joining = time.process_time() - began
    measured = spread(Measure(rules_of(config).claims), paths, workers_of(config))
    found = {one.name: one for _, one in measured}
    files = {name: found[name] for name in names_of(config)}
    seconds = survey.seconds + joining + sum(file.seconds for file in files.values())
    return Corpus(config, survey.written + survey.unsuitable.total(), survey, files, seconds)


def _refuse_losses(config: CorpusConfig, survey: Survey) -> None:
    share = len(survey.dropped) / survey.written if survey.written else 1.0
    if share <= config.max_dropped and survey.kept:
        return
    told = ", ".join(f"{reason} {count}" for reason, count in survey.reasons.most_common())
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
