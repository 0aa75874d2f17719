"""What identifies a loaded model: a stamp that is cheap, deterministic and written with results."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from workbench.models.families import text_config
from workbench.types import ModelRef, ModelStamp

_ESSENTIALS = (
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
    "hidden_act",
    "rms_norm_eps",
    "layer_norm_epsilon",
    "sliding_window",
    "layer_types",
    "rope_parameters",
)
_SAMPLES = 64
"""Weights read from each parameter."""


def stamp_of(model: Any, tokenizer: Any, ref: ModelRef) -> ModelStamp:
    """Stamp a loaded model."""
    config = text_config(model)
    return ModelStamp(
        key=ref.key,
        model_type=str(config.model_type),
        n_layers=int(config.num_hidden_layers),
        width=int(config.hidden_size),
        tokenizer=tokenizer_hash(tokenizer),
        fingerprint=fingerprint(model),
        quantization=ref.quantization,
    )


def fingerprint(model: Any) -> str:
    """16 hex digits over the config's essentials and samples of every parameter.

    The same weights give the same digits on every device, and in float32 or bfloat16 where the
    file is bfloat16. An adapter changes it. A change that touches only weights between the
    samples does not.
    """
    config = text_config(model).to_dict()
    essentials = {name: config.get(name) for name in _ESSENTIALS}
    digest = hashlib.sha256(json.dumps(essentials, sort_keys=True, default=str).encode())
    for name, weight in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(_sample(weight))
    return digest.hexdigest()[:16]


def tokenizer_hash(tokenizer: Any) -> str:
    """16 hex digits over the vocabulary, ids included."""
    entries = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]


def _sample(weight: torch.Tensor) -> bytes:
    """Evenly spaced weights in float32; nothing for weights that are not in memory."""
    flat = weight.detach().reshape(-1)
    if flat.is_meta or flat.numel() == 0:
        return b""
    rows = torch.linspace(0, flat.numel() - 1, min(_SAMPLES, flat.numel()), dtype=torch.float64)
    picked = flat[rows.round().long().to(flat.device)]
    return picked.to("cpu", torch.float32).numpy().tobytes()
