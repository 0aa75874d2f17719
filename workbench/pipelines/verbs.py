"""The batch verbs: settings in, one library call, a run folder with its manifest out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.config import Config, parse
from workbench.errors import ConfigError, FormatError, unknown
from workbench.pipelines.verb import Done, Verb, Work
from workbench.plain import no_value, plain
from workbench.runs import (
    OpenRun,
    discard_units,
    foresee,
    open_run,
    plan_run,
    read_result,
    read_run,
    run_id,
)
from workbench.types import Progress

if TYPE_CHECKING:
    from workbench.cluster import Workers

RUNS = Path("runs")
"""Where run folders go unless ``out`` says otherwise."""

VERBS = {
    "corpus": "corpora:corpus_verb",
    "train": "training:train_verb",
    "cache": "reading:cache_verb",
    "fit": "directions:fit_verb",
    "apply": "directions:apply_verb",
    "measure": "reading:measure_verb",
    "contrast": "directions:contrast_verb",
    "compare": "organisms:compare_verb",
    "sweep": "sweeping:sweep_verb",
    "generate": "sweeping:generate_verb",
    "probe": "probing:probe_verb",
    "rollout": "rollouts:verb",
    "judge": "judging:verb",
    "axis": "axis:verb",
    "cosines": "cosines:verb",
    "sift": "sifting:verb",
    "emotions": "emotion_vectors:verb",
    "profiles": "profiles:verb",
    "personas": "personas:verb",
    "monitor": "monitor:verb",
    "drift": "drift:verb",
    "shift": "shift:verb",
    "screen": "screen:verb",
    "combine": "combine:verb",
    "capping": "capping:verb",
    "trust": "trust:verb",
}
"""Module of this package and function that gives the verb. Imported when asked for, so that a
mistake in one verb does not wait for another's imports."""

VARIANTS = {
    ("corpus", "kind=trust_pairs"): "trust_pairs:trust_pairs_verb",
    ("fit", "job"): "directions:jobs_verb",
    ("fit", "model"): "fit_trained:trained_verb",
    ("train", "objective"): "training:prefer_verb",
}
"""What a verb becomes where its settings hold a key, or a key with that value."""


def carry_out(
    verb: str,
    data: Mapping[str, Any],
    *,
    out: Path | None = None,
    root: Path = RUNS,
    force: bool = False,
    shard: str | None = None,
    workers: Workers = 1,
    opened: Callable[[OpenRun], None] | None = None,
    progress: Progress | None = None,
) -> Done:
    """Run one verb in its run folder: reuse a finished run, resume an interrupted one.

    Args:
        verb: one of ``VERBS``.
        data: its settings.
        out: the run folder; by default ``root/<verb>/<run id>``.
        root: where run folders go.
        force: move a folder of another run aside.
        shard: ``i/n``: this process does share i of n; others may do theirs at the same time, and
            the one that finds all of them there closes the run.
        workers: processes, or ``"ray"``, for a fit of many jobs.
        opened: called with the run once its folder is open.
        progress: called with (units done, units in all).

    Raises:
        UnknownNameError: no such verb.
        ConfigError: settings that do not make sense, or a share of what is one piece of work.
    """
    entry, config, inputs = _resolve(verb, data)
    _check_sharing(verb, entry, shard, workers)
    place = out if out is not None else place_of(verb, config, root)
    if entry.joint and int(os.environ.get("RANK", "0")) > 0:
        from workbench.pipelines.training import follow

        assert place is not None, "what is done together has a place of its own"
        return follow(verb, config, place)
    dump = config.model_dump(mode="json")
    with open_run(verb, dump, out=place, root=root, inputs=inputs, force=force, part=shard) as run:
        if opened is not None:
            opened(run)
        if entry.joint:
            from workbench.pipelines.training import announce_training

            announce_training(config, run.state != "done")
        if run.state == "done":
            discard_units(run.path)
            return Done(verb, run.id, "reused", run.path, read_result(run.path))
        told = dict(entry.body(config, Work(run, progress, workers)))
        result: dict[str, Any] = plain(told, nonfinite=no_value)  # as one that is reused
        complete = result.pop("complete", True)
        models = result.pop("models", [result["model"]] if "model" in result else [])
        run.finish(result, models=models, complete=complete)
    if complete:
        discard_units(run.path)
    elif read_run(run.path).status == "done":  # others found everything there meanwhile
        complete, result = True, read_result(run.path)
    return Done(verb, run.id, "done" if complete else "part", run.path, result)


