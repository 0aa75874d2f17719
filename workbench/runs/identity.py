"""What a run is: an id that follows from settings and inputs, wherever their files lie."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.plain import plain
from workbench.runs.manifest import MANIFEST, VERSION, read_run
from workbench.types import Run

HASHES = "hashes.json"
"""A folder that holds this file is identified by it: ``{relative path: sha256}``."""
NOT_HASHED = ("out", "device", "shard", "workers", "recompute", "compile", "log")


def run_id(
    verb: str, config: Any, inputs: Sequence[str | Path] = (), seed: int | None = None
) -> str:
    """Return the id that a run with these settings and inputs gets, wherever its files lie."""
    return plan_run(verb, config, inputs, seed).id


def plan_run(verb: str, config: Any, inputs: Sequence[str | Path], seed: int | None) -> Run:
    """Return the run that these settings and inputs make, with its id.

    Raises:
        ConfigError: settings without a JSON form, or an input that is not there.
    """
    settings = plain(config)
    if not isinstance(settings, dict):
        raise ValueError(f"the settings of a run are a mapping; got {type(config).__name__}")
    hashed = [
        {"path": str(path), "sha256": hash_path(path), "run": _owner(Path(path))} for path in inputs
    ]
    content = {str(entry["path"]): f"sha256:{entry['sha256']}" for entry in hashed}
    content_of = {
        "verb": verb,
        "config": _by_content({k: v for k, v in settings.items() if k not in NOT_HASHED}, content),
        "inputs": [entry["sha256"] for entry in hashed],
        "seed": seed,
        "version": VERSION,
    }
    digest = sha256(json.dumps(content_of, sort_keys=True).encode()).hexdigest()[:12]
    return Run(id=digest, verb=verb, config=settings, inputs=tuple(hashed), seed=seed)


def _by_content(value: Any, content: Mapping[str, str]) -> Any:
    """Put content hashes where settings name input files, so that moving files keeps the id."""
    if isinstance(value, dict):
        return {key: _by_content(item, content) for key, item in value.items()}
    if isinstance(value, list):
        return [_by_content(item, content) for item in value]
    return content.get(value, value) if isinstance(value, str) else value


def hash_path(path: str | Path) -> str:
    """Return the sha256 of a file, or of a folder's content.

    A finished run stands for its id and outputs, a folder with ``hashes.json`` for that file.

    Raises:
        ConfigError: nothing is there, or it is a run that has not finished.
    """
    path = Path(path)
    if path.is_file():
        state = path.stat()
        return _hash_file(path.resolve(), state.st_size, state.st_mtime_ns)
    if not path.is_dir():
        raise ConfigError(f"no input {str(path)!r}; give the path of an existing file or folder")
    if (path / MANIFEST).is_file():
        run = read_run(path)
        if run.status != "done":
            raise ConfigError(
                f"input {path} is a {run.verb} run of status {run.status!r}; finish it first "
                "(the same command resumes it)"
            )
        return _hash_all(path, run.outputs, run.id)
    if (path / HASHES).is_file():
        return _hash_all(path, [name for name in entries(path) if name.endswith(".json")])
    return _hash_all(path, entries(path))


def _hash_all(folder: Path, names: Sequence[str], salt: str = "") -> str:
    parts = [(name, hash_path(folder / name)) for name in sorted(names)]
    return sha256(json.dumps([salt, parts]).encode()).hexdigest()


@functools.lru_cache(maxsize=4096)
def _hash_file(path: Path, size: int, modified: int) -> str:  # noqa: ARG001 (part of the key)
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def entries(folder: Path) -> list[str]:
    """Name what a run left in its folder; hidden names are locks and temporaries."""
    names = (entry.name for entry in folder.iterdir())
    return sorted(name for name in names if name != MANIFEST and not name.startswith("."))


def _owner(path: Path) -> str | None:
    """Return the id of the run that a path belongs to."""
    for folder in [path, *path.parents][:3]:
        if (folder / MANIFEST).is_file():
            return read_run(folder).id
    return None


def identity(run: Run) -> dict[str, Any]:
    """Return what tells two runs apart, for messages."""
    config = {key: value for key, value in run.config.items() if key not in NOT_HASHED}
    inputs = {str(entry["path"]): entry["sha256"][:12] for entry in run.inputs}
    return {"verb": run.verb, **config, "inputs": inputs, "seed": run.seed}
