"""Margins of pairs of replies by dose: curves, accuracy, monotonicity; scenarios are resampled.

The readout is ``reply_margin``. Pairs of one scenario share sentences, so every interval is a
bootstrap over scenarios, and doses are compared within the same pairs: a draw of scenarios is the
same for all doses and for the control that stands beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.effects.curves import How
from workbench.errors import ConfigError
from workbench.stats import bootstrap_interval, cluster_weights, percentiles
from workbench.types import ndarray

READOUT = "reply_margin"
ALL = "all"
"""The facet that stands for all together."""
OWN, SHUFFLED, RANDOM = "none", "shuffled", "random"
ITEMS = ("control", "dose", "item", "facet", "scenario", "measure", "value")
_INTERVAL = ("low", "high", "interval", "n", "unit")
_CHANGE = ("change", "change_low", "change_high")
CURVES = ("control", "facet", "dose", "mean", *_INTERVAL, *_CHANGE, "n_items", "lost")
ACCURACY = ("control", "facet", "dose", "accuracy", *_INTERVAL, "n_items")
MONOTONE = ("control", "facet", "statistic", "value", "low", "high", "p", "n", "unit", "interval")
DISPLACEMENT = ("control", "facet", "dose", "side", "change", *_INTERVAL, "n_items")
SCENARIOS = How(unit="scenario")


class Curve(NamedTuple):
    """The pairs of one control and facet that are whole: a value at every dose."""

    control: str
    facet: str
    doses: Float[ndarray, " d"]
    values: Float[ndarray, "n d"]
    scenarios: ndarray
    """Of each pair."""
    items: tuple[str, ...]
    lost: int
    """Pairs that lack a valid value at some dose."""


def margin_items(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns ``ITEMS``, a row for each valid value of one intervention's sweep.

    Args:
        frame: the results table of a sweep with the readout ``reply_margin``.

    Raises:
        ConfigError: no such rows, no zero dose, or more than one intervention in the table.
    """
    rows = frame[(frame["readout"] == READOUT) & frame["dose"].notna()]
    if rows.empty:
        raise ConfigError(
            "no margins in these results; sweep with readouts = [{ name = 'reply_margin', ... }]"
        )
    for name in ("subject", "direction", "edit", "layers", "scope", "unit"):
        found = rows[name].drop_duplicates().tolist()
        if len(found) > 1:
            raise ConfigError(
                f"the results hold {len(found)} values of {name} ({found[0]}, {found[1]}, ...); "
                "margins are of one intervention: give each sweep by itself"
            )
    if not ((rows["control"] == OWN) & (rows["dose"] == 0)).any():
        raise ConfigError("no zero dose in these results; sweep dose 0 too")
    valid = rows[rows["valid"].astype(bool)]
    scenario = [str(json.loads(text).get("scenario", "")) for text in valid["extra"]]
    told = valid.assign(facet=valid["condition"].astype(str), scenario=scenario)
    told = told.assign(dose=told["dose"].astype(np.float64), value=told["value"].astype(np.float64))
    found_items: pd.DataFrame = told[list(ITEMS)].reset_index(drop=True)
    return found_items


def margin_curves(items: pd.DataFrame, how: How = SCENARIOS) -> pd.DataFrame:
    """Return the mean margin by control, facet and dose: the columns ``CURVES``.

    ``low`` and ``high`` are of the level, which differs much from scenario to scenario; ``change``
    is from the zero dose, paired, and its interval the one that says whether a dose does anything.
    """
    rows = [
        {
            "control": one.control, "facet": one.facet, "dose": dose, "mean": told.value,
            **_ends(told), "change": moved.value, "change_low": moved.low,
            "change_high": moved.high, "n_items": len(one.values), "lost": one.lost,
        }
        for one in curves_of(items, "margin")
        for dose, column in zip(one.doses, one.values.T, strict=True)
        if _shown(one, dose)
        for told in [_interval(column, one, how)]
        for moved in [_interval(column - one.values[:, _zero(one)], one, how)]
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(CURVES))


