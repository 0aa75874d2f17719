"""Log-probabilities of replies, with gradients: the vocabulary at scored tokens, chunk by chunk."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional
from workbench_training.head_loss import HeadLoss, is_plain_head
from workbench_training.pairs import Reply

from workbench.engine.forward import dtype_of, head_at, pad_id
from workbench.models import input_device
from workbench.types import Subject

ROOM = {torch.float32: 1e-4}
"""Largest difference by token, in nats, that is rounding alone."""
ROUNDED = 5e-2
"""The same in narrower numbers."""
Row = tuple[Reply, ...]
"""Replies to one prompt that go through the model in one row, the prompt once."""


@dataclass(frozen=True)
class Sheet:
    """Rows padded on the right, so that positions count as the model itself counts."""

    ids: Int[Tensor, "b t"]
    part: Int[Tensor, "b t"]
    """0 on a prompt's tokens, 1, 2, ... on those of its replies, -1 on pads."""
    positions: Int[Tensor, "b t"]
    """Every reply goes on where its prompt ends."""
    marked: Float[Tensor, "b t"]
    """1 on the tokens that an edit acts on, 0 elsewhere."""
    rows: Int[Tensor, " p"]
    """Of each scored token."""
    columns: Int[Tensor, " p"]
    """Where it is predicted: one token before it."""
    labels: Int[Tensor, " p"]
    owner: Int[Tensor, " p"]
    """The number of its reply, counted over rows."""
    replies: int
    joined: bool
    """Whether some row holds several replies, which must not see one another."""

    def mask(self, dtype: torch.dtype) -> Shaped[Tensor, "b ..."]:
        """Return 1 on real tokens; for joined rows what each token may see, as terms to add."""
        real = self.part >= 0
        if not self.joined:
            return real.long()
        seen, sees = self.part[:, None, :], self.part[:, :, None]
        steps = torch.arange(self.ids.shape[1], device=self.ids.device)
        open_ = ((seen == 0) | (seen == sees)) & (steps <= steps[:, None])  # pads see pads
        terms = torch.zeros(open_.shape, dtype=dtype, device=self.ids.device)
        return terms.masked_fill_(~open_, torch.finfo(dtype).min)[:, None]


def lay_out(rows: Sequence[Row], pad: int, device: torch.device) -> Sheet:
    """Lay rows out as one batch on a device; a reply's last token is scored, not read."""
    width = max(map(row_length, rows))
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    part = torch.full_like(ids, -1)
    positions = torch.zeros_like(ids)
    marked = torch.zeros(ids.shape)
    scored: list[tuple[int, int, int, int]] = []
    owner = 0
    for number, row in enumerate(rows):
        first = row[0].first
        ids[number, :first] = torch.tensor(row[0].ids[:first])
        part[number, :first] = 0
        positions[number, :first] = torch.arange(first)
        begin = first
        for place, reply in enumerate(row, 1):
            end = begin + reply.size - 1
            ids[number, begin:end] = torch.tensor(reply.ids[first:-1])
            part[number, begin:end] = place
            positions[number, begin:end] = torch.arange(first, first + reply.size - 1)
            for start, stop in reply.marked:
                marked[number, start : min(stop, first)] = 1
                moved = begin - first
                marked[number, max(start, first) + moved : min(stop + moved, end)] = 1
            columns = [first - 1, *range(begin, end)]
            labels = reply.ids[first:]
            scored += [(number, c, l, owner) for c, l in zip(columns, labels, strict=True)]
            begin, owner = end, owner + 1
    places = torch.tensor(scored).T.to(device)
    return Sheet(
        ids=ids.to(device),
        part=part.to(device),
        positions=positions.to(device),
        marked=marked.to(device),
        rows=places[0],
        columns=places[1],
        labels=places[2],
        owner=places[3],
        replies=owner,
        joined=any(len(row) > 1 for row in rows),
    )


def row_length(row: Row) -> int:
    """Return how many tokens of a row are read."""
    return row[0].first + sum(reply.size - 1 for reply in row)


def share_prompt(replies: Row) -> bool:
    """Whether replies follow the same prompt, edited alike."""
    first = replies[0].first
    prompts = {(reply.first, reply.ids[:first], _before(reply)) for reply in replies}
    return len(prompts) == 1


def _before(reply: Reply) -> tuple[tuple[int, int], ...]:
    """Return what is edited of the prompt."""
    return tuple((a, min(b, reply.first)) for a, b in reply.marked if a < reply.first)


class Scorer:
    """Sums the log-probabilities of replies under a model that `frozen` holds still.

    The output layer runs at scored tokens alone. Where it is a plain linear layer its logits are
    formed by chunks too; one that caps or scales them runs as the model runs it.
    """

    def __init__(self, subject: Subject) -> None:
        model = subject.model
        self.subject = subject
        self.device = input_device(model)
        self.dtype = dtype_of(subject)
        self.network: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.plain = is_plain_head(self.network)
        self.pad = pad_id(subject)

    def __call__(self, sheet: Sheet) -> Float[Tensor, " r"]:
        """Return the log-probability of each reply given its prompt, in nats, float32."""
        inputs = {"input_ids": sheet.ids, "attention_mask": sheet.mask(self.dtype)}
        if sheet.joined:
            inputs["position_ids"] = sheet.positions
        losses = (self._chunked if self.plain else self._whole)(sheet, inputs)
        owner = sheet.owner.to(losses.device)
        return losses.new_zeros(sheet.replies).index_add(0, owner, -losses)

    def joins(self, row: Row) -> bool:
        """Try whether replies in one row score as each alone does.

        They do not where blocks see a window of tokens, or carry a state along. Give the longest
        row there will be: in shorter ones a window does no more.
        """
        if len(row) < 2 or not share_prompt(row):
            return False
        if "position_ids" not in inspect.signature(self.network.get_decoder().forward).parameters:
            return False
        with torch.no_grad():
            together = self(lay_out([row], self.pad, self.device))
            alone = self(lay_out([(reply,) for reply in row], self.pad, self.device))
        room = ROOM.get(self.dtype, ROUNDED) * max(reply.size for reply in row)
        return bool((together - alone).abs().max() <= room)

    def _chunked(self, sheet: Sheet, inputs: Mapping[str, Tensor]) -> Float[Tensor, " p"]:
        decoder, head = self.network.get_decoder(), self.network.get_output_embeddings()
        h = decoder(**inputs, use_cache=False).last_hidden_state
        picked = h[sheet.rows.to(h.device), sheet.columns.to(h.device)].to(head.weight.device)
        labels = sheet.labels.to(picked.device)
        losses: Tensor = HeadLoss.apply(picked, head.weight, head.bias, labels)  # type: ignore[no-untyped-call]
        return losses

    def _whole(self, sheet: Sheet, inputs: Mapping[str, Tensor]) -> Float[Tensor, " p"]:
        with head_at(self.subject, sheet.rows, sheet.columns):
            logits = self.subject.model(**inputs, use_cache=False).logits[0]
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
