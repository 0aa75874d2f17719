"""Activations in memory or on disk behind one lazy interface, read one layer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32

from workbench.activations.layout import Manifest, encode, make_block
from workbench.activations.store import join_offsets, open_parts, plan_shards
from workbench.errors import ConfigError
from workbench.types import ModelStamp


@runtime_checkable
class Part(Protocol):
    """A contiguous range of items: a block in memory, or a file."""

    @property
    def first(self) -> int: ...

    @property
    def stop(self) -> int: ...

    def read_layer(
        self, index: int, out: Float32[np.ndarray, "n d"] | None = None
    ) -> Float32[np.ndarray, "n d"]: ...

    def read_norms(self) -> Float32[np.ndarray, "l n"]: ...

    def read_columns(self) -> Mapping[str, np.ndarray]: ...

    def read_offsets(self) -> np.ndarray | None: ...


class Activations:
    """What a model did at one site and position, for every item and layer.

    Safe to share between threads: each read opens its own file handle.

    Args:
        manifest: what all parts have in common.
        parts: in order, covering every item.
        rows: the items of this view, in its order; all by default.
    """

    def __init__(
        self, manifest: Manifest, parts: Sequence[Part], rows: np.ndarray | None = None
    ) -> None:
        self.manifest = manifest
        self._parts = tuple(parts)
        self._rows = np.arange(manifest.rows) if rows is None else np.asarray(rows, np.int64)

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
        """Item columns, ``id`` first; each (items,)."""
        parts = [part.read_columns() for part in self._parts]
        return {
            name: np.concatenate([part[name] for part in parts])[self._rows]
            for name in self.manifest.columns
        }

    @cached_property
    def offsets(self) -> np.ndarray | None:
        """(items + 1,): item i is rows ``offsets[i]`` to ``offsets[i + 1]``; None unless ragged."""
        if not self.manifest.ragged:
            return None
        counts = np.diff(self._stored_offsets)[self._rows]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def at(self, layer: int) -> Float32[np.ndarray, "n d"]:
        """Return one layer as float32; where ragged, one row for each token.

        Raises:
            ConfigError: the layer was not captured.
            FormatError: a file is missing or a checksum is wrong.
        """
        index = self._index(layer)
        result = np.empty((self._total, self.width), np.float32)
        for part, here, there in self._pieces():
            if isinstance(here, slice):
                part.read_layer(index, result[there])
            else:
                result[there] = part.read_layer(index)[here]
        return result

    @property
    def values(self) -> Float32[np.ndarray, "l n d"]:
        """Every layer in memory, float32."""
        return np.stack([self.at(layer) for layer in self.layers])

    @cached_property
    def norms(self) -> Float32[np.ndarray, "l n"]:
        """L2 norm of every vector, as stored."""
        result = np.empty((len(self.layers), self._total), np.float32)
        for part, here, there in self._pieces():
            result[:, there] = part.read_norms()[:, here]
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
        return Activations(self.manifest, self._parts, self._rows[np.asarray(rows)])

    def column(self, name: str) -> np.ndarray:
        """Return one column.

        Raises:
            ConfigError: there is no such column.
        """
        if name not in self.columns:
            raise ConfigError(f"no column {name!r}; columns: {', '.join(self.columns)}")
        return self.columns[name]

    def _index(self, layer: int) -> int:
        if layer not in self.layers:
            listed = ", ".join(map(str, self.layers))
            raise ConfigError(f"layer {layer} was not captured; layers here: {listed}")
        return self.layers.index(layer)

    @property
    def _total(self) -> int:
        return len(self) if self.offsets is None else int(self.offsets[-1])

    @cached_property
    def _stored_offsets(self) -> np.ndarray:
        return join_offsets([part.read_offsets() for part in self._parts])

    def _pieces(self) -> Iterator[tuple[Part, Any, Any]]:
        """Yield (part, its rows, rows of the result) for the parts that this view needs."""
        for part in self._parts:
            places = np.flatnonzero((self._rows >= part.first) & (self._rows < part.stop))
            if not len(places):
                continue
            items = self._rows[places]
            target = places if self.offsets is None else _tokens(self.offsets, places)
            whole = len(items) == part.stop - part.first
            if whole and all((np.diff(rows) == 1).all() for rows in (items, places)):
                yield part, slice(None), slice(int(target[0]), int(target[-1]) + 1)
            elif self.offsets is None:
                yield part, items - part.first, target
            else:
                stored = self._stored_offsets
                yield part, _tokens(stored, items) - stored[part.first], target


def _tokens(offsets: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Return the token rows of the items, in order."""
    return np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in items])


def open_activations(path: str | Path) -> Activations:
    """Open activations from a run folder, a store folder or a packed file.

    Raises:
        FormatError: nothing is there, or a file is missing, damaged or of another version.
    """
    manifest, shards = open_parts(path)
    return Activations(manifest, shards)
