"""Log-probabilities of replies, with gradients: the vocabulary at scored tokens, chunk by chunk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from workbench_training.head_loss import HeadLoss, is_plain_head
from workbench_training.pairs import Reply

from workbench.engine.forward import head_at, pad_id
from workbench.models import input_device
from workbench.types import Subject


@dataclass(frozen=True)
class Sheet:
    """Conversations padded on the right, so that positions count as the model itself counts."""

    ids: Int[Tensor, "b t"]
    mask: Int[Tensor, "b t"]
    marked: Float[Tensor, "b t"]
    """1 on the tokens that an edit acts on, 0 elsewhere."""
    rows: Int[Tensor, " p"]
    """Of each scored token."""
    columns: Int[Tensor, " p"]
    """Where it is predicted: one token before it."""
    labels: Int[Tensor, " p"]


def lay_out(replies: Sequence[Reply], pad: int, device: torch.device) -> Sheet:
    """Lay conversations out as one batch on a device."""
    width = max(len(reply.ids) for reply in replies)
    ids = torch.full((len(replies), width), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    marked = torch.zeros(ids.shape)
    places = []
    for row, reply in enumerate(replies):
        ids[row, : len(reply.ids)] = torch.tensor(reply.ids)
        mask[row, : len(reply.ids)] = 1
        for first, last in reply.marked:
            marked[row, first:last] = 1
        places += [(row, column) for column in range(reply.first - 1, len(reply.ids) - 1)]
    rows, columns = torch.tensor(places).T
    labels = ids[rows, columns + 1]
    parts = (ids, mask, marked, rows, columns, labels)
    return Sheet(*(part.to(device) for part in parts))


class Scorer:
    """Sums the log-probabilities of replies under a model that `frozen` holds still.

    The output layer runs at scored tokens alone. Where it is a plain linear layer its logits are
    formed by chunks too; one that caps or scales them runs as the model runs it.
    """

    def __init__(self, subject: Subject) -> None:
        model = subject.model
        self.subject = subject
        self.device = input_device(model)
        self.network: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.plain = is_plain_head(self.network)
        self.pad = pad_id(subject)

    def __call__(self, sheet: Sheet) -> Float[Tensor, " b"]:
        """Return the log-probability of each reply given its prompt, in nats, float32."""
        losses = self._chunked(sheet) if self.plain else self._whole(sheet)
        rows = sheet.rows.to(losses.device)
        return losses.new_zeros(len(sheet.ids)).index_add(0, rows, -losses)

    def _chunked(self, sheet: Sheet) -> Float[Tensor, " p"]:
        decoder, head = self.network.get_decoder(), self.network.get_output_embeddings()
        h = decoder(
            input_ids=sheet.ids, attention_mask=sheet.mask, use_cache=False
        ).last_hidden_state
        picked = h[sheet.rows.to(h.device), sheet.columns.to(h.device)].to(head.weight.device)
        labels = sheet.labels.to(picked.device)
        losses: Tensor = HeadLoss.apply(picked, head.weight, head.bias, labels)  # type: ignore[no-untyped-call]
        return losses

    def _whole(self, sheet: Sheet) -> Float[Tensor, " p"]:
        with head_at(self.subject, sheet.rows, sheet.columns):
            logits = self.subject.model(
                input_ids=sheet.ids, attention_mask=sheet.mask, use_cache=False
            ).logits[0]
        labels = sheet.labels.to(logits.device)
        return functional.cross_entropy(logits.float(), labels, reduction="none")


@contextlib.contextmanager
def frozen(subject: Subject) -> Iterator[None]:
    """Hold a model still: evaluation mode, no gradient for any weight; as before afterwards."""
    model = subject.model
    kept = [parameter for parameter in model.parameters() if parameter.requires_grad]
    training = model.training
    model.eval()
    for parameter in kept:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in kept:
            parameter.requires_grad_(True)
        model.train(training)
