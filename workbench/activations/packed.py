"""A store as one plain HDF5 file."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np

from workbench.activations.draft import reserve
from workbench.activations.seal import checksums, seal_file
from workbench.activations.shard import create_values, mark
from workbench.activations.store import open_parts, row_bounds, write_items
from workbench.files import make_folder, replacing
from workbench.plain import as_json


def pack(path: str | Path, out: str | Path) -> Path:
    """Make one plain HDF5 file of a store, which ``open_activations`` opens too.

    Raises:
        FormatError: the store is incomplete or damaged.
        WorkbenchError: the disk is full.
    """
    manifest, shards = open_parts(path)
    out = Path(out)
    whole = replace(manifest, shards=((0, manifest.rows),))
    parts = [shard.read_part() for shard in shards]
    bounds = row_bounds(parts)
    shape = (len(manifest.layers), bounds[-1], manifest.width)
    size = sum(shard.path.stat().st_size for shard in shards) + (1 << 16)
    make_folder(out.parent)
    digest = sha256()
    with replacing(out, size) as temporary:
        with h5py.File(temporary, "w") as file:
            file.flush()
            _reserve(temporary, size)
            mark(file, whole, 0, whole.rows)
            file["manifest"] = as_json(whole.content())
            values = create_values(file, shape, manifest.dtype)
            sums = []
            for index in range(shape[0]):
                layer = np.concatenate([shard.read_stored(index) for shard in shards])
                digest.update(layer.data)
                sums.append(checksums(layer[None], values.chunks[1]))
                values[index] = layer
            file["norms"] = np.concatenate([shard.read_norms() for shard in shards], axis=1)
            write_items(file, manifest, parts)
        with h5py.File(temporary, "r+") as file:  # opened again, HDF5 gives back unused room
            file.attrs["sha256"] = digest.hexdigest()
        seal_file(temporary, np.concatenate(sums))
    return out


def _reserve(path: Path, size: int) -> None:
    """Take the room before HDF5 writes: it crashes the process where a write to disk fails."""
    with path.open("r+b") as file:
        reserve(path, file.fileno(), size)
