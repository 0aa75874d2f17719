"""Run folders: ids that follow from settings and inputs, manifests, who works there."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from workbench.errors import ConfigError, FormatError, MismatchError, WorkbenchError
from workbench.files import FileLock, clear_temporaries, make_folder, write_bytes
from workbench.plain import differing as differing
from workbench.plain import plain as plain
from workbench.provenance import describe_machine, git_state, package_versions
from workbench.types import Run

logger = logging.getLogger(__name__)

FORMAT = "interp-workbench/run"
VERSION = 1
MANIFEST = "run.json"
HASHES = "hashes.json"
"""A folder that holds this file is identified by it: ``{relative path: sha256}``."""
NOT_HASHED = ("out", "device", "shard", "workers")


@dataclass
class OpenRun:
    """A run folder that this process holds the lock of."""

    path: Path
    id: str
    state: Literal["new", "resumed", "done"]
    """``done``: an earlier run left these results, so there is nothing to do."""
    result: Mapping[str, Any] | None = None
    outputs: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    finished: bool = False
    part: tuple[int, int] | None = None
    """Share i of n, where several processes work on the run."""
    complete: bool = True
    """Whether all parts are done, so that the run is."""

    def finish(
        self,
        result: Mapping[str, Any] | None = None,
        *,
        outputs: Sequence[str | Path] | None = None,
        models: Sequence[str] = (),
        complete: bool = True,
    ) -> None:
        """Say that the work is done; the manifest is rewritten when the with-block ends.

        Args:
            result: a short summary, kept in the manifest.
            outputs: what was written, relative to the folder; by default all that lies in it.
            models: keys of the models that were used.
            complete: False where this is a part and others have still to do theirs.

        Raises:
            FormatError: an output does not exist.
        """
        if not complete and self.part is None:
            raise ValueError("only a part of a run can end incomplete; open_run(..., part='i/n')")
        names = _entries(self.path) if outputs is None else [self._relative(o) for o in outputs]
        missing = [name for name in names if not (self.path / name).exists()]
        if missing:
            raise FormatError(f"{self.path} lacks its output {missing[0]!r}; write it, then finish")
        self.result, self.outputs, self.models = result, tuple(names), tuple(models)
        self.finished, self.complete = True, complete

    def _relative(self, output: str | Path) -> str:
        path = Path(output)
        return str(path.relative_to(self.path)) if path.is_relative_to(self.path) else str(path)


@contextmanager
def open_run(
    verb: str,
    config: Any,
    *,
    out: str | Path | None = None,
    root: str | Path = "runs",
    inputs: Sequence[str | Path] = (),
    seed: int | None = None,
    force: bool = False,
    part: str | tuple[int, int] | None = None,
) -> Iterator[OpenRun]:
    """Open the folder of a run: reused when finished, resumed when interrupted.

    Several processes may do parts of one run side by side. The run is done when one of them ends
    with ``finish(complete=True)``; until then its manifest says ``running``.

    Args:
        verb: such as ``cache``.
        config: the resolved settings (a mapping, settings model or dataclass).
        out: the folder; by default ``root/<verb>/<id>``.
        root: where run folders go.
        inputs: files and folders that the run reads.
        seed: recorded, and part of the id.
        force: move a folder that holds another run aside instead of refusing it.
        part: ``"i/n"``: this process does share i of n.

    Yields:
        The run. Call ``finish`` before the block ends, unless its ``state`` is ``done``.

    Raises:
        ConfigError: an input does not exist or is an unfinished run.
        MismatchError: the folder holds another run; the differing keys are named.
        WorkbenchError: another process is writing this run, or this part of it.
    """
    run = _planned(verb, config, inputs, seed)
    folder = Path(out) if out is not None else Path(root) / verb / run.id
    share = parse_part(part) if part is not None else None
    make_folder(folder.parent)
    with ExitStack() as held:
        with _settling(folder):
            lock = _lock(folder, share, held)
            state = _join(folder, run) if lock is None else _settle(folder, run, force)
            run = _begin(folder, run, alone=lock is not None, state=state)
            if lock is not None and share is not None:
                lock.share()
        opened = OpenRun(folder, run.id, state, part=share)
        if state == "done":
            yield opened
            return
        try:
            yield opened
            if not opened.finished:
                raise ValueError("the body of open_run ended without run.finish(...)")
        except BaseException as error:
            with contextlib.suppress(OSError, WorkbenchError):
                _fail(folder, run, error, opened)
            raise
        _end(folder, run, opened)


def _begin(folder: Path, run: Run, *, alone: bool, state: str) -> Run:
    """Write the manifest of a run that starts; beside other parts it stands already."""
    if state == "done":
        return run
    if not alone and (old := read_run(folder)).status == "running":
        return old
    make_folder(folder)
    run = replace(run, started=_now(), git=git_state(), packages=package_versions())
    run = replace(run, device=describe_machine())
    _write(folder, run)
    return run


def _fail(folder: Path, run: Run, error: BaseException, opened: OpenRun) -> None:
    with _settling(folder):
        if opened.part is not None and read_run(folder).status == "done":
            return  # the others found everything there
        failed = replace(run, status="failed", finished=_now())
        _write(folder, failed, error=f"{type(error).__name__}: {error}")


def _end(folder: Path, run: Run, opened: OpenRun) -> None:
    """Write the manifest of a run that is done; a part that is not the last leaves it running."""
    if not opened.complete:
        logger.info("%s %s: part %s of %s done", run.verb, run.id, *opened.part or ())
        return
    run = replace(run, status="done", finished=_now())
    run = replace(run, outputs=opened.outputs, models=opened.models)
    with _settling(folder):
        _write(folder, run, result=opened.result)
    logger.info("%s %s done in %s", run.verb, run.id, folder)


def parse_part(part: str | tuple[int, int]) -> tuple[int, int]:
    """Return ``(i, n)`` of ``"i/n"``: share i of n, counted from 0.

    Raises:
        ConfigError: it is no such share.
    """
    texts = part.split("/") if isinstance(part, str) else [str(number) for number in part]
    if len(texts) == 2 and all(text.strip().isdecimal() for text in texts):
        index, number = int(texts[0]), int(texts[1])
        if index < number:
            return index, number
    raise ConfigError(f"shard {part!r}; give i/n with i from 0 to n - 1, such as 0/2 and 1/2")


def run_id(
    verb: str, config: Any, inputs: Sequence[str | Path] = (), seed: int | None = None
) -> str:
    """Return the id that a run with these settings and inputs gets, wherever its files lie."""
    return _planned(verb, config, inputs, seed).id


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
        raise FormatError(f"{_manifest(path)} is no run manifest ({error}); run it again") from None


def read_result(path: str | Path) -> dict[str, Any]:
    """Return the summary that a run was finished with (empty where there was none).

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
    if run.status == "running" and not FileLock.is_held(_lock_path(folder)):
        return replace(run, status="interrupted")
    return run


