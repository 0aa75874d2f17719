"""Activations in memory or on disk behind one lazy interface, read one layer at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped

from workbench.activations.embedding import Embedding, embedding_names, read_embedding
from workbench.activations.items import Columns, Items, Part
from workbench.activations.layout import STORED, Manifest, encode, make_block
from workbench.activations.store import locate, open_parts, plan_shards
from workbench.activations.threads import spread
from workbench.errors import ConfigError
from workbench.types import ModelStamp


class Activations:
    """What a model did at one site and position, for every item and layer.

    Safe to share between threads: each read opens its own file handle.

    Args:
        manifest: what all parts have in common.
        parts: in order; together every item, or one writer's share of them.
        rows: the items of this view, in its order; by default all that the parts hold.
        path: the store folder or packed file that the parts lie in.
    """

    def __init__(
        self,
        manifest: Manifest,
        parts: Sequence[Part],
        rows: np.ndarray | None = None,
        *,
        path: Path | None = None,
    ) -> None:
        self.manifest = manifest
        self.path = path
        self._parts = tuple(parts)
        self._items = Items(self._parts)
        self._rows = self._items.numbers if rows is None else np.asarray(rows, np.int64)

    @classmethod
    def from_values(
        cls,
        values: Float[np.ndarray, "l n d"],
        columns: Mapping[str, Any],
        *,
        model: ModelStamp,
        layers: Sequence[int] | None = None,
        site: str = "resid_post",
        position: str = "last",
        dtype: str = "float32",
    ) -> Activations:
        """Build from an array in memory; ``id`` is the row number unless given.

        Raises:
            ConfigError: a value that is not finite or that ``dtype`` cannot hold.
            ValueError: a column of another length.
        """
        named = {name: np.asarray(column) for name, column in columns.items()}
        n = values.shape[1]
        named = {"id": np.array([str(row) for row in range(n)]), **named}
        wrong = [name for name, column in named.items() if len(column) != n]
        if wrong:
            raise ValueError(f"column {wrong[0]!r} has {len(named[wrong[0]])} rows, values {n}")
        chosen = tuple(range(len(values))) if layers is None else tuple(layers)
        manifest = Manifest(
            layers=chosen,
            width=values.shape[2],
            site=site,
            position=position,
            dtype=dtype,
            ragged=False,
            shards=plan_shards(n, n),
            columns=tuple(named),
            model=model,
        )
        return cls(manifest, [make_block(0, encode(values, dtype), dtype, named, chosen)])

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return (
            f"Activations({len(self)} items x {len(self.layers)} layers x {self.width}, "
            f"{self.site} at {self.position}, {self.dtype}, {self.model.key})"
        )

    @property
    def layers(self) -> tuple[int, ...]:
        return self.manifest.layers

    @property
    def site(self) -> str:
        return self.manifest.site

    @property
    def position(self) -> str:
        return self.manifest.position

    @property
    def model(self) -> ModelStamp:
        return self.manifest.model

    @property
    def width(self) -> int:
        return self.manifest.width

    @property
    def dtype(self) -> str:
        """How values are stored; what is read is float32."""
        return self.manifest.dtype

    @cached_property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Item columns, ``id`` first; each (items,), read when it is asked for."""
        return Columns(self.manifest.columns, self._items, self._places)

    @cached_property
    def offsets(self) -> np.ndarray | None:
        """(items + 1,): item i is rows ``offsets[i]`` to ``offsets[i + 1]``; None unless ragged."""
        if not self.manifest.ragged:
            return None
        counts = self._items.counts[self._places]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def at(
        self, layer: int, out: Float32[np.ndarray, "n d"] | None = None
    ) -> Float32[np.ndarray, "n d"]:
        """Return one layer as float32; where ragged, one row for each token.

        Of a view, only the chunks that hold its rows are read.

        Args:
            layer: 0-based block index.
            out: array to read into; one kept over layers saves the system from making its pages.

        Raises:
            ConfigError: the layer was not captured.
            FormatError: a file is missing or a checksum is wrong.
            ValueError: ``out`` does not fit.
        """
        return self._read(layer, np.float32, out)

    def stored(
        self, layer: int, out: Shaped[np.ndarray, "n d"] | None = None
    ) -> Shaped[np.ndarray, "n d"]:
        """Return one layer as it is stored, checked like ``at``: half the bytes of float32.

        bfloat16 comes as its bits, uint16; ``torch.from_numpy(bits).view(torch.bfloat16)``.
        """
        return self._read(layer, STORED[self.dtype], out)

    def _read(self, layer: int, kind: type[Any], out: np.ndarray | None) -> np.ndarray:
        index, shape = self._index(layer), (self._total, self.width)
        result = np.empty(shape, kind) if out is None else out
        if result.shape != shape or result.dtype != kind or not result.flags.c_contiguous:
            raise ValueError(
                f"out is {result.dtype} {result.shape}; give a contiguous array of "
                f"{np.dtype(kind)} {shape}"
            )

        def read(piece: Piece, each: Callable[..., Iterable[None]] = map) -> None:
            part, rows, places = piece
            if isinstance(places, slice):
                part.read_layer(index, result[places], rows, each)
            else:
                found = np.empty((len(places), self.width), kind)
                part.read_layer(index, found, rows, each)
                result[places] = found

        pieces = list(self._pieces())
        with spread(result.nbytes) as each:
            if len(pieces) == 1:  # a packed file: its chunks side by side
                read(pieces[0], each)
            else:
                for _ in each(read, pieces):
                    pass
        return result

    @property
    def values(self) -> Float32[np.ndarray, "l n d"]:
        """Every layer in memory, float32."""
        return np.stack([self.at(layer) for layer in self.layers])

    @cached_property
    def norms(self) -> Float32[np.ndarray, "l n"]:
        """L2 norm of every vector, as stored."""
        result = np.empty((len(self.layers), self._total), np.float32)
        for part, rows, places in self._pieces():
            norms = part.read_norms()
            result[:, places] = norms if rows is None else norms[:, rows]
        return result

    @property
    def mean_norms(self) -> Float32[np.ndarray, " l"]:
        """Mean norm by layer; where ragged, without each item's first token (attention sink).

        Raises:
            ConfigError: no token is left.
        """
        norms = self.norms
        if self.offsets is not None:
            norms = np.delete(norms, self.offsets[:-1], axis=1)
        if not norms.shape[1]:
            raise ConfigError("every item has one token, the attention sink; no norm is left")
        return np.asarray(norms.mean(axis=1, dtype=np.float64), np.float32)

    def where(self, **columns: Any) -> Activations:
        """Keep the items whose columns equal the given value, or are in the given list.

        Raises:
            ConfigError: there is no such column, or no item is left.
        """
        keep = np.ones(len(self), bool)
        for name, wanted in columns.items():
            allowed = wanted if isinstance(wanted, (list, tuple, set, np.ndarray)) else [wanted]
            keep &= np.isin(self.column(name), list(allowed))
        if not keep.any():
            raise ConfigError(f"no item of {len(self)} has {columns!r}; look at .columns")
        return self.take(keep)

    def take(self, rows: Sequence[int] | np.ndarray) -> Activations:
        """Keep the given items (numbers or a mask), in that order; nothing is read.

        Raises:
            IndexError: there is no such row.
        """
        view = Activations(self.manifest, self._parts, self._rows[np.asarray(rows)], path=self.path)
        view._items = self._items
        return view

    def column(self, name: str) -> np.ndarray:
        """Return one column.

        Raises:
            ConfigError: there is no such column.
        """
        if name not in self.columns:
            raise ConfigError(f"no column {name!r}; columns: {', '.join(self.columns)}")
        return self.columns[name]

    @property
    def complete(self) -> bool:
        """Whether the parts hold every item, or only one writer's share of a store."""
        return len(self._items.numbers) == self.manifest.rows

    @property
    def rows(self) -> Int[np.ndarray, " n"]:
        """Numbers of the items of this view in the whole store."""
        return self._rows

    @property
    def embeddings(self) -> tuple[str, ...]:
        """Names of the stored embeddings."""
        return embedding_names(self.path) if self.path is not None else ()

    def embedding(self, name: str) -> Embedding:
        """Return stored coordinates of these items, with the parameters that made them.

        Raises:
            UnknownNameError: there is none of this name.
            ConfigError: it leaves out an item of this view.
            FormatError: its file is damaged, or belongs to another store.
        """
        found = read_embedding(self.path, name, self.manifest)
        return found.take(self._rows)

    def _index(self, layer: int) -> int:
        if layer not in self.layers:
            listed = ", ".join(map(str, self.layers))
            raise ConfigError(f"layer {layer} was not captured; layers here: {listed}")
        return self.layers.index(layer)

    @property
    def _total(self) -> int:
        return len(self) if self.offsets is None else int(self.offsets[-1])

    @cached_property
    def _places(self) -> np.ndarray:
        """Where the view's items stand among those of the parts."""
        return np.searchsorted(self._items.numbers, self._rows)

    def _pieces(self) -> Iterator[Piece]:
        """Yield what this view needs of each part."""
        for number, part in enumerate(self._parts):
            places = np.flatnonzero((self._rows >= part.first) & (self._rows < part.stop))
            if not len(places):
                continue
            items = self._rows[places] - part.first
            target = places if self.offsets is None else _tokens(self.offsets, places)
            run = bool((np.diff(places) == 1).all())
            there = slice(int(target[0]), int(target[-1]) + 1) if run and len(target) else target
            if len(items) == part.stop - part.first and (np.diff(items) == 1).all():
                yield part, None, there
            elif self.offsets is None:
                yield part, items, there
            else:
                yield part, _tokens(self._items.offsets[number], items), there


Piece = tuple[Part, "np.ndarray | None", "slice | np.ndarray"]
"""A part, the rows wanted of it (None for all), and their places in the result."""


def _tokens(offsets: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Return the token rows of the items, in order."""
    return np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in items])


def open_activations(path: str | Path) -> Activations:
    """Open activations from a run folder, a store folder or a packed file.

    Raises:
        FormatError: nothing is there, or a file is missing, damaged or of another version.
    """
    manifest, shards = open_parts(path)
    return Activations(manifest, shards, path=locate(path))
