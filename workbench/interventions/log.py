"""What edits did, by arm and layer: the realised shift is not the nominal dose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class EditKey:
    """Which edit of which block, and the arms that have it."""

    layer: int
    order: int
    edit: str
    scope: str
    arms: tuple[int, ...]


@dataclass(frozen=True)
class EditRow:
    """What one edit of one arm did at one block."""

    arm: int
    layer: int
    order: int
    edit: str
    scope: str
    n: int
    """Token positions in scope, over all rows and passes."""
    engaged: float
    """Fraction of them at which the hidden state moved by more than 1e-6 of its norm."""
    realised: float
    """Mean of ``(h_after - h_before) . v`` over them, in residual-stream units."""


class EditLog:
    """Counts of what edits touched; sums stay on the device until somebody reads them."""

    def __init__(self) -> None:
        self.passes = 0
        """Forwards of the model that ran."""
        self._tallies: dict[EditKey, Tensor | None] = {}
        """None while the edit has not acted."""

    def expect(self, key: EditKey) -> None:
        """Note that an edit exists, so that one that never fires is seen."""
        self._tallies.setdefault(key, None)

    def add(self, key: EditKey, tally: Float[Tensor, "a 3"]) -> None:
        """Add positions in scope, positions that moved, and summed shift, one row an arm."""
        known = self._tallies[key]
        self._tallies[key] = tally if known is None else known.to(tally) + tally

    def state(self) -> Any:
        """Return what was counted so far, for `restore`."""
        return self.passes, dict(self._tallies)

    def restore(self, state: Any) -> None:
        """Forget what was counted since, as where a batch failed halfway and runs again."""
        self.passes, self._tallies = state[0], dict(state[1])

    @property
    def rows(self) -> list[EditRow]:
        """One row for each arm and edit, in order of layer."""
        rows = []
        for key, tally in sorted(self._tallies.items(), key=lambda kv: (kv[0].layer, kv[0].order)):
            sums = torch.zeros(len(key.arms), 3) if tally is None else tally
            for arm, (n, moved, shift) in zip(key.arms, sums.tolist(), strict=True):
                rows.append(
                    EditRow(
                        arm, key.layer, key.order, key.edit, key.scope, int(n),
                        moved / n if n else float("nan"), shift / n if n else float("nan"),
                    )
                )  # fmt: skip
        return rows

    def realised(self, arm: int) -> float:
        """Mean shift along the edits' own directions; 0 for the unedited arm."""
        return self._mean([(row.n, row.realised) for row in self.rows if row.arm == arm])

    def engaged(self, arm: int) -> float:
        """Fraction of positions in scope that moved; 0 for the unedited arm."""
        return self._mean([(row.n, row.engaged) for row in self.rows if row.arm == arm])

    def idle(self) -> list[EditRow]:
        """Edits that touched no token at all."""
        return [row for row in self.rows if row.n == 0]

    def table(self) -> Any:
        """Return the rows as a pandas table."""
        import pandas as pd

        names = list(EditRow.__dataclass_fields__)
        return pd.DataFrame([vars(row) for row in self.rows], columns=names)

    @staticmethod
    def _mean(pairs: Sequence[tuple[int, float]]) -> float:
        total = sum(n for n, _ in pairs)
        return sum(n * value for n, value in pairs if n) / total if total else 0.0
