"""LoRA layers, gated MLPs and norms that compute the same and keep less: swapped in for training.

PEFT casts every input to float32 and keeps it, beside a dropout mask; the stock gated MLP keeps
four tensors of the inner width. Here a LoRA layer is one function of autograd that keeps its input
once, in the base's own precision; masks are drawn again from their seed in the backward pass; and
the product inside a gated MLP is formed again there.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from peft.tuners import lora
from torch import Tensor
from torch.nn import functional

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
GATED = ("gate_proj", "up_proj", "down_proj", "act_fn")


@contextlib.contextmanager
def fused(model: Any, *, traceable: bool = False) -> Iterator[None]:
    """Swap the forwards of a PEFT model's layers while inside, where they compute the same.

    A module is left alone unless its own forward gives the same on a drawn input. Without gradients
    a LoRA layer runs PEFT's own code.

    Args:
        model: the PEFT model.
        traceable: keep to what torch.compile can trace: it fuses norms and products by itself.
    """
    swapped = []
    try:
        for module, forward in _replacements(model, traceable):
            swapped.append(module)
            module.forward = types.MethodType(forward, module)
        yield
    finally:
        for module in swapped:
            del module.forward


def _replacements(model: Any, traceable: bool) -> Iterator[tuple[Any, Callable[..., Any]]]:
    for module in list(model.modules()):
        if _is_plain_lora(module):
            yield module, _traced_forward if traceable else _lora_forward
        elif traceable:
            continue
        elif _is_gated(module):
            yield module, _gated_forward
        elif _is_rms_norm(module):
            yield module, _norm_forward


def _is_plain_lora(module: Any) -> bool:
    """Whether a module is a LoRA of one adapter on a linear layer, with nothing added to it."""
    if type(module) is not lora.Linear or type(module.get_base_layer()) is not torch.nn.Linear:
        return False
    (name, *more) = module.active_adapters
    plain = name in module.lora_A and not more and name not in module.lora_variant
    biased = plain and module.lora_B[name].bias is not None
    return plain and not biased and module.get_base_layer().weight.dtype in FLOATS


def _is_gated(module: Any) -> bool:
    """Whether a module is down(silu(gate(x)) * up(x)), by what it gives."""
    if not all(hasattr(module, name) for name in GATED) or not _is_plain_lora(module.down_proj):
        return False
    weight = module.down_proj.get_base_layer().weight
    x = _drawn(weight.shape[0], weight)
    with torch.no_grad(), _evaluating(module):
        ours = module.down_proj(functional.silu(module.gate_proj(x)) * module.up_proj(x))
        return _same(ours, type(module).forward(module, x))


def _is_rms_norm(module: Any) -> bool:
    """Whether a module is x / rms(x) * weight, by what it gives."""
    if not hasattr(module, "variance_epsilon") or getattr(module, "weight", None) is None:
        return False
    if module.weight.requires_grad or module.weight.dim() != 1:
        return False
    x = _drawn(module.weight.shape[0], module.weight)
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        return _same(_norm_forward(module, x), type(module).forward(module, x))


def _drawn(width: int, like: Tensor) -> Float[Tensor, "t d"]:
    noise = torch.randn(4, width, generator=torch.Generator().manual_seed(0))
    return noise.to(like.device, like.dtype)


@contextlib.contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Switch dropout off, and on again where it was."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, state in training.items():
            part.training = state


def _same(ours: Tensor, theirs: Tensor) -> bool:
    room = 1e-5 if ours.dtype == torch.float32 else 2e-2
    gap = (ours.float() - theirs.float()).abs().max()
    return ours.dtype == theirs.dtype and bool(gap <= room * theirs.float().abs().max())


def _lora_forward(layer: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs or not torch.is_grad_enabled() or layer.disable_adapters or layer.merged:
        return type(layer).forward(layer, x, *args, **kwargs)
    return LowRank.apply(x, None, *_parts(layer))  # type: ignore[no-untyped-call]


def _gated_forward(mlp: Any, x: Tensor) -> Any:
    down = mlp.down_proj
    if not torch.is_grad_enabled() or down.disable_adapters or down.merged:
        return type(mlp).forward(mlp, x)
    return LowRank.apply(mlp.gate_proj(x), mlp.up_proj(x), *_parts(down))  # type: ignore[no-untyped-call]


def _traced_forward(layer: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Compute the same with stock operations."""
    if args or kwargs or layer.disable_adapters or layer.merged:
        return type(layer).forward(layer, x, *args, **kwargs)
    name, base = layer.active_adapters[0], layer.get_base_layer()
    a, b = (m[name].weight.to(base.weight.dtype) for m in (layer.lora_A, layer.lora_B))
    x = x.to(base.weight.dtype)
    low = functional.linear(layer.lora_dropout[name](x), a) * layer.scaling[name]
    return functional.linear(x, base.weight, base.bias) + functional.linear(low, b)


