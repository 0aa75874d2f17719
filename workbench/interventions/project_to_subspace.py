"""The edit that keeps what lies in the span of several directions, or all but that."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from workbench.interventions.precision import part_way, widen
from workbench.registry import EDITS


@EDITS.register("project_to_subspace")
@dataclass(frozen=True)
class ProjectToSubspace:
    """``center + inside * P (h - center) + outside * (h - center - P (h - center))``.

    P projects onto the rows of ``basis``, which are orthonormal. ``inside`` 1 and ``outside`` 0
    keep the subspace alone; 0 and 1 remove it, as ``ablate`` does for one direction.
    """

    def __call__(
        self,
        h: Float[Tensor, "b t d"],
        v: Float[Tensor, "b d"],  # noqa: ARG002  (the first direction, for the log)
        dose: Float[Tensor, " b"],
        *,
        basis: Float[Tensor, "r d"],
        inside: Float[Tensor, " b"],
        outside: Float[Tensor, " b"],
        center: Float[Tensor, " d"] | None = None,
    ) -> Float[Tensor, "b t d"]:
        wide = widen(h)
        basis = basis.to(wide.dtype)
        from_center = wide if center is None else wide - center.to(wide.dtype)
        within = linear(linear(from_center, basis), basis.T)
        gain, loss = (inside - 1)[:, None, None], (outside - 1)[:, None, None]
        return part_way(h, gain * within + loss * (from_center - within), dose)
