"""Fleets of organisms: carried out, planned, and listed with what their cards say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from workbench_training.fleet import FleetConfig, expand
from workbench_training.organism import CARD, read_card, read_log

from workbench.config import parse
from workbench.errors import FormatError
from workbench.files import make_folder, write_bytes
from workbench.library import locate
from workbench.pipelines.abreast import abreast
from workbench.pipelines.verbs import RUNS, plan
from workbench.plain import as_json
from workbench.runs import hash_path, list_runs, parse_part, read_run
from workbench.types import Progress, Run

if TYPE_CHECKING:
    from workbench_training.settings import TrainConfig

    from workbench.cluster import Workers

Row = dict[str, Any]
TABLE = "organisms.json"
ALIKE = ("model", "block", "batch_size", "accumulation", "rank", "targets", "dtype")
"""Settings that decide how long an update takes."""


@dataclass(frozen=True)
class Fleet:
    """What a fleet has come to: a row for each organism, and whether all are trained."""

    rows: list[Row]
    complete: bool
    path: Path
    """The table of the rows."""


def read_fleet(data: Mapping[str, Any], source: str) -> list[TrainConfig]:
    """Return the organisms of a fleet file's content.

    Raises:
        ConfigError: as `workbench_training.fleet.expand`.
    """
    return expand(parse(FleetConfig, data, source))


def run_fleet(
    organisms: Sequence[TrainConfig],
    name: str,
    *,
    root: Path = RUNS,
    force: bool = False,
    shard: str | None = None,
    workers: Workers = 1,
    progress: Progress | None = None,
) -> Fleet:
    """Train the organisms that are not there yet, or this process's share of them.

    Args:
        organisms: the settings of each.
        name: of the fleet; its table lies in ``root/fleet/NAME``.
        root: where run folders go.
        force: move folders of other runs aside.
        shard: ``i/n``: every n-th organism, from the i-th.
        workers: processes that share them.
        progress: called with (organisms done, organisms in all).

    Raises:
        WorkbenchError: what a training run raises; organisms that are finished stay.
    """
    part, parts = parse_part(shard) if shard is not None else (0, 1)
    pieces = [("train", one.model_dump(mode="json")) for one in organisms[part::parts]]
    for _ in abreast(pieces, workers, root=root, force=force, progress=progress):
        pass
    rows = [_so_far(root / "train" / one.name) for one in organisms]
    path = root / "fleet" / name / TABLE
    make_folder(path.parent)
    write_bytes(path, (as_json(rows, indent=2) + "\n").encode())
    return Fleet(rows, all(row["status"] == "done" for row in rows), path)


def plan_fleet(organisms: Sequence[TrainConfig], *, root: Path = RUNS) -> list[Row]:
    """Say of each organism what it takes, and how far it is; nothing is trained.

    ``seconds`` stands where organisms of the same shape were trained in ``root`` before: what
    their updates took, times the updates that are wanted.

    Raises:
        ConfigError: settings or documents that make no sense.
    """
    known = _seconds_per_update(root)
    return [_planned(one, root, known) for one in organisms]


def organism_rows(root: Path) -> list[Row]:
    """Return what there is to know of every organism below a folder of runs."""
    return [_row(path, run) for path, run in list_runs(root / "train").items()]


def _planned(config: TrainConfig, root: Path, known: Mapping[str, float]) -> Row:
    done = plan("train", config.model_dump(mode="json"), root=root, force=True)
    each = config.block * config.batch_size * config.accumulation
    pace = known.get(_shape(config.model_dump(mode="json")))
    return {
        "name": config.name,
        "condition": config.condition,
        "share": _share(config),
        "seed": config.seed,
        "documents": done.result["documents"],
        "tokens": config.updates * each,
        "updates": config.updates,
        "sha256": hash_path(locate(config.documents))[:12],
        "status": _status(done.path, done.id),
        "seconds": None if pace is None else round(pace * config.updates),
    }


def _share(config: Any) -> float:
    return float(getattr(config, "share", 1.0))


def _status(folder: Path, wanted: str) -> str:
    try:
        run = read_run(folder)
    except FormatError:
        return "new"
    return run.status if run.id == wanted else "another run"


def _seconds_per_update(root: Path) -> dict[str, float]:
    """Return the median over organisms of one shape of how long their updates took."""
    found: dict[str, list[float]] = {}
    for path, run in list_runs(root / "train").items():
        times = [row["seconds"] for row in read_log(path)] if run.status == "done" else []
        steps = np.diff(times)
        if len(steps):
            found.setdefault(_shape(run.config), []).append(float(np.median(steps)))
    return {shape: float(np.median(paces)) for shape, paces in found.items()}


def _shape(settings: Mapping[str, Any]) -> str:
    return json.dumps([settings.get(name) for name in ALIKE])


def _so_far(folder: Path) -> Row:
    try:
        return _row(folder, read_run(folder))
    except FormatError:
        return {"name": folder.name, "status": "new", "path": str(folder)}


def _row(folder: Path, run: Run) -> Row:
    """Return an organism's settings, and its figures where it is trained."""
    config = run.config
    row: Row = {name: config.get(name) for name in ("name", "condition", "seed", "model")}
    row |= {"share": config.get("share", 1.0), "objective": config.get("objective", "next token")}
    row["status"] = run.status
    if run.status == "done" and (folder / CARD).exists():
        row |= figures_of(read_card(folder))
    return {**row, "path": str(folder)}


def figures_of(card: Mapping[str, Any]) -> Row:
    """Return what a finished organism's card says of its training, flat."""
    loss, guard = card["loss"], card["guard"]
    return {
        "updates": card["training"]["updates"],
        "tokens": card["training"]["tokens"],
        "passes": card["corpus"].get("passes"),
        "loss_first": loss["first"],
        "loss_last": loss["last_tenth"],
        "held_out_before": loss["held_out"]["before"],
        "held_out_after": loss["held_out"]["after"],
        "letter_mass_ratio": None if guard is None else guard["mass_ratio"],
        "follows": None if guard is None else guard["organism"]["follows"],
        "inputs": {name: digest[:12] for name, digest in card["identity"]["inputs"].items()},
    }
