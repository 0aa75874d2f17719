"""Readouts before and after a cap over a fleet: each model, each seed, and gaps between conditions.

A gap that a cap leaves as it was says something only where the cap acted: so every row has the
share of positions that it would move, beside the same caps along random directions, the vectors at
one another's blocks, and a cap that nothing reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.effects.curves import (
    How,
    band,
    by_seed,
    curves,
    interval,
    means,
    swept,
    zero_of,
)
from workbench.effects.displacement import OWN
from workbench.effects.engagement import (
    CONDITION,
    CONTRAST,
    FINAL,
    GENERATED,
    LEAST,
    ORGANISM,
)
from workbench.effects.guards import ARM, GUARDS, MIN_MASS, guarded
from workbench.errors import ConfigError
from workbench.types import ndarray

WHAT = ("readout", "measure", "condition")
BEHAVIOUR = (
    *("level", "model", *WHAT, "control", "dose", "before", "before_low", "before_high"),
    *("after", "after_low", "after_high", "effect", "low", "high", "n", "unit", "interval"),
    *("n_lost", "kept", "band", "band_name", "beyond_band", "mass", "engaged"),
    *("engaged_before", "informative", "guarded"),
)


class _Arm(NamedTuple):
    """One model under one cap, on one measure."""

    level: str
    models: tuple[str, ...]
    """One, or of a contrast two."""
    what: tuple[str, str, str]
    control: str
    before: pd.Series[Any]
    after: pd.Series[Any]
    mass: float
    engaged: float
    guarded: bool


def behaviour(
    frame: pd.DataFrame,
    dose: float,
    *,
    contrasts: Sequence[tuple[str, str]] = (),
    engaged: pd.DataFrame | None = None,
    least: float = LEAST,
    how: How | None = None,
) -> pd.DataFrame:
    """Return every readout before and after the cap, controls beside it.

    Each change is paired: within one model by item, within a contrast by item and training seed.
    The unit is the seed where a model has two or more (t interval), else the item.

    Args:
        frame: results tables of the fleet's sweeps of one cap, joined.
        dose: of the cap; every curve also needs its zero dose.
        contrasts: pairs of models, the second taken off the first.
        engaged: of `workbench.effects.engagement.engagement`, for the share before intervention.
        least: the gate on that share.
        how: unit, level, draws and seed of the intervals.

    Returns:
        The columns ``BEHAVIOUR``. ``effect`` is after minus before; ``kept``, of a contrast, after
        over before; ``band`` the largest absolute effect of the random caps; ``engaged`` the share
        that moved in the hooked pass of the sweep; ``engaged_before`` that beyond the threshold
        without hooks: at the final position of the readout's own prompts (of a text that is scored
        as a whole, at its tokens) where these were read, else of the replies' prompts. Of a
        contrast it is the smaller of both sides. ``informative`` is whether it reaches ``least``;
        where it was not measured, it does not.

    Raises:
        ConfigError: no such dose or model, or several caps in one table.
    """
    how = how or How()
    table = swept(frame, how)
    _check(table, dose, contrasts)
    pooled = list(_arms(table, dose, CONDITION))
    seeds = table["train_seed"].groupby(table["model"]).nunique()
    alone = table[table["model"].isin(seeds[seeds > 1].index)]
    single = alone.assign(model=alone["subject"], train_seed=np.nan)
    arms = pooled + (list(_arms(single, dose, ORGANISM)) if len(single) else [])
    for first, second in contrasts:
        arms += _contrast(pooled, first, second)
    before = _before(engaged)
    rows = [{**_row(arm, dose, how), **_gate(arm, before, least)} for arm in arms]
    return pd.DataFrame(_with_bands(rows, how.level), columns=list(BEHAVIOUR))


def check_results(
    frame: pd.DataFrame, dose: float, contrasts: Sequence[tuple[str, str]] = ()
) -> None:
    """Refuse what `behaviour` would refuse, at once."""
    _check(swept(frame, How()), dose, contrasts)


def _check(table: pd.DataFrame, dose: float, contrasts: Sequence[tuple[str, str]]) -> None:
    own = ["direction", "edit", "layers", "scope", "dose_unit"]
    kinds = table.drop_duplicates(own)[own].to_dict("records")
    if len(kinds) > 1:
        raise ConfigError(
            f"the results hold {len(kinds)} interventions ({kinds[0]}, {kinds[1]}); give those of "
            "one cap, the same in every model"
        )
    doses = sorted(table["dose"].dropna().unique())
    if dose not in doses:
        raise ConfigError(
            f"no dose {dose:g} in the results; doses: {', '.join(f'{one:g}' for one in doses)}; "
            "sweep the cap at its own percentile"
        )
    models = list(dict.fromkeys(table["model"]))
    for pair in contrasts:
        strange = [name for name in pair if name not in models]
        if strange:
            raise ConfigError(
                f"contrast {pair[0]!r} minus {pair[1]!r}: no results of {strange[0]!r}; models: "
                f"{', '.join(models)}"
            )


def _arms(table: pd.DataFrame, dose: float, level: str) -> Iterator[_Arm]:
    kept = guarded(table, MIN_MASS, GUARDS)
    for label, curve in curves(table):
        zero = zero_of(label, curve)
        rows = curve[(curve["dose"] == dose) & ~curve["control"].str.startswith("prompt")]
        for control, arm in rows.groupby("control", sort=False):
            key = tuple({**label, "control": control, "dose": dose}[name] for name in ARM)
            own = means(arm)
            what = (label["readout"], label["measure"], label["condition"])
            shares = (float(arm["mass"].mean()), float(arm["engaged"].mean()))
            yield _Arm(
                level, (label["model"],), what, str(control), zero, own, *shares, bool(kept[key])
            )


def _contrast(arms: Sequence[_Arm], first: str, second: str) -> Iterator[_Arm]:
    """Yield one model's values minus another's, by seed and item."""
    other = {(arm.what, arm.control): arm for arm in arms if arm.models == (second,)}
    for arm in arms:
        against = other.get((arm.what, arm.control))
        if arm.models != (first,) or against is None:
            continue
        yield arm._replace(
            level=CONTRAST,
            models=(first, second),
            before=_minus(arm.before, against.before),
            after=_minus(arm.after, against.after),
            mass=min(arm.mass, against.mass),
            engaged=min(arm.engaged, against.engaged),
            guarded=arm.guarded and against.guarded,
        )


def _minus(own: pd.Series[Any], other: pd.Series[Any]) -> pd.Series[Any]:
    both = own.index.intersection(other.index)
    return own[both] - other[both]


def _row(arm: _Arm, dose: float, how: How) -> dict[str, Any]:
    both = arm.before.index.intersection(arm.after.index)
    lost = len(arm.before.index.union(arm.after.index)) - len(both)

    def told(values: Float[ndarray, " n"], name: str) -> dict[str, Any]:
        return interval(*by_seed(values, both, arm.before), how, name)

    before, after = (side[both].to_numpy(np.float64) for side in (arm.before, arm.after))
    row = {
        "level": arm.level, "model": " - ".join(arm.models),
        **dict(zip(WHAT, arm.what, strict=True)),
        "control": arm.control, "dose": dose, **told(after - before, "effect"),
        "n_lost": lost, "mass": arm.mass, "engaged": arm.engaged, "guarded": arm.guarded,
    }  # fmt: skip
    for name, values in (("before", before), ("after", after)):
        found = told(values, name)
        row |= {name: found[name], f"{name}_low": found["low"], f"{name}_high": found["high"]}
    share = row["after"] / row["before"] if arm.level == CONTRAST and row["before"] else np.nan
    return {**row, "kept": share}


def _with_bands(rows: list[dict[str, Any]], level: float) -> list[dict[str, Any]]:
    """Add how far random caps move the same measure of the same model."""
    drawn: dict[tuple[Any, ...], list[float]] = {}
    keys = ("level", "model", *WHAT)
    for row in rows:
        if row["control"].startswith("random:"):
            drawn.setdefault(tuple(row[key] for key in keys), []).append(row["effect"])
    for row in rows:
        reach, row["band_name"] = band(drawn.get(tuple(row[key] for key in keys), []), level)
        row["band"] = reach
        row["beyond_band"] = bool(np.isfinite(reach) and abs(row["effect"]) > reach)
    return rows


Before = Callable[[str, str, str], float]


def _before(engaged: pd.DataFrame | None) -> Before:
    """Return what gives a model's share before intervention, by readout and control."""
    if engaged is None:
        return lambda _model, _readout, _control: np.nan
    rows = engaged[~engaged["hooked"] & engaged["layer"].isna()]
    known = {
        (row["model"], row["text"], row["position"], row["control"]): float(row["engaged"])
        for row in rows.to_dict("records")
    }

    def find(model: str, readout: str, control: str) -> float:
        places = [(text, at) for text in (f"readout:{readout}", OWN) for at in (FINAL, GENERATED)]
        keys = [(model, text, at, control) for text, at in places]
        return next((known[key] for key in keys if key in known), np.nan)

    return find


def _gate(arm: _Arm, before: Before, least: float) -> dict[str, Any]:
    share = float(np.min([before(name, arm.what[0], arm.control) for name in arm.models]))
    return {"engaged_before": share, "informative": bool(share >= least)}
