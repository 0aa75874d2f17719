"""An HDF5 file without the bytes of its values: HDF5 keeps room for them, and writes all the rest.

So the values go from memory to the disk once, and are not copied through HDF5.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from jaxtyping import Float32, Int, UInt32

from workbench.activations.layout import STORED, Part
from workbench.activations.seal import Seal, chunk_offsets, chunk_rows, gaps, seal_bytes

SLACK = 16 << 20
"""For what HDF5 writes of its own; only what is touched takes memory."""


class Room:
    """A file in memory for HDF5: pages that are never touched are zero and cost nothing."""

    def __init__(self, size: int) -> None:
        self.bytes = mmap.mmap(-1, size)
        self.length = 0
        self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.length}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        self._at += size
        return self.bytes[self._at - size : self._at]

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), len(self.bytes) - self._at))
        buffer[:count] = self.bytes[self._at : self._at + count]
        self._at += count
        return count

    def write(self, data: Any) -> int:
        self.bytes[self._at : self._at + len(data)] = memoryview(data)
        self._at += len(data)
        self.length = max(self.length, self._at)
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        self.length = self._at if size is None else size
        return self.length

    def flush(self) -> None: ...


def room_for(part: Part, shape: tuple[int, int, int], itemsize: int) -> Room:
    """Return room for a shard: its chunks, its norms, and ample for its columns."""
    layers, n, d = shape
    rows = chunk_rows(n, d, itemsize)
    chunks = layers * -(-n // rows) * rows * d * itemsize
    texts = sum(len(text) for column in part.columns.values() for text in column.astype(str))
    items = (len(part.columns) + 1) * len(part.columns["id"])
    return Room(chunks + 4 * layers * n + 4 * texts + 128 * items + SLACK)


def reserve_values(file: h5py.File, shape: tuple[int, ...], dtype: str) -> h5py.Dataset:
    """Make ``/values`` in chunks of one layer, whose bytes HDF5 allots now and leaves alone."""
    _, n, d = shape
    stored = np.dtype(STORED[dtype])
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((1, chunk_rows(n, d, stored.itemsize), d))
    made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    made.set_obj_track_times(False)
    kind = h5py.h5t.py_create(stored, logical=True)
    space = h5py.h5s.create_simple(shape)
    values = h5py.Dataset(h5py.h5d.create(file.id, b"values", kind, space, made))
    values.attrs["dtype"] = dtype
    return values


@dataclass(frozen=True)
class Frame:
    """A shard's file but for its values: HDF5's own bytes, and where the values go."""

    room: Room
    shape: tuple[int, int, int]
    """Of the values: layers, rows, width."""
    stored: np.dtype
    rows: int
    """Of a chunk."""
    offsets: Int[np.ndarray, "l c"]
    norms: int
    """Byte at which the norms begin."""

    @classmethod
    def of(cls, room: Room) -> Frame:
        """Look up where the finished file keeps its chunks and its norms."""
        with h5py.File(room, "r") as file:
            values = file["values"]
            places = chunk_offsets(values)
            norms = file["norms"].id.get_offset()
            return cls(room, values.shape, values.dtype, values.chunks[1], places, norms)

    @property
    def row_bytes(self) -> int:
        """Size of a row of values."""
        return self.shape[2] * self.stored.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Size of a chunk in the file."""
        return self.rows * self.row_bytes

    @property
    def size(self) -> int:
        """Bytes of the file, with its seal."""
        return self.room.length + seal_bytes(self.offsets.size)

    def seal(self, norms: Float32[np.ndarray, "l n"], crc32: UInt32[np.ndarray, "l c"]) -> Seal:
        """Put in the norms, and return the seal."""
        self.room.seek(self.norms)
        self.room.write(norms.astype("<f4").tobytes())
        rest = 0
        for _, own in self.own():
            rest = zlib.crc32(own, rest)
        return Seal(self.room.length, self.chunk_bytes, self.offsets, crc32, rest)

    def own(self) -> Iterator[tuple[int, memoryview]]:
        """Yield HDF5's own bytes, with the place at which each piece begins."""
        for start, stop in gaps(self.room.length, self.offsets, self.chunk_bytes):
            yield start, memoryview(self.room.bytes)[start:stop]
