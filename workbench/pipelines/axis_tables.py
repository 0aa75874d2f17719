"""Tables beside an axis: where everyone lies, where floors lie, and the default's own band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from workbench.directions import Directions, thresholds
from workbench.directions.fit import column
from workbench.directions.persona import DEFAULT, PersonaSpace, check_floor
from workbench.directions.persona_map import coordinates
from workbench.directions.rows import read_items
from workbench.errors import ConfigError
from workbench.linalg import project
from workbench.types import ActivationsLike

BAND = (0.05, 0.95)
"""Shares of the default's rollouts below the ends of its band."""
FEWEST_APART = 1.0
"""Standard deviations of all rollouts that the released floor may lie from the default."""


def placed(
    space: PersonaSpace, axes: Directions, organisms: Sequence[ActivationsLike] = ()
) -> pd.DataFrame:
    """Return where roles, the default and organisms lie: layer, role, kind, n, axis, pc1, ...

    ``axis`` is the coordinate along the unit axis from the origin, ``pc1`` and so on those along
    the components from the mean role; all in residual units.

    Raises:
        ConfigError: an organism's store that has roles, but not the default's.
        MismatchError: an organism of another kind of model, or a layer that it lacks.
    """
    points = [(space.roles, "role"), (space.default, DEFAULT)]
    points += [] if space.somewhat is None else [(space.somewhat, "role")]
    points += [(_mean(acts, space), "organism") for acts in organisms]
    parts = []
    for means, kind in points:
        on_axis = coordinates(space.axis, means).assign(along="axis")
        table = pd.concat([on_axis, coordinates(axes, means)])
        wide = table.pivot_table(index=["layer", "name"], columns="along", values="value")
        wide = wide[["axis", *axes.names]].reset_index().rename(columns={"name": "role"})
        counts = means.info["n"]
        parts.append(wide.assign(kind=kind, n=wide["role"].map(counts).astype(int)))
    whole = pd.concat(parts, ignore_index=True)
    whole.columns.name = None
    return whole[["layer", "role", "kind", "n", "axis", *axes.names]]


def _mean(acts: ActivationsLike, space: PersonaSpace) -> Directions:
    """Return the mean of an organism's answers, those of the default alone where roles are told."""
    space.axis.refuse_other(acts)
    keep = np.ones(len(read_items(acts, space.axis.layers[0])), bool)
    if "role" in acts.columns:
        keep = column(acts, "role").astype(str) == DEFAULT
    if not keep.any():
        raise ConfigError(
            f"the store of {acts.model.key} has no answer as {DEFAULT!r}; give its own answers to "
            "the default's questions"
        )
    vectors = [
        read_items(acts, layer)[keep].mean(axis=0, dtype=np.float64) for layer in space.axis.layers
    ]
    name = acts.model.key.rpartition("+")[2]
    return replace(
        space.default, names=(name,), vectors=np.stack(vectors)[None], model=acts.model,
        info={"n": {name: int(keep.sum())}},
    )  # fmt: skip


def floors(
    space: PersonaSpace,
    rollouts: ActivationsLike,
    percentiles: Sequence[float],
    *,
    draws: int,
    seed: int,
) -> pd.DataFrame:
    """Return a floor along the axis for each layer and percentile, beside the default's place.

    A percentile is counted along role minus default, over all rollouts whatever their score, as
    the released caps are: 25 is the 75th along the axis. Intervals resample roles and traits.

    Returns:
        Rows layer, percentile, side, floor, low, high, n (rollouts), unit, interval, along,
        position, mean and sd (of the rollouts), default, apart = (floor - default) / sd, near.
    """
    parts = []
    for percentile in percentiles:
        found = thresholds(
            space.axis, rollouts, percentile,
            along="opposite", groups="persona", draws=draws, seed=seed,
        )  # fmt: skip
        checked = check_floor(found, space.axis, space.default)[["layer", "default", "apart"]]
        table = found.table.rename(columns={"threshold": "floor", "n_rows": "rollouts"})
        parts.append(table.merge(checked, on="layer"))
    whole = pd.concat(parts, ignore_index=True)
    whole = whole.assign(side="floor", near=whole["apart"].abs() <= FEWEST_APART)
    return whole[[
        "layer", "percentile", "side", "floor", "low", "high", "n", "unit", "interval", "rollouts",
        "along", "position", "mean", "sd", "default", "apart", "near",
    ]]  # fmt: skip


def reference(space: PersonaSpace, acts: ActivationsLike) -> pd.DataFrame:
    """Return the band in which the default's rollouts lie along the axis, by layer.

    Returns:
        Rows layer, mean, sd, low, high, n, unit, interval.
    """
    keep = column(acts, "role").astype(str) == DEFAULT
    ends = f"{BAND[0]:.0%} to {BAND[1]:.0%} of default rollouts"
    rows = []
    for layer in space.axis.layers:
        along = project(read_items(acts, layer)[keep], space.axis.at(layer)[0]).astype(np.float64)
        low, high = np.quantile(along, BAND)
        rows.append(
            {
                "layer": layer, "mean": float(along.mean()), "sd": float(along.std()),
                "low": float(low), "high": float(high), "n": len(along), "unit": "rollout",
                "interval": ends,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)
