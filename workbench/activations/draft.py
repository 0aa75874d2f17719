"""A shard's file while it is being written: rows go to their places on the disk as they come."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int, Shaped, UInt32

from workbench.activations.crc import join_rows
from workbench.activations.layout import Part
from workbench.activations.seal import checksums
from workbench.activations.shard import Known
from workbench.activations.skeleton import Frame
from workbench.files import free_bytes, replacing

EARLY_BYTES = 4096
"""Rows of at least this size are written as they come; smaller ones when all are there."""
AHEAD_BYTES = 8 << 20
"""Once so much, or a quarter of the file, waits in memory the disk is asked to begin."""
PIECE_BYTES = 1 << 20
"""What is hashed at once."""

Put = Callable[[int, Shaped[np.ndarray, "m d"]], None]
"""Takes a layer's place in the file, and its stored rows."""


class Draft:
    """The file under its temporary name. Whoever has it must close or discard it.

    Rows are written, summed and sent to the disk while later ones are computed. When the last has
    come there remain: HDF5's own bytes, the seal, the hash of the file, and what the disk still
    has to take.
    """

    def __init__(self, path: Path, frame: Frame, part: Part) -> None:
        self.path, self.frame, self.part = path, frame, part
        self.pending = 0
        """Bytes written since the disk was last asked to begin."""
        layers, n, _ = frame.shape
        self._there = np.zeros(n, bool)
        self._crc32 = np.zeros((layers, n), np.uint32)
        early = part.offsets is not None or frame.row_bytes >= EARLY_BYTES
        self._held = None if early else np.empty(frame.shape, frame.stored)
        self._sender = ThreadPoolExecutor(1, "activations")
        self._sent: Future[None] | None = None
        self._open = ExitStack()
        temporary = self._open.enter_context(replacing(path, frame.size))
        with self._discarded_on_error():
            self._file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            self._open.callback(self._close_file)
            self._open.callback(self._sender.shutdown)
            reserve(temporary, self._file, frame.size)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.frame.size

    def route(self, places: Int[np.ndarray, " m"]) -> Put:
        """Return what writes the rows that belong at these places, layer by layer."""
        self._there[places] = True
        held = self._held
        if held is None:
            return functools.partial(self._put, _runs(places, self.frame.rows))

        def keep(layer: int, bits: Shaped[np.ndarray, "m d"]) -> None:
            held[layer, places] = bits

        return keep

    def close(self, norms: Float32[np.ndarray, "l n"]) -> tuple[str, Known]:
        """Write what is left, and put the file under its name.

        Returns:
            The sha256 of the file, and by what it is known again.

        Raises:
            WorkbenchError: the disk is full or the place cannot be written.
        """
        assert self._there.all(), "every row has come"
        with self._open:
            seal = self.frame.seal(norms, self._sums())
            for offset, piece in self.frame.own():
                self._write(piece, offset)
            self._write(memoryview(seal.pack()), seal.length)
            self._sender.submit(start_writing, self._file)
            return self._hash(), Known(seal.digest, self.frame.shape[1])

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

    def _put(
        self, runs: list[tuple[int, int, int]], layer: int, bits: Shaped[np.ndarray, "m d"]
    ) -> None:
        """Write runs of rows; a run's CRC stands at its last row, see `join_rows`."""
        size = self.frame.row_bytes
        view = memoryview(np.ascontiguousarray(bits)).cast("B")  # type: ignore[arg-type]
        with self._discarded_on_error():
            for start, stop, place in runs:
                piece = view[start * size : stop * size]
                self._write(piece, self._offset(layer, place))
                self._crc32[layer, place + stop - start - 1] = zlib.crc32(piece)
            ahead = min(AHEAD_BYTES, self.frame.size // 4)
            if self.pending >= ahead and (self._sent is None or self._sent.done()):
                self._sent = self._sender.submit(start_writing, self._file)
                self.pending = 0

    def _offset(self, layer: int, place: int) -> int:
        chunk, row = divmod(place, self.frame.rows)
        return int(self.frame.offsets[layer, chunk]) + row * self.frame.row_bytes

    def _sums(self) -> UInt32[np.ndarray, "l c"]:
        """Return every chunk's CRC; rows that were held back are written first."""
        rows = self.frame.rows
        if self._held is None:
            return join_rows(self._crc32, rows, self.frame.row_bytes)
        for layer, values in enumerate(self._held):
            for start in range(0, len(values), rows):
                piece = memoryview(values[start : start + rows]).cast("B")
                self._write(piece, self._offset(layer, start))
        start_writing(self._file)
        return checksums(self._held, rows)

    def _write(self, piece: memoryview, offset: int) -> None:
        done = 0
        while done < len(piece):
            done += os.pwrite(self._file, piece[done:], offset + done)
        self.pending += len(piece)

    def _hash(self) -> str:
        digest, piece = sha256(), memoryview(bytearray(PIECE_BYTES))
        offset = 0
        while count := os.preadv(self._file, [piece], offset):
            digest.update(piece[:count])
            offset += count
        assert offset == self.frame.size, "HDF5's bytes, the values and the seal"
        return digest.hexdigest()


class _DiscardedError(Exception):
    """Makes the temporary file go."""


def _runs(places: Int[np.ndarray, " m"], rows: int) -> list[tuple[int, int, int]]:
    """Return (start, stop, place of the first) of rows that stay side by side in one chunk."""
    apart = (np.diff(places) != 1) | (places[1:] % rows == 0)
    bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(places)]
    return [(a, b, int(places[a])) for a, b in pairwise(bounds)]


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
