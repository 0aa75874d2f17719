"""What a store says of its items: numbers, columns and token offsets, read when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int, Shaped


@runtime_checkable
class Part(Protocol):
    """A contiguous range of items: a block in memory, or a file."""

    @property
    def first(self) -> int: ...

    @property
    def stop(self) -> int: ...

    def read_layer(
        self,
        index: int,
        out: Shaped[np.ndarray, "n d"],
        rows: Int[np.ndarray, " n"] | None = None,
        each: Callable[..., Iterable[None]] = map,
        /,
    ) -> None: ...

    def read_norms(self) -> Float32[np.ndarray, "l n"]: ...

    def read_column(self, name: str) -> np.ndarray: ...

    def read_offsets(self) -> np.ndarray | None: ...


@dataclass
class Items:
    """What a store says of its items, read once for all views of it, a column when asked for."""

    parts: tuple[Part, ...]
    found: dict[str, np.ndarray] = field(default_factory=dict)

    def column(self, name: str) -> np.ndarray:
        """Return a column, over the items of the parts in order."""
        if name not in self.found:
            parts = [part.read_column(name) for part in self.parts]
            self.found[name] = np.concatenate(parts) if parts else np.empty(0)
        return self.found[name]

    @cached_property
    def numbers(self) -> Int[np.ndarray, " n"]:
        """Item numbers, in the order of ``column``."""
        ranges = [np.arange(part.first, part.stop) for part in self.parts]
        return np.concatenate(ranges) if ranges else np.empty(0, np.int64)

    @cached_property
    def offsets(self) -> tuple[np.ndarray, ...]:
        """Each part's own offsets; only where ragged."""
        found = [part.read_offsets() for part in self.parts]
        return tuple(offsets for offsets in found if offsets is not None)

    @cached_property
    def counts(self) -> Int[np.ndarray, " n"]:
        """Rows (tokens) of each item, in the order of ``column``; only where ragged."""
        counts = [np.diff(offsets) for offsets in self.offsets]
        return np.concatenate(counts) if counts else np.empty(0, np.int64)


class Columns(Mapping[str, np.ndarray]):
    """Item columns of a view; each is read when it is first asked for."""

    def __init__(self, names: Sequence[str], items: Items, places: np.ndarray) -> None:
        self._names, self._items, self._places = tuple(names), items, places

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return np.asarray(self._items.column(name)[self._places])

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Columns({', '.join(self._names)})"
