"""One HDF5 file of activations: a block of items to bytes, and back with its checks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from jaxtyping import Float32, Int, Shaped

from workbench.activations.layout import (
    FORMAT,
    STORED,
    VERSION,
    Manifest,
    Part,
    check_version,
    place,
)
from workbench.activations.seal import (
    Chunks,
    DamagedError,
    Seal,
    chunk_rows,
    descriptor,
)
from workbench.activations.skeleton import Frame, reserve_values, room_for
from workbench.errors import ConfigError, FormatError


def lay_out(part: Part, manifest: Manifest) -> Frame:
    """Return the file of a shard without its values and norms; equal parts give equal bytes.

    Raises:
        ConfigError: an item column that HDF5 cannot hold.
    """
    stored = np.dtype(STORED[manifest.dtype])
    shape = (len(manifest.layers), part.rows, manifest.width)
    kept = replace(part, columns={name: part.columns[name] for name in manifest.columns})
    room = room_for(kept, shape, stored.itemsize)
    with h5py.File(room, "w") as file:
        reserve_values(file, shape, manifest.dtype)
        mark(file, manifest, part.first, part.stop)
        if part.budget is not None:
            file.attrs["budget"] = part.budget
        file["norms"] = np.zeros(shape[:2], np.float32)
        if part.offsets is not None:
            file["offsets"] = np.asarray(part.offsets, np.int64)
        write_columns(file, kept.columns)
    return Frame.of(room)


def in_memory(**options: Any) -> h5py.File:
    """Return a new HDF5 file that no disk sees; HDF5 itself may crash on a full one."""
    return h5py.File(uuid.uuid4().hex, "w", driver="core", backing_store=False, **options)


def file_image(file: h5py.File) -> bytes:
    """Return what the file would be on disk."""
    file.flush()
    return bytes(file.id.get_file_image())


def mark(file: h5py.File, manifest: Manifest, first: int, stop: int) -> None:
    """Write the attributes by which a reader knows the file."""
    file.attrs["format"] = FORMAT
    file.attrs["version"] = VERSION
    file.attrs["plan"] = manifest.digest
    file.attrs["first"] = first
    file.attrs["rows"] = stop - first
    file.attrs["layers"] = np.array(manifest.layers, np.int64)
    file.attrs["site"] = manifest.site
    file.attrs["position"] = manifest.position
    file.attrs["model"] = manifest.model.key


def create_values(file: h5py.File, shape: tuple[int, ...], dtype: str) -> h5py.Dataset:
    """Make ``/values`` in chunks of one layer; the seal holds their checksums."""
    _, n, d = shape
    stored = np.dtype(STORED[dtype])
    chunks = (1, chunk_rows(n, d, stored.itemsize), d)
    made = file.create_dataset("values", shape, stored, chunks=chunks)
    made.attrs["dtype"] = dtype
    return made


def write_columns(file: h5py.File, columns: Mapping[str, np.ndarray]) -> None:
    """Write ``/items/<column>``; the true name is an attribute, since "/" cannot stand in one."""
    group = file.create_group("items")
    for name, values in columns.items():
        made = group.create_dataset(escape(name), data=_storable(name, values), dtype=_kind(values))
        made.attrs["column"] = name


def escape(name: str) -> str:
    """Return a name that HDF5 takes for one link."""
    escaped = name.replace("%", "%25").replace("/", "%2F")
    return escaped.replace(".", "%2E") if set(escaped) <= {"."} else escaped


def _kind(values: np.ndarray) -> Any:
    return values.dtype if values.dtype.kind in "biuf" else h5py.string_dtype()


def _storable(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "biuf":
        return values
    texts = values.tolist()
    wrong = [text for text in texts if not isinstance(text, str) or "\0" in text]
    if wrong:
        raise ConfigError(
            f"column {name!r} holds {wrong[0]!r}; a column is numbers, booleans, or texts without "
            "NUL characters"
        )
    return np.array(texts, object)


def mend(path: Path) -> str:
    """Say how a damaged file is made whole."""
    if path.parent.name == "shards":
        folder = path.parent.parent
        return (
            f"delete {path.name} and run the command that made {folder} again "
            "(`workbench cache ... --resume` rewrites only what is missing)"
        )
    if path.parent.name.endswith("embeddings"):
        return "delete it and embed again"
    return "make it again with `workbench pack`"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while reading into the error that names the file and the mend.

    Raises:
        FormatError: the file is absent, truncated or damaged.
    """
    try:
        yield
    except FileNotFoundError:
        raise FormatError(f"{path} is missing; {mend(path)}") from None
    except (OSError, KeyError, RuntimeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is truncated or damaged ({error}); {mend(path)}") from error


@contextmanager
def opened(path: Path, *, sealed: bool = False) -> Iterator[h5py.File]:
    """Open for one read: finished files never change, so no lock, and a handle each.

    Args:
        path: the file.
        sealed: refuse one without a seal, as older activations are.

    Raises:
        FormatError: anything that HDF5 finds wrong, with the file and the way to mend it.
    """
    with explained(path):
        with descriptor(path) as plain:
            if Seal.read(plain) is None and sealed:
                raise DamagedError("it has no checksums")
        with h5py.File(path, "r", locking=False) as file:
            check_version(file.attrs, str(path))
            yield file


class Known(NamedTuple):
    """What identifies a file that was looked through before: its bytes are still the same."""

    digest: str
    """Of its seal."""
    total: int
    """Rows of a layer."""


@dataclass(frozen=True)
class Shard:
    """A finished file, opened anew for each read, so that threads share nothing."""

    path: Path
    manifest: Manifest
    first: int
    stop: int
    known: Known | None = None
    """What the store's index says of it: found again, its HDF5 need not be looked through."""

    def check(self) -> None:
        """Check marks, shapes and allocated bytes, without reading the values.

        Raises:
            FormatError: the file is absent, truncated, or not the one that the manifest lists.
        """
        _ = self._chunks

    def recognise(self) -> Known | None:
        """Check the file, and return what an index may say of it; None without a seal."""
        chunks = self._chunks
        return None if chunks is None else Known(chunks.seal.digest, chunks.total)

    @cached_property
    def _chunks(self) -> Chunks | None:
        """Where the values lie, once the file is checked; None where HDF5 checks them itself."""
        with explained(self.path), descriptor(self.path) as plain:
            seal = Seal.read(plain)
        if seal is not None and self.known is not None and seal.digest == self.known.digest:
            return Chunks(seal, self.known.total, self.manifest.width, self.manifest.dtype)
        with opened(self.path) as file:
            self._check_marks(file)
            self._check_shapes(file)
            values = file["values"]
            if seal is None and not values.fletcher32:
                raise self._wrong("it has no checksums")
            if seal is None:
                return None
            return Chunks(seal, values.shape[1], self.manifest.width, self.manifest.dtype)

    def _check_marks(self, file: h5py.File) -> None:
        """Compare what decides which file this is; the plan stands for the whole manifest."""
        number, rows = self.first, self.stop - self.first
        self._compare(file, {"plan": self.manifest.digest, "first": number, "rows": rows})
        layers = tuple(file.attrs["layers"].tolist())
        if layers != self.manifest.layers:
            raise self._wrong(f"layers = {layers}, {self.manifest.layers} expected")

    def _compare(self, file: h5py.File, expected: Mapping[str, Any]) -> None:
        for key, value in expected.items():
            if file.attrs[key] != value:
                raise self._wrong(f"{key} = {file.attrs[key]}, {value} expected")

    def _check_shapes(self, file: h5py.File) -> None:
        n = self.stop - self.first
        items = {dataset.attrs["column"]: dataset.shape[0] for dataset in file["items"].values()}
        for name in self.manifest.columns:
            if items.get(name) != n:
                raise self._wrong(f"column {name!r} has {items.get(name)} rows, {n} expected")
        rows = int(file["offsets"][-1]) if self.manifest.ragged else n
        shape = (len(self.manifest.layers), rows, self.manifest.width)
        values = file["values"]
        if values.shape != shape or file["norms"].shape != shape[:2]:
            raise self._wrong(f"/values has shape {values.shape}, {shape} expected")
        if values.attrs["dtype"] != self.manifest.dtype:
            raise self._wrong(f"dtype {values.attrs['dtype']}, {self.manifest.dtype} expected")
        if values.dtype != STORED[self.manifest.dtype]:
            raise self._wrong(f"/values holds {values.dtype} for {self.manifest.dtype}")
        if values.chunks is None or values.chunks[0] != 1 or values.chunks[2] != shape[2]:
            raise self._wrong(f"/values has chunks {values.chunks}, not of one layer")
        if values.id.get_num_chunks() * np.prod(values.chunks) < np.prod(shape):
            raise self._wrong("/values has unwritten chunks")

    def _wrong(self, what: str) -> FormatError:
        return FormatError(f"{self.path}: {what}; {mend(self.path)}")

    def read_stored(self, index: int) -> Shaped[np.ndarray, "n d"]:
        """Return the stored bits of one layer, by its place in the manifest's layers."""
        chunks = self._chunks
        if chunks is None:  # an older file, whose chunks HDF5 checks itself
            with opened(self.path) as file:
                return np.asarray(file["values"][index])
        bits = np.empty((chunks.total, chunks.width), chunks.stored)
        self.read_layer(index, bits)
        return bits

    def read_layer(
        self,
        index: int,
        out: Shaped[np.ndarray, "n d"],
        rows: Int[np.ndarray, " n"] | None = None,
        each: Callable[..., Iterable[None]] = map,
    ) -> None:
        """Read one layer, or some of its rows: the stored bits, or float32, as ``out`` is."""
        chunks = self._chunks
        if chunks is None:
            stored = self.read_stored(index)
            place(stored if rows is None else stored[rows], self.manifest.dtype, out)
            return
        with explained(self.path), descriptor(self.path) as file:
            chunks.read(file, index, out, rows, each)

    def read_norms(self) -> Float32[np.ndarray, "l n"]:
        with opened(self.path) as file:
            return np.asarray(file["norms"][...])

    def read_column(self, name: str) -> np.ndarray:
        with opened(self.path) as file:
            items = file["items"].values()
            return _content(next(one for one in items if one.attrs["column"] == name))

    def read_part(self) -> Part:
        """Return what is known beside the values, from one look into the file."""
        with opened(self.path) as file:
            columns = {one.attrs["column"]: _content(one) for one in file["items"].values()}
            offsets = np.asarray(file["offsets"][...]) if self.manifest.ragged else None
        return Part(self.first, columns, offsets)

    def read_offsets(self) -> np.ndarray | None:
        if not self.manifest.ragged:
            return None
        with opened(self.path) as file:
            return np.asarray(file["offsets"][...])

    def read_budget(self) -> int | None:
        """Return the tokens of a batch where memory allowed fewer than planned."""
        with opened(self.path) as file:
            return int(file.attrs["budget"]) if "budget" in file.attrs else None

    def check_values(self) -> None:
        """Read everything: checksums, and the hash of the values.

        Raises:
            FormatError: a checksum or the hash is wrong.
        """
        self.check()
        self.read_norms()
        self.read_part()
        digest = sha256()
        for index in range(len(self.manifest.layers)):
            digest.update(np.ascontiguousarray(self.read_stored(index)).data)
        manifest = self.manifest
        told = {"site": manifest.site, "position": manifest.position, "model": manifest.model.key}
        with opened(self.path) as file:
            self._compare(file, told)
            if file.attrs.get("sha256", digest.hexdigest()) != digest.hexdigest():
                raise self._wrong("the values do not match their sha256")


def _content(column: h5py.Dataset) -> np.ndarray:
    if h5py.check_string_dtype(column.dtype) is None:
        return np.asarray(column[...])
    return np.asarray(column.asstr()[...].astype(str))


def read_packed_manifest(path: Path) -> Manifest:
    """Read the manifest inside a packed file.

    Raises:
        FormatError: it is no packed file.
    """
    with opened(path) as file:
        if "manifest" not in file:
            raise FormatError(
                f"{path} is one shard, not a whole store; open its folder, or pack it first"
            )
        return Manifest.parse(json.dumps(json.loads(file["manifest"][()])), str(path))
