"""Checksums at the end of an activations file: over each chunk of values, and over all the rest.

HDF5 ignores what follows its own bytes. It trusts its metadata and may crash where they are
damaged, so they are checked before it sees them; and values are read past it, straight from where
their chunks lie.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Int, Shaped, UInt32

from workbench.activations.layout import STORED, decode, place
from workbench.activations.threads import spread

CHUNK_BYTES = 1 << 20
"""A chunk spans rows of one layer, up to this size: it fits a processor's cache."""
TAIL = struct.Struct("<QQIIII8s")
"""Bytes of HDF5, bytes of a chunk, layers, chunks of a layer, CRC of the rest, CRC of the seal."""
MAGIC = b"iwbseal1"


class DamagedError(OSError):
    """Bytes on disk that are not those that were written."""


def chunk_rows(rows: int, width: int, itemsize: int) -> int:
    """Return the rows of a chunk: as few chunks as fit ``CHUNK_BYTES``, all about as long."""
    most = max(1, CHUNK_BYTES // (width * itemsize))
    number = -(-rows // most)
    return -(-rows // number)


def checksums(values: Shaped[np.ndarray, "l n d"], rows: int) -> UInt32[np.ndarray, "l c"]:
    """Return the CRC-32 of every chunk's rows, in C order."""
    starts = range(0, values.shape[1], rows)
    found = np.zeros((len(values), len(starts)), np.uint32)

    def sum_layer(index: int) -> None:
        for number, start in enumerate(starts):
            held = np.ascontiguousarray(values[index, start : start + rows])
            found[index, number] = zlib.crc32(held.data)

    with spread(values.nbytes) as each:
        for _ in each(sum_layer, range(len(values))):
            pass
    return found


def seal_bytes(chunks: int) -> int:
    """Return the size of the seal of a file with so many chunks."""
    return 12 * chunks + TAIL.size


def chunk_offsets(values: h5py.Dataset) -> Int[np.ndarray, "l c"]:
    """Return where HDF5 keeps each chunk."""
    layers, total, _ = values.shape
    rows = values.chunks[1]
    offsets = np.zeros((layers, -(-total // rows)), np.int64)

    def note(chunk: h5py.h5d.StoreInfo) -> None:
        layer, first, _ = chunk.chunk_offset
        offsets[layer, first // rows] = chunk.byte_offset

    values.id.chunk_iter(note)
    assert offsets.all(), "every chunk was written"
    return offsets


@dataclass(frozen=True)
class Seal:
    """Where the chunks of ``/values`` lie in a file, and what they and the rest must sum to."""

    length: int
    """Bytes of HDF5; the seal follows."""
    chunk_bytes: int
    offsets: Int[np.ndarray, "l c"]
    crc32: UInt32[np.ndarray, "l c"]
    rest: int
    """CRC-32 of all bytes of HDF5 that are in no chunk, in order."""

    def pack(self) -> bytes:
        """Return the bytes that follow HDF5's."""
        body = self.offsets.astype("<u8").tobytes() + self.crc32.astype("<u4").tobytes()
        shape = self.offsets.shape
        head = TAIL.pack(self.length, self.chunk_bytes, *shape, self.rest, 0, MAGIC)
        crc = zlib.crc32(head, zlib.crc32(body))
        return body + TAIL.pack(self.length, self.chunk_bytes, *shape, self.rest, crc, MAGIC)

    @classmethod
    def read(cls, file: int) -> Seal | None:
        """Read the seal of an open file; None where it has none.

        Raises:
            DamagedError: the seal, or a byte outside the chunks, is not what was written.
        """
        size = os.fstat(file).st_size
        tail = os.pread(file, TAIL.size, max(0, size - TAIL.size))
        if not tail.endswith(MAGIC) or len(tail) < TAIL.size:
            return None
        length, chunk_bytes, layers, number, rest, crc, _ = TAIL.unpack(tail)
        count = layers * number
        if length + seal_bytes(count) != size:
            raise DamagedError(f"{size} bytes where its seal tells of {length}")
        body = os.pread(file, 12 * count, length)
        head = TAIL.pack(length, chunk_bytes, layers, number, rest, 0, MAGIC)
        if zlib.crc32(head, zlib.crc32(body)) != crc:
            raise DamagedError("wrong checksum of its seal")
        offsets = np.frombuffer(body, "<u8", count).astype(np.int64).reshape(layers, number)
        sums = np.frombuffer(body, "<u4", count, 8 * count).reshape(layers, number)
        seal = cls(length, chunk_bytes, offsets, sums, rest)
        if seal.sum_rest(file) != rest:
            raise DamagedError("wrong checksum of what is not values")
        return seal

    @property
    def digest(self) -> str:
        """16 hex digits that stand for every byte of the file, by its checksums."""
        return sha256(self.pack()).hexdigest()[:16]

    def sum_rest(self, file: int) -> int:
        """Return the CRC-32 of the bytes of HDF5 that are in no chunk."""
        crc = 0
        for start, stop in gaps(self.length, self.offsets, self.chunk_bytes):
            while start < stop:
                piece = os.pread(file, min(stop - start, 1 << 22), start)
                if not piece:
                    raise DamagedError(f"it ends before byte {stop}")
                crc, start = zlib.crc32(piece, crc), start + len(piece)
        return crc


def gaps(length: int, offsets: np.ndarray, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges between the chunks."""
    last = 0
    for offset in np.sort(offsets, axis=None).tolist():
        if offset > last:
            yield last, offset
        last = offset + chunk_bytes
    if length > last:
        yield last, length


def seal_whole(image: bytes) -> bytes:
    """Return the seal of a file in memory that holds no chunks of values."""
    none = np.empty((0, 0), np.int64)
    return Seal(len(image), 0, none, none.astype(np.uint32), zlib.crc32(image)).pack()


def seal_file(path: Path, crc32: UInt32[np.ndarray, "l c"]) -> None:
    """Append the seal to a finished file."""
    with h5py.File(path, "r", locking=False) as file:
        offsets, size = chunk_offsets(file["values"]), _chunk_bytes(file["values"])
    with path.open("r+b") as stream:
        length = stream.seek(0, os.SEEK_END)
        seal = Seal(length, size, offsets, crc32, 0)
        rest = seal.sum_rest(stream.fileno())
        stream.write(Seal(length, size, offsets, crc32, rest).pack())


def _chunk_bytes(values: h5py.Dataset) -> int:
    return int(np.prod(values.chunks)) * int(values.dtype.itemsize)


@contextmanager
def descriptor(path: Path) -> Iterator[int]:
    """Open a file for direct reads."""
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


@dataclass(frozen=True)
class Chunks:
    """Direct, checked reads of ``/values``."""

    seal: Seal
    total: int
    """Rows of a layer."""
    width: int
    dtype: str
    """bfloat16, float16 or float32."""

    @cached_property
    def stored(self) -> np.dtype:
        """How the values lie in an array."""
        return np.dtype(STORED[self.dtype])

    @cached_property
    def rows(self) -> int:
        """Rows of a chunk; the last has fewer."""
        return self.seal.chunk_bytes // (self.width * self.stored.itemsize)

    def read(
        self,
        file: int,
        index: int,
        out: Shaped[np.ndarray, "n d"],
        rows: Int[np.ndarray, " n"] | None = None,
        each: Callable[..., Iterable[None]] = map,
    ) -> None:
        """Read one layer, or some of its rows, into ``out``.

        Args:
            file: open descriptor.
            index: place of the layer in the file.
            out: of the stored type, or float32 to be decoded into.
            rows: the rows wanted, in order; only the chunks that hold them are read.
            each: how to go through the chunks: ``map``, or that of a thread pool.

        Raises:
            DamagedError: the file ends too early, or a checksum is wrong.
        """

        def load(piece: tuple[int, slice | np.ndarray, np.ndarray | None]) -> None:
            number, places, wanted = piece
            first = number * self.rows
            held = min(self.rows, self.total - first)
            if wanted is None and out.dtype == self.stored:
                self._load(file, index, number, out[first : first + held])
                return
            bits = np.empty((held, self.width), self.stored)
            self._load(file, index, number, bits)
            self._place(bits if wanted is None else bits[wanted - first], out, places)

        for _ in each(load, self._pieces(rows)):
            pass

    def _place(self, bits: np.ndarray, out: np.ndarray, places: slice | np.ndarray) -> None:
        if isinstance(places, slice):
            place(bits, self.dtype, out[places])
        else:
            out[places] = bits if out.dtype == self.stored else decode(bits, self.dtype)

    def _pieces(
        self, rows: Int[np.ndarray, " n"] | None
    ) -> Iterator[tuple[int, slice | np.ndarray, np.ndarray | None]]:
        """Yield (chunk, places in the result, rows wanted of the layer; None for all)."""
        if rows is None:
            for number in range(self.seal.offsets.shape[1]):
                yield number, slice(number * self.rows, (number + 1) * self.rows), None
            return
        order = np.argsort(rows, kind="stable")
        owner = rows[order] // self.rows
        cuts = np.flatnonzero(np.diff(owner)) + 1
        for places in np.split(order, cuts) if len(order) else []:
            yield int(rows[places[0]]) // self.rows, places, rows[places]

    def _load(self, file: int, index: int, number: int, bits: np.ndarray) -> None:
        view = memoryview(bits).cast("B")  # type: ignore[arg-type]
        offset = int(self.seal.offsets[index, number])
        done = 0
        while done < len(view):
            got = os.preadv(file, [view[done:]], offset + done)
            if not got:
                raise DamagedError(f"it ends before byte {offset + len(view)}")
            done += got
        if zlib.crc32(view) != self.seal.crc32[index, number]:
            raise DamagedError(f"wrong checksum of chunk {number} of layer number {index}")
