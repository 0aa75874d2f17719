"""Run folders: reused when finished, resumed when interrupted, shared by the parts of a run."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from workbench.errors import (
    ConfigError,
    FormatError,
    MismatchError,
    UnknownNameError,
    WorkbenchError,
)
from workbench.files import FileLock, clear_temporaries, make_folder
from workbench.plain import differing
from workbench.provenance import describe_machine, git_state, package_versions
from workbench.runs.identity import entries, identity, plan_run
from workbench.runs.manifest import (
    MANIFEST,
    UNITS,
    lock_path,
    now,
    read_run,
    settling,
    write_run,
)
from workbench.types import Run

logger = logging.getLogger(__name__)

REFUSALS = (ConfigError, UnknownNameError, FormatError, MismatchError)
"""What is raised where settings or inputs do not fit."""


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
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of every file among the outputs."""
    kept: str = ""
    """Of a run that is resumed: how it ended, and what it left to go on from."""

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
        names = entries(self.path) if outputs is None else [self._relative(o) for o in outputs]
        missing = [name for name in names if not (self.path / name).exists()]
        if missing:
            raise FormatError(f"{self.path} lacks its output {missing[0]!r}; write it, then finish")
        self.result, self.outputs, self.models = result, tuple(names), tuple(models)
        self.sizes = _sizes(self.path, names)
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
    run = plan_run(verb, config, inputs, seed)
    folder = Path(out) if out is not None else Path(root) / verb / run.id
    share = parse_part(part) if part is not None else None
    make_folder(folder.parent)
    with ExitStack() as held:
        with settling(folder):
            lock = _lock(folder, share, held)
            made = not folder.exists() or (folder / MANIFEST).is_file()
            state = _join(folder, run) if lock is None else _settle(folder, run, force)
            kept = describe_kept(folder) if state == "resumed" and share is None else ""
            run = _begin(folder, run, alone=lock is not None, state=state)
            if lock is not None and share is not None:
                lock.share()
        opened = OpenRun(folder, run.id, state, part=share, kept=kept)
        if state == "done":
            yield opened
            return
        try:
            yield opened
            if not opened.finished:
                raise ValueError("the body of open_run ended without run.finish(...)")
        except KeyboardInterrupt:
            raise  # still ``running`` without its lock: interrupted
        except BaseException as error:
            with contextlib.suppress(OSError, WorkbenchError):
                if not (isinstance(error, REFUSALS) and _withdraw(folder, opened, made)):
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
    run = replace(run, started=now(), git=git_state(), packages=package_versions())
    run = replace(run, device=describe_machine())
    write_run(folder, run)
    return run


def _withdraw(folder: Path, opened: OpenRun, made: bool) -> bool:
    """Leave no trace of a run that was refused before it wrote anything; say whether it was so.

    ``made`` says whether the folder is there because of a run.
    """
    if opened.state != "new" or opened.part is not None or _files(folder) != [folder / MANIFEST]:
        return False
    shutil.rmtree(folder)
    if not made:  # the user's own, and empty
        folder.mkdir()
    return True


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def _fail(folder: Path, run: Run, error: BaseException, opened: OpenRun) -> None:
    with settling(folder):
        if opened.part is not None and read_run(folder).status == "done":
            return  # the others found everything there
        told = f"{type(error).__name__}: {error}"
        write_run(folder, replace(run, status="failed", finished=now(), error=told))


def _end(folder: Path, run: Run, opened: OpenRun) -> None:
    """Write the manifest of a run that is done; a part that is not the last leaves it running."""
    if not opened.complete:
        logger.info("%s %s: part %s of %s done", run.verb, run.id, *opened.part or ())
        return
    run = replace(run, status="done", finished=now())
    run = replace(run, outputs=opened.outputs, models=opened.models, sizes=opened.sizes)
    with settling(folder):
        write_run(folder, run, result=opened.result)
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


def _settle(folder: Path, run: Run, force: bool) -> Literal["new", "resumed", "done"]:
    """Decide what to do with what lies in the folder already."""
    if folder.is_dir():
        clear_temporaries(folder)
    state = foresee(folder, run, force=force)
    if state != "new":
        _set_aside(folder)
        return state
    if not folder.exists() or not any(folder.iterdir()):
        return "new"
    if _holds_nothing(folder, run):
        (folder / MANIFEST).unlink()
        return "new"
    aside = next(path for n in range(1, 10_000) if not (path := Path(f"{folder}.old-{n}")).exists())
    folder.rename(aside)
    logger.info("moved %s aside to %s", folder, aside)
    return "new"