def accuracies(items: pd.DataFrame, how: How = SCENARIOS) -> pd.DataFrame:
    """Return the share of pairs with a margin above 0, ties half: the columns ``ACCURACY``."""
    rows = [
        {
            "control": one.control, "facet": one.facet, "dose": dose, "accuracy": told.value,
            **_ends(told), "n_items": len(one.values),
        }
        for one in curves_of(items, "margin")
        for dose, column in zip(one.doses, one.values.T, strict=True)
        if _shown(one, dose)
        for told in [_interval(np.sign(column) / 2 + 0.5, one, how)]
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(ACCURACY))


def displacement(items: pd.DataFrame, how: How = SCENARIOS) -> pd.DataFrame:
    """Return how far each reply's likelihood moves from the zero dose: ``DISPLACEMENT``.

    A margin that grows while ``chosen`` falls pushes both replies down. Rows of the facet
    ``neutral`` are replies without a pole: what a dose costs ordinary text.
    """
    rows = []
    for side in ("chosen", "rejected"):
        for one in curves_of(items, side):
            change = one.values - one.values[:, [_zero(one)]]
            for dose, column in zip(one.doses, change.T, strict=True):
                if dose and _shown(one, dose):
                    told = _interval(column, one, how)
                    rows.append({
                        "control": one.control, "facet": one.facet, "dose": dose, "side": side,
                        "change": told.value, **_ends(told), "n_items": len(column),
                    })  # fmt: skip
    return pd.DataFrame(rows, columns=list(DISPLACEMENT))


def monotonicity(items: pd.DataFrame, how: How = SCENARIOS) -> pd.DataFrame:
    """Return whether the mean margin rises from dose to dose: the columns ``MONOTONE``.

    One row each for control, facet and statistic, with a paired bootstrap over scenarios:

    - ``slope``: least squares of the mean margin on the dose, in nats a token and dose; p is
      two-sided.
    - ``steps``: share of the steps between neighboring doses that rise; p is the share of draws in
      which not every one does.
    - ``smallest_step``: the rise of the step that rises least; p is the share of draws in which it
      does not.
    - ``slope_minus_shuffled``, ``slope_minus_random`` (own rows alone): the slope minus that of the
      shuffled labels, or the mean slope of the random directions, on the same draws of scenarios.
    """
    found = list(curves_of(items, "margin"))
    rows: list[dict[str, Any]] = []
    for one in found:
        if len(one.doses) < 2:
            continue
        drawn, means = _draws(one, how), one.values.mean(0)
        steps, step = np.diff(drawn, axis=1), np.diff(means)
        slope, slopes = _slope(one.doses, means[None])[0], _slope(one.doses, drawn)
        add = _adder(rows, one, how)
        add("slope", slope, slopes, _two_sided(slopes))
        add("steps", (step > 0).mean(), (steps > 0).mean(1), (steps <= 0).any(1).mean())
        add("smallest_step", step.min(), steps.min(1), (steps.min(1) <= 0).mean())
        if one.control == OWN:
            for name, others in _beside(found, one).items():
                pairs = [_matched(one, other) for other in others]
                value = np.mean([a.values.mean(0) - b.values.mean(0) for a, b in pairs], axis=0)
                draws = np.mean([_draws(a, how) - _draws(b, how) for a, b in pairs], axis=0)
                apart = _slope(pairs[0][0].doses, draws)
                add(f"slope_minus_{name}", _slope(pairs[0][0].doses, value[None])[0], apart,
                    _two_sided(apart))  # fmt: skip
    return pd.DataFrame(rows, columns=list(MONOTONE))


def curves_of(items: pd.DataFrame, measure: str) -> Iterator[Curve]:
    """Yield every control's pairs by facet, then all facets together; zero doses are shared."""
    own = items[items["measure"] == measure]
    zero = own[(own["control"] == OWN) & (own["dose"] == 0)]
    for control, rows in own.groupby("control", sort=False):
        whole = rows if control == OWN else pd.concat([zero, rows[rows["dose"] != 0]])
        facets = [str(facet) for facet in rows["facet"].unique()]
        named = [facet for facet in facets if facet != "neutral"]
        yield _curve(str(control), ALL, whole[whole["facet"].isin(named)])
        for facet in facets:
            yield _curve(str(control), facet, whole[whole["facet"] == facet])


