"""The cheap checks: two forwards of at most sixteen tokens, each row of them with a task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from workbench.engine.blocks import hidden_of, watching, with_hidden
from workbench.engine.doctor_checks import MOVED, overflow
from workbench.engine.doctor_probe import (
    TEXTS,
    Found,
    added,
    blocks_in_words,
    counted,
    dtype_of,
    inputs_of,
    largest,
    limit_of,
    mean_norms,
    spread,
)
from workbench.engine.forward import Inputs, run
from workbench.errors import WorkbenchError
from workbench.interventions import EditLog
from workbench.types import Batch, Rendered, Subject

TOKENS = 5
"""Of the prompt: three rows of it make fifteen."""


@dataclass
class Glance:
    """Two forwards: a whole row beside two that lack its last token, then that token.

    In the second forward the first row's last block hands out what it gave in the first one, the
    second row runs plainly on its cache, and the third is edited at every block.
    """

    subject: Subject
    batch: Batch
    hidden: dict[int, Tensor]
    fired: dict[int, int]
    first: Tensor
    """Logits of the first forward, (3, t, v)."""
    second: Tensor | None
    """Logits of the second, (3, 1, v); None where it did not run."""
    log: EditLog

    @property
    def limit(self) -> float:
        return limit_of(self.subject)

    @property
    def scale(self) -> float:
        return spread(self.first[0].float())


def glance(subject: Subject) -> Glance:
    """Run both forwards; the second only where every hook fired in the first."""
    ids = subject.renderer.render(TEXTS[1]).ids[:TOKENS]
    batch = subject.renderer.collate([Rendered(row, {}) for row in (ids, ids[:-1], ids[:-1])])
    hidden: dict[int, Tensor] = {}
    fired = dict.fromkeys(sorted(subject.blocks), 0)

    def see(layer: int, output: Any) -> None:
        fired[layer] += 1
        hidden[layer] = hidden_of(output).clone()

    cache = DynamicCache(config=subject.model.config)
    with torch.no_grad(), watching(subject, list(fired), see):
        first = run(subject, inputs_of(batch), cache).logits
    seen = Glance(subject, batch, hidden, fired, first, None, EditLog())
    if all(times == 1 for times in fired.values()):
        _look_again(seen, cache)
    return seen


def _look_again(seen: Glance, cache: Any) -> None:
    subject, batch = seen.subject, seen.batch
    mask = torch.cat([batch.attention_mask, torch.ones_like(batch.attention_mask[:, :1])], 1)
    tokens = batch.input_ids[:1, -1:].expand(3, 1)
    inputs = Inputs(tokens, mask, batch.attention_mask.sum(1, keepdim=True))
    try:
        with torch.no_grad(), _edited(seen), _last_block_again(seen):
            seen.second = run(subject, inputs, cache).logits
    except WorkbenchError:
        if seen.second is None:  # else an edit was idle, and the log says which
            raise


def _edited(seen: Glance) -> AbstractContextManager[Any]:
    norms = mean_norms([{layer: h[0] for layer, h in seen.hidden.items()}])
    edits = tuple(added(seen.subject, layer, norm) for layer, norm in norms.items())
    assert seen.subject.runner is not None
    return seen.subject.runner.intervene(seen.subject, [(), (), edits], log=seen.log)


def _last_block_again(seen: Glance) -> AbstractContextManager[None]:
    last = max(seen.hidden)

    def put(_layer: int, output: Any) -> Any:
        h = hidden_of(output).clone()
        h[0, -1] = seen.hidden[last][0, -1]
        return with_hidden(output, h)

    return watching(seen.subject, [last], put)


def _hooks(seen: Glance) -> Found:
    silent = [layer for layer, times in seen.fired.items() if times != 1]
    detail = f"a hook on each of {len(seen.fired)} blocks fires once a forward"
    if silent:
        detail = f"hooks on {blocks_in_words(silent)} do not fire once a forward"
    return Found(not silent, float(len(silent)), 0.0, detail)


def _overflow(seen: Glance) -> Found:
    real = seen.batch.attention_mask.bool()
    peaks = {
        layer: float(h[real.to(h.device)].float().abs().max()) for layer, h in seen.hidden.items()
    }
    dtype = dtype_of(seen.subject)
    logits = float(seen.first[real.to(seen.first.device)].float().abs().max())
    return overflow(peaks, logits, torch.finfo(dtype).max, str(dtype).removeprefix("torch."))


def _cache(seen: Glance) -> Found:
    places = seen.batch.position_ids.tolist()
    if places != counted(seen.batch.attention_mask):
        detail = f"position ids of a left-padded row are {places[1]}"
        return Found(False, None, seen.limit, detail)
    assert seen.second is not None
    value = largest(seen.second[1, -1], seen.first[0, -1]) / seen.scale
    detail = "a token on a padded row's cache = the same token in one forward"
    return Found(value <= seen.limit, value, seen.limit, detail)


def _lens(seen: Glance) -> Found:
    assert seen.second is not None
    value = largest(seen.second[0, -1], seen.first[0, -1]) / seen.scale
    detail = "final norm and head, once, on the last block give the logits"
    return Found(value <= seen.limit, value, seen.limit, detail)


def _edits(seen: Glance) -> Found:
    assert seen.second is not None
    silent = [row.layer for row in seen.log.rows if row.n != 1 or not row.engaged]
    move = largest(seen.second[2], seen.second[1]) / seen.scale
    detail = f"edits at {len(seen.hidden)} blocks fire and move the logits by {move:.2g} std"
    if silent:
        detail = f"an edit at {blocks_in_words(silent)} does nothing"
    elif move <= MOVED:
        detail = f"edits at every block move the logits by {move:.2g} std"
    return Found(not silent and move > MOVED, float(len(silent)), 0.0, detail)


CHECKS: dict[str, Callable[[Glance], Found]] = {
    "hooks": _hooks,
    "overflow": _overflow,
    "cache": _cache,
    "last block": _lens,
    "edits": _edits,
}
"""In the order of naming; all read the same two forwards."""
