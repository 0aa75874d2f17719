"""The folder of shards: plan, write, resume, open, verify, pack. Format version 1."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Float32

from workbench.activations.draft import Draft
from workbench.activations.embedding import check_embeddings
from workbench.activations.index import INDEX, read_index, write_index
from workbench.activations.layout import STORED, Block, Manifest, Part
from workbench.activations.shard import (
    Known,
    Shard,
    file_image,
    in_memory,
    lay_out,
    mark,
    mend,
    read_packed_manifest,
    write_columns,
)
from workbench.errors import FormatError, MismatchError
from workbench.files import clear_temporaries, make_folder, write_bytes
from workbench.plain import as_json
from workbench.runs import HASHES, differing, hash_path

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
VIRTUAL = "acts.h5"
SHARD_ROWS = 256


def plan_shards(rows: int, shard_rows: int = SHARD_ROWS) -> tuple[tuple[int, int], ...]:
    """Cut ``rows`` items into half-open ranges: a function of its arguments alone."""
    if rows < 1 or shard_rows < 1:
        raise ValueError(f"rows and shard_rows are at least 1; got {rows} and {shard_rows}")
    return tuple((first, min(first + shard_rows, rows)) for first in range(0, rows, shard_rows))


@dataclass
class Store:
    """A store being written. Several processes may write shards of one plan side by side."""

    folder: Path
    manifest: Manifest
    hashes: dict[str, str] = field(default_factory=dict)
    """Of the files written by this process."""
    known: dict[str, Known] = field(default_factory=dict)
    """What the index will say of them."""
    parts: dict[str, Part] = field(default_factory=dict)
    """What stands in them beside the values."""

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> Store:
        """Write the manifest, or find the same one there.

        Raises:
            MismatchError: the folder has another manifest; the differing keys are named.
            WorkbenchError: the place cannot be written.
        """
        make_folder(folder / "shards")
        found = existing_manifest(folder)
        if found is None:
            write_bytes(folder / MANIFEST, as_json(manifest.content(), indent=1).encode())
        else:
            refuse_other(folder, found, manifest)
        clear_temporaries(folder)
        clear_temporaries(folder / "shards")
        return cls(folder, manifest)

    def shard(self, first: int, stop: int) -> Shard:
        """Return the shard of these items, whether it is there or not."""
        return Shard(self.folder / "shards" / shard_name(first, stop), self.manifest, first, stop)

    def has(self, first: int, stop: int) -> bool:
        """Whether the shard is there and valid; an invalid one is removed."""
        shard = self.shard(first, stop)
        if not shard.path.exists():
            return False
        try:
            shard.check()
        except FormatError as error:
            logger.info("writing a shard again: %s", error)
            shard.path.unlink(missing_ok=True)
            return False
        return True

    def begin(self, part: Part, dtype: str) -> Draft:
        """Begin a shard's file under a temporary name, to be given to ``keep`` or discarded.

        Raises:
            MismatchError: the values are not of the planned dtype.
            WorkbenchError: the disk is full or the place cannot be written.
        """
        if dtype != self.manifest.dtype:
            raise MismatchError(
                f"{self.folder} stores {self.manifest.dtype}, but the model now gives "
                f"{dtype}; load it with the dtype of the first run, or give another folder (--out)"
            )
        path = self.shard(part.first, part.stop).path
        return Draft(path, lay_out(part, self.manifest), part)

    def keep(self, draft: Draft, norms: Float32[np.ndarray, "l n"]) -> None:
        """Make a shard of a draft to which every row was written.

        Raises:
            WorkbenchError: the disk is full or the place cannot be written.
        """
        name = draft.path.name
        self.hashes[name], self.known[name] = draft.close(norms)
        self.parts[name] = draft.part
        logger.info("wrote %s (%d items)", draft.path, draft.part.stop - draft.part.first)

    def write(self, block: Block) -> None:
        """Write one shard whole or not at all.

        Raises:
            MismatchError: the block is not of the planned dtype.
            WorkbenchError: the disk is full or the place cannot be written.
        """
        draft = self.begin(block.part, block.dtype)
        put = draft.route(np.arange(block.part.rows))
        for layer, values in enumerate(block.values):
            put(layer, values)
        self.keep(draft, block.norms)

    def lacking(self) -> tuple[tuple[int, int], ...]:
        """Return the item ranges whose shards are not there yet."""
        return tuple(
            shard for shard in self.manifest.shards if not self.shard(*shard).path.exists()
        )

    def finish(self) -> None:
        """Write the hash list and the virtual dataset, once every shard is there.

        Raises:
            FormatError: a shard is missing.
        """
        if not self.hashes and all((self.folder / name).exists() for name in (HASHES, VIRTUAL)):
            return
        shards = listed_shards(self.folder, self.manifest, self.known)
        hashes = {
            f"shards/{shard.path.name}": self.hashes.get(shard.path.name) or hash_path(shard.path)
            for shard in shards
        }
        parts = [self.parts.get(shard.path.name) or shard.read_part() for shard in shards]
        image = _virtual(self.manifest, parts)
        with ThreadPoolExecutor(1, "activations") as beside:
            written = beside.submit(write_bytes, self.folder / VIRTUAL, image)
            write_index(self.folder, self.manifest, shards)
            written.result()
        write_bytes(self.folder / HASHES, as_json(hashes, indent=1).encode())


def shard_name(first: int, stop: int) -> str:
    """Return the file name of the shard that holds items ``first`` to ``stop``."""
    return f"{first:06d}-{stop:06d}.h5"


def existing_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a store folder, if it has one.

    Raises:
        FormatError: it is damaged or of another version.
    """
    path = folder / MANIFEST
    return Manifest.parse(path.read_bytes(), str(path)) if path.is_file() else None


