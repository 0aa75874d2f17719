"""A file of 200 fits from one cached store: one worker and two, and whether they give the same.

Four methods x ten blocks x five topics, each with its held-out evidence, interval and both nulls.
Without ``--store`` the store is drawn, at SmolLM2's shape and the size of the shipped statements.
Wall time counts where nobody else uses the machine; processor seconds count anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.activations import Activations, open_activations
from workbench.activations.layout import make_block
from workbench.activations.store import Store
from workbench.cluster import prepare
from workbench.pipelines.jobs import Fitted, FitUnit, fit_jobs
from workbench.pipelines.settings import JobsConfig
from workbench.provenance import git_state, package_versions
from workbench.runs import open_run
from workbench.types import ModelStamp

METHODS = ["mass_mean", "ttpd", "lda", "logistic"]
LAYERS, TOPICS = 10, 5
GOAL_SECONDS, GOAL_RATIO = 60.0, 1.6
WAYS = {"one worker": (1, 1), "one worker, two BLAS threads": (1, 2), "two workers": (2, 1)}
"""Workers, and BLAS threads in each."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 where the ways disagree or a goal that was measured is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--store", type=Path, help="a cache run of statements")
    add("--quick", action="store_true", help="two layers, two topics, one run of each")
    add("--repeats", type=int, default=3, help="runs of each way, in turn; the best counts")
    add("--json", action="store_true", help="print the JSON line alone")
    add("--out", type=Path, help="also write the JSON there")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or draw_store(Path(folder) / "store")
        found = measure(store, Path(folder), options.quick, 1 if options.quick else options.repeats)
    if not options.json:
        for name, row in found["ways"].items():
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found), flush=True)
    return 0 if found["equal"] else 1


def measure(store: Path, folder: Path, quick: bool, repeats: int) -> dict[str, Any]:
    """Time every way in turn, and compare what they give."""
    jobs = job_file(store, quick)
    walls: dict[str, list[float]] = {name: [] for name in WAYS}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    given: dict[str, Fitted] = {}
    prepare(FitUnit)
    open_activations(store).at(jobs.job[0].layer[0])  # type: ignore[index]
    for number in range(repeats):
        for name, (workers, threads) in WAYS.items():
            place = folder / f"run-{number}-{workers}-{threads}"
            began = time.perf_counter()
            with open_run("fit", jobs, out=place) as run:
                fitted = fit_jobs(jobs, run, workers=workers, threads=threads)
                assert fitted is not None, "one process does all units"
                run.finish({})
            walls[name].append(time.perf_counter() - began)
            seconds[name].append(fitted.seconds)
            given[name] = fitted
            shutil.rmtree(place)
    ways = {
        name: {"wall_s": round(min(walls[name]), 2), "processor_s": round(min(seconds[name]), 2)}
        for name in WAYS
    }
    one, two_threads, two = (min(walls[name]) for name in WAYS)
    return {
        "fits": next(iter(given.values())).number,
        "ways": ways,
        "speedup": round(one / two, 2),
        "against_two_threads": round(two_threads / two, 2),
        "processor_ratio": round(min(seconds["two workers"]) / min(seconds["one worker"]), 2),
        "goals": {"seconds": GOAL_SECONDS, "speedup": GOAL_RATIO, "against_two_threads": 1.0},
        "equal": all(same(given["one worker"], other) for other in given.values()),
        "load": os.getloadavg()[0],
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "versions": {**package_versions(), **git_state()},
    }


def job_file(store: Path, quick: bool) -> JobsConfig:
    """Return the jobs: the layers are spread over the store's, the topics are its first."""
    acts = open_activations(store)
    there = np.unique(acts.column("topic")).tolist()
    places = np.linspace(0, len(acts.layers) - 1, 2 if quick else LAYERS).round().astype(int)
    job: Mapping[str, Any] = {
        "acts": str(store),
        "method": METHODS,
        "layer": [acts.layers[place] for place in places],
        "topic": there[: 2 if quick else TOPICS],
    }
    return JobsConfig.model_validate({"job": [job]})


def same(left: Fitted, right: Fitted) -> bool:
    """Whether two ways gave the same table and directions, up to the last digits of BLAS."""
    try:
        pd.testing.assert_frame_equal(left.evidence, right.evidence, rtol=1e-4, atol=1e-4)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return False
    return all(
        np.allclose(one.vectors, right.directions[name].vectors, rtol=1e-3, atol=1e-4)
        for name, one in left.directions.items()
    )


def draw_store(folder: Path) -> Path:
    """Write drawn activations of 3,468 statements in six topics at 30 layers of width 576."""
    rng, rows = np.random.default_rng(0), []
    for topic, facts in enumerate((113, 98, 108, 97, 308, 143)):
        for fact in range(facts):
            rows += [(f"t{topic}", f"t{topic}:{fact}", p, y) for p in (1, -1) for y in (1, 0)]
    topics, facts_of, polarity, label = (np.array(c) for c in zip(*rows, strict=True))
    values = rng.standard_normal((30, len(rows), 576), np.float32)
    values[..., 0] += 0.5 * (2 * label - 1)
    columns = {"topic": topics, "fact": facts_of, "polarity": polarity, "label": label}
    stamp = ModelStamp("drawn", "llama", 30, 576, "0" * 16, "0" * 16)
    acts = Activations.from_values(values, columns, model=stamp)
    store = Store.create(folder, acts.manifest)
    own = {name: acts.columns[name] for name in acts.manifest.columns}
    store.write(make_block(0, values, "float32", own, acts.layers))
    store.finish()
    return folder


if __name__ == "__main__":
    sys.exit(main())