def _norm_forward(norm: Any, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):  # which would make float32 of it
        return functional.rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)


def _parts(layer: Any) -> tuple[Any, ...]:
    """Return what ``LowRank`` needs of a layer: weights, scale, dropout and the mask's seed."""
    name, base = layer.active_adapters[0], layer.get_base_layer()
    dropout = getattr(layer.lora_dropout[name], "p", 0.0) if layer.training else 0.0
    # Of the processor's generator, which the loop saves, and checkpointing winds back.
    seed = int(torch.randint(2**62, ())) if dropout else 0
    a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
    return base.weight, base.bias, a, b, float(layer.scaling[name]), dropout, seed


@functools.cache
def _generator(device: torch.device) -> torch.Generator:
    return torch.Generator(device)


def draw_mask(like: Float[Tensor, "t d"], dropout: float, seed: int) -> Float[Tensor, "t d"]:
    """Return 0 with probability ``dropout``, else 1 / (1 - dropout): the same for the same seed."""
    generator = _generator(like.device).manual_seed(seed)
    mask = torch.empty_like(like).bernoulli_(1 - dropout, generator=generator)
    return mask.div_(1 - dropout)


class LowRank(torch.autograd.Function):
    """x W' + scale (drop(x) A') B', the base frozen; x is silu(gate) * up where ``up`` is given.

    Kept for the backward pass: x (or gate and up), the rank-wide product, and the weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "*b d"],
        up: Float[Tensor, "*b d"] | None,
        weight: Float[Tensor, "e d"],
        bias: Float[Tensor, " e"] | None,
        a: Float[Tensor, "r d"],
        b: Float[Tensor, "e r"],
        scale: float,
        dropout: float,
        seed: int,
    ) -> Float[Tensor, "*b e"]:
        half = weight.dtype
        with torch.autocast(x.device.type, enabled=False):
            rows = x.reshape(-1, x.shape[-1]).to(half)
            ups = None if up is None else up.reshape(rows.shape).to(half)
            h = rows if ups is None else functional.silu(rows).mul_(ups)
            y = functional.linear(h, weight, bias)
            low = (h * draw_mask(h, dropout, seed) if dropout else h) @ a.to(half).T
            y.addmm_(low, b.to(half).T, alpha=scale)
        ctx.save_for_backward(rows, ups, low, weight, a, b)
        ctx.scale, ctx.dropout, ctx.seed, ctx.dtype = scale, dropout, seed, x.dtype
        return y.view(*x.shape[:-1], weight.shape[0]).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        rows, ups, low, weight, a, b = ctx.saved_tensors
        half, (grad,) = weight.dtype, grads
        with torch.autocast(rows.device.type, enabled=False):
            g = grad.reshape(-1, grad.shape[-1]).to(half)
            h = rows if ups is None else functional.silu(rows).mul_(ups)
            mask = draw_mask(h, ctx.dropout, ctx.seed) if ctx.dropout else None
            g_low = (g @ b.to(half)).mul_(ctx.scale)
            g_b = (g.T @ low).mul_(ctx.scale).to(b.dtype)
            g_a = (g_low.T @ (h if mask is None else h * mask)).to(a.dtype)
            g_x, g_up = None, None
            if ctx.needs_input_grad[0]:
                del h
                g_h = _input_gradient(g, g_low, weight, a.to(half), mask)
                g_x, g_up = (g_h, None) if ups is None else _gate_gradients(g_h, rows, ups)
        shape = (*grad.shape[:-1], rows.shape[-1])
        g_x, g_up = (None if g is None else g.view(shape).to(ctx.dtype) for g in (g_x, g_up))
        return g_x, g_up, None, None, g_a, g_b, None, None, None


def _input_gradient(
    g: Tensor, g_low: Tensor, weight: Tensor, a: Tensor, mask: Tensor | None
) -> Float[Tensor, "t d"]:
    g_h = g @ weight
    return g_h.addmm_(g_low, a) if mask is None else g_h.addcmul_(g_low @ a, mask)


def _gate_gradients(g_h: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    g_up = functional.silu(gate).mul_(g_h)
    return torch.ops.aten.silu_backward(g_h.mul_(up), gate), g_up
