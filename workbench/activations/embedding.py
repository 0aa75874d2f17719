"""Coordinates of items, such as PCA or UMAP, kept beside a store with what made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np
from jaxtyping import Float, Float32

from workbench.activations.layout import FORMAT, VERSION, Manifest
from workbench.activations.seal import seal_whole
from workbench.activations.shard import escape, file_image, in_memory, opened
from workbench.errors import ConfigError, FormatError, unknown
from workbench.files import make_folder, write_bytes
from workbench.runs import plain

if TYPE_CHECKING:
    from workbench.activations.acts import Activations

_AGAIN = "delete it and embed again"


@dataclass(frozen=True)
class Embedding:
    """Coordinates of items, and how to make them again."""

    name: str
    coordinates: Float32[np.ndarray, "n c"]
    seed: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def take(self, rows: np.ndarray) -> Embedding:
        """Keep the given items.

        Raises:
            ConfigError: one of them has no coordinates.
        """
        found = self.coordinates[rows]
        lacking = np.isnan(found).any(axis=1).sum()
        if lacking:
            raise ConfigError(
                f"embedding {self.name!r} leaves out {lacking} of these {len(found)} items; "
                "embed them too, or look only at those that it was made of"
            )
        return Embedding(self.name, found, self.seed, self.parameters)


def save_embedding(
    acts: Activations,
    name: str,
    coordinates: Float[np.ndarray, "n c"],
    parameters: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
) -> Path:
    """Keep coordinates of the items of ``acts`` (a store or a view of one) under a name.

    An embedding of this name is replaced, whole or not at all.

    Args:
        acts: activations that were opened from disk.
        name: such as ``umap-15``.
        coordinates: one row for each item of ``acts``, in its order.
        parameters: method and settings, as JSON values.
        seed: of the random numbers.

    Raises:
        ConfigError: ``acts`` lies in memory, or a coordinate is not finite.
        ValueError: the rows are not the items, or an item stands in ``acts`` twice.
        WorkbenchError: the disk is full or the place cannot be written.
    """
    if acts.path is None:
        raise ConfigError("these activations lie in memory; capture with out=FOLDER, then embed")
    if not name or name.startswith("."):
        raise ValueError(f"embedding name {name!r}; give one that does not begin with a dot")
    found = np.asarray(coordinates, np.float32)
    if found.ndim != 2 or len(found) != len(acts):
        raise ValueError(f"coordinates {found.shape} for {len(acts)} items; give (items, axes)")
    if len(np.unique(acts.rows)) < len(acts):
        raise ValueError("an item stands in these activations twice; embed each once")
    if not np.isfinite(found).all():
        raise ConfigError(f"embedding {name!r} has coordinates that are not finite")
    whole = np.full((acts.manifest.rows, found.shape[1]), np.nan, np.float32)
    whole[acts.rows] = found
    path = _folder(acts.path) / f"{quote(name, safe='')}.h5"
    make_folder(path.parent)
    write_bytes(path, *_image(Embedding(name, whole, seed, parameters or {}), acts.manifest))
    return path


def _image(embedding: Embedding, manifest: Manifest) -> tuple[bytes, bytes]:
    parameters = json.dumps(plain(embedding.parameters), sort_keys=True)
    with in_memory() as file:
        file.attrs["format"] = FORMAT
        file.attrs["version"] = VERSION
        file.attrs["plan"] = manifest.digest
        made = file.create_dataset(
            f"embeddings/{escape(embedding.name)}", data=embedding.coordinates
        )
        made.attrs["parameters"] = parameters
        if embedding.seed is not None:
            made.attrs["seed"] = embedding.seed
        image = file_image(file)
        return image, seal_whole(image)


def _folder(place: Path) -> Path:
    """Return where the embeddings of a store folder or packed file lie."""
    return place / "embeddings" if place.is_dir() else place.with_name(f"{place.name}.embeddings")


def embedding_names(place: Path) -> tuple[str, ...]:
    """Return the names of the embeddings beside a store folder or packed file."""
    paths = _folder(place).glob("*.h5")
    return tuple(sorted(unquote(path.stem) for path in paths if not path.name.startswith(".")))


def check_embeddings(place: Path, manifest: Manifest) -> list[str]:
    """Read every embedding beside a store, and say what is wrong."""
    problems = []
    for name in embedding_names(place):
        try:
            read_embedding(place, name, manifest)
        except FormatError as error:
            problems.append(str(error))
    return problems


def read_embedding(place: Path | None, name: str, manifest: Manifest) -> Embedding:
    """Read the coordinates of every item of a store; NaN for those that were left out.

    Raises:
        UnknownNameError: there is none of this name.
        FormatError: its file is damaged, or belongs to another store.
    """
    known = embedding_names(place) if place is not None else ()
    if place is None or name not in known:
        raise unknown("embedding", name, known, "Make one with save_embedding.")
    path = _folder(place) / f"{quote(name, safe='')}.h5"
    with opened(path, sealed=True) as file:
        plan, found = file.attrs["plan"], file[f"embeddings/{escape(name)}"]
        coordinates, parameters = np.asarray(found[...]), str(found.attrs["parameters"])
        seed = int(found.attrs["seed"]) if "seed" in found.attrs else None
    if plan != manifest.digest:
        raise FormatError(f"{path} belongs to another store (plan {plan}); {_AGAIN}")
    if len(coordinates) != manifest.rows:
        raise FormatError(f"{path} has {len(coordinates)} rows, {manifest.rows} items; {_AGAIN}")
    return Embedding(name, coordinates, seed, json.loads(parameters))
