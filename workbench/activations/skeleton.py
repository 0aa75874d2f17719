"""An HDF5 file without the bytes of its values: HDF5 keeps room for them, and writes all the rest.

So the values go from memory to the disk once, and are not copied through HDF5.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from jaxtyping import Int, Shaped

from workbench.activations.layout import STORED, Block
from workbench.activations.seal import Seal, checksums, chunk_offsets, chunk_rows, gaps, sum_pieces

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


def room_for(block: Block, columns: Sequence[str]) -> Room:
    """Return room for a block: its chunks, its norms, and ample for its columns."""
    layers, n, d = block.values.shape
    itemsize = block.values.itemsize
    rows = chunk_rows(n, d, itemsize)
    chunks = layers * -(-n // rows) * rows * d * itemsize
    texts = sum(len(text) for name in columns for text in block.columns[name].astype(str))
    items = (len(columns) + 1) * len(block.columns["id"])
    return Room(chunks + block.norms.nbytes + 4 * texts + 128 * items + SLACK)


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
class Filled:
    """The file's pieces in order: HDF5's own bytes, and between them the values."""

    room: Room
    values: Shaped[np.ndarray, "l n d"]
    rows: int
    """Of a chunk."""
    offsets: Int[np.ndarray, "l c"]

    @classmethod
    def of(cls, room: Room, values: Shaped[np.ndarray, "l n d"]) -> Filled:
        """Look up where the finished file keeps its chunks."""
        with h5py.File(room, "r") as file:
            made = file["values"]
            return cls(room, values, made.chunks[1], chunk_offsets(made))

    @property
    def chunk_bytes(self) -> int:
        """Size of a chunk in the file."""
        return int(self.rows * self.values.shape[2] * self.values.itemsize)

    def pieces(self) -> Iterator[memoryview | bytes]:
        """Yield all bytes of the file, in order."""
        number = self.offsets.shape[1]
        last = 0
        for place in np.argsort(self.offsets, axis=None).tolist():
            offset = int(self.offsets.flat[place])
            yield from self._own(last, offset)
            layer, chunk = divmod(place, number)
            held = self.values[layer, chunk * self.rows : (chunk + 1) * self.rows]
            content = memoryview(np.ascontiguousarray(held)).cast("B")  # type: ignore[arg-type]
            yield content
            yield bytes(self.chunk_bytes - len(content))
            last = offset + self.chunk_bytes
        yield from self._own(last, self.room.length)

    def _own(self, start: int, stop: int) -> Iterator[memoryview]:
        if stop > start:
            yield memoryview(self.room.bytes)[start:stop]

    def seal(self) -> bytes:
        """Return the seal that follows the file's bytes."""
        length = self.room.length
        own = (
            memoryview(self.room.bytes)[a:b]
            for a, b in gaps(length, self.offsets, self.chunk_bytes)
        )
        crc32 = checksums(self.values, self.rows)
        return Seal(length, self.chunk_bytes, self.offsets, crc32, sum_pieces(own)).pack()
