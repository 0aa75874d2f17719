"""Which named spans the rows of a batch have, remembered by the very tensor of their ids.

So a plain ``model(batch.input_ids)`` inside ``wb.intervene`` knows what ``subject.encode`` knew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from jaxtyping import Bool
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Spans = Mapping[str, Bool[Tensor, "b t"]]
_KNOWN = WeakTensorKeyDictionary()


def remember_spans(ids: Tensor, spans: Spans) -> None:
    """Note the spans of a batch for as long as its ids live."""
    _KNOWN[ids] = spans


def spans_of(ids: Tensor) -> Spans | None:
    """Return the spans of a batch; None where these ids are not the ones that were encoded."""
    return cast("Spans", _KNOWN[ids]) if ids in _KNOWN else None
