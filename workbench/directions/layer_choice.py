"""Which layer a fit is read at: chosen on held-out topics, never on the topic that is reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.directions.evidence import ALL_TOPICS, SIDES, Items
from workbench.directions.fit import fit_many
from workbench.errors import ConfigError
from workbench.given import blocks_of
from workbench.stats import auc
from workbench.types import ndarray

FEWEST = 3
"""Topics (or groups of facts) that the choice of a layer holds out, one at a time."""


def default_window(steering: Any) -> tuple[int, ...]:
    """Return the blocks that are edited where none are named: what the fit chose, else all it has.

    ``info`` of directions or a map names one block as ``layer`` or several as ``window``. What was
    selected from them without these blocks is a choice of its own.
    """
    known = tuple(steering.layers)
    chosen = steering.info.get("window", steering.info.get("layer"))
    window = known if chosen is None else blocks_of(chosen, known)
    return window if set(window) <= set(known) else known


def choose_layers(
    held_out: Mapping[int, Float[ndarray, "k k s"]],
    topics: Sequence[str],
    layers: Sequence[int],
    rule: str,
) -> dict[str, int]:
    """Choose a layer from all topics (ALL_TOPICS), and one for each topic without that topic.

    ``held_out[layer][a, b]`` are the two polarities' AUCs on topic b of a fit without a and b. For
    all topics they are averaged over the diagonal (fits without b alone), for topic a over b != a.
    A layer is worth the lower of the two means (rule lowest_polarity) or their mean (balanced).
    """
    combine = np.nanmin if rule == "lowest_polarity" else np.nanmean
    every = np.arange(len(topics))
    pairs = {
        topic: (np.full(len(topics) - 1, a), every[every != a]) for a, topic in enumerate(topics)
    }
    chosen = {}
    read = ~np.isnan(np.stack([held_out[layer] for layer in layers])).all(axis=(0, 1, 2))
    for name, (a, b) in {**pairs, ALL_TOPICS: (every, every)}.items():
        worth = [combine(np.nanmean(held_out[layer][a, b][:, read], axis=0)) for layer in layers]
        chosen[name] = int(layers[int(np.argmax(worth))])
    return chosen


def choice_items(items: Items, seed: int) -> Items:
    """Return the items as the layer rule splits them: by topic, or by facts under three topics.

    The facts of each topic are dealt into five groups (fewer where there are few), so that the
    layer is chosen on held-out facts; what is then checked has taken part in the choice.

    Raises:
        ConfigError: too few facts to deal into three groups.
    """
    if len(items.topics) >= FEWEST:
        return items
    groups = min(5, len(np.unique(items.facts)) // 4)
    if groups < FEWEST:
        raise ConfigError(
            f"the layer is chosen on {FEWEST} or more held-out topics, or on held-out "
            f"{items.unit}s where there are fewer topics; found {len(items.topics)} topics and "
            f"{len(np.unique(items.facts))} {items.unit}s, {4 * FEWEST} are needed. Add items, or "
            "fix the layer with [layers] candidates = [L]"
        )
    first = np.unique(items.facts, return_index=True)[1]
    strata = list(zip(items.topic[first], items.columns.y[first], items.sides[first], strict=True))
    order = np.random.default_rng(seed).permutation(len(first))
    dealt = np.empty(len(first), np.int64)
    for turn, row in enumerate(sorted(order, key=lambda row: strata[row])):
        dealt[row] = turn % groups
    own = dealt[np.unique(items.facts, return_inverse=True)[1]]
    return replace(items, columns=replace(items.columns, groups=own.astype(str)))


def held_out_aucs(
    X: Float[ndarray, "n d"], estimator: Any, items: Items
) -> Float[ndarray, "k k s"]:
    """AUC on topic b (second axis) of a fit without topics a and b, affirmed and negated.

    The diagonal is the plain leave-one-topic-out AUC.
    """
    count = len(items.topics)
    found = np.full((count, count, len(SIDES)), np.nan)
    for a in range(count):
        for b in range(a, count):
            train = ~items.rows_of(items.topics[a], items.topics[b])
            columns = items.columns.take(train)
            (coef,) = fit_many(estimator, X[train], items.columns.y[train][:, None], columns)
            found[a, b] = _side_aucs(X, coef, items, items.topics[b])
            found[b, a] = _side_aucs(X, coef, items, items.topics[a])
    return found


def _side_aucs(X: ndarray, coef: ndarray, items: Items, topic: str) -> list[float]:
    rows = [items.rows_of(topic) & (items.sides == side) for side in SIDES]
    return [float(auc(X[r] @ coef, items.columns.y[r])) if r.any() else np.nan for r in rows]