def foresee(folder: Path, run: Run, *, force: bool = False) -> Literal["new", "resumed", "done"]:
    """Say what ``open_run`` would make of what lies in a folder; nothing is changed.

    Raises:
        ConfigError: it is a file.
        MismatchError: it holds another run, or something else, and ``force`` is not given.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder as out")
    if not folder.exists() or not any(folder.iterdir()) or _holds_nothing(folder, run):
        return "new"
    reason = _foreign(folder, run)
    if reason is None:
        return _state(folder)
    if not force:
        raise MismatchError(f"{folder} {reason}; give another out, or --force to move it aside")
    return "new"


def describe_kept(folder: Path) -> str:
    """Say how the run in a folder ended, and what it left to go on from."""
    old = read_run(folder)
    ended = {"running": "was interrupted", "failed": f"failed ({first_line(old.error)})"}
    how = ended.get(old.status, "lost outputs or had them damaged")
    return (
        f"the run of {old.started} {how}; kept: {kept_in(folder) or 'nothing, so it begins anew'}"
    )


def kept_in(folder: Path) -> str:
    """Name what a run that has not ended left in its folder; empty where that is nothing."""
    units = len(list((folder / UNITS).glob("*/*.npz")))
    parts = [f"{units} finished unit{'s' * (units != 1)} of work"] if units else []
    for name in entries(folder):
        count = len(_files(folder / name)) if (folder / name).is_dir() else 0
        parts.append(f"{name}/ with {count} file{'s' * (count != 1)}" if count else name)
    return ", ".join(parts)


def first_line(text: str | None) -> str:
    """Return the first line of an error, short enough for a row of a list."""
    line = next(iter((text or "").splitlines()), "")
    return line if len(line) <= 200 else f"{line[:199]}…"


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
    return "done" if old.status == "done" and whole and not damaged(folder, old) else "resumed"


def damaged(folder: Path, run: Run) -> list[Path]:
    """Return the files that are not as long as when the run was done; absent ones count.

    A look at the sizes alone: ``workbench verify`` reads every byte.
    """
    return [
        folder / name
        for name, size in run.sizes.items()
        if not (folder / name).is_file() or (folder / name).stat().st_size != size
    ]


def _sizes(folder: Path, names: Sequence[str]) -> dict[str, int]:
    found = [path for name in names for path in (folder / name, *(folder / name).rglob("*"))]
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(found)
        if path.is_file() and not path.name.startswith(".")
    }


def _set_aside(folder: Path) -> None:
    """Take damaged outputs of a finished run out of the way, so that they are made again."""
    old = read_run(folder)
    for path in damaged(folder, old) if old.status == "done" else ():
        if path.is_file():
            aside = path.with_name(f".{path.name}.damaged")
            path.replace(aside)
            logger.warning("%s is damaged; moved it to %s, to be made again", path, aside)


def _holds_nothing(folder: Path, run: Run) -> bool:
    """Say whether a run ended here before it wrote anything: a typo must not block a name."""
    if [path.name for path in folder.iterdir()] != [MANIFEST]:
        return False
    old = read_run(folder)
    return old.status == "failed" or (old.status == "running" and old.id != run.id)


def _foreign(folder: Path, run: Run) -> str | None:
    """Say why the folder does not belong to this run, if so."""
    if not (folder / MANIFEST).is_file():
        return f"is not empty and holds no {MANIFEST}, so it is no run folder"
    old = read_run(folder)
    if old.id == run.id:
        return None
    keys = differing(identity(old), identity(run)) or ["format version"]
    return f"holds run {old.id}, not {run.id}: {'; '.join(keys)}"


def _lock(folder: Path, part: tuple[int, int] | None, held: ExitStack) -> FileLock | None:
    """Lock a run folder, whole or beside the other parts; None where others are at work too.

    Raises:
        WorkbenchError: another process writes the run, or this part of it.
    """
    lock = held_lock = FileLock.take(lock_path(folder))
    if lock is None and part is not None:
        held_lock = FileLock.take(lock_path(folder), shared=True)
    if held_lock is None:
        raise _busy(folder, lock_path(folder))
    held.callback(_unlock, folder, held_lock)
    if part is not None:
        place = lock_path(folder, "{}-of-{}.".format(*part))
        own = FileLock.take(place)
        if own is None:
            raise _busy(folder, place)
        held.callback(_unlock, folder, own)
        own.sign()
    if lock is not None:
        lock.sign()
    return lock


def _unlock(folder: Path, lock: FileLock) -> None:
    with settling(folder):
        lock.release()


def _busy(folder: Path, path: Path) -> WorkbenchError:
    owner = ""
    with contextlib.suppress(OSError):
        owner = path.read_text().strip()
    return WorkbenchError(
        f"{folder} is being written by {owner or 'another process'}; "
        "wait until it ends, or stop it and run this again to resume"
    )