# --- what a run is -------------------------------------------------------------------------------


def _planned(verb: str, config: Any, inputs: Sequence[str | Path], seed: int | None) -> Run:
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
        return _hash_all(path, [name for name in _entries(path) if name.endswith(".json")])
    return _hash_all(path, _entries(path))


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


def _entries(folder: Path) -> list[str]:
    """Name what a run left in its folder; hidden names are locks and temporaries."""
    names = (entry.name for entry in folder.iterdir())
    return sorted(name for name in names if name != MANIFEST and not name.startswith("."))


def _owner(path: Path) -> str | None:
    """Return the id of the run that a path belongs to."""
    for folder in [path, *path.parents][:3]:
        if (folder / MANIFEST).is_file():
            return read_run(folder).id
    return None


# --- what lies in its folder ---------------------------------------------------------------------


def _settle(folder: Path, run: Run, force: bool) -> Literal["new", "resumed", "done"]:
    """Decide what to do with what lies in the folder already."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder as out")
    if not folder.exists():
        return "new"
    clear_temporaries(folder)
    if not any(folder.iterdir()):
        return "new"
    if _holds_nothing(folder):
        (folder / MANIFEST).unlink()
        return "new"
    reason = _foreign(folder, run)
    if reason is None:
        return _state(folder)
    if not force:
        raise MismatchError(f"{folder} {reason}; give another out, or --force to move it aside")
    aside = next(path for n in range(1, 10_000) if not (path := Path(f"{folder}.old-{n}")).exists())
    folder.rename(aside)
    logger.info("moved %s aside to %s", folder, aside)
    return "new"


def _join(folder: Path, run: Run) -> Literal["resumed", "done"]:
    """Check that the run which other parts are at work on is this one.

    Raises:
        MismatchError: it is another.
    """
    reason = _foreign(folder, run)
    if reason is not None:
        raise MismatchError(f"{folder} {reason}; give another out, others are writing there")
    return _state(folder)


def _state(folder: Path) -> Literal["resumed", "done"]:
    old = read_run(folder)
    whole = all((folder / name).exists() for name in old.outputs)
    return "done" if old.status == "done" and whole else "resumed"


def _holds_nothing(folder: Path) -> bool:
    """Say whether a run failed here before it wrote anything: a typo must not block a name."""
    if [path.name for path in folder.iterdir()] != [MANIFEST]:
        return False
    return read_run(folder).status == "failed"


def _foreign(folder: Path, run: Run) -> str | None:
    """Say why the folder does not belong to this run, if so."""
    if not (folder / MANIFEST).is_file():
        return f"is not empty and holds no {MANIFEST}, so it is no run folder"
    old = read_run(folder)
    if old.id == run.id:
        return None
    keys = differing(_identity(old), _identity(run)) or ["format version"]
    return f"holds run {old.id}, not {run.id}: {'; '.join(keys)}"


def _identity(run: Run) -> dict[str, Any]:
    """Return what tells two runs apart, for messages."""
    config = {key: value for key, value in run.config.items() if key not in NOT_HASHED}
    inputs = {str(entry["path"]): entry["sha256"][:12] for entry in run.inputs}
    return {"verb": run.verb, **config, "inputs": inputs, "seed": run.seed}


def _manifest(path: str | Path) -> Path:
    return Path(path) if Path(path).name == MANIFEST else Path(path) / MANIFEST


def _read(path: str | Path) -> dict[str, Any]:
    file = _manifest(path)
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


def _write(folder: Path, run: Run, **extra: Any) -> None:
    """Write run.json whole; ``extra`` are further keys."""
    more = {key: plain(value) for key, value in extra.items() if value is not None}
    content = {"format": FORMAT, "version": VERSION, **plain(run), **more}
    write_bytes(folder / MANIFEST, json.dumps(content, indent=2, ensure_ascii=False).encode())


def _now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- who works there -----------------------------------------------------------------------------


def _lock_path(folder: Path, what: str = "") -> Path:
    """Return where the lock of a run folder lies: beside it."""
    return folder.parent / f".{folder.name}.{what}lock"


@contextmanager
def _settling(folder: Path) -> Iterator[None]:
    """Let one process at a time read and change who works here and what the manifest says."""
    lock = FileLock.take(_lock_path(folder, "settle."), wait=True)
    assert lock is not None, "waiting ends with the lock"
    try:
        yield
    finally:
        lock.release()


def _lock(folder: Path, part: tuple[int, int] | None, held: ExitStack) -> FileLock | None:
    """Lock a run folder, whole or beside the other parts; None where others are at work too.

    Raises:
        WorkbenchError: another process writes the run, or this part of it.
    """
    lock = held_lock = FileLock.take(_lock_path(folder))
    if lock is None and part is not None:
        held_lock = FileLock.take(_lock_path(folder), shared=True)
    if held_lock is None:
        raise _busy(folder, _lock_path(folder))
    held.callback(_unlock, folder, held_lock)
    if part is not None:
        place = _lock_path(folder, "{}-of-{}.".format(*part))
        own = FileLock.take(place)
        if own is None:
            raise _busy(folder, place)
        held.callback(_unlock, folder, own)
        own.sign()
    if lock is not None:
        lock.sign()
    return lock


def _unlock(folder: Path, lock: FileLock) -> None:
    with _settling(folder):
        lock.release()


def _busy(folder: Path, path: Path) -> WorkbenchError:
    owner = ""
    with contextlib.suppress(OSError):
        owner = path.read_text().strip()
    return WorkbenchError(
        f"{folder} is being written by {owner or 'another process'}; "
        "wait until it ends, or stop it and run this again to resume"
    )
