"""run.json: written, read, listed; and the lock beside a folder that says who works there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.errors import FormatError
from workbench.files import FileLock, write_bytes
from workbench.plain import as_json, no_value, plain
from workbench.types import Run

FORMAT = "interp-workbench/run"
VERSION = 1
MANIFEST = "run.json"
UNITS = ".units"
"""Folder of a run's finished units of work, until the run is done."""


def read_run(path: str | Path) -> Run:
    """Read the manifest of a run folder.

    Raises:
        FormatError: there is none, or it is damaged or of another version.
    """
    found = _read(path)
    names = {entry.name for entry in fields(Run)}
    values = {key: value for key, value in found.items() if key in names}
    values |= {key: tuple(values.get(key, ())) for key in ("inputs", "outputs", "models")}
    try:
        return Run(**values)
    except TypeError as error:
        file = manifest_path(path)
        raise FormatError(f"{file} is no run manifest ({error}); run it again") from None


def read_result(path: str | Path) -> dict[str, Any]:
    """Return the summary that a run was finished with (empty where there was none).

    None stands where a number was not finite; `workbench.plain.number` reads it as NaN.

    Raises:
        FormatError: as ``read_run``.
    """
    return dict(_read(path).get("result") or {})


def list_runs(root: str | Path = "runs") -> dict[Path, Run]:
    """Return every run below ``root`` by its folder, oldest first.

    A run that says ``running`` without a process that holds its lock is ``interrupted``; a
    manifest that cannot be read gives a run of status ``unreadable``, never a missing row.
    """
    found = {path.parent: _listed(path.parent) for path in Path(root).rglob(MANIFEST)}
    return dict(sorted(found.items(), key=lambda entry: (entry[1].started, str(entry[0]))))


def _listed(folder: Path) -> Run:
    try:
        run = read_run(folder)
    except FormatError as error:
        return Run(id="?", verb="?", config={"error": str(error)}, status="unreadable")
    if run.status == "running" and not FileLock.is_held(lock_path(folder)):
        return replace(run, status="interrupted")
    return run


def manifest_path(path: str | Path) -> Path:
    """Return the file itself, given it or its folder."""
    return Path(path) if Path(path).name == MANIFEST else Path(path) / MANIFEST


def _read(path: str | Path) -> dict[str, Any]:
    file = manifest_path(path)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"no {MANIFEST} in {file.parent}; give a run folder") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{file} cannot be read ({error}); run the command again") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError(f"{file} is no run manifest (format {FORMAT!r} expected)")
    if found.get("version") != VERSION:
        raise FormatError(
            f"{file} has version {found.get('version')!r}, this program reads {VERSION}; "
            "update interp-workbench or run the command again"
        )
    return found


def write_run(folder: Path, run: Run, **extra: Any) -> None:
    """Write run.json whole; ``extra`` are further keys, and keys without a value are left out.

    A number that is not finite is null in these, and text in the settings.
    """
    told = plain(run)
    for name in ("error", "sizes"):
        if not told[name]:
            del told[name]
    there = {key: value for key, value in extra.items() if value is not None}
    more = plain(there, nonfinite=no_value)
    content = {"format": FORMAT, "version": VERSION, **told, **more}
    write_bytes(
        folder / MANIFEST,
        as_json(content, indent=2).encode(),
    )


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def lock_path(folder: Path, what: str = "") -> Path:
    """Return where the lock of a run folder lies: beside it."""
    return folder.parent / f".{folder.name}.{what}lock"


@contextmanager
def settling(folder: Path) -> Iterator[None]:
    """Let one process at a time read and change who works here and what the manifest says."""
    lock = FileLock.take(lock_path(folder, "settle."), wait=True)
    assert lock is not None, "waiting ends with the lock"
    try:
        yield
    finally:
        lock.release()
