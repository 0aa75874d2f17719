"""BiPO: one vector a block, trained so that pairs of replies are preferred both ways.

The bidirectional objective is that of Cao et al. (2024), "Personalized steering of large language
models", eq. 5; on all blocks at once, with an anchor on the likelihood of the chosen reply, that of
Lasnier et al. (2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid
from workbench_training.pair_method import Known, Loss, Run, VectorMethod, refuse_no_number

from workbench.registry import METHODS


@METHODS.register("bipo")
class BiPO(VectorMethod):
    """A vector for each block by bidirectional preference optimization, the model frozen.

    Each update draws a sign d. With R = d beta (log p of a reply with d v added - without), the
    loss is ``-log sigmoid(R_chosen - R_rejected)``: adding v must make the chosen reply likelier
    than the rejected one, taking it away the reverse. Zero is the start. On all blocks this is a
    steering matrix of Lasnier et al. (2026); ``layers`` of one block gives that of Cao et al.

    Args:
        beta: how strongly log-probabilities count.
        gamma: weight of an anchor, the chosen reply's mean negative log-probability by token under
            +v. It holds against vectors that make both replies less likely.
        lasso: weight of a group lasso, by which blocks of little use get a vector of zero.
    """

    def __init__(
        self, beta: float | int = 0.1, gamma: float | int = 0.0, lasso: float | int = 0.0
    ) -> None:
        self.beta = beta
        self.gamma = gamma
        self.lasso = lasso

    def check(self) -> None:
        refuse_no_number("beta", self.beta, above=True)
        refuse_no_number("gamma", self.gamma)
        refuse_no_number("lasso", self.lasso)

    def runs(self, rng: np.random.Generator) -> tuple[Run, ...]:
        sign = float(rng.choice((-1, 1)))
        both = (Run("chosen", sign), Run("rejected", sign))
        return both if self.gamma == 0 or sign > 0 else (*both, Run("chosen", 1.0))

    def loss(self, runs: Sequence[Run], logprobs: Float[Tensor, "r b"], known: Known) -> Loss:
        sign = runs[0].strength
        chosen, rejected = sign * self.beta * (logprobs[:2] - known.reference)
        margin = chosen - rejected
        losses = -logsigmoid(margin)
        told = {
            "margin": margin,
            "reward_chosen": chosen,
            "reward_rejected": rejected,
            "accuracy": (margin > 0).float(),
        }
        if self.gamma:
            nll = -logprobs[2 if len(runs) == 3 else 0] / known.sizes[0]
            losses = losses + self.gamma * nll
            told["nll"] = nll
        return Loss(losses, told)

    def settle(self, parameters: Mapping[str, Tensor], rate: float) -> None:
        if self.lasso:  # the proximal step of lasso * sum of the vectors' lengths
            v = parameters["v"]
            lengths = v.norm(dim=1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny)
            v.mul_((1 - rate * self.lasso / lengths).clamp(min=0))