def plan(
    verb: str,
    data: Mapping[str, Any],
    *,
    out: Path | None = None,
    root: Path = RUNS,
    force: bool = False,
    shard: str | None = None,
    workers: Workers = 1,
) -> Done:
    """Return what ``carry_out`` would do, without doing it; refuse what it would refuse.

    ``run`` of the result is ``done`` where a finished run is reused, ``resumed`` or ``new``; it is
    absent where inputs are.
    """
    entry, config, inputs = _resolve(verb, data, planned=True)
    _check_sharing(verb, entry, shard, workers)
    dump = config.model_dump(mode="json")
    run = plan_run(verb, dump, inputs, None)
    place = out if out is not None else place_of(verb, config, root) or root / verb / run.id
    told = {"config": dump, "inputs": [str(p) for p in inputs], **entry.preview(config)}
    if not told.get("missing"):
        told["run"] = foresee(place, run, force=force)
    return Done(verb, run.id, "planned", place, told)


def foresee_run(
    verb: str, data: Mapping[str, Any], *, root: Path = RUNS, force: bool = False
) -> Done:
    """Return what ``carry_out`` would find: a run that is reused, resumed, or planned anew.

    Raises:
        WorkbenchError: settings, inputs or a folder that it would refuse.
    """
    _, config, inputs = _resolve(verb, data)
    run = plan_run(verb, config.model_dump(mode="json"), inputs, None)
    place = place_of(verb, config, root) or root / verb / run.id
    state = foresee(place, run, force=force)
    if state == "done":
        return Done(verb, run.id, "reused", place, read_result(place))
    return Done(verb, run.id, "resumed" if state == "resumed" else "planned", place)


def outline(verb: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a run would cost as far as no model need be loaded; refuse what it would refuse.

    Raises:
        WorkbenchError: what the run would refuse.
    """
    entry = verb_of(verb, data)
    return (entry.outline or entry.preview)(read_settings(verb, data))


def read_settings(verb: str, data: Mapping[str, Any]) -> Config:
    """Return the checked settings of a verb.

    Raises:
        ConfigError: a key that it does not know, or a value that does not fit.
    """
    return parse(verb_of(verb, data).config, data, _told(verb, data))


def _check_sharing(verb: str, entry: Verb, shard: str | None, workers: Workers) -> None:
    """Refuse to share out what is one piece of work."""
    if shard is not None and not entry.shards:
        raise ConfigError(f"{verb} is one piece of work; leave shard = {shard!r} out")
    if workers != 1 and not entry.workers:
        raise ConfigError(f"workers = {workers!r} are for job files, fit JOBS.toml; leave them out")


def is_done(verb: str, data: Mapping[str, Any], *, root: Path = RUNS) -> bool:
    """Whether a finished run with these settings is there; its files are not looked at."""
    _, config, inputs = _resolve(verb, data)
    name = run_id(verb, config.model_dump(mode="json"), inputs)
    try:
        run = read_run(place_of(verb, config, root) or root / verb / name)
    except FormatError:
        return False
    return run.id == name and run.status == "done"


def _resolve(
    verb: str, data: Mapping[str, Any], *, planned: bool = False
) -> tuple[Verb, Config, list[Path]]:
    entry = verb_of(verb, data)
    config = parse(entry.config, data, _told(verb, data))
    inputs = entry.planned if planned and entry.planned is not None else entry.inputs
    return entry, config, list(inputs(config))


def place_of(verb: str, config: Config, root: Path) -> Path | None:
    """Return where a run lies that has a name: organisms, so that they load by it."""
    return root / verb / str(getattr(config, "name")) if verb == "train" else None  # noqa: B009


def verb_of(name: str, data: Mapping[str, Any]) -> Verb:
    """Return a verb that a study may chain; one key of its settings can make another of it.

    Raises:
        UnknownNameError: no such verb.
    """
    if name not in VERBS:
        raise unknown("verb", name, VERBS)
    key = _variant(name, data)
    module, _, function = (VERBS[name] if key is None else VARIANTS[name, key]).partition(":")
    made: Verb = getattr(import_module(f"workbench.pipelines.{module}"), function)()
    return made


def _variant(name: str, data: Mapping[str, Any]) -> str | None:
    """Return the key that makes another verb of this one, None where none does."""
    return next((key for verb, key in VARIANTS if verb == name and _holds(data, key)), None)


def _told(name: str, data: Mapping[str, Any]) -> str:
    """Name a verb for a message, with what made another of it."""
    key = _variant(name, data)
    return name if key is None else f"{name} with {key}"


def _holds(data: Mapping[str, Any], key: str) -> bool:
    name, _, value = key.partition("=")
    return name in data and value in ("", data[name])
