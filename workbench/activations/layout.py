"""What activation files hold, format version 1: manifest, block, and values as stored bits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Shaped

from workbench.errors import ConfigError, FormatError
from workbench.runs import plain
from workbench.types import ModelStamp

FORMAT = "interp-workbench/activations"
VERSION = 1
STORED = {"bfloat16": np.uint16, "float16": np.float16, "float32": np.float32}
"""How each dtype lies in an array: bfloat16 as its 16 bits, since numpy has no such type."""
FLOAT16_LARGEST = 65504.0


@dataclass(frozen=True)
class Manifest:
    """What is known before the first forward, and holds for every shard."""

    layers: tuple[int, ...]
    width: int
    site: str
    position: str
    dtype: str
    """bfloat16, float16 or float32."""
    ragged: bool
    """Several vectors an item (position "all"): rows are tokens, ``offsets`` bound the items."""
    shards: tuple[tuple[int, int], ...]
    """Half-open ranges of items, a function of the number of items alone."""
    columns: tuple[str, ...]
    """Item columns in order, ``id`` first."""
    model: ModelStamp
    config: Mapping[str, Any] = field(default_factory=dict)
    """Everything else that the values depend on: rendering, batches, engine, inputs."""

    @property
    def rows(self) -> int:
        """Number of items."""
        return self.shards[-1][1]

    @cached_property
    def digest(self) -> str:
        """16 hex digits that every shard of this plan carries."""
        return sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()[:16]

    def content(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"format": FORMAT, "version": VERSION, **plain(asdict(self))}

    @classmethod
    def parse(cls, text: str | bytes, source: str) -> Manifest:
        """Read the JSON form.

        Raises:
            FormatError: it is damaged or of another format or version.
        """
        try:
            found = json.loads(text)
        except ValueError as error:
            raise FormatError(f"{source} is not JSON ({error}); capture again") from None
        check_version(found, source)
        try:
            return cls(
                layers=tuple(found["layers"]),
                width=int(found["width"]),
                site=str(found["site"]),
                position=str(found["position"]),
                dtype=_known_dtype(found["dtype"]),
                ragged=bool(found["ragged"]),
                shards=tuple((int(first), int(stop)) for first, stop in found["shards"]),
                columns=tuple(found["columns"]),
                model=ModelStamp(**found["model"]),
                config=found["config"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"{source}: {type(error).__name__} at {error}; capture again"
            ) from None


def check_version(found: Any, source: str) -> None:
    """Check the two marks that every file carries.

    Raises:
        FormatError: another format or version.
    """
    marks = {key: found.get(key) for key in ("format", "version")} if hasattr(found, "get") else {}
    if marks.get("format") != FORMAT:
        raise FormatError(
            f"{source} has format {marks.get('format')!r}, {FORMAT!r} expected; "
            "give a file or folder that `workbench cache` made"
        )
    if marks.get("version") != VERSION:
        raise FormatError(
            f"{source} has version {marks.get('version')}, this program reads version {VERSION}; "
            "update interp-workbench, or delete it and capture again"
        )


def _known_dtype(name: str) -> str:
    if name not in STORED:
        raise ValueError(f"dtype {name!r}")
    return name


@dataclass(frozen=True)
class Part:
    """A contiguous range of items, and what is known of them before their values are."""

    first: int
    columns: Mapping[str, np.ndarray]
    """By item; ``id`` among them."""
    offsets: np.ndarray | None = None
    """(items + 1,) where the rows of values are tokens."""
    budget: int | None = None
    """Tokens of a batch, where memory allowed fewer than planned."""

    @property
    def stop(self) -> int:
        """One past the last item."""
        return self.first + len(self.columns["id"])

    @property
    def rows(self) -> int:
        """Rows of values in a layer."""
        return len(self.columns["id"]) if self.offsets is None else int(self.offsets[-1])


@dataclass(frozen=True)
class Block:
    """A contiguous range of items in memory, as stored; also serves reads like a file."""

    first: int
    values: Shaped[np.ndarray, "l n d"]
    """Stored bits (see ``STORED``)."""
    dtype: str
    norms: Float32[np.ndarray, "l n"]
    columns: Mapping[str, np.ndarray]
    """By item; ``id`` among them."""
    offsets: np.ndarray | None = None
    """(items + 1,) where the rows of ``values`` are tokens."""
    budget: int | None = None
    """Tokens of a batch, where memory allowed fewer than planned."""

    @property
    def part(self) -> Part:
        """Everything but values and norms."""
        return Part(self.first, self.columns, self.offsets, self.budget)

    @property
    def stop(self) -> int:
        """One past the last item."""
        return self.part.stop

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes

    def read_layer(
        self,
        index: int,
        out: Shaped[np.ndarray, "n d"],
        rows: Int[np.ndarray, " n"] | None = None,
        _each: Callable[..., Iterable[None]] = map,
    ) -> None:
        """Read one layer, or some of its rows: the stored bits, or float32, as ``out`` is."""
        stored = self.values[index]
        place(stored if rows is None else stored[rows], self.dtype, out)

    def read_norms(self) -> Float32[np.ndarray, "l n"]:
        return self.norms

    def read_column(self, name: str) -> np.ndarray:
        return self.columns[name]

    def read_offsets(self) -> np.ndarray | None:
        return self.offsets


def make_block(
    first: int,
    values: Shaped[np.ndarray, "l n d"],
    dtype: str,
    columns: Mapping[str, np.ndarray],
    layers: tuple[int, ...],
    offsets: np.ndarray | None = None,
    budget: int | None = None,
) -> Block:
    """Build a block from stored bits, with its norms.

    Raises:
        ConfigError: a value is not finite; the item and layer are named.
    """
    part = Part(first, columns, offsets, budget)
    norms = np.empty(values.shape[:2], np.float32)
    for index in range(len(values)):
        norms[index], finite = measure(values[index], dtype)
        refuse_infinite(finite, layers[index], part, dtype)
    return Block(first, values, dtype, norms, columns, offsets, budget)


def measure(
    stored: Shaped[np.ndarray, "n d"], dtype: str
) -> tuple[Float32[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Return each row's L2 norm, and whether all its values are finite."""
    wide = decode(stored, dtype)
    return _lengths(wide), np.isfinite(wide).all(axis=1)


