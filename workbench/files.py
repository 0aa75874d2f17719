"""Writing files whole or not at all, locks, and what to do when the disk refuses."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workbench.errors import FormatError, WorkbenchError


def write_bytes(path: Path, *content: bytes | memoryview) -> None:
    """Write a whole file, or nothing: temporary name, fsync, rename.

    Raises:
        WorkbenchError: the disk is full or the place cannot be written; no temporary is left.
    """
    size = sum(map(len, content))
    with replacing(path, size) as temporary, temporary.open("wb") as file:
        for piece in content:
            file.write(piece)


@contextmanager
def replacing(path: Path, size: int | None = None) -> Iterator[Path]:
    """Give a temporary name to write to; it becomes ``path`` when the block ends well.

    Args:
        path: the file to make.
        size: its bytes where known, for the message when they do not fit.

    Raises:
        WorkbenchError: the disk is full or the place cannot be written; no temporary is left.
    """
    host = socket.gethostname().replace(".", "_")
    name = f".{path.name}.{host}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
    temporary = path.with_name(name)
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        _discard(temporary)
        raise explain_os_error(error, path, size) from error
    except BaseException:
        _discard(temporary)
        raise


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _discard(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink()


def clear_temporaries(folder: Path) -> None:
    """Remove what killed processes of this machine left half-written in the folder."""
    host = socket.gethostname().replace(".", "_")
    for path in folder.glob(".*.tmp"):
        *_, owner, pid, _random, _suffix = path.name.split(".")
        if owner == host and pid.isdigit() and not _alive(int(pid)):
            _discard(path)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def make_folder(path: Path) -> None:
    """Make a folder and its parents.

    Raises:
        WorkbenchError: it cannot be made there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain_os_error(error, path) from error


def explain_os_error(error: OSError, path: Path, size: int | None = None) -> WorkbenchError:
    """Return the error for a file that could not be written, with what is needed and free."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        needs = "more room" if size is None else format_bytes(size)
        return WorkbenchError(
            f"the disk is full: {path} needs {needs}, {format_bytes(free_bytes(path))} are free; "
            "free some space and run the same command again, finished parts are kept"
        )
    return WorkbenchError(
        f"cannot write {path}: {error.strerror or error}; give another "
        "folder (--out or --runs, in Python out)"
    )


_OPENS = {
    ".jsonl": "items are read by wb.read_prompts",
    ".csv": "items are read by wb.read_prompts",
    ".parquet": "tables are read by workbench.results.read_results, items by wb.read_prompts",
    ".h5": "activations are opened by wb.open_activations",
    ".pt": "vectors of other tools are read by wb.import_directions",
    ".gguf": "vectors of other tools are read by wb.import_directions",
}


def unreadable(path: Path, suffix: str, error: object, remedy: str) -> FormatError:
    """Return the error for a file that is no ``suffix`` file: damaged, or of another kind by name.

    Args:
        path: of the file.
        suffix: what such files end in.
        error: what its reader said.
        remedy: what to do where it is damaged.
    """
    if path.suffix in ("", suffix):
        return FormatError(f"{path} is damaged or no {suffix[1:]} file ({error}); {remedy}")
    hint = _OPENS.get(path.suffix, "give another path")
    return FormatError(f"{path} is a {path.suffix} file, and a {suffix} file is read here; {hint}")


def free_bytes(path: Path) -> int:
    """Return how much may still be written where ``path`` lies or will lie."""
    place = next(folder for folder in [path, *path.absolute().parents] if folder.exists())
    return shutil.disk_usage(place).free


def format_bytes(size: int | float) -> str:
    """Write a size as a person would, such as ``8.8 MB``."""
    if size < 1000:
        return f"{size} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


@dataclass
class FileLock:
    """An advisory lock on a file of its own; the kernel lets go of it when its process dies."""

    path: Path
    file: int

    @classmethod
    def take(cls, path: Path, *, shared: bool = False, wait: bool = False) -> FileLock | None:
        """Make the file and lock it; None where another holds it.

        Args:
            path: a name that nothing but the lock uses.
            shared: beside others that share it.
            wait: until it is free.

        Raises:
            WorkbenchError: the file cannot be made there.
        """
        import fcntl

        how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        tries = 0
        while tries < 5:
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise explain_os_error(error, path) from error
            try:
                fcntl.flock(file, how)
                if _is_at(file, path):
                    return cls(path, file)
            except BlockingIOError:  # perhaps only somebody who looks whether it is held
                tries += 1
                time.sleep(0.01)
            os.close(file)  # or its owner removed it between our open and our lock
        return None

    @staticmethod
    def is_held(path: Path) -> bool:
        """Say whether a living process holds the lock."""
        import fcntl

        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def sign(self) -> None:
        """Write down who holds it, for messages."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        os.truncate(self.file, 0)
        os.write(self.file, f"process {os.getpid()} on {socket.gethostname()} since {now}".encode())

    def share(self) -> None:
        """Let others in who share it."""
        import fcntl

        fcntl.flock(self.file, fcntl.LOCK_SH)

    def release(self) -> None:
        """Let go, and remove the file unless others share it."""
        import fcntl

        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.path.unlink(missing_ok=True)
        os.close(self.file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False