def refuse_other(folder: Path, found: Manifest, wanted: Manifest) -> None:
    """Check that a store may be continued.

    Raises:
        MismatchError: it was begun with other settings, named one by one.
    """
    keys = differing(found.content(), wanted.content())
    if keys:
        raise MismatchError(
            f"{folder} holds activations of other settings ({'; '.join(keys)}); give another "
            "folder (--out), or delete this one"
        )


def listed_shards(
    folder: Path, manifest: Manifest, known: Mapping[str, Known] | None = None
) -> list[Shard]:
    """Return the shards of a complete store, each checked but for its values.

    Args:
        folder: of the store.
        manifest: its manifest.
        known: what its index says; the others are looked through.

    Raises:
        FormatError: shards are absent (the rows are named) or damaged.
    """
    names = [(shard_name(first, stop), first, stop) for first, stop in manifest.shards]
    shards = [
        Shard(folder / "shards" / name, manifest, first, stop, (known or {}).get(name))
        for name, first, stop in names
    ]
    absent = [shard for shard in shards if not shard.path.exists()]
    if absent:
        ranges = ", ".join(f"{shard.first}-{shard.stop - 1}" for shard in absent[:5])
        more = f" and {len(absent) - 5} more ranges" if len(absent) > 5 else ""
        raise FormatError(
            f"{folder} lacks {len(absent)} of {len(shards)} shards: rows {ranges}{more} of "
            f"{manifest.rows} are missing; the `workbench cache` command that made it adds them, "
            f"with --out {_run_folder(folder)}"
        )
    for shard in shards:
        shard.check()
    return shards


def _run_folder(folder: Path) -> Path:
    return folder.parent if folder.name == "acts" else folder


def locate(path: str | Path) -> Path:
    """Return the store folder or packed file behind a run folder, store folder or file.

    Raises:
        FormatError: nothing is there, or several reads to choose from.
    """
    path = Path(path)
    if path.is_file() and path.name not in (MANIFEST, VIRTUAL):
        return path
    folder = path.parent if path.is_file() else path
    for place in (folder, folder / "acts"):
        if (place / MANIFEST).is_file():
            return place
    reads = sorted(str(found.parent) for found in folder.glob(f"**/{MANIFEST}"))
    if reads:
        raise FormatError(f"{path} holds {len(reads)} reads; open one of: {', '.join(reads)}")
    raise FormatError(
        f"no activations at {str(path)!r}; give a run folder, a store folder or a packed file, or "
        "make one with `workbench cache MODEL PROMPTS --out PATH`"
    )


