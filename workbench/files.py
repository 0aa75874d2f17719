"""Writing files whole or not at all, and saying what to do when the disk refuses."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import WorkbenchError


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a whole file or nothing: temporary name, fsync, rename.

    Raises:
        WorkbenchError: the disk is full or the place cannot be written; no temporary is left.
    """
    with replacing(path, len(content)) as temporary, temporary.open("wb") as file:
        file.write(content)


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
    return WorkbenchError(f"cannot write {path}: {error.strerror or error}; give another out")


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
