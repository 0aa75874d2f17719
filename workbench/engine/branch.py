"""One forward of some rows for some arms: edited, from the trunk or the start, read at will."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from workbench.engine.blocks import stopping_after
from workbench.engine.edits import LiveEdits, Pass
from workbench.engine.forward import Inputs, head_at, run
from workbench.engine.pool import Tap
from workbench.engine.sites import everywhere, parted_after, tapping
from workbench.engine.trunk import Trunk, from_trunk
from workbench.types import Subject

Scope = Callable[[str], Bool[Tensor, "b t"]]
"""From a scope's name to the tokens that it covers."""


@dataclass(frozen=True)
class Branch:
    """Some arms of one subject; every row of a batch stands once for each, side by side."""

    subject: Subject
    live: LiveEdits
    arms: Sequence[int]

    def run(
        self,
        inputs: Inputs,
        scope: Scope,
        *,
        counted: Bool[Tensor, "b t"] | None = None,
        numbers: Sequence[int] | None = None,
        trunk: Trunk | None = None,
        cache: Any = None,
        taps: Sequence[Tap] = (),
        heads: Sequence[tuple[int, int]] = (),
        deepest: int,
    ) -> Float[Tensor, "p a v"] | None:
        """Run the rows for each arm.

        Args:
            inputs: one row a prompt; repeated here.
            scope: where edits act.
            counted: what the log counts; all in scope where None.
            numbers: for each repeated row, its arm's number in ``live``; ``arms`` over and over
                where None.
            trunk: where to start from; None runs every block.
            cache: filled, or used and filled; already repeated.
            taps: residual reads, taken where arms may differ.
            heads: (row, column) where logits are wanted.
            deepest: the last block to run where no logits are wanted.

        Returns:
            Logits at ``heads`` for each arm, or None where there are no heads.
        """
        times = len(self.arms)
        first = 0 if trunk is None else trunk.layer
        if not heads and deepest < first:
            return None
        current = Pass(
            tuple(self.arms) * len(inputs.ids) if numbers is None else tuple(numbers),
            lambda name: scope(name).repeat_interleave(times, 0),
            None if counted is None else counted.repeat_interleave(times, 0),
        )
        where = everywhere if trunk is None else parted_after(trunk.layer)
        output = None
        with ExitStack() as stack:
            if trunk is not None:
                stack.enter_context(from_trunk(self.subject, trunk, times))
            stack.enter_context(self.live.acting(self.subject, lambda: current))
            stack.enter_context(tapping(self.subject, taps, repeats=times, where=where))
            if heads:
                stack.enter_context(head_at(self.subject, *self._places(heads)))
            else:
                stack.enter_context(stopping_after(self.subject, deepest))
            output = run(self.subject, inputs.repeat(times), cache)
        self.live.log.passes += 1
        if output is None:
            return None
        logits: Tensor = output.logits[0]
        return logits.view(len(heads), times, -1)

    def _places(self, heads: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        times = len(self.arms)
        rows = torch.tensor([row * times + arm for row, _ in heads for arm in range(times)])
        columns = torch.tensor([column for _, column in heads for _ in range(times)])
        return rows, columns
