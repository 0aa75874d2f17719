"""Many fits from cached stores: every combination of a job file, a layer read once, in parallel."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.cluster import Workers, spread
from workbench.directions import Directions
from workbench.errors import ConfigError
from workbench.pipelines.fitting import fit_one, recipe_of, set_name
from workbench.pipelines.fitting import inputs_of as inputs_of_fit
from workbench.pipelines.settings import FitConfig, JobConfig, JobsConfig
from workbench.registry import METHODS, load_plugin
from workbench.runs import OpenRun, Units
from workbench.types import ModelStamp, Progress, ndarray

if TYPE_CHECKING:
    import pandas as pd

    from workbench.activations import Activations

TOGETHER = 16
"""Fits of one layer that a unit of work does at most."""
ALL = "all"
LISTED = ("acts", "recipe", "method", "layer", "topic", "seed")
"""Keys of a job that may hold lists; the first varies slowest."""


@dataclass(frozen=True)
class Job:
    """One fit."""

    number: int
    config: FitConfig
    topic: str
    """What it is fitted on alone, or "all"."""

    @property
    def same(self) -> tuple[str, str]:
        """Name the fits that differ in nothing but the layer."""
        return self.config.model_copy(update={"layer": None}).model_dump_json(), self.topic


@dataclass(frozen=True)
class Fitted:
    """What all jobs of a file gave."""

    number: int
    directions: Mapping[str, Directions]
    """By file name; the layers of otherwise equal jobs are one."""
    evidence: pd.DataFrame


def inputs_of(config: JobsConfig) -> list[Path]:
    """Return the files and folders that decide what the jobs give."""
    paths = [
        path
        for job in config.job
        for acts, recipe in itertools.product(_listed(job.acts), _listed(job.recipe))
        for path in inputs_of_fit(FitConfig(acts=acts, recipe=recipe, check=job.check))
    ]
    return list(dict.fromkeys(paths))


def expand(config: JobsConfig) -> list[Job]:
    """Return every fit of a job file, each once, in the order of the file.

    Raises:
        ConfigError: a layer or topic that a store does not hold.
        UnknownNameError: an unknown method or recipe.
    """
    found: dict[str, tuple[FitConfig, str]] = {}
    for job in config.job:
        for chosen in itertools.product(*(_choices(job, name) for name in LISTED[:3])):
            one = job.model_copy(update=dict(zip(LISTED[:3], chosen, strict=True)))
            for fit, topic in _fits(one):
                found.setdefault(fit.model_dump_json(), (fit, topic))
    return [Job(number, *fit) for number, fit in enumerate(found.values())]


def _fits(job: JobConfig) -> list[tuple[FitConfig, str]]:
    """Return the fits of one store, recipe and method: over layers, topics and seeds."""
    name, params = _method(job.method)
    columns = {key: getattr(job, key) for key in ("y", "groups", "polarity", "facts")}
    base = FitConfig(
        acts=str(job.acts), recipe=str(job.recipe), method=name, params=params,
        where=job.where, check=job.check, **columns,
    )  # fmt: skip
    layers, topics = _layers(job), _topics(job, base)
    fits = []
    for layer, topic, seed in itertools.product(layers, topics, _listed(job.seed)):
        where = {**base.where, recipe_of(base).fit.groups: [topic]} if topic else base.where
        fits.append(
            (base.model_copy(update={"layer": layer, "where": where, "seed": seed}), topic or ALL)
        )
    return fits


def _method(method: Any) -> tuple[str | None, dict[str, Any]]:
    """Return the name and parameters of ``name`` or ``{name = ..., **parameters}``."""
    params = {"name": method} if isinstance(method, str) else dict(method or {})
    name = params.pop("name", None)
    if name is None and params:
        raise ConfigError(f"job: method {params!r} has no name; write {{ name = ..., ... }}")
    if name is not None:
        METHODS.factory(name)
    return name, params


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _choices(job: JobConfig, name: str) -> list[Any]:
    found = _listed(getattr(job, name))
    if not found:
        raise ConfigError(f"job: {name} is an empty list; leave it out or name at least one")
    return found


def _layers(job: JobConfig) -> list[int | None]:
    if job.layer is None:
        return [None]
    from workbench.activations import open_activations

    there = open_activations(str(job.acts)).layers
    if job.layer == ALL:
        return list(there)
    chosen = _choices(job, "layer")
    wrong = [layer for layer in chosen if layer not in there]
    if wrong:
        raise ConfigError(
            f"job: layer {wrong[0]} was not captured in {job.acts}; layers there: "
            f"{', '.join(map(str, there))}"
        )
    return chosen


def _topics(job: JobConfig, base: FitConfig) -> list[str | None]:
    if job.topic is None:
        return [None]
    from workbench.activations import open_activations

    column = open_activations(str(job.acts)).column(recipe_of(base).fit.groups)
    there = [str(topic) for topic in np.unique(column)]
    chosen = _choices(job, "topic")
    chosen = [topic for name in chosen for topic in (there if name == "each" else [name])]
    wrong = [topic for topic in chosen if topic not in there]
    if wrong:
        raise ConfigError(
            f"job: no topic {wrong[0]!r} in {job.acts}; topics there: {', '.join(there)}"
        )
    return list(dict.fromkeys(chosen))


def group(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return the units of work: some jobs of one store and one layer, which is read once."""
    by_layer: dict[Any, list[Job]] = {}
    for job in jobs:
        free = job.config.layer is None
        key = (job.config.acts, job.config.layer, job.number if free else None)
        by_layer.setdefault(key, []).append(job)
    units = []
    for together in by_layer.values():
        parts = -(-len(together) // TOGETHER)
        size = -(-len(together) // parts)
        units += [together[first : first + size] for first in range(0, len(together), size)]
    return units


def preview(config: JobsConfig) -> dict[str, Any]:
    """Return the jobs of a file, their number, and what they read."""
    from workbench.activations import open_activations

    jobs = expand(config)
    units = group(jobs)
    read = 0
    for unit in units:
        acts = open_activations(unit[0].config.acts)
        layers = 1 if unit[0].config.layer is not None else len(acts.layers)
        read += layers * len(acts) * acts.width * (4 if acts.dtype == "float32" else 2)
    return {
        "fits": len(jobs),
        "units": len(units),
        "stores": len({job.config.acts for job in jobs}),
        "bytes_read": read,
        "directions_drawn_for_nulls": sum(_draws(job) for job in jobs),
        "jobs": [_line(job) for job in jobs],
    }


def _draws(job: Job) -> int:
    """Count the fits under shuffled labels at each checked split of a layer."""
    check = recipe_of(job.config).check
    return check.draws if "shuffled" in check.controls else 0


def _line(job: Job) -> str:
    config = job.config
    layer = "chosen by the recipe" if config.layer is None else str(config.layer)
    method = recipe_of(config).fit.method
    return f"{job.number}: {config.acts} {config.recipe} {method} layer {layer} on {job.topic}"


def fit_jobs(
    config: JobsConfig,
    run: OpenRun,
    *,
    workers: Workers = 1,
    threads: int = 1,
    progress: Progress | None = None,
) -> Fitted | None:
    """Do this process's share of the jobs, and join all of them where they are there.

    Args:
        config: the job file.
        run: where finished units are kept until the run is done.
        workers: processes, or ``"ray"``.
        threads: of BLAS in each.
        progress: called with (fits done, fits in all).

    Returns:
        Everything; None where other shares are not done.
    """
    jobs = expand(config)
    work = group(jobs)
    told = json.dumps([[job.config.model_dump(mode="json") for job in unit] for unit in work])
    units = Units(run, len(work), sha256(told.encode()).hexdigest())
    lacking = units.lacking()
    call = FitUnit(units, {unit: work[unit] for unit in lacking}, _plugins())
    total = sum(len(work[unit]) for unit in units.own())
    done = total - sum(len(work[unit]) for unit in lacking)
    for _, fits in spread(call, lacking, workers, threads=threads):
        done += fits
        if progress is not None:
            progress(done, total)
    with units.joining() as complete:
        found = [units.load(unit) for unit in range(len(work))] if complete else None
    if found is None:
        return None
    return _joined(jobs, [entry for unit in found for entry in unit])


@dataclass(frozen=True)
class FitUnit:
    """Does one unit of work and keeps what it gave; travels to worker processes."""

    units: Units
    work: Mapping[int, Sequence[Job]]
    plugins: tuple[Path, ...]

    def __call__(self, unit: int) -> int:
        """Return the number of fits."""
        for path in self.plugins:
            if path not in _plugins():
                load_plugin(path)
        jobs = self.work[unit]
        shelf = Shelf(jobs[0].config.layer)
        self.units.keep(unit, [self._fit(job, shelf) for job in jobs])
        return len(jobs)

    def _fit(self, job: Job, shelf: Shelf) -> dict[str, Any]:
        directions, evidence = fit_one(job.config, opened=shelf.open)
        rows = evidence.to_dict("list")
        return {"job": job.number, "evidence": rows, "directions": _tree(directions)}


class Shelf:
    """Stores opened once; of a given layer, all of it in memory."""

    def __init__(self, layer: int | None) -> None:
        self.layer = layer
        self._opened: dict[str, Activations] = {}

    def open(self, path: str) -> Activations:
        """Open a store, or find it opened."""
        if path not in self._opened:
            self._opened[path] = self._read(path)
        return self._opened[path]

    def _read(self, path: str) -> Activations:
        from workbench.activations import Activations, open_activations

        acts = open_activations(path)
        if self.layer is None:
            return acts
        return Activations.from_values(
            acts.at(self.layer)[None],
            acts.columns,
            model=acts.model,
            layers=[self.layer],
            site=acts.site,
            position=acts.position,
        )


def _plugins() -> tuple[Path, ...]:
    """Return the files of the user's own that were loaded, for workers to load too."""
    import sys

    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return tuple(
        Path(file) for name, file in files.items() if name.startswith("workbench_plugin_") and file
    )


# --- joining -------------------------------------------------------------------------------------


def _joined(jobs: Sequence[Job], found: Sequence[Mapping[str, Any]]) -> Fitted:
    import pandas as pd

    by_job = {entry["job"]: entry for entry in found}
    frames = []
    for job in jobs:
        own = pd.DataFrame(by_job[job.number]["evidence"])
        told: dict[str, Any] = {
            "job": job.number,
            "acts": set_name(job.config.acts),
            "recipe": job.config.recipe,
        }
        told["items"] = job.topic
        for place, (name, value) in enumerate(told.items()):
            own.insert(place, name, value)
        frames.append(own)
    alike: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        alike.setdefault(job.same, []).append(job)
    directions = {
        _file_name(same[0]): along_layers([_whole(by_job[j.number]["directions"]) for j in same])
        for same in alike.values()
    }
    return Fitted(len(jobs), directions, pd.concat(frames, ignore_index=True))


def _file_name(job: Job) -> str:
    method = recipe_of(job.config).fit.method
    words = f"{job.number:04d}-{set_name(job.config.acts)}-{method}-{job.topic}"
    return re.sub(r"[^\w.+-]+", "-", words)


def along_layers(parts: Sequence[Directions]) -> Directions:
    """Join directions that differ in their layers alone, in order of layer.

    What they say of themselves is kept once where it is the same; arrays are joined; all else
    is kept by layer.
    """
    parts = sorted(parts, key=lambda part: part.layers)
    first = parts[0]
    if len(parts) == 1:
        return first

    def joined(values: Sequence[ndarray | None], axis: int) -> ndarray | None:
        given = [value for value in values if value is not None]
        return np.concatenate(given, axis) if len(given) == len(parts) else None

    return replace(
        first,
        layers=tuple(layer for part in parts for layer in part.layers),
        vectors=np.concatenate([part.vectors for part in parts], axis=1),
        center=joined([part.center for part in parts], 1),
        norms=joined([part.norms for part in parts], 0),
        info=_joined_info(parts),
    )


def _joined_info(parts: Sequence[Directions]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in parts[0].info:
        values: list[Any] = [part.info.get(name) for part in parts]
        if name == "layer" or any(value is None for value in values):
            continue  # each is the only layer of its fit
        if isinstance(values[0], ndarray):
            if len({value.shape[1:] for value in values}) == 1:
                told[name] = np.concatenate(values)
        elif all(value == values[0] for value in values):
            told[name] = values[0]
        else:
            layers = [part.layers[0] for part in parts]
            told[name] = {str(layer): v for layer, v in zip(layers, values, strict=True)}
    return told


def _tree(directions: Directions) -> dict[str, Any]:
    names = ("names", "layers", "vectors", "norms", "center", "kind", "site", "position")
    plain = {name: getattr(directions, name) for name in names}
    return {**plain, "model": asdict(directions.model), "info": dict(directions.info)}


def _whole(tree: Mapping[str, Any]) -> Directions:
    own = {name: tuple(tree[name]) for name in ("names", "layers")}
    return Directions(**{**tree, **own, "model": ModelStamp(**tree["model"])})
