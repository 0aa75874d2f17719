"""What the doctor measures with: short prompts, plain forwards, and how far rounding may go."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from workbench.engine.blocks import hidden_of, watching
from workbench.engine.forward import Inputs, device_of, run
from workbench.registry import EDITS
from workbench.types import Batch, LayerEdit, Rendered, Runner, Subject

TEXTS = (
    "Seven birds sat on the old wall, and three of them flew away before noon came.",
    "The capital of France is Paris.",
    "Water boils at one hundred degrees at sea level, and ice melts at zero.",
)
CHAT = ({"role": "user", "content": "Is water wet? Answer with one word."},)
LENGTHS = (20, 7, 13, 24)
"""Tokens kept of each text and of the chat, so that a batch of them holds pads."""
LIMITS = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.5}
"""Largest difference of two ways to the same logits, in standard deviations of the logits.

Seen between alone, padded, cached and batched rows: in float32 7e-06 on tiny models of fourteen
families and 2e-05 on SmolLM2; in float16 0.02 and 0.03; in bfloat16 0.17 (of 64 blocks) and 0.22. A
cache without memory shows as 2 to 6 on tiny models and as 11 on SmolLM2, and learned positions that
are one off as 3.
"""
LINEAR = 10
"""Families with linear attention may differ by so many times more: a prefill runs in chunks there,
a decoding step by itself (4e-05 seen on tiny models in float32)."""
ROUTED = 2
"""Mixtures of experts may in narrow formats: rounding sends a token elsewhere (0.14 seen in float16
on 48 blocks)."""


@dataclass(frozen=True)
class Found:
    """What one check measured; ``limit`` is None where the number is only reported."""

    passed: bool
    value: float | None
    limit: float | None
    detail: str


@dataclass(frozen=True)
class Alone:
    """One unpadded row through the plain model, seen by hooks of the doctor's own."""

    logits: Float[Tensor, "t v"]
    hidden: dict[int, Float[Tensor, "t d"]]
    """Block outputs, of the blocks whose hook fired."""
    fired: Counter[int]


class Probe:
    """A subject with short prompts and what the plain model says about them."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.layers = tuple(sorted(subject.blocks))
        self.limit = limit_of(subject)

    @property
    def runner(self) -> Runner:
        assert self.subject.runner is not None
        return self.subject.runner

    @functools.cached_property
    def rows(self) -> list[Rendered]:
        """Prompts of different lengths, a chat among them where there is a template."""
        render = self.subject.renderer.render
        made = [render(text) for text in TEXTS]
        if has_template(self.subject):
            made.append(render(list(CHAT)))
        return [Rendered(one.ids[:n], {}) for one, n in zip(made, LENGTHS, strict=False)]

    @functools.cached_property
    def alone(self) -> list[Alone]:
        """Each row by itself."""
        return [look(self.subject, row.ids) for row in self.rows]

    @functools.cached_property
    def scale(self) -> float:
        """Standard deviation of the logits of a token, in the mean over all tokens."""
        return spread(torch.cat([one.logits.float() for one in self.alone]))

    @functools.cached_property
    def norms(self) -> dict[int, float]:
        """Mean residual norm by block, first tokens excluded."""
        return mean_norms([one.hidden for one in self.alone])

    def apart(self, logits: Tensor, other: Tensor) -> float:
        """Return the largest difference in standard deviations of the logits."""
        return largest(logits, other) / self.scale

    def edit(self, layer: int, scope: str = "all", strength: float = 1.0) -> LayerEdit:
        """Return an ``add`` along a fixed random direction; strength in residual norms."""
        return added(self.subject, layer, strength * self.norms[layer], scope)


def look(subject: Subject, ids: Sequence[int]) -> Alone:
    """Run one row with nothing but own hooks."""
    hidden: dict[int, Tensor] = {}
    fired: Counter[int] = Counter()

    def see(layer: int, output: Any) -> None:
        fired[layer] += 1
        hidden[layer] = hidden_of(output)[0].clone()

    with torch.no_grad(), watching(subject, sorted(subject.blocks), see):
        logits = run(subject, one_row(subject, ids)).logits[0]
    return Alone(logits, hidden, fired)


def one_row(subject: Subject, ids: Sequence[int]) -> Inputs:
    """Return a row without pads, its positions counted from 0."""
    tokens = torch.tensor([list(ids)], device=device_of(subject))
    places = torch.arange(len(ids), device=tokens.device)[None]
    return Inputs(tokens, torch.ones_like(tokens), places)


def inputs_of(batch: Batch) -> Inputs:
    """Return what of a batch goes into a forward."""
    return Inputs(batch.input_ids, batch.attention_mask, batch.position_ids)


def counted(mask: Int[Tensor, "b t"]) -> list[list[int]]:
    """Count real tokens of each row from 0, and 0 on pads, one by one."""
    places: list[list[int]] = []
    for row in mask.tolist():
        seen = 0
        places.append([])
        for real in row:
            places[-1].append(seen if real else 0)
            seen += int(real)
    return places


def added(subject: Subject, layer: int, dose: float, scope: str = "all") -> LayerEdit:
    """Return an ``add`` of ``dose`` residual units along a random unit vector."""
    v = np.random.default_rng([7, layer]).standard_normal(subject.width)
    unit = (v / np.linalg.norm(v)).astype(np.float32)
    return LayerEdit(layer, "add", EDITS.create("add"), unit, dose, scope)


def mean_norms(hidden: Sequence[dict[int, Tensor]]) -> dict[int, float]:
    """Return the mean norm of all but first tokens, by block."""
    layers = sorted(set().union(*hidden))
    return {
        layer: float(
            torch.cat(
                [one[layer][1:].float().norm(dim=-1) for one in hidden if layer in one]
            ).mean()
        )
        for layer in layers
    }


def spread(logits: Float[Tensor, "t v"]) -> float:
    """Return the mean over tokens of the standard deviation over the vocabulary."""
    return max(float(logits.std(-1).mean()), 1e-9)


def largest(values: Tensor, others: Tensor) -> float:
    """Return the largest absolute difference; infinite where a number is missing."""
    if values.shape != others.shape:
        return math.inf
    exact = torch.float32 if values.device.type == "mps" else torch.float64
    difference = float((values.to(exact) - others.to(values.device, exact)).abs().max())
    return math.inf if math.isnan(difference) else difference


def dtype_of(subject: Subject) -> torch.dtype:
    """Return the number format that the model computes in."""
    dtype: torch.dtype = subject.model.get_input_embeddings().weight.dtype
    return dtype


def limit_of(subject: Subject) -> float:
    """Return how far rounding may go; a format without a limit of its own has bfloat16's."""
    dtype = dtype_of(subject)
    limit = LIMITS.get(dtype, LIMITS[torch.bfloat16])
    config = subject.model.config.get_text_config(decoder=True)
    if dtype not in (torch.float32, torch.float64):
        names = ("num_experts", "num_local_experts", "n_routed_experts")
        return limit * (ROUTED if any(getattr(config, name, None) for name in names) else 1)
    kinds = getattr(config, "layer_types", None) or ()
    return limit * (LINEAR if any("linear" in kind for kind in kinds) else 1)


def has_template(subject: Subject) -> bool:
    """Whether the tokenizer can write a chat."""
    return bool(getattr(subject.tokenizer, "chat_template", None))


def blocks_in_words(layers: Sequence[int]) -> str:
    """Write some blocks, the first few by number."""
    named = ", ".join(map(str, layers[:4])) + (", ..." if len(layers) > 4 else "")
    return f"{'block' if len(layers) == 1 else 'blocks'} {named}"
