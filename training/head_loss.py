"""The loss of a frozen output layer by chunks of tokens: no table of tokens x words is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from transformers.modeling_outputs import CausalLMOutput
from workbench_training.packing import IGNORED

ELEMENTS = {"cuda": 2**27}
"""Logits formed at a time, by kind of device."""
FEWER = 2**24
PROBE = 8
"""Tokens on which ``is_plain_head`` compares."""


class HeadLoss(torch.autograd.Function):
    """Cross-entropy of each label; the gradient of h is made at once, as the layer is frozen."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Float[Tensor, "t d"],
        weight: Float[Tensor, "v d"],
        bias: Float[Tensor, " v"] | None,
        labels: Int[Tensor, " t"],
    ) -> Float[Tensor, " t"]:
        size = max(1, ELEMENTS.get(h.device.type, FEWER) // weight.shape[0])
        wanted = ctx.needs_input_grad[0]
        grad = torch.empty_like(h) if wanted else None
        losses = torch.empty(len(h), dtype=torch.float32, device=h.device)
        with torch.autocast(h.device.type, enabled=False):
            for first in range(0, len(h), size):
                part = slice(first, first + size)
                losses[part], slope = _chunk(h[part].to(weight.dtype), weight, bias, labels[part])
                if grad is not None:
                    grad[part] = slope.to(weight.dtype) @ weight
        ctx.save_for_backward(*(() if grad is None else (grad,)))
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,), (upstream,) = ctx.saved_tensors, grads
        return grad * upstream[:, None].to(grad.dtype), None, None, None


def _chunk(
    h: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor
) -> tuple[Float[Tensor, " t"], Float[Tensor, "t v"]]:
    """Return the losses and their gradient in the logits, both float32; 0 where not counted."""
    counted = labels != IGNORED
    places = labels.where(counted, 0)[:, None]
    logprobs = functional.linear(h, weight, bias).float()
    logprobs -= logprobs.logsumexp(-1, keepdim=True)
    chosen = logprobs.gather(1, places)
    slope = logprobs.exp_().scatter_add_(1, places, torch.full_like(chosen, -1.0))
    return -chosen[:, 0] * counted, slope.mul_(counted[:, None])


@contextlib.contextmanager
def chunked_loss(model: Any) -> Iterator[bool]:
    """Let a causal language model compute its training loss by chunks while inside.

    Yields whether it does: a head that is trained, capped or scaled keeps the model's own loss.

    Args:
        model: the PEFT model; the forward of the network inside it is swapped.
    """
    network = model.get_base_model()
    if not is_plain_head(network):
        yield False
        return
    plain, head = network.forward, network.get_output_embeddings()

    def summed(h: Tensor, labels: Tensor | None = None) -> Any:
        if labels is None:
            return type(head).forward(head, h)
        losses = HeadLoss.apply(h, head.weight, head.bias, labels)  # type: ignore[no-untyped-call]
        return losses.sum()

    def forward(*args: Any, labels: Any = None, num_items_in_batch: Any = None, **more: Any) -> Any:
        if labels is None or args or not torch.is_grad_enabled():
            return plain(*args, labels=labels, **more)
        given = {key: value for key, value in more.items() if value is not None}
        given.pop("return_dict", None)
        h = network.get_decoder()(**{**given, "use_cache": False}).last_hidden_state
        shifted = functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].reshape(-1)
        total = head(h.reshape(-1, h.shape[-1]), shifted)
        count = (shifted != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        return CausalLMOutput(loss=total / count)

    network.forward, head.forward = forward, summed  # in the head, where FSDP makes weights whole
    try:
        yield True
    finally:
        del network.forward, head.forward


def is_plain_head(network: Any) -> bool:
    """Whether logits are a frozen linear layer of the decoder's output and nothing more."""
    head = network.get_output_embeddings()
    if type(head) is not torch.nn.Linear or head.weight.requires_grad:
        return False
    if getattr(network.config.get_text_config(), "final_logit_softcapping", None) is not None:
        return False  # small logits would not tell
    device = network.get_input_embeddings().weight.device
    words = network.config.get_text_config().vocab_size
    ids = (torch.arange(PROBE, device=device) * 7919 % words)[None]
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            theirs = network(input_ids=ids, use_cache=False).logits.float()
            h = network.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
            ours = functional.linear(h.to(head.weight.dtype), head.weight, head.bias).float()
    finally:
        network.train(training)
    return bool((ours - theirs).abs().max() <= 1e-6 * theirs.abs().max())
