"""A shard's file while it is being made: rows come in any order, and whole chunks are written."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from operator import itemgetter
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int, Shaped, UInt32

from workbench.activations.layout import Part
from workbench.activations.shard import Known
from workbench.activations.skeleton import Frame
from workbench.files import free_bytes, replacing

Put = Callable[[int, Shaped[np.ndarray, "m d"]], None]
"""Takes a layer's place in the file, and its stored rows."""


class Draft:
    """The file under its temporary name. Whoever has it must close or discard it.

    Rows wait in memory until all have come: to write each as it comes takes the interpreter from
    the thread that starts the kernels of small batches, and the GPU waits. The file has its room
    on the disk from the beginning.
    """

    def __init__(self, path: Path, frame: Frame, part: Part) -> None:
        self.path, self.frame, self.part = path, frame, part
        self._values = np.empty(frame.shape, frame.stored)
        self._there = np.zeros(frame.shape[1], bool)
        self._open = ExitStack()
        temporary = self._open.enter_context(replacing(path, frame.size))
        with self._discarded_on_error():
            self._file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            self._open.callback(self._close_file)
            reserve(temporary, self._file, frame.size)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.frame.size

    def route(self, places: Int[np.ndarray, " m"]) -> Put:
        """Return what takes the rows that belong at these places, layer by layer."""
        self._there[places] = True

        def put(layer: int, bits: Shaped[np.ndarray, "m d"]) -> None:
            self._values[layer, places] = bits

        return put

    def close(self, norms: Float32[np.ndarray, "l n"]) -> tuple[str, Known]:
        """Write the file, and put it under its name.

        Returns:
            The sha256 of the file, and by what it is known again.

        Raises:
            WorkbenchError: the disk is full or the place cannot be written.
        """
        assert self._there.all(), "every row has come"
        with self._open:
            seal = self.frame.seal(norms, self._sums())
            end = (seal.length, memoryview(seal.pack()))
            digest = self._write([*self.frame.own(), *self._runs(), end])
            self._values = np.empty((0, 0, 0), self.frame.stored)  # the next group needs the room
            start_writing(self._file)
            return digest, Known(seal.digest, self.frame.shape[1])

    def discard(self) -> None:
        """Remove the file, unless it is closed."""
        with contextlib.suppress(_DiscardedError), self._open:
            raise _DiscardedError

    def _close_file(self) -> None:
        """Its number may be another file's from now on, so that it is forgotten."""
        file, self._file = self._file, -1
        os.close(file)

    @contextlib.contextmanager
    def _discarded_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with self._open:
                raise

    def _chunks(self) -> Iterator[tuple[int, int, memoryview]]:
        """Yield layer, number and bytes of each chunk; one ends in memory where the next begins."""
        for layer, values in enumerate(self._values):
            for number, start in enumerate(range(0, len(values), self.frame.rows)):
                rows = values[start : start + self.frame.rows]
                yield layer, number, memoryview(rows).cast("B")

    def _sums(self) -> UInt32[np.ndarray, "l c"]:
        """Return the CRC-32 of every chunk."""
        found = np.zeros(self.frame.offsets.shape, np.uint32)
        for layer, number, piece in self._chunks():
            found[layer, number] = zlib.crc32(piece)
        return found

    def _runs(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the values as runs of chunks that are neighbors in the file, with their places."""
        flat = self._values.reshape(-1).data.cast("B")
        begin = start = stop = 0  # the run's place in the file, its bounds in memory
        for layer, number, piece in self._chunks():
            place = int(self.frame.offsets[layer, number])
            if place != begin + stop - start:
                if stop > start:
                    yield begin, flat[start:stop]
                begin, start = place, stop
            stop += len(piece)
        yield begin, flat[start:stop]

    def _write(self, pieces: Sequence[tuple[int, memoryview]]) -> str:
        """Write pieces to their places, and return the sha256 of the file they make."""
        digest, end = sha256(), 0
        for place, piece in sorted(pieces, key=itemgetter(0)):
            digest.update(bytes(place - end))  # what no piece covers is zero
            digest.update(piece)
            end, done = place + len(piece), 0
            while done < len(piece):
                done += os.pwrite(self._file, piece[done:], place + done)
        assert end == self.frame.size, "HDF5's bytes, the values and the seal"
        return digest.hexdigest()


class _DiscardedError(Exception):
    """Makes the temporary file go."""


def reserve(path: Path, file: int, size: int) -> None:
    """Take a file's room on the disk before anything is written to it.

    Raises:
        OSError: there is not enough.
    """
    if free_bytes(path) < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)


def start_writing(file: int) -> None:
    """Let the disk begin with what a file's pages hold, without waiting; only Linux can.

    It is a hint: whether the bytes arrive is for fsync to say.
    """
    begin = _sync_file_range()
    if begin is not None:
        begin(file, 0, 0, 2)  # SYNC_FILE_RANGE_WRITE, to the file's end


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        found = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return found