def _curve(control: str, facet: str, rows: pd.DataFrame) -> Curve:
    wide = rows.pivot_table(index="item", columns="dose", values="value", sort=True)
    kept = wide.dropna()
    scenario = rows.drop_duplicates("item").set_index("item")["scenario"]
    return Curve(
        control=control,
        facet=facet,
        doses=wide.columns.to_numpy(np.float64),
        values=kept.to_numpy(np.float64),
        scenarios=scenario.reindex(kept.index).to_numpy(str),
        items=tuple(map(str, kept.index)),
        lost=len(wide) - len(kept),
    )


def _zero(one: Curve) -> int:
    return int(np.flatnonzero(one.doses == 0)[0])


def _shown(one: Curve, dose: float) -> bool:
    """A control's zero dose is the direction's own, and stands there."""
    return len(one.values) > 0 and bool(one.control == OWN or dose != 0)


def _interval(values: Float[ndarray, " n"], one: Curve, how: How) -> Any:
    return bootstrap_interval(
        values, one.scenarios, unit=how.unit, draws=how.draws, level=how.level, seed=how.seed
    )


def _ends(told: Any) -> dict[str, Any]:
    return {
        "low": told.low, "high": told.high, "interval": told.name, "n": told.n, "unit": told.unit
    }  # fmt: skip


def _draws(one: Curve, how: How) -> Float[ndarray, "b d"]:
    """Return the mean curve of each draw of scenarios, the same draws for the same scenarios."""
    weights, _ = cluster_weights(one.scenarios, how.draws, how.seed)
    return np.asarray(weights @ one.values / weights.sum(1, keepdims=True))


def _slope(doses: Float[ndarray, " d"], means: Float[ndarray, "b d"]) -> Float[ndarray, " b"]:
    centered = doses - doses.mean()
    return np.asarray(means @ centered / (centered @ centered))


def _two_sided(draws: Float[ndarray, " b"]) -> float:
    """Return the bootstrap p of a value against 0, never below one draw in all."""
    least = 1 / (len(draws) + 1)
    return float(min(1.0, 2 * max(min((draws <= 0).mean(), (draws >= 0).mean()), least / 2)))


def _adder(rows: list[dict[str, Any]], one: Curve, how: How) -> Any:
    n = len(np.unique(one.scenarios))
    name = f"{how.level:.0%} paired bootstrap over {how.unit}s" if n > 1 else f"none: 1 {how.unit}"

    def add(statistic: str, value: float, draws: Float[ndarray, " b"], p: float) -> None:
        low, high = percentiles(draws, how.level) if n > 1 else (np.nan, np.nan)
        rows.append({
            "control": one.control, "facet": one.facet, "statistic": statistic,
            "value": float(value), "low": low, "high": high, "p": float(p) if n > 1 else np.nan,
            "n": n, "unit": how.unit, "interval": name,
        })  # fmt: skip

    return add


def _beside(found: Sequence[Curve], one: Curve) -> dict[str, list[Curve]]:
    kinds: dict[str, list[Curve]] = {}
    for other in found:
        kind = other.control.partition(":")[0]
        if other.facet == one.facet and kind in (SHUFFLED, RANDOM) and len(other.values):
            kinds.setdefault(kind, []).append(other)
    return kinds


def _matched(one: Curve, other: Curve) -> tuple[Curve, Curve]:
    """Return both with the pairs and the doses that they share.

    Raises:
        ConfigError: they share no pair, or fewer than two doses.
    """
    doses = np.intersect1d(one.doses, other.doses)
    items = [item for item in one.items if item in set(other.items)]
    if len(doses) < 2 or not items:
        raise ConfigError(
            f"control {other.control!r} shares {len(doses)} doses and {len(items)} pairs with the "
            "direction itself; sweep both at the same doses"
        )
    first, second = (_cut(each, items, doses) for each in (one, other))
    return first, second


def _cut(one: Curve, items: Sequence[str], doses: Float[ndarray, " d"]) -> Curve:
    place = {item: row for row, item in enumerate(one.items)}
    rows = [place[item] for item in items]
    columns = np.flatnonzero(np.isin(one.doses, doses))
    return one._replace(
        doses=one.doses[columns],
        values=one.values[rows][:, columns],
        scenarios=one.scenarios[rows],
        items=tuple(items),
    )
