"""What edits did, brought from shared rows to every arm that shared them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from workbench.engine.edits import LiveEdits
from workbench.interventions import EditLog
from workbench.interventions.log import EditKey
from workbench.interventions.scope import parse_scope
from workbench.types import Arm


def fresh_log(live: LiveEdits) -> EditLog:
    """Give live edits an empty log of their own and return it."""
    log = EditLog()
    for key in live.keys:
        log.expect(key)
    live.log = log
    return log


class Ledger:
    """Counts of all arms, filled once a batch is done.

    Args:
        log: where the counts go.
        live: the edits of all arms.
        arms: the arms.
    """

    def __init__(self, log: EditLog, live: LiveEdits, arms: Sequence[Arm]) -> None:
        self.log = log
        self.arms = arms
        self._keys: dict[tuple[int, int, int], EditKey] = {
            (arm, key.layer, key.order): key for key in live.keys for arm in key.arms
        }

    def credit(
        self, part: EditLog, owners: Mapping[int, Sequence[tuple[int, int]]], early: bool
    ) -> None:
        """Add what ``part`` counted.

        Args:
            part: a log whose arms have numbers of their own.
            owners: for each of these, the (arm, times) it stands for.
            early: whether its arms lack the edits of the last token.
        """
        sums: dict[EditKey, np.ndarray] = {}
        for row in part.rows:
            if not row.n:
                continue
            counts = row.n * np.array([1.0, row.engaged, row.realised])
            for arm, times in owners[row.arm]:
                order = self._orders(arm, row.layer)[row.order] if early else row.order
                key = self._keys[arm, row.layer, order]
                rows = sums.setdefault(key, np.zeros((len(key.arms), 3)))
                rows[key.arms.index(arm)] += times * counts
        for key, rows in sums.items():
            self.log.add(key, torch.from_numpy(rows))
        self.log.passes += part.passes

    def _orders(self, arm: int, layer: int) -> list[int]:
        """Places, among the arm's edits of a block, of those that act before the last token."""
        edits = [edit for edit in self.arms[arm] if edit.layer == layer]
        return [place for place, edit in enumerate(edits) if parse_scope(edit.scope).touches_prompt]
