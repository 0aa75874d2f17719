"""Captured values on their way to host memory, while the device is at the next batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Shaped
from torch import Tensor

from workbench.activations.sink import Background
from workbench.errors import MismatchError

STAGING_BYTES = 32 << 20
"""Pinned memory through which a GPU's values pass; pinning takes half a second a GB."""


@dataclass
class Landing:
    """One read's values of a shard, put together from its batches."""

    width: int
    """Places in all: items, or their tokens where ragged."""
    values: Float[Tensor, "l n d"] = field(default_factory=lambda: torch.empty(0, 0, 0))
    norms: Float32[np.ndarray, "l n"] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    coming: list[Future[None]] = field(default_factory=list)

    def settle(self) -> None:
        """Wait until everything is there; what went wrong on the way is raised here."""
        for future in self.coming:
            future.result()

    def put(self, load: Load, pieces: Iterator[Shaped[np.ndarray, "m d"]]) -> None:
        """Take one batch's values, layer by layer, as bits.

        Raises:
            MismatchError: they are of another dtype than the values before.
        """
        if not self.values.numel():
            depth, _, d = load.values.shape
            self.values = torch.empty(depth, self.width, d, dtype=load.values.dtype)
            self.norms = np.empty((depth, self.width), np.float32)
        if self.values.dtype != load.values.dtype:
            raise MismatchError(
                f"the model gave {self.values.dtype} and now gives {load.values.dtype}; a capture "
                "needs one dtype throughout"
            )
        self.norms[:, load.places] = load.norms.cpu().numpy()
        for target, piece in zip(bits_of(self.values), pieces, strict=True):
            target[load.places] = piece


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
    """Brings batches to their landings; from a GPU behind the caller, at most one batch late."""

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
                landing.put(load, iter(bits_of(load.values)))
            return
        devices = {load.values.device for load in loads}
        ready = [torch.cuda.current_stream(device).record_event() for device in devices]

        def unload() -> None:
            for event in ready:
                event.synchronize()
            for landing, load in zip(landings, loads, strict=True):
                landing.put(load, self._staged(load.values))

        future = self._behind.submit(unload)
        for landing in landings:
            landing.coming.append(future)

    def settle(self) -> None:
        """Wait for what is under way."""
        self._behind.settle()

    def _staged(self, values: Float[Tensor, "l m d"]) -> Iterator[Shaped[np.ndarray, "m d"]]:
        if values.device not in self._staging:
            self._staging[values.device] = _Staging(values.device)
        return self._staging[values.device].layers(values)


class _Staging:
    """A pinned buffer, and a stream on which copies pass the forward under way."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.buffer = torch.empty(0, dtype=torch.uint8)

    def layers(self, values: Float[Tensor, "l m d"]) -> Iterator[Shaped[np.ndarray, "m d"]]:
        """Yield the layers' bits; each is valid until the next is asked for."""
        size = values[0].nbytes
        if self.buffer.numel() < size:
            wanted = max(size, STAGING_BYTES)
            self.buffer = torch.empty(wanted, dtype=torch.uint8, pin_memory=True)
        step = self.buffer.numel() // size
        for first in range(0, len(values), step):
            part = values[first : first + step]
            staged = self.buffer[: part.nbytes].view(part.dtype).view(part.shape)
            with torch.cuda.stream(self.stream):
                staged.copy_(part, non_blocking=True)
            self.stream.synchronize()
            yield from bits_of(staged)


def bits_of(values: Shaped[Tensor, "*any"]) -> Shaped[np.ndarray, "*any"]:
    """Show a tensor in host memory to numpy, which lacks bfloat16: that as int16."""
    shown = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
    return shown.numpy()