def open_parts(path: str | Path, *, anew: bool = False) -> tuple[Manifest, list[Shard]]:
    """Open what ``locate`` finds, every file checked but for its values.

    Args:
        path: as ``locate`` takes it.
        anew: look through each file, whatever the index says.

    Raises:
        FormatError: a file is missing, damaged or of another version.
    """
    place = locate(path)
    if place.is_file():
        manifest = read_packed_manifest(place)
        packed = Shard(place, manifest, 0, manifest.rows)
        packed.check()
        return manifest, [packed]
    found = existing_manifest(place)
    assert found is not None, "locate found its manifest"
    return found, listed_shards(place, found, None if anew else read_index(place, found))


def verify(path: str | Path) -> dict[str, str]:
    """Read every byte of a store or packed file: checksums, value hashes, file hashes.

    Its embeddings are read too.

    Returns:
        The sha256 of each file that was checked.

    Raises:
        FormatError: everything that is wrong, and how to mend it.
    """
    place = locate(path)
    manifest, shards = open_parts(place, anew=True)
    recorded = {} if place.is_file() else _recorded(place)
    known = {} if place.is_file() else read_index(place, manifest)
    problems, hashes = check_embeddings(place, manifest), {}
    for shard in shards:
        name = shard.path.name
        hashes[name] = sha256(shard.path.read_bytes()).hexdigest()
        try:
            shard.check_values()
        except FormatError as error:
            problems.append(str(error))
            continue
        if place.is_dir() and recorded.get(f"shards/{name}") != hashes[name]:
            problems.append(f"{shard.path} does not match its hash in {HASHES}; {mend(shard.path)}")
        elif known.get(name, shard.recognise()) != shard.recognise():
            problems.append(f"{place / INDEX} says other than {name} holds; delete the index")
    if problems:
        raise FormatError(f"{len(problems)} damaged files: " + "; ".join(problems[:5]))
    return hashes


def _recorded(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / HASHES).read_bytes())
        return {str(name): str(value) for name, value in found.items()}
    except FileNotFoundError:
        raise FormatError(
            f"{folder} has no {HASHES}: its run did not finish; run it again to resume"
        ) from None
    except (ValueError, AttributeError) as error:
        raise FormatError(f"{folder / HASHES} is damaged ({error}); delete it and resume") from None


def _virtual(manifest: Manifest, parts: Sequence[Part]) -> bytes:
    """Return the view for foreign readers; a shard that vanishes later reads as NaN there."""
    stored = np.dtype(STORED[manifest.dtype])
    bounds = row_bounds(parts)
    shape = (len(manifest.layers), bounds[-1], manifest.width)
    values, norms = h5py.VirtualLayout(shape, stored), h5py.VirtualLayout(shape[:2], np.float32)
    for part, first, stop in zip(parts, bounds[:-1], bounds[1:], strict=True):
        name = f"shards/{shard_name(part.first, part.stop)}"
        own = (shape[0], stop - first, shape[2])
        values[:, first:stop] = h5py.VirtualSource(name, "values", own, stored)
        norms[:, first:stop] = h5py.VirtualSource(name, "norms", own[:2], np.float32)
    nan = 0x7FC0 if manifest.dtype == "bfloat16" else np.nan
    with in_memory(libver=("v110", "latest")) as file:
        mark(file, manifest, 0, manifest.rows)
        made = file.create_virtual_dataset("values", values, fillvalue=nan)
        made.attrs["dtype"] = manifest.dtype
        file.create_virtual_dataset("norms", norms, fillvalue=np.nan)
        write_items(file, manifest, parts)
        return file_image(file)


def row_bounds(parts: Sequence[Part]) -> list[int]:
    """Return where each shard's rows begin (tokens where ragged), and the end."""
    return [0, *np.cumsum([part.rows for part in parts]).tolist()]


def write_items(file: h5py.File, manifest: Manifest, parts: Sequence[Part]) -> None:
    """Write the columns, and offsets where ragged, of consecutive shards."""
    names = manifest.columns
    joined = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
    write_columns(file, joined)
    if manifest.ragged:
        file["offsets"] = join_offsets([part.offsets for part in parts])


def join_offsets(parts: Sequence[np.ndarray | None]) -> np.ndarray:
    """Chain the offsets of consecutive blocks."""
    counts = [np.diff(offsets) for offsets in parts if offsets is not None]
    return np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
