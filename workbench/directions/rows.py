"""Activations as rows, each with its item: tokens without the attention sink, items in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from workbench.directions.cells import center_by
from workbench.directions.fit import column
from workbench.errors import ConfigError, FormatError, MismatchError
from workbench.types import ActivationsLike, ndarray


class Rows(NamedTuple):
    """Vectors of one layer and the number of the item that each belongs to."""

    values: Float[ndarray, "n d"]
    item: Int[ndarray, " n"]

    @property
    def unit(self) -> str:
        """What a row is: "token" where items hold several."""
        return "token" if len(np.unique(self.item)) < len(self.item) else "item"


def read_rows(acts: ActivationsLike, layer: int) -> Rows:
    """Return one layer in float32; of position ``all`` every token but each item's first.

    Raises:
        ConfigError: no token is left, or the layer was not captured.
        FormatError: some rows are not finite.
    """
    if layer not in acts.layers:
        raise ConfigError(
            f"layer {layer} was not captured; these activations hold layers "
            f"{', '.join(map(str, acts.layers))} (0-based block indices)"
        )
    values = np.asarray(acts.at(layer), np.float32)
    offsets = getattr(acts, "offsets", None)
    item = np.arange(len(values))
    if offsets is not None:
        item = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        kept = np.delete(np.arange(len(item)), offsets[:-1][np.diff(offsets) > 0])
        values, item = values[kept], item[kept]
    if not len(values):
        raise ConfigError("every item has one token, the attention sink; no row is left")
    bad = int((~np.isfinite(values).all(axis=1)).sum())
    if bad:
        raise FormatError(
            f"layer {layer}: {bad} of {len(values)} rows are not finite; capture again in "
            "bfloat16 or float32"
        )
    return Rows(values, item)


def read_items(acts: ActivationsLike, layer: int) -> Float[ndarray, "n d"]:
    """Return one vector an item in float32; of position ``all`` the mean of its tokens.

    Raises:
        ConfigError: an item has no token but the attention sink.
        FormatError: some rows are not finite.
    """
    values, item = read_rows(acts, layer)
    offsets = getattr(acts, "offsets", None)
    if offsets is None:
        return values
    counts = np.bincount(item, minlength=len(offsets) - 1)
    if not counts.all():
        raise ConfigError(
            f"item {int(np.argmin(counts))} has no token but the attention sink, so no mean; "
            "leave it out of the prompts (in Python acts.where)"
        )
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = np.add.reduceat(values.astype(np.float64), starts, axis=0)
    return np.asarray(sums / counts[:, None], np.float32)


def varying(
    values: Float[ndarray, "n d"], layer: int, within: Shaped[ndarray, " n"] | None = None
) -> Float[ndarray, "n d"]:
    """Take the mean off, of all items or of each group, in float64.

    Raises:
        ConfigError: nothing is left.
    """
    exact = values.astype(np.float64)
    left = center_by(exact, np.zeros(len(exact)) if within is None else within)
    left -= left.mean(axis=0)
    if np.abs(left).max() <= 1e-12 * np.abs(exact).max():
        raise ConfigError(
            f"the {len(values)} items are alike at layer {layer}"
            f"{'' if within is None else ' within their groups'}, so there is no variance to speak "
            "of; leave that layer out, or give other items"
        )
    return left


def bootstrap_name(level: float, unit: str, n: int) -> str:
    """Name an interval over n resampled units; one alone has none."""
    return f"{level:.0%} bootstrap over {unit}s" if n > 1 else f"none: 1 {unit}"


def count_items(acts: ActivationsLike) -> int:
    """Return the number of items, which the columns or else the first layer tell."""
    for values in acts.columns.values():
        return len(values)
    return len(acts.at(acts.layers[0]))


def common_items(
    first: ActivationsLike, second: ActivationsLike, *, all_of_them: bool = False
) -> tuple[Int[ndarray, " n"], Int[ndarray, " n"]]:
    """Return the rows of the items that two sets of activations share by ``id``, in one order.

    Args:
        first: gives the order.
        second: in any order.
        all_of_them: refuse where an item is in one set alone.

    Raises:
        ConfigError: there is no column ``id``, or an id occurs twice.
        MismatchError: too few items are shared, or, with ``all_of_them``, not all.
    """
    ids = [ids_of(acts) for acts in (first, second)]
    place = {name: row for row, name in enumerate(ids[1])}
    rows = np.array([row for row, name in enumerate(ids[0]) if name in place], np.int64)
    others = np.array([place[ids[0][row]] for row in rows], np.int64)
    apart = max(len(ids[0]), len(ids[1])) - len(rows)
    if len(rows) < 2 or (all_of_them and apart):
        raise MismatchError(
            f"{len(rows)} ids are shared by the {len(ids[0])} items of {first.model.key} and the "
            f"{len(ids[1])} of {second.model.key}; capture the same prompts with both"
        )
    return rows, others


def layers_in_common(wanted: Sequence[int] | None, *parts: Sequence[int]) -> tuple[int, ...]:
    """Return the layers asked for, or those that every part holds.

    Raises:
        MismatchError: one asked for is missing, or there are none in common.
    """
    shared = [layer for layer in parts[0] if all(layer in other for other in parts[1:])]
    chosen = shared if wanted is None else list(wanted)
    missing = [layer for layer in chosen if layer not in shared]
    if missing or not chosen:
        held = " and ".join(", ".join(map(str, part)) for part in parts)
        what = f"layer {missing[0]} is not held by all" if missing else "no layer is shared"
        raise MismatchError(f"{what}; layers held: {held} (0-based block indices)")
    return tuple(chosen)


def group_column(acts: ActivationsLike, name: str | None) -> Shaped[ndarray, " n"]:
    """Return the column to resample by, or each item's own number."""
    return np.arange(count_items(acts)) if name is None else column(acts, name)


def ids_of(acts: ActivationsLike) -> list[str]:
    """Return the ids of the items.

    Raises:
        ConfigError: there is no column ``id``, or an id occurs twice.
    """
    ids = [str(name) for name in column(acts, "id")]
    if len(set(ids)) < len(ids):
        raise ConfigError(
            f"{len(ids) - len(set(ids))} of {len(ids)} ids occur twice; give each one"
        )
    return ids
