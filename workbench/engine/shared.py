"""Cache layers whose rows share columns: repeated by each block while it runs, never before."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


class Rows:
    """For each row of a batch, the row of another one that it stands behind.

    Args:
        index: on the CPU, so that looking at it waits for no device.
    """

    def __init__(self, index: Int[Tensor, " b"]) -> None:
        self.index = index
        self._placed: dict[torch.device, Tensor] = {}
        self._regular: dict[int, int | None] = {}

    def of(self, values: Float[Tensor, "r ..."]) -> Float[Tensor, "b ..."]:
        """Return the rows of some values."""
        if values.device not in self._placed:
            self._placed[values.device] = self.index.to(values.device)
        return values.index_select(0, self._placed[values.device])

    def before(
        self, shared: Float[Tensor, "r h s d"], own: Float[Tensor, "b h t d"]
    ) -> Float[Tensor, "b h u d"]:
        """Return columns of the other batch's rows, with these rows' own after them."""
        times = self._times(len(shared))
        if times is None:
            return torch.cat([self.of(shared), own], -2)
        expanded = shared[:, None].expand(-1, times, -1, -1, -1)  # one copy, not two
        return torch.cat([expanded, own.view(-1, times, *own.shape[1:])], -2).flatten(0, 1)

    def _times(self, n: int) -> int | None:
        """Return how often each of n rows stands here side by side; None where it is not so."""
        if n not in self._regular:
            times = len(self.index) // n
            regular = torch.equal(self.index, torch.arange(n).repeat_interleave(times))
            self._regular[n] = times if regular else None
        return self._regular[n]

    def chosen(self, rows: Rows) -> Rows:
        """Return some of these rows, or the same several times."""
        return Rows(self.index[rows.index])


class SharedLayer(DynamicLayer):
    """Another layer's rows, and columns of its own behind them.

    Args:
        layer: whose columns are shared; it must not change.
        rows: for each row here, the row that it stands behind.
    """

    shared: tuple[Tensor, Tensor]
    keys: Tensor
    values: Tensor
    rows: Rows

    def __init__(self, layer: DynamicLayer, rows: Rows) -> None:
        super().__init__()
        _share(self, layer, rows)

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Add columns and return all; only the own ones stay."""
        self.keys = torch.cat([self.keys, key_states], -2)
        self.values = torch.cat([self.values, value_states], -2)
        return _whole(self, self.keys, self.values)

    def get_seq_length(self) -> int:
        return int(self.shared[0].shape[-2] + self.keys.shape[-2])


class SharedWindow(DynamicSlidingWindowLayer):
    """The same for a block that sees a window of the last columns."""

    shared: tuple[Tensor, Tensor]
    keys: Tensor
    values: Tensor
    rows: Rows

    def __init__(self, layer: DynamicSlidingWindowLayer, rows: Rows) -> None:
        super().__init__(layer.sliding_window)
        self.cumulative_length = layer.cumulative_length
        _share(self, layer, rows)

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Add columns and return those in sight; only the own ones stay, as far as they are."""
        self.cumulative_length += key_states.shape[-2]
        own = (
            torch.cat([self.keys, key_states], -2),
            torch.cat([self.values, value_states], -2),
        )
        whole = _whole(self, *own)
        own_kept = min(own[0].shape[-2], self.sliding_window - 1)
        kept = min(self.shared[0].shape[-2], self.sliding_window - 1 - own_kept)
        self.shared = (_last(self.shared[0], kept), _last(self.shared[1], kept))
        self.keys, self.values = _last(own[0], own_kept), _last(own[1], own_kept)
        return whole


def behind(layer: Any, rows: Rows) -> Any:
    """Return a layer of these rows of another one, which shares its columns."""
    if isinstance(layer, (SharedLayer, SharedWindow)):
        made = copy.copy(layer)
        made.rows = layer.rows.chosen(rows)
        made.keys, made.values = rows.of(layer.keys), rows.of(layer.values)
        return made
    window = isinstance(layer, DynamicSlidingWindowLayer)
    return SharedWindow(layer, rows) if window else SharedLayer(layer, rows)


def _share(made: Any, layer: DynamicLayer, rows: Rows) -> None:
    made.shared, made.rows = (layer.keys, layer.values), rows
    made.dtype, made.device = layer.keys.dtype, layer.keys.device
    made.keys, made.values = (
        part[:1, :, :0].expand(len(rows.index), -1, -1, -1) for part in made.shared
    )
    made.is_initialized = True


def _whole(layer: Any, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    shared_keys, shared_values = layer.shared
    return layer.rows.before(shared_keys, keys), layer.rows.before(shared_values, values)


def _last(part: Tensor, columns: int) -> Tensor:
    return part[..., part.shape[-2] - columns :, :]
