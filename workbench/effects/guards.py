"""Whether the model still works at a dose: limits on readouts that ran in the same sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workbench.effects.curves import INTERVENTION

ARM = (*INTERVENTION, "control", "dose")
MIN_MASS = 0.5


@dataclass(frozen=True)
class Guard:
    """A limit on the mean of one measure.

    A dose passes where the mean lies within ``[least, most]``, is at most ``times`` the own zero
    dose's, and has not fallen by more than ``drop``. Where nothing valid was measured it fails.
    """

    readout: str
    measure: str
    least: float = -np.inf
    most: float = np.inf
    times: float = np.inf
    drop: float = np.inf

    def passes(self, own: float, zero: float) -> bool:
        """Whether the mean at a dose is within the limits, given the mean at the zero dose."""
        if not np.isfinite(own):
            return False
        within = self.least <= own <= self.most
        if not np.isfinite(zero):
            return within
        most = zero * self.times if np.isfinite(self.times) else np.inf  # 0 times inf is no number
        return within and zero - self.drop <= own <= most


GUARDS = (
    Guard("perplexity", "perplexity", times=1.5),
    Guard("repetition", "repetition", most=0.5),
    Guard("drift", "kl", most=2.0),
    Guard("capability", "accuracy", drop=0.1),
)
"""Each applies where a table holds its readout; mass on allowed answers is checked always."""


def guarded(table: pd.DataFrame, min_mass: float, guards: Sequence[Guard]) -> pd.Series[Any]:
    """Return, by ``ARM``, whether every mass and every guard is within its limit.

    Args:
        table: from `workbench.effects.curves.swept`.
        min_mass: least mean probability on allowed answers, for each measure that has one.
        guards: those whose readout the table lacks do nothing.
    """
    keys = list(ARM)
    mass = table.groupby([*keys, "readout", "measure"], sort=False, dropna=False)["mass"].mean()
    kept = ((mass >= min_mass) | mass.isna()).groupby(keys, sort=False, dropna=False).all()
    for guard in guards:
        own = _means(table, guard)
        if own is None:
            continue
        zero = own.xs(("none", 0.0), level=("control", "dose"))
        passed = [
            guard.passes(float(value), float(zero.get(tuple(arm)[: len(INTERVENTION)], np.nan)))
            for arm, value in zip(own.index.tolist(), own, strict=True)
        ]
        kept &= pd.Series(passed, index=own.index).reindex(kept.index, fill_value=True)
    return kept.astype(bool)


def _means(table: pd.DataFrame, guard: Guard) -> pd.Series[Any] | None:
    chosen = table[(table["readout"] == guard.readout) & (table["measure"] == guard.measure)]
    if chosen.empty:
        return None
    values = chosen["value"].where(chosen["valid"].astype(bool))
    return values.groupby([chosen[name] for name in ARM], sort=False, dropna=False).mean()
