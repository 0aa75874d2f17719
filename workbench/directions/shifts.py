"""What one model's activations have more of than another's, along directions, item by item.

With persona vectors (Chen et al. 2025): the shift that finetuning made at the last prompt token,
and how far a data set's answers lie from the model's own, which tells beforehand what it teaches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.directions.algebra import Difference
from workbench.directions.container import Directions
from workbench.directions.rollouts import scores_of
from workbench.directions.rows import bootstrap_name, group_column, read_items, varying
from workbench.errors import ConfigError, MismatchError
from workbench.linalg import unit
from workbench.stats import cluster_weights, correlations, mean_interval, percentiles
from workbench.types import ActivationsLike, ndarray


def item_shifts(directions: Directions, difference: Difference) -> Float[ndarray, "k l n"]:
    """Return [first(x) - second(x)] . unit(v) of every item, in residual units.

    Items are those of ``difference.first``, in its order.

    Raises:
        MismatchError: another model or site, a layer that is missing, or items without a pair.
    """
    for acts in (difference.first, difference.second):
        directions.refuse_other(acts)
    lines = directions.unit_vectors().astype(np.float64)
    pairs = zip(directions.layers, lines, strict=True)
    return np.stack([v @ difference.at(layer).T for layer, v in pairs], axis=1)


def mean_shifts(
    directions: Directions,
    difference: Difference,
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the mean shift along each direction, with an interval over items or their groups.

    Returns:
        Rows direction, layer, shift, low, high, n, unit, interval, first, second, position; the
        shift is first minus second, in residual units.

    Raises:
        MismatchError: as ``item_shifts``.
    """
    found = item_shifts(directions, difference)
    told = {
        "first": difference.first.model.key,
        "second": difference.second.model.key,
        "position": difference.first.position,
    }
    rows = []
    for k, name in enumerate(directions.names):
        for l, layer in enumerate(directions.layers):
            mean = mean_interval(
                found[k, l], difference.group, unit=difference.groups or "item",
                draws=draws, level=level, seed=seed,
            )  # fmt: skip
            shift = {"shift": mean.value, "low": mean.low, "high": mean.high}
            own = {"n": mean.n, "unit": mean.unit, "interval": mean.name}
            rows.append({"direction": name, "layer": layer, **shift, **own, **told})
    return pd.DataFrame(rows)


def finetuning_shift(
    directions: Directions,
    tuned: ActivationsLike,
    base: ActivationsLike,
    *,
    groups: str | None = None,
    **interval: Any,
) -> pd.DataFrame:
    """Return how far finetuning moved the last prompt token along each direction.

    Args:
        directions: persona vectors.
        tuned: the finetuned model's activations of evaluation prompts, at position ``last``.
        base: the model's before, of the same prompts.
        groups: column resampled together; by default each prompt alone.
        interval: ``draws``, ``level`` and ``seed`` of ``mean_shifts``.

    Raises:
        ConfigError: another position, where the shift is another quantity.
        MismatchError: other prompts, models or sites.
    """
    _refuse_position(tuned, "last", "a finetuning shift is read at the last prompt token")
    return mean_shifts(directions, Difference(tuned, base, "shift", groups), **interval)


def projection_difference(
    directions: Directions,
    data: ActivationsLike,
    own: ActivationsLike,
    *,
    groups: str | None = None,
    **interval: Any,
) -> pd.DataFrame:
    """Return how much more of each direction a data set's answers have than the model's own.

    Both are read by the one model that is to be trained (Chen et al.'s projection difference).

    Args:
        directions: persona vectors.
        data: response means of the data set's answers; of documents without a prompt, of the text.
        own: response means of the model's own answers to the same prompts, with the same ids.
        groups: column resampled together; by default each item alone.
        interval: ``draws``, ``level`` and ``seed`` of ``mean_shifts``.

    Raises:
        ConfigError: no mean over a response.
        MismatchError: other items, or two models: then it would tell models apart and not answers.
    """
    _refuse_position(data, "mean", "a projection difference is of means over the response")
    if data.model.fingerprint != own.model.fingerprint:
        raise MismatchError(
            f"the data set was read by {data.model.key}, the model's own answers by "
            f"{own.model.key}; read both by the model that is to be trained"
        )
    return mean_shifts(
        directions, Difference(data, own, "projection difference", groups), **interval
    )


def monitor(
    directions: Directions,
    acts: ActivationsLike,
    *,
    judge: str,
    score: str = "score",
    within: str | None = None,
    groups: str | None = None,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how well the projection before the answer foretells the score of the answer.

    Much of such a correlation is between kinds of prompts; ``within`` takes that out.

    Args:
        directions: persona vectors.
        acts: at position ``last``, before anything was generated.
        judge: who gave the scores.
        score: column of the score of the answer that followed, 0 to 100; items without one (NaN)
            are left out.
        within: column whose group means are taken off both, such as the system prompt.
        groups: column resampled together; by default each item alone.
        draws: of the bootstrap.
        level: of the interval.
        seed: of the bootstrap.

    Returns:
        Rows direction, layer, correlation, low, high, n, unit, interval, within, judge, unscored.

    Raises:
        ConfigError: another position, no scores, or fewer than four of them.
    """
    _refuse_position(acts, "last", "monitoring reads the last prompt token")
    directions.refuse_other(acts)
    scores = scores_of(acts, score, judge, 0, 100)
    kept = np.flatnonzero(~np.isnan(scores))
    if len(kept) < 4:
        raise ConfigError(f"{len(kept)} of {len(scores)} answers have a score; give four or more")
    inner = None if within is None else group_column(acts, within)[kept]
    weights, n = cluster_weights(group_column(acts, groups)[kept], draws, seed)
    told = {
        "n": n,
        "unit": groups or "item",
        "interval": bootstrap_name(level, groups or "item", n),
        "within": within or "",
        "judge": judge,
        "unscored": len(scores) - len(kept),
    }
    rows = []
    for layer in directions.layers:
        along = read_items(acts, layer)[kept] @ unit(directions.at(layer)).T
        along = varying(along, layer, inner)
        wanted = varying(scores[kept, None], layer, inner)
        value = correlations(along, wanted)[0, :, 0]
        drawn = correlations(along, wanted, weights)[:, :, 0]
        for k, name in enumerate(directions.names):
            low, high = percentiles(drawn[:, k], level) if n > 1 else (np.nan, np.nan)
            found = {"correlation": float(value[k]), "low": low, "high": high}
            rows.append({"direction": name, "layer": layer, **found, **told})
    return pd.DataFrame(rows)


def _refuse_position(acts: ActivationsLike, expected: str, why: str) -> None:
    fits = acts.position == "last" if expected == "last" else acts.position.startswith(expected)
    if not fits:
        raise ConfigError(f"position {acts.position!r}; {why}, so capture position {expected!r}")