def _lengths(wide: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, " n"]:
    """Return the L2 norm of each row; in float64 where its square leaves float32."""
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("nd,nd->n", wide, wide)
    lengths = np.sqrt(squares)
    extreme = (squares < 1e-30) | ~np.isfinite(squares)
    if extreme.any():
        rows = wide[extreme]
        lengths[extreme] = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
    return np.asarray(lengths)


def refuse_infinite(finite: Bool[np.ndarray, " n"], layer: int, part: Part, dtype: str) -> None:
    """Check that every row of a layer is finite.

    Raises:
        ConfigError: one is not; the item and layer are named.
    """
    if finite.all():
        return
    rows = np.flatnonzero(~finite)
    owners = rows if part.offsets is None else np.searchsorted(part.offsets, rows, "right") - 1
    items = list(dict.fromkeys(part.columns["id"][owners]))
    raise ConfigError(
        f"{len(rows)} of {len(finite)} rows are not finite at layer {layer} (first item: "
        f"{str(items[0])!r}; {len(items)} items of this shard); the model overflows in {dtype}, so "
        "load it in another format (--dtype bfloat16 or float32), or leave these items out"
    )


def encode(values: Float[np.ndarray, "*any"], dtype: str) -> Shaped[np.ndarray, "*any"]:
    """Turn float values into stored bits, rounding to nearest.

    Raises:
        ConfigError: a finite value that the dtype cannot hold.
    """
    largest = float(np.max(np.abs(values), initial=0, where=np.isfinite(values)))
    if dtype == "float16" and largest > FLOAT16_LARGEST:
        raise ConfigError(
            f"value {largest:g} is beyond float16 (largest {FLOAT16_LARGEST:g}); "
            "store as bfloat16 or float32"
        )
    if dtype != "bfloat16":
        return np.asarray(values, STORED[dtype])
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    nan = np.isnan(values)
    return np.where(nan, np.uint16(0x7FC0), rounded.astype(np.uint16))


def decode(stored: Shaped[np.ndarray, "*any"], dtype: str) -> Float32[np.ndarray, "*any"]:
    """Turn stored bits into float32, exactly."""
    wide = np.empty(stored.shape, np.float32)
    place(stored, dtype, wide)
    return wide


def place(stored: Shaped[np.ndarray, "*any"], dtype: str, out: Shaped[np.ndarray, "*any"]) -> None:
    """Put stored bits into ``out``: as they are where it is of their type, else as float32."""
    if dtype == "bfloat16" and out.dtype == np.float32:
        np.left_shift(stored, np.uint32(16), out=out.view(np.uint32))
    else:
        out[...] = stored
