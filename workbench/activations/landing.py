"""Captured values on their way to memory or disk, while the device is at the next batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Shaped
from torch import Tensor

from workbench.activations.draft import Put
from workbench.activations.layout import STORED, Part, encode, measure, refuse_infinite
from workbench.activations.sink import Background, Sink, Target
from workbench.activations.threads import spread
from workbench.errors import MismatchError

STAGING_BYTES = 32 << 20
"""Pinned memory through which a GPU's values pass; pinning takes half a second a GB."""
LATE_BYTES = 256 << 20
"""A batch's values may wait behind those of as many others of their size as make so many bytes: a
small batch is computed before those of a large one have landed, and the GPU would wait."""
ALONE_BYTES = 192 << 20
"""Rows that run together, larger than this in float32, land when those before them are written: so
memory holds one such group and not two, and the GPU has a batch to compute meanwhile."""
LATE = 3
"""But behind no more batches than these."""
SHORTEST = 1e-15
"""The square of a smaller norm leaves float32, so it is worked out again in float64."""

Route: TypeAlias = tuple[slice | Int[np.ndarray, " _"], Put]


@dataclass
class Landing:
    """One read of the shards whose rows run together, put together from its batches."""

    sink: Sink
    parts: Sequence[Part]
    """The shards that the sink lacks."""
    starts: Sequence[int]
    """Where each part's rows begin among all that run together."""
    width: int
    """Rows that run together."""
    dtype: str | None
    """To store as; None for what the model gives."""
    before: Future[None] | None = None
    """The writing of those that ran before."""
    targets: list[Target] = field(default_factory=list)
    given: torch.dtype | None = None
    """Of the model's values."""
    stored: str = ""
    norms: Float32[np.ndarray, "l n"] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    finite: Bool[np.ndarray, "l n"] = field(default_factory=lambda: np.empty((0, 0), bool))
    coming: list[Future[None]] = field(default_factory=list)

    def lacks(self, places: Int[np.ndarray, " m"]) -> bool:
        """Whether some of these rows belong to a part."""
        return any(len(mine) for mine in self._shares(places))

    def _shares(self, places: Int[np.ndarray, " m"]) -> Iterator[Int[np.ndarray, " _"]]:
        """Yield for each part which rows of a batch are its own."""
        for part, start in zip(self.parts, self.starts, strict=True):
            yield np.flatnonzero((places >= start) & (places < start + part.rows))

    def put(self, load: Load, pieces: Iterator[Float[Tensor, "m d"]]) -> None:
        """Take one batch's values, layer by layer.

        Raises:
            MismatchError: they are of another dtype than the values before.
            WorkbenchError: the disk is full or the place cannot be written.
        """
        self.begin(load.values)
        if self.given != load.values.dtype:
            raise MismatchError(
                f"the model gave {self.given} and now gives {load.values.dtype}; a capture "
                "needs one dtype throughout"
            )
        norms, routes = load.norms.cpu().numpy(), self._routes(load.places)
        for layer, piece in enumerate(pieces):
            bits, name = to_stored(piece, self.dtype)
            self._measure(layer, load.places, norms[layer], bits, name)
            for rows, put in routes:
                put(layer, bits[rows])

    def begin(self, values: Float[Tensor, "l m d"]) -> None:
        """Open the targets once the dtype is known; the values need not be there yet.

        Raises:
            WorkbenchError: the disk is full or the place cannot be written.
        """
        if self.given is not None:
            return
        layers, _, width = values.shape
        if self.before is not None and 4 * layers * self.width * width > ALONE_BYTES:
            wait([self.before])  # what went wrong there is raised where it was begun
        self.given, self.stored = values.dtype, stored_name(values.dtype, self.dtype)
        self.norms = np.zeros((len(values), self.width), np.float32)
        self.finite = np.ones((len(values), self.width), bool)
        for part in self.parts:
            self.targets.append(self.sink.begin(part, self.stored))

    def _routes(self, places: Int[np.ndarray, " m"]) -> list[Route]:
        """Return for each target the rows of a batch that are its own, and what takes them."""
        found: list[Route] = []
        for target, start, mine in zip(
            self.targets, self.starts, self._shares(places), strict=True
        ):
            if len(mine):
                rows = slice(None) if len(mine) == len(places) else mine
                found.append((rows, target.route(places[mine] - start)))
        return found

    def _measure(
        self,
        layer: int,
        places: Int[np.ndarray, " m"],
        norms: Float32[np.ndarray, " m"],
        bits: Shaped[np.ndarray, "m d"],
        name: str,
    ) -> None:
        """Note norms: the device's, where those of the stored values are surely the same."""
        same = name == str(self.given).removeprefix("torch.")
        finite: Bool[np.ndarray, " m"] | bool = True
        if not (same and np.isfinite(norms).all() and (norms > SHORTEST).all()):
            norms, finite = measure(bits, name)
        self.norms[layer, places], self.finite[layer, places] = norms, finite

    def settle(self) -> None:
        """Wait until everything is there; what went wrong on the way is raised here."""
        for future in self.coming:
            future.result()

    def keep(self, number: int) -> None:
        """Hand one part's values to the sink for good.

        Raises:
            ConfigError: a value is not finite; the item and layer are named.
            WorkbenchError: the disk is full or the place cannot be written.
        """
        part, start = self.parts[number], self.starts[number]
        rows = slice(start, start + part.rows)
        for layer, finite in zip(self.sink.plan.layers, self.finite[:, rows], strict=True):
            refuse_infinite(finite, layer, part, self.stored)
        self.sink.keep(self.targets[number], self.norms[:, rows])

    def discard(self) -> None:
        """Give up what is not kept yet."""
        wait(self.coming)
        for target in self.targets:
            target.discard()


