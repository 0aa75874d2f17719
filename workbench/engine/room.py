"""Cache layers with room for tokens to come, so that each step writes its own columns alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from workbench.engine.cache import fresh_cache
from workbench.types import Subject


class RoomyLayer(DynamicLayer):
    """Grows inside tensors made once, where a plain layer copies all columns at every step.

    Whoever puts other tensors in place of ``keys`` and ``values`` (a crop, other rows) costs one
    copy at the next step.

    Args:
        columns: that it will hold in the end; with more, it makes room again.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self._rooms: list[Tensor] = []
        self._filled: Tensor | None = None
        """The keys that stand in the room."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Add columns and return all, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        n = self.get_seq_length()
        end = n + key_states.shape[-2]
        if self._filled is not self.keys or end > self._rooms[0].shape[-2]:
            old = ([self.keys], [self.values]) if n else ([], [])
            self._make_room(old, (key_states, value_states), n, end)
        for room, new in zip(self._rooms, (key_states, value_states), strict=True):
            room[..., n:end, :] = new
        self.keys, self.values = (room[..., :end, :] for room in self._rooms)
        self._filled = self.keys
        return self.keys, self.values

    def hold(self, parts: Sequence[DynamicLayer]) -> None:
        """Take the columns of other layers, whose rows follow each other."""
        first = parts[0]
        self.lazy_initialization(first.keys, first.values)
        n = first.get_seq_length()
        old = ([part.keys for part in parts], [part.values for part in parts])
        self._make_room(old, (first.keys, first.values), n, n)
        self.keys, self.values = (room[..., :n, :] for room in self._rooms)
        self._filled = self.keys

    def _make_room(
        self,
        old: tuple[list[Tensor], list[Tensor]],
        like: tuple[Tensor, Tensor],
        n: int,
        end: int,
    ) -> None:
        """Make tensors of enough columns, whose first n are those of some others."""
        columns = self.columns if end <= self.columns else end + end // 2
        self._rooms = []
        for parts, one in zip(old, like, strict=True):
            rows = sum(map(len, parts)) or len(one)
            room = one.new_empty(rows, one.shape[1], columns, one.shape[-1])
            if parts:
                torch.cat(parts, out=room[..., :n, :])
            self._rooms.append(room)


def roomy_cache(subject: Subject, columns: int) -> Any:
    """Return an empty cache of the model's own kind, with room where it would grow by copying."""
    cache = fresh_cache(subject)
    cache.layers = [
        RoomyLayer(columns) if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache


def hold(cache: Any, number: int, parts: Sequence[DynamicLayer]) -> None:
    """Put layers, whose rows follow each other, in place of a cache's one."""
    if isinstance(cache.layers[number], RoomyLayer):
        cache.layers[number].hold(parts)
        return
    whole = parts[0]
    whole.keys = torch.cat([part.keys for part in parts])
    whole.values = torch.cat([part.values for part in parts])
    cache.layers[number] = whole
