"""Job files: the full product of what they list, as units of work, and what that costs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.activations import open_activations
from workbench.directions.fit import create
from workbench.errors import ConfigError
from workbench.pipelines.fitting import COLUMNS, recipe_of
from workbench.pipelines.fitting import inputs_of as inputs_of_fit
from workbench.pipelines.settings import FitConfig, JobConfig, JobsConfig

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
    columns = {key: getattr(job, key) for key in COLUMNS}
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
        create(name, params)
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
