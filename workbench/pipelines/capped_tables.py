"""From the units of a capping run to what its tables are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from workbench.directions import Directions, Thresholds, thresholds
from workbench.directions.calibrate import matched
from workbench.directions.persona import check_floor
from workbench.effects.displacement import OWN, REFERENCE, Placed
from workbench.effects.engagement import POSITIONS, Counted, Member
from workbench.pipelines.capped_fleet import REPLIES, Parts, Piece
from workbench.sweeps.controls import Controls, versions

if TYPE_CHECKING:
    from workbench.pipelines.capping import CappingConfig

Kept = Sequence[tuple[Piece, Mapping[str, Any]]]
"""Units with what each gave."""
NEAR = 1.0
"""Standard deviations of the rollouts within which a floor counts as near the default."""


def labels_of(config: CappingConfig) -> list[tuple[str, float]]:
    """Return (control, dose) of every cap, in the order in which units hold them."""
    known = Controls.of(config.controls)
    names = ["none", *(f"random:{n}" for n in range(known.random))]
    names += [f"layers:{n}" for n in range(known.layers)] + ["noop"] * known.noop
    return [("none", 0.0), *((name, config.dose) for name in names)]


def members_of(units: Kept) -> dict[int, Member]:
    """Return the models by their number."""
    return {piece.member: Member(*tree["member"]) for piece, tree in units}


def counted(config: CappingConfig, units: Kept) -> list[Counted]:
    """Return what each cap would move, by model, text and position; and what the axis's does."""
    found = []
    controls = [control for control, _ in labels_of(config)[1:]]
    for number, member in members_of(units).items():
        own = [tree for piece, tree in units if piece.member == number and piece.kind == REPLIES]
        other = [tree for piece, tree in units if piece.member == number and piece.kind != REPLIES]
        texts = {OWN: _joined(own)}
        texts |= {f"readout:{k}": v for tree in other for k, v in tree["readouts"].items()}
        layers = tuple(sorted(config.layers))
        for text, tree in texts.items():
            for place, position in enumerate(POSITIONS):
                total = tree["total"][:, place]
                if not total.any():
                    continue
                each = [
                    (control, False, tree["beyond"][:, place, n])
                    for n, control in enumerate(controls)
                ]
                if "hooked" in tree:
                    each.append(("none", True, tree["hooked"][:, place]))
                found += [
                    Counted(member, text, hooked, position, control, layers, beyond, total)
                    for control, hooked, beyond in each
                ]
    return found


def _joined(trees: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = ("total", "beyond", "hooked")
    return {name: np.concatenate([tree[name] for tree in trees]) for name in names}


def placed(config: CappingConfig, units: Kept) -> list[Placed]:
    """Return the states of every model's replies, the reference's uncapped ones first."""
    found = []
    for number, member in members_of(units).items():
        trees = [tree for piece, tree in units if piece.member == number and piece.kind == REPLIES]
        for place, (control, dose) in enumerate(labels_of(config)):
            states = np.concatenate([tree["states"][place] for tree in trees])
            found.append(Placed(member, OWN, control, dose, states))
        if number:
            states = np.concatenate([tree["reference"] for tree in trees])
            found.append(Placed(member, REFERENCE, "none", 0.0, states))
    return found


def texts(config: CappingConfig, parts: Parts, units: Kept) -> pd.DataFrame:
    """Return every reply: model, subject, item, prompt, control, dose, text."""
    rows = []
    for piece, tree in units:
        if piece.kind != REPLIES:
            continue
        member = Member(*tree["member"])
        asked = parts.prompts.take(range(piece.first, piece.stop))
        for (control, dose), replies in zip(labels_of(config), tree["texts"], strict=True):
            rows += [
                {
                    "model": member.model, "subject": member.subject, "item": item,
                    "prompt": _said(prompt), "control": control, "dose": dose, "text": text,
                }
                for item, prompt, text in zip(asked.ids, asked.items, replies, strict=True)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def _said(prompt: Any) -> str:
    """Return what the user said last."""
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


def floors(config: CappingConfig, parts: Parts) -> pd.DataFrame:
    """Return each cap's floor by layer, its own and the controls', and where the default lies.

    ``below`` is the share of the calibration under the floor, ``match_below`` that of the states
    that controls are matched on; ``near`` is whether the axis's floor lies within one standard
    deviation of the default Assistant. A control matched by engagement is no percentile.
    """
    window = tuple(config.layers)
    axis = parts.axis.select(window)
    known = Controls.of(config.controls)
    own = thresholds(axis, parts.calibration, config.percentile, along=config.along)
    frames = [_floors("none", own, axis, parts)]
    if parts.default is not None:
        check = check_floor(own, axis, parts.default)
        frames[0] = frames[0].assign(default=check["default"], apart=check["apart"])
    for control, version in versions(parts.axis, window, known, config.seed):
        assert isinstance(version, Directions), "an axis is no map"
        at = version.select(window)
        found = thresholds(at, parts.calibration, config.percentile, along=config.along)
        if parts.match is not None:
            limits = list(matched(own, axis, at, parts.match).values())
            table = found.table.assign(threshold=limits, low=np.nan, high=np.nan)
            found = replace(found, table=table.assign(interval=MATCHED, percentile=np.nan))
        frames.append(_floors(control, found, at, parts))
    joined = pd.concat(frames, ignore_index=True).reindex(columns=list(FLOORS))
    return joined.assign(near=joined["apart"].abs() <= NEAR)


FLOORS = (
    *("control", "layer", "floor", "low", "high", "n", "unit", "interval", "percentile", "along"),
    *("position", "mean", "sd", "below", "match_below", "default", "apart", "near"),
)
MATCHED = "none: as many states as the axis's cap"


def _floors(control: str, found: Thresholds, at: Directions, parts: Parts) -> pd.DataFrame:
    stores = {"below": parts.calibration, "match_below": parts.match}
    shares = {
        name: found.beyond(at, store)["below"].to_numpy()
        for name, store in stores.items()
        if store is not None
    }
    return found.table.rename(columns={"threshold": "floor"}).assign(control=control, **shares)
