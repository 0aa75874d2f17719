"""Margins of pairs of replies by dose: curves, accuracy, monotonicity; the unit is the scenario.

The readout is ``reply_margin``. Pairs of one scenario share sentences, so pairs are averaged within
their scenario first, and every interval is a t interval over scenario means. Doses, and controls
beside the direction, are compared within the same pairs: their intervals are over each scenario's
own difference or slope. How p comes about: `workbench.effects.scenarios`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.effects.curves import How
from workbench.effects.scenarios import (
    at_once,
    over_scenarios,
    p_name,
    scenario_means,
    slope_p,
    steps_p,
)
from workbench.errors import ConfigError
from workbench.stats import Interval
from workbench.types import ndarray

READOUT, TRAIN = "reply_margin", "train"
ALL = "all"
"""The facet that stands for all together."""
OWN, SHUFFLED, RANDOM = "none", "shuffled", "random"
ITEMS = ("control", "dose", "item", "facet", "scenario", "measure", "value")
_INTERVAL = ("low", "high", "interval", "n", "unit")
_CHANGE = ("change", "change_low", "change_high")
CURVES = ("control", "facet", "dose", "mean", *_INTERVAL, *_CHANGE, "n_items", "lost")
ACCURACY = ("control", "facet", "dose", "accuracy", *_INTERVAL, "n_items")
MONOTONE = (
    *("control", "facet", "statistic", "value", "low", "high", "p", "test"),
    *("n", "unit", "interval"),
)
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

    def zero(self) -> Float[ndarray, "n 1"]:
        """Return the values without an edit."""
        return self.values[:, self.doses == 0]


def margin_items(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns ``ITEMS``, a row for each valid value of one intervention's sweep.

    Args:
        frame: the results table of a sweep with the readout ``reply_margin``.

    Raises:
        ConfigError: no such rows, no zero dose, more than one intervention in the table, a row that
            stands twice, or pairs that are not held out.
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
    refuse_repeats(rows, ("control", "dose", "item", "measure"))
    valid = rows[rows["valid"].astype(bool)]
    extras = [json.loads(text) for text in valid["extra"]]
    _refuse_trained([extra.get("split") for extra in extras])
    scenario = [str(extra.get("scenario", "")) for extra in extras]
    told = valid.assign(facet=valid["condition"].astype(str), scenario=scenario)
    told = told.assign(dose=told["dose"].astype(np.float64), value=told["value"].astype(np.float64))
    found_items: pd.DataFrame = told[list(ITEMS)].reset_index(drop=True)
    return found_items


def refuse_repeats(rows: pd.DataFrame, keys: Sequence[str]) -> None:
    """Refuse rows that stand twice, whose mean would stand for both.

    Raises:
        ConfigError: two rows have the same keys; both runs are named.
    """
    twice = rows[rows.duplicated([*keys, "draw"], keep=False)]
    if twice.empty:
        return
    first = twice.iloc[0]
    told = ", ".join(f"{key} {first[key]!r}" for key in keys)
    runs = ", ".join(dict.fromkeys(map(str, twice["run"].dropna()))) or "no run is named"
    raise ConfigError(
        f"{len(twice)} rows of {first['readout']} stand more than once, such as {told} (runs: "
        f"{runs}); give each method one sweep of this readout"
    )


def _refuse_trained(splits: Sequence[str | None]) -> None:
    """Refuse pairs that a matrix was, or may have been, trained on."""
    trained = sum(split in (None, TRAIN) for split in splits)
    if trained:
        named = TRAIN if TRAIN in splits else "none, which is trained on"
        raise ConfigError(
            f"{trained} of {len(splits)} margins are of pairs that are not held out (split: "
            f"{named}); sweep with readouts = [{{ name = 'reply_margin', split = 'test', ... }}], "
            "and write split = 'test' into the rows of held-out pairs"
        )


def margin_curves(items: pd.DataFrame, how: How = SCENARIOS) -> pd.DataFrame:
    """Return the mean margin by control, facet and dose: the columns ``CURVES``.

    ``low`` and ``high`` are of the level, which differs much from scenario to scenario; ``change``
    is from the zero dose, paired, and its interval the one that says whether a dose does anything.
    """
    rows = []
    for one in curves_of(items, "margin"):
        changed = dict(_by_dose(one, one.values - one.zero(), how))
        for dose, told in _by_dose(one, one.values, how):
            moved = changed[dose]
            rows.append({
                "control": one.control, "facet": one.facet, "dose": dose, "mean": told.value,
                **_ends(told), "change": moved.value, "change_low": moved.low,
                "change_high": moved.high, "n_items": len(one.values), "lost": one.lost,
            })  # fmt: skip
    return pd.DataFrame(rows, columns=list(CURVES))


def accuracies(items: pd.DataFrame, how: How = SCENARIOS) -> pd.DataFrame:
    """Return the share of pairs with a margin above 0, ties half: the columns ``ACCURACY``.

    Intervals end at 0 and 1; where all scenarios have the same share they have no width.
    """
    rows = [
        {
            "control": one.control, "facet": one.facet, "dose": dose, "accuracy": told.value,
            **_ends(told), "low": np.clip(told.low, 0, 1), "high": np.clip(told.high, 0, 1),
            "n_items": len(one.values),
        }
        for one in curves_of(items, "margin")
        for dose, told in _by_dose(one, np.sign(one.values) / 2 + 0.5, how)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(ACCURACY))


def displacement(items: pd.DataFrame, how: How = SCENARIOS) -> pd.DataFrame:
    """Return how far each reply's likelihood moves from the zero dose: ``DISPLACEMENT``.

    A margin that grows while ``chosen`` falls pushes both replies down. Rows of the facet
    ``neutral`` are replies without a pole: what a dose costs ordinary text.
    """
    rows = [
        {
            "control": one.control, "facet": one.facet, "dose": dose, "side": side,
            "change": told.value, **_ends(told), "n_items": len(one.values),
        }
        for side in ("chosen", "rejected")
        for one in curves_of(items, side)
        for dose, told in _by_dose(one, one.values - one.zero(), how)
        if dose
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(DISPLACEMENT))


def monotonicity(items: pd.DataFrame, how: How = SCENARIOS) -> pd.DataFrame:
    """Return whether the mean margin rises from dose to dose: the columns ``MONOTONE``.

    One row each for control, facet and statistic. ``test`` says how p came about: flips of the
    scenarios' signs under 20 scenarios, a paired bootstrap over scenarios from there, and no p
    under 6, where the smallest that flips can give is above 0.05.

    - ``slope``: least squares of the margin on the dose, in nats a token and dose, with a t
      interval over the scenarios' slopes; p is two-sided.
    - ``steps``: share of the steps between neighboring doses that rise. The interval counts the
      steps that rise, and those that may, by t intervals of all steps at once.
    - ``smallest_step``: the rise of the step that rises least, between the smallest low and the
      smallest high end of those intervals. p of both is one-sided, against "some step does not
      rise".
    - ``slope_minus_shuffled``, ``slope_minus_random`` (own rows alone): the slope minus that of the
      shuffled labels, or the mean slope of the random directions, within the same pairs.
    """
    whole = [one for one in curves_of(items, "margin") if len(one.doses) > 1 and len(one.values)]
    rows: list[dict[str, Any]] = []
    for one in whole:
        rows += [_slope_row("slope", one, how), *_step_rows(one, how)]
        if one.control == OWN:
            rows += [
                _slope_row(f"slope_minus_{kind}", _apart(one, others), how)
                for kind, others in _beside(whole, one).items()
            ]
    return pd.DataFrame(rows, columns=list(MONOTONE))


def _slope_row(statistic: str, one: Curve, how: How) -> dict[str, Any]:
    centered = one.doses - one.doses.mean()
    slopes = scenario_means(one.values, one.scenarios) @ centered / (centered @ centered)
    (told,) = over_scenarios(slopes[:, None], how)
    return _row(statistic, one, told, slope_p(slopes, how), how)


def _step_rows(one: Curve, how: How) -> list[dict[str, Any]]:
    steps = scenario_means(np.diff(one.values, axis=1), one.scenarios)
    found = at_once(steps, how)
    values, lows, highs = np.array([[told.value, told.low, told.high] for told in found]).T
    shares = [np.nan if np.isnan(ends).any() else (ends > 0).mean() for ends in (lows, highs)]
    p = steps_p(steps, how)
    rises = replace(found[0], value=(values > 0).mean(), low=shares[0], high=shares[1])
    least = replace(found[0], value=values.min(), low=lows.min(), high=highs.min())
    return [_row("steps", one, rises, p, how), _row("smallest_step", one, least, p, how)]


def _row(statistic: str, one: Curve, told: Interval, p: float, how: How) -> dict[str, Any]:
    return {
        "control": one.control, "facet": one.facet, "statistic": statistic, "value": told.value,
        **_ends(told), "p": p, "test": p_name(told.n, how),
    }  # fmt: skip


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
    wide = rows.pivot(index="item", columns="dose", values="value")
    wide = wide.reindex(columns=wide.columns.union([0.0]))
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


def _by_dose(
    one: Curve, values: Float[ndarray, "n d"], how: How
) -> Iterator[tuple[float, Interval]]:
    """Yield each dose with its mean; the zero dose is shared, and stands with own rows alone."""
    if len(values):
        told = over_scenarios(scenario_means(values, one.scenarios), how)
        for dose, found in zip(one.doses, told, strict=True):
            if one.control == OWN or dose != 0:
                yield float(dose), found


def _ends(told: Interval) -> dict[str, Any]:
    return {
        "low": told.low, "high": told.high, "interval": told.name, "n": told.n, "unit": told.unit
    }  # fmt: skip


def _beside(found: Sequence[Curve], one: Curve) -> dict[str, list[Curve]]:
    kinds: dict[str, list[Curve]] = {}
    for other in found:
        kind = other.control.partition(":")[0]
        if other.facet == one.facet and kind in (SHUFFLED, RANDOM) and len(other.values):
            kinds.setdefault(kind, []).append(other)
    return kinds


def _apart(one: Curve, others: Sequence[Curve]) -> Curve:
    """Return one minus the mean of others, at the doses and on the pairs that all of them share.

    Raises:
        ConfigError: they share no pair, or fewer than two doses.
    """
    doses = reduce(np.intersect1d, [other.doses for other in others], one.doses)
    shared = set(one.items).intersection(*(other.items for other in others))
    if len(doses) < 2 or not shared:
        raise ConfigError(
            f"controls {', '.join(other.control for other in others)} share {len(doses)} doses and "
            f"{len(shared)} pairs with the direction itself; sweep all at the same doses"
        )
    items = [item for item in one.items if item in shared]
    own, *rest = (_cut(each, items, doses) for each in (one, *others))
    return own._replace(values=own.values - np.mean([other.values for other in rest], axis=0))


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
