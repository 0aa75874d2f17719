"""Many fits from cached stores: a layer read once, in parallel, resumed, joined to one table."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.activations import Activations, open_activations
from workbench.cluster import Workers, spread
from workbench.directions import Directions
from workbench.pipelines.fitting import fit_one, recipe_of, set_name
from workbench.pipelines.job_file import Job, expand, group
from workbench.pipelines.settings import JobsConfig
from workbench.registry import load_plugin, plugins
from workbench.runs import OpenRun, Units
from workbench.types import ModelStamp, Progress, ndarray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Fitted:
    """What all jobs of a file gave."""

    number: int
    directions: Mapping[str, Directions]
    """By file name; the layers of otherwise equal jobs are one."""
    evidence: pd.DataFrame
    seconds: float
    """Of processors, for fits and checks, over all workers."""


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
    call = FitUnit(units, {unit: work[unit] for unit in lacking}, plugins())
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
    entries = [entry for unit in found for entry in unit["fits"]]
    return _joined(jobs, entries, sum(unit["seconds"] for unit in found))


@dataclass(frozen=True)
class FitUnit:
    """Does one unit of work and keeps what it gave; travels to worker processes."""

    units: Units
    work: Mapping[int, Sequence[Job]]
    plugins: tuple[Path, ...]

    def __call__(self, unit: int) -> int:
        """Return the number of fits."""
        for path in self.plugins:
            if path not in plugins():
                load_plugin(path)
        began, jobs = time.process_time(), self.work[unit]
        shelf = Shelf(jobs[0].config.layer)
        fits = [self._fit(job, shelf) for job in jobs]
        self.units.keep(unit, {"fits": fits, "seconds": time.process_time() - began})
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


# --- joining -------------------------------------------------------------------------------------


def _joined(jobs: Sequence[Job], found: Sequence[Mapping[str, Any]], seconds: float) -> Fitted:
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
    return Fitted(len(jobs), directions, pd.concat(frames, ignore_index=True), seconds)


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
