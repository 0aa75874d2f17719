"""An adapter on, off and merged into the weights: merged layer by layer, and never kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from workbench.engine.doctor_probe import Found, Probe, dtype_of, one_row
from workbench.engine.forward import run

EXACT = (torch.float32, torch.float64)


def has_adapter(model: Any) -> bool:
    """Whether the model is wrapped by PEFT."""
    return hasattr(model, "peft_config") and hasattr(model, "disable_adapter")


def check_adapter(probe: Probe) -> Found:
    """Compare logits with the adapter on and off; the same numbers mean that it does nothing."""
    with probe.subject.model.disable_adapter():
        off = _logits(probe)
    change = probe.apart(probe.alone[0].logits, off)
    detail = f"the adapter moves the logits by up to {change:.2g} std"
    if not change:
        detail = "logits with the adapter on and off are the same numbers"
    return Found(change > 0, change, None, detail)


def check_merge(probe: Probe) -> Found:
    """Compare the adapter beside the weights with the adapter merged into them.

    Wide formats must agree within rounding; in narrow ones the difference is only reported, since
    a merged weight is rounded once more.
    """
    with merged(probe.subject.model) as n:
        inside = _logits(probe)
    difference = probe.apart(inside, probe.alone[0].logits)
    exact = dtype_of(probe.subject) in EXACT
    detail = f"{n} adapted layers, merged = beside the weights"
    if not exact:
        detail = f"{n} adapted layers, merged differs by rounding; measure one way throughout"
    return Found(
        not exact or difference <= probe.limit,
        difference,
        probe.limit if exact else None,
        detail,
    )


@contextmanager
def merged(model: Any) -> Iterator[int]:
    """Merge each adapted layer while it runs, by PEFT's own merge on a copy of its weights.

    Yields:
        The number of adapted layers. The weights that were there come back as the same tensors.
    """
    layers = adapted_layers(model)
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(_merged_while_running(layer))
        yield len(layers)


def adapted_layers(model: Any) -> list[Any]:
    """Return the layers that can take their adapter into plain weights, and have not yet."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [
        module
        for module in model.modules()
        if isinstance(module, BaseTunerLayer)
        and not module.merged
        and all(
            weight.is_floating_point() and not weight.is_meta
            for weight in module.get_base_layer().parameters()
        )
    ]


@contextmanager
def _merged_while_running(layer: Any) -> Iterator[None]:
    base = layer.get_base_layer()
    kept: dict[Any, Tensor] = {}

    def merge(*_: Any) -> None:
        for weight in base.parameters():
            kept[weight] = weight.data
            weight.data = weight.data.clone()
        layer.merge()

    def restore(*_: Any) -> None:
        layer.merged_adapters.clear()
        for weight, data in kept.items():
            weight.data = data
        kept.clear()

    handles = (
        layer.register_forward_pre_hook(merge),
        layer.register_forward_hook(restore, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _logits(probe: Probe) -> Tensor:
    with torch.no_grad():
        logits: Tensor = run(probe.subject, one_row(probe.subject, probe.rows[0].ids)).logits[0]
    return logits
