"""Binary classifier optimization (Jung et al. 2024): good and bad answers told apart, unpaired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from workbench.plain import as_json

STATE = "bco.json"
MOMENTUM = 0.9


class Shift:
    """What a reward must exceed to count as good: midway between the mean rewards of both kinds.

    The means move on with each batch, since a batch may hold one kind alone.
    """

    def __init__(self) -> None:
        self.means: dict[str, float] = {}

    @property
    def value(self) -> float:
        """Return the shift, in the units of rewards; 0 before anything was seen."""
        return sum(self.means.values()) / 2 if len(self.means) == 2 else 0.0

    def see(self, rewards: Float[Tensor, " b"], labels: Bool[Tensor, " b"]) -> None:
        """Move the means on by one batch."""
        for name, kind in (("good", labels), ("bad", ~labels)):
            if kind.any():
                fresh = float(rewards[kind].mean())
                before = self.means.get(name, fresh)
                self.means[name] = MOMENTUM * before + (1 - MOMENTUM) * fresh

    def write(self, folder: Path) -> None:
        """Write it into a checkpoint."""
        (folder / STATE).write_text(as_json(self.means), encoding="utf-8")

    def read(self, folder: Path) -> None:
        """Go on from a checkpoint."""
        self.means = json.loads((folder / STATE).read_text(encoding="utf-8"))


def bco_losses(
    rewards: Float[Tensor, " b"], labels: Bool[Tensor, " b"], shift: float
) -> Float[Tensor, " b"]:
    """Return ``-log sigmoid(r - shift)`` for good answers, ``-log sigmoid(shift - r)`` for bad."""
    above = rewards - shift
    return -logsigmoid(torch.where(labels, above, -above))


class BcoLoss:
    """Puts the loss in the place of that of TRL's trainer of unpaired answers.

    A mixin: the trainer gives batches, ``beta``, the reference's log-probabilities and metrics.
    """

    shift: Shift
    beta: float
    model: Any
    _metrics: Any
    compute_ref_log_probs: Any

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        answers = inputs["input_ids"].masked_fill(inputs["completion_mask"] == 0, -100)
        outputs = model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            labels=answers,
            fused_lm_head=True,
            use_cache=False,
        )
        own = outputs.log_probs[:, -(answers.size(1) - 1) :].sum(-1)
        reference, _ = self.compute_ref_log_probs(model, inputs)
        rewards = self.beta * (own - reference).float()
        labels = torch.as_tensor(inputs["label"], dtype=torch.bool, device=rewards.device)
        if self.model.training:
            self.shift.see(rewards.detach(), labels)
        losses = bco_losses(rewards, labels, self.shift.value)
        self._note(rewards.detach(), labels, int(inputs["attention_mask"].sum()))
        return (losses.mean(), outputs) if return_outputs else losses.mean()

    def _note(self, rewards: Tensor, labels: Tensor, tokens: int) -> None:
        training = self.model.training
        told = self._metrics["train" if training else "eval"]
        for name, kind in (("rewards/chosen", labels), ("rewards/rejected", ~labels)):
            if kind.any():
                told[name].append(float(rewards[kind].mean()))
        told["shift"].append(self.shift.value)
        if training:
            self._seen = getattr(self, "_seen", 0) + tokens
        told["num_tokens"] = [getattr(self, "_seen", 0)]
