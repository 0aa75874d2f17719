"""Units of a run's work, each kept as one file once it is done: resumed, and done side by side."""

from __future__ import annotations

import io
import json
import logging
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import FormatError
from workbench.files import FileLock, clear_temporaries, make_folder, write_bytes
from workbench.runs.manifest import UNITS, lock_path
from workbench.runs.opening import OpenRun

logger = logging.getLogger(__name__)

ARRAY = "$array"


@dataclass(frozen=True)
class Units:
    """The finished units of a run: numbers, and for each a tree of plain values and arrays.

    What a unit is follows from the run's inputs alone, so that any process may do any of them, in
    any order, and a unit that is there is never done again.
    """

    run: OpenRun
    number: int
    digest: str
    """Of what the units are; those of another (of another version of the package) are not seen."""

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"a run has at least one unit of work; got {self.number}")
        make_folder(self.folder)
        clear_temporaries(self.folder)

    @property
    def folder(self) -> Path:
        return self.run.path / UNITS / self.digest[:12]

    def path(self, unit: int) -> Path:
        """Return the file of a unit, whether it is there or not."""
        return self.folder / f"{unit:06d}.npz"

    def own(self) -> list[int]:
        """Return the units of this process's share."""
        index, parts = self.run.part or (0, 1)
        return list(range(index, self.number, parts))

    def lacking(self) -> list[int]:
        """Return the units of this share that are still to be done."""
        return [unit for unit in self.own() if not self.path(unit).exists()]

    @property
    def complete(self) -> bool:
        """Whether every unit is there, whoever did it."""
        return all(self.path(unit).exists() for unit in range(self.number))

    def keep(self, unit: int, tree: Any) -> None:
        """Write what a unit gave, whole or not at all.

        Args:
            unit: its number.
            tree: JSON values and arrays, in mappings and lists.

        Raises:
            WorkbenchError: the disk is full or the place cannot be written.
        """
        write_bytes(self.path(unit), pack_tree(tree))

    def load(self, unit: int) -> Any:
        """Read what a unit gave.

        Raises:
            FormatError: the file is damaged; it is removed, so that the unit is done again.
        """
        path = self.path(unit)
        try:
            return unpack_tree(path.read_bytes())
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            path.unlink(missing_ok=True)
            raise FormatError(
                f"{path} is damaged ({error}) and was removed; run the same command again, which "
                "does this unit anew"
            ) from None

    @contextmanager
    def joining(self) -> Iterator[bool]:
        """Let one process at a time join the units; whether all are there is what it gives.

        Where another has joined them and done the run already, it gives False.
        """
        with _alone(self.run.path):
            yield self.complete


def discard_units(folder: Path) -> None:
    """Remove the units of a run that is done."""
    if (folder / UNITS).exists():
        with _alone(folder):
            shutil.rmtree(folder / UNITS, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = FileLock.take(lock_path(folder, "units."), wait=True)
    assert lock is not None, "waiting ends with the lock"
    try:
        yield
    finally:
        lock.release()


def pack_tree(tree: Any) -> bytes:
    """Return mappings, lists, JSON values and arrays as one npz file, without pickles."""
    arrays: list[np.ndarray] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {ARRAY: len(arrays) - 1}
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value.item() if isinstance(value, np.generic) else value

    text = json.dumps(plain(tree))
    image = io.BytesIO()
    named = {f"a{number}": array for number, array in enumerate(arrays)}
    np.savez(image, tree=np.array(text), **named)  # type: ignore[arg-type]
    return image.getvalue()


def unpack_tree(image: bytes) -> Any:
    """Return what ``pack_tree`` was given; mappings have text keys, tuples are lists.

    Raises:
        ValueError: the bytes are no such file.
    """
    with np.load(io.BytesIO(image), allow_pickle=False) as file:
        text = json.loads(str(file["tree"]))

        def whole(value: Any) -> Any:
            if isinstance(value, dict):
                if value.keys() == {ARRAY}:
                    return file[f"a{value[ARRAY]}"]
                return {key: whole(item) for key, item in value.items()}
            return [whole(item) for item in value] if isinstance(value, list) else value

        return whole(text)
