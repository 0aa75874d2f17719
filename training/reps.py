"""RePS: one vector a block that adds a concept to replies, and takes it out where it is nulled.

Wu et al. (2025), "Improved representation steering for language models", arXiv 2505.20809.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid
from workbench_training.pair_method import Known, Loss, Marks, Run, VectorMethod, refuse_no_number

from workbench.registry import METHODS

TINY = 1e-8
"""Added to a squared length: a vector of zero nulls nothing."""


@METHODS.register("reps")
class RePS(VectorMethod):
    """A vector for each block by reference-free preference optimization, the model frozen.

    Each update draws a factor a. With a v added, the chosen reply is to be likelier by token than
    the rejected one; with what lies along v taken out, ``h - relu(h.v) v / |v|^2``, the reverse.
    Both margins are by token, and the side that the model disfavors counts for more:
    ``D+ = b+ lp_a(chosen) / n_c - lp_a(rejected) / n_r``, ``b+ = max(lp(rejected) - lp(chosen),
    1)`` without an edit; D- alike with the replies exchanged and v nulled. The loss is
    ``-log sigmoid(D+) - log sigmoid(D-)``.

    Args:
        factors: what a is drawn from; 1 is the vector as it is kept.
    """

    def __init__(self, factors: Sequence[float | int] = (0.5, 1.0, 1.5, 2.0)) -> None:
        self.factors = factors

    def check(self) -> None:
        if not isinstance(self.factors, list | tuple) or not self.factors:
            raise ValueError(f"factors = {self.factors!r}; expected a list of numbers above 0")
        for factor in self.factors:
            refuse_no_number("a factor of factors", factor, above=True)

    def edited(
        self, h: Float[Tensor, "b t d"], part: Mapping[str, Tensor], marks: Marks
    ) -> Float[Tensor, "b t d"]:
        added = super().edited(h, part, marks)
        if not marks.nulls:
            return added
        v = part["v"]
        along = torch.relu(h @ v) / (v.square().sum() + TINY)
        return added - torch.outer((marks.null * along).flatten(), v).view(h.shape)

    def runs(self, rng: np.random.Generator) -> tuple[Run, ...]:
        factor = float(rng.choice(self.factors))
        added = (Run("chosen", factor), Run("rejected", factor))
        return (*added, Run("chosen", null=True), Run("rejected", null=True))

    def loss(
        self,
        runs: Sequence[Run],  # noqa: ARG002
        logprobs: Float[Tensor, "r b"],
        known: Known,
    ) -> Loss:
        chosen, rejected, chosen_null, rejected_null = logprobs / known.sizes.repeat(2, 1)
        behind = known.reference[1] - known.reference[0]
        margin = behind.clamp(min=1) * chosen - rejected
        null_margin = (-behind).clamp(min=1) * rejected_null - chosen_null
        before = known.reference / known.sizes
        told = {
            "margin": chosen - rejected - (before[0] - before[1]),
            "null_margin": rejected_null - chosen_null - (before[1] - before[0]),
            "reward_chosen": chosen - before[0],
            "reward_rejected": rejected - before[1],
            "accuracy": (chosen > rejected).float(),
        }
        return Loss(-logsigmoid(margin) - logsigmoid(null_margin), told)
