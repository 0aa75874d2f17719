"""LoReFT: a map of low rank in each block, trained on the chosen replies alone.

Wu et al. (2024), "ReFT: representation finetuning for language models", eq. 2:
``h + R^T (W h + b - R h)`` with orthonormal rows R.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from workbench_training.pair_method import Known, Learned, Loss, Marks, PairMethod, Run

from workbench.directions import LinearMap
from workbench.errors import ConfigError
from workbench.registry import METHODS


@METHODS.register("loreft")
class LoReFT(PairMethod):
    """A map ``h + R^T (W h + b - R h)`` for each block, R with orthonormal rows, W free.

    Trained on the mean negative log-probability of the chosen reply by token; rejected replies only
    measure. W = R + D is held as D, so that D = 0 and b = 0, the start, are no edit at all and
    weight decay pulls back to it. The result is a linear map, ``linear_map`` edits it in.

    Args:
        rank: rows of R.
    """

    gives = "map"

    def __init__(self, rank: int = 4) -> None:
        self.rank = rank

    def check(self) -> None:
        whole = isinstance(self.rank, Integral) and not isinstance(self.rank, bool)
        if not whole or self.rank < 1:
            raise ValueError(f"rank = {self.rank!r}; expected a whole number of 1 or more")

    def start(self, layers: int, width: int, seed: int) -> dict[str, Tensor]:
        if self.rank > width:
            raise ConfigError(
                f"rank = {self.rank}, and the residual stream has {width} coordinates; lower it"
            )
        drawn = torch.randn(layers, width, self.rank, generator=torch.Generator().manual_seed(seed))
        return {
            "basis": _orthonormal(drawn),
            "change": torch.zeros(layers, self.rank, width),
            "bias": torch.zeros(layers, self.rank),
        }

    def parts(self, parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {**parameters, "basis": _orthonormal(parameters["basis"])}

    def edited(
        self, h: Float[Tensor, "b t d"], part: Mapping[str, Tensor], marks: Marks
    ) -> Float[Tensor, "b t d"]:
        moved = h @ part["change"].T + part["bias"]
        return h + (marks.strength[..., None] * moved) @ part["basis"].T

    def runs(self, rng: np.random.Generator) -> tuple[Run, ...]:  # noqa: ARG002
        return (Run("chosen"),)

    def loss(
        self,
        runs: Sequence[Run],  # noqa: ARG002
        logprobs: Float[Tensor, "r b"],
        known: Known,
    ) -> Loss:
        nll = -logprobs[0] / known.sizes[0]
        gained = (logprobs[0] - known.reference[0]) / known.sizes[0]
        return Loss(nll, {"reward_chosen": gained})

    def sizes(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, " l"]:
        change, bias = (parameters[name].detach() for name in ("change", "bias"))
        return (change.square().sum((1, 2)) + bias.square().sum(1)).sqrt()

    def result(self, learned: Learned, name: str) -> LinearMap:
        parts = {key: value.detach().cpu() for key, value in self.parts(learned.parameters).items()}
        left, right = parts["basis"], parts["change"]
        assert learned.shift is not None, "maps are observed at the end of training"
        return LinearMap(
            name=name,
            layers=learned.layers,
            b=torch.einsum("ldr,lr->ld", left, parts["bias"]).numpy(),
            axis=learned.shift,
            left=left.numpy(),
            right=right.numpy(),
            model=learned.model,
            norms=learned.norms,
            position=learned.position,
            info=learned.info,
        )


def _orthonormal(columns: Float[Tensor, "l d r"]) -> Float[Tensor, "l d r"]:
    """Return the orthonormal columns that span the same, turned as little as QR can."""
    q, r = torch.linalg.qr(columns)
    turned: Tensor = q * torch.sign(torch.diagonal(r, dim1=-2, dim2=-1)).detach()[:, None]
    return turned
