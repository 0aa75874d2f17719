"""Key-value caches cut at a block: rows chosen, and stand-ins for the blocks that do not run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from workbench.engine.shared import Rows, behind
from workbench.types import Subject

GROWING = (DynamicLayer, DynamicSlidingWindowLayer)
"""Cache layers whose rows can be repeated: they grow by concatenation and share nothing."""


def fresh_cache(subject: Subject) -> Any:
    """Return an empty cache of the model's own kind."""
    return DynamicCache(config=subject.model.config)


def why_plain(subject: Subject) -> str | None:
    """Say why this family's blocks cannot be skipped or its cache repeated; None if they can."""
    config = subject.model.config.get_text_config(decoder=True)
    if getattr(config, "num_kv_shared_layers", 0):
        return "late blocks reuse the keys and values of earlier ones"
    if config.model_type.startswith("gemma3n"):
        return "hidden states have a leading stream axis"
    layers = fresh_cache(subject).layers
    odd = sorted({type(layer).__name__ for layer in layers if type(layer) not in GROWING})
    if odd:
        return f"the cache holds {', '.join(odd)}"
    if len(layers) != len(subject.blocks):
        return f"the cache has {len(layers)} layers for {len(subject.blocks)} blocks"
    return None


def why_even(subject: Subject) -> str | None:
    """Say why rests of unequal length cannot follow cached prefixes in one batch; None if they can.

    Padding between a prefix and its rest is a hole in the row, and windows count columns.
    """
    if not attends_fully(subject):
        return "windows, chunks or biases count columns, so rests run with others of their length"
    return None


def attends_fully(subject: Subject) -> bool:
    """Whether every block attends to all earlier tokens and takes a four-dimensional mask."""
    config = subject.model.config.get_text_config(decoder=True)
    positional = getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt")
    plain = all(type(layer) is DynamicLayer for layer in fresh_cache(subject).layers)
    return plain and not positional and config._attn_implementation in ("sdpa", "eager")


def chosen_rows(
    subject: Subject, cache: Any, rows: Int[Tensor, " b"], layers: Iterable[int], length: int
) -> Any:
    """Return a cache of ``length`` columns with these rows of the given layers, else stand-ins.

    Rows are not copied: each block repeats its own columns while it runs (see `shared`). A stand-in
    has the length of a layer and none of its content: enough for attention masks, which a model may
    size by any layer's cache, and useless to a block, which therefore must not run.
    """
    live = set(layers)
    chosen = Rows(rows.cpu())
    made = fresh_cache(subject)
    made.layers = [
        behind(layer, chosen) if number in live else _stand_in(empty, length)
        for number, (layer, empty) in enumerate(zip(cache.layers, made.layers, strict=True))
    ]
    return made


def _stand_in(layer: Any, length: int) -> Any:
    layer.keys = layer.values = torch.zeros(1).expand(1, 1, length, 1)
    layer.is_initialized = True
    if isinstance(layer, DynamicSlidingWindowLayer):
        layer.cumulative_length = length
    return layer
