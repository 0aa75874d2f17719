"""How often a cap would act: shares of token positions beyond its threshold, with a gate.

A cap that few states reach tests nothing, whatever it leaves unchanged (Lu et al. 2026 released
thresholds of mean responses, which single tokens pass at another rate). So the share is counted
before the intervention, on an unhooked pass, and a share under the gate is called uninformative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from workbench.effects.curves import How, interval
from workbench.errors import ConfigError
from workbench.stats import mean_interval
from workbench.types import ndarray

LEAST = 0.15
"""Under this share of positions a cap counts as uninformative."""
FINAL, GENERATED, PROMPT = "final", "generated", "prompt"
POSITIONS = (FINAL, GENERATED, PROMPT)
"""The prompt's last token, the tokens behind it, and the prompt's others but its first."""
CONDITION, ORGANISM, CONTRAST = "condition", "organism", "contrast"
"""Levels of a table: seeds of one organism pooled, each seed alone, one condition minus another."""
CELL = ("text", "hooked", "position", "control")
ENGAGEMENT = (
    *("level", "model", *CELL, "layer", "engaged", "low", "high", "n", "unit", "interval"),
    *("n_positions", "least", "informative"),
)


@dataclass(frozen=True)
class Member:
    """One model of a fleet: the reference, or an organism."""

    subject: str
    """Its short name, as in results tables."""
    model: str
    """What its training seeds have in common: the organism's name; else the subject."""
    seed: int | None = None


@dataclass(frozen=True)
class Counted:
    """Positions beyond the threshold in one model, on one kind of text under one control."""

    member: Member
    text: str
    """Whose text: "own" for the model's reply, ``readout:NAME`` for a readout's prompts."""
    hooked: bool
    """Whether the cap acted while they were counted, so that lower blocks were capped already."""
    position: str
    control: str
    layers: tuple[int, ...]
    beyond: Int[ndarray, "n l"]
    """Positions beyond the threshold, by prompt and layer."""
    total: Int[ndarray, " n"]
    """Positions, by prompt."""


def beyond_floor(
    coordinates: Float[ndarray, "t l"], floors: Float[ndarray, " l"]
) -> Int[ndarray, " l"]:
    """Count the tokens whose coordinate lies under the floor, by layer."""
    return np.asarray((coordinates < floors).sum(axis=0), np.int64)


def engagement(
    counted: Sequence[Counted], *, least: float = LEAST, how: How | None = None
) -> pd.DataFrame:
    """Return the share of (token position, layer) pairs beyond the threshold.

    Pairs count equally. The unit is the training seed where a model has two or more of them (a t
    interval over the seeds' shares), else the whole prompt, which counts by its positions;
    intervals are cut at 0 and 1.

    Args:
        counted: one for each member, text, pass, position and control.
        least: the gate.
        how: level, draws and seed of the intervals.

    Returns:
        The columns ``ENGAGEMENT``: a row for each layer, and one without a layer for all together.
        ``informative`` is whether the share reaches ``least``.

    Raises:
        ConfigError: a gate outside (0, 1).
    """
    if not 0 < least < 1:
        raise ConfigError(f"least = {least}; expected a share between 0 and 1, such as {LEAST}")
    how = how or How()
    rows = [
        {**label, **cell, "least": least, "informative": bool(cell["engaged"] >= least)}
        for label, group in _grouped(counted)
        for cell in _cells(group, label["level"] == CONDITION, how)
    ]
    found = pd.DataFrame(rows, columns=list(ENGAGEMENT))
    return found.assign(layer=found["layer"].astype("Int64"))


def _grouped(counted: Sequence[Counted]) -> Iterator[tuple[dict[str, Any], list[Counted]]]:
    """Yield each condition, and behind one of several seeds each of its organisms."""
    groups: dict[tuple[Any, ...], list[Counted]] = {}
    for one in counted:
        cell = tuple(getattr(one, name) for name in CELL)
        groups.setdefault((one.member.model, *cell), []).append(one)
    for (model, *keys), group in groups.items():
        label = dict(zip(CELL, keys, strict=True))
        yield {"level": CONDITION, "model": model, **label}, group
        if len(group) > 1:
            for one in group:
                yield {"level": ORGANISM, "model": one.member.subject, **label}, [one]


def _cells(group: list[Counted], pooled: bool, how: How) -> Iterator[dict[str, Any]]:
    """Yield the share over all layers, then at each."""
    layers = group[0].layers
    for layer in (None, *layers):
        rows = slice(None) if layer is None else [layers.index(layer)]
        hits = [one.beyond[:, rows].sum(axis=1) for one in group]
        totals = [one.total * (len(layers) if layer is None else 1) for one in group]
        told = {"layer": layer, "n_positions": int(sum(total.sum() for total in totals))}
        if pooled and len(group) > 1:
            shares = [
                _share(hit, total) for hit, total in zip(hits, totals, strict=True) if total.sum()
            ]
            found = interval(np.array(shares), len(shares), how, "engaged")
            ends = {side: float(np.clip(found[side], 0, 1)) for side in ("low", "high")}
            yield {**told, **found, **ends}
        else:
            yield {**told, **share_interval(hits[0], totals[0], how)}


def share_interval(
    hits: Int[ndarray, " n"], totals: Int[ndarray, " n"], how: How
) -> dict[str, Any]:
    """Return ``engaged, low, high, n, unit, interval`` of ``sum(hits) / sum(totals)`` over prompts.

    Prompts without a position, such as those with an empty reply, are left out of ``n``.
    """
    kept = totals > 0
    hits, totals, n = hits[kept], totals[kept], int(kept.sum())
    told = {"engaged": _share(hits, totals), "n": n, "unit": "prompt"}
    if n < 2:
        nothing = f"none: {n} prompt{'' if n == 1 else 's'}"
        return {**told, "low": np.nan, "high": np.nan, "interval": nothing}
    found = mean_interval(
        hits / totals, weights=totals.astype(np.float64), unit="prompt",
        draws=how.draws, level=how.level, seed=how.seed, within=(0.0, 1.0),
    )  # fmt: skip
    return {**told, "low": found.low, "high": found.high, "interval": found.name}


def _share(hits: Int[ndarray, " n"], totals: Int[ndarray, " n"]) -> float:
    return float(hits.sum() / totals.sum()) if totals.sum() else float("nan")