def keep_all(landings: Sequence[Landing]) -> None:
    """Hand all parts of settled landings to their sinks, several at once where that pays."""
    with ExitStack() as undo:
        for landing in landings:
            undo.callback(landing.discard)
            landing.settle()
        tasks = [(landing, number) for landing in landings for number in range(len(landing.parts))]
        size = sum(target.size for landing in landings for target in landing.targets)
        with spread(size) as each:
            for _ in each(lambda task: task[0].keep(task[1]), tasks):
                pass


@dataclass(frozen=True)
class Load:
    """What one batch gives to a landing."""

    values: Float[Tensor, "l m d"]
    norms: Float32[Tensor, "l m"]
    places: Int[np.ndarray, " m"]

    @classmethod
    def of(cls, answer: Tensor | list[Tensor], places: Int[np.ndarray, " m"]) -> Load:
        """Join the rows of a ragged answer, and measure the vectors where they are."""
        values = torch.cat(answer, 1) if isinstance(answer, list) else answer.detach()
        wide = torch.promote_types(values.dtype, torch.float32)
        norms = [torch.linalg.vector_norm(layer, dim=-1, dtype=wide) for layer in values]
        return cls(values, torch.stack(norms).float(), places)


class Mover:
    """Brings batches to their landings; from a GPU behind the caller, some batches late."""

    def __init__(self) -> None:
        self._behind = Background()
        self._staging: dict[torch.device, _Staging] = {}

    def __enter__(self) -> Mover:
        self._behind.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._behind.__exit__(kind, error, trace)

    def bring(self, landings: Sequence[Landing], loads: Sequence[Load]) -> None:
        """Put each load into its landing; ``settle`` of a landing waits for it."""
        if not any(load.values.is_cuda for load in loads):
            for landing, load in zip(landings, loads, strict=True):
                landing.put(load, iter(load.values))
            return
        devices = {load.values.device for load in loads}
        ready = [torch.cuda.current_stream(device).record_event() for device in devices]

        def unload() -> None:
            for landing, load in zip(landings, loads, strict=True):
                landing.begin(load.values)  # while the GPU computes them
            for event in ready:
                event.synchronize()
            for landing, load in zip(landings, loads, strict=True):
                staging = self._staging_on(load.values.device)
                with torch.cuda.stream(staging.stream):
                    landing.put(load, staging.layers(load.values))

        size = sum(load.values.nbytes for load in loads)
        future = self._behind.submit(unload, late=min(LATE, LATE_BYTES // size))
        for landing in landings:
            landing.coming.append(future)

    def settle(self) -> None:
        """Wait for what is under way."""
        self._behind.settle()

    def _staging_on(self, device: torch.device) -> _Staging:
        if device not in self._staging:
            self._staging[device] = _Staging(device)
        return self._staging[device]


class _Staging:
    """A pinned buffer, and a stream on which copies pass the forward under way.

    Whatever leaves the device goes by this stream: on the model's own it would wait for all
    batches that are queued there.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.buffer = torch.empty(0, dtype=torch.uint8)

    def layers(self, values: Float[Tensor, "l m d"]) -> Iterator[Float[Tensor, "m d"]]:
        """Yield the layers in host memory; each is valid until the next is asked for.

        The present stream is this one's.
        """
        size = values[0].nbytes
        if self.buffer.numel() < size:
            wanted = max(size, STAGING_BYTES)
            self.buffer = torch.empty(wanted, dtype=torch.uint8, pin_memory=True)
        step = self.buffer.numel() // size
        for first in range(0, len(values), step):
            part = values[first : first + step]
            staged = self.buffer[: part.nbytes].view(part.dtype).view(part.shape)
            staged.copy_(part, non_blocking=True)
            self.stream.synchronize()
            yield from staged


def stored_name(given: torch.dtype, dtype: str | None = None) -> str:
    """Return the dtype as which values are stored: float32 for float64, unless ``dtype`` asks."""
    own = str(given).removeprefix("torch.")
    return dtype or (own if own in STORED else "float32")


def to_stored(values: Tensor, dtype: str | None = None) -> tuple[np.ndarray, str]:
    """Turn a tensor into stored bits and the name of their dtype; lossless unless ``dtype`` asks.

    Float64 becomes float32.
    """
    name = stored_name(values.dtype, dtype)
    if name != str(values.dtype).removeprefix("torch."):
        return encode(values.to(torch.float32).numpy(), name), name
    bits = bits_of(values.contiguous())
    return bits.view(np.uint16) if name == "bfloat16" else bits, name


def bits_of(values: Shaped[Tensor, "*any"]) -> Shaped[np.ndarray, "*any"]:
    """Show a tensor in host memory to numpy, which lacks bfloat16: that as int16."""
    shown = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
    return shown.numpy()
