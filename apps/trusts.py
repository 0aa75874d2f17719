"""What a trust run says: margins by dose and facet, accuracy, blocks, and the pairs behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from workbench_apps.catalogue import MARGIN, Entry
from workbench_apps.tables import read_table

from workbench.errors import FormatError

FACETS, MONOTONE, BLOCKS = "facets.parquet", "monotone.parquet", "blocks.parquet"
ITEMS, PAIRS = "items.parquet", "pairs.parquet"
DISPLACEMENT, TRANSFER = "displacement.parquet", "transfer.parquet"
OWN, ALL = "none", "all"
"""The control that is none, and the facet that stands for all together."""
RANDOM, SHUFFLED = "random", "shuffled"
NEUTRAL = "neutral"
"""The facet of replies without a pole."""
_CURVE = ["method", "control", "facet", "dose", "mean", "low", "high", "interval", "n", "unit"]


def margins_of(entry: Entry) -> pd.DataFrame:
    """Return the mean margin by method, control, facet and dose.

    Raises:
        FormatError: the file is damaged or lacks a column; so for every table here.
    """
    return read_table(entry.path / MARGIN, _CURVE)


def accuracy_of(entry: Entry) -> pd.DataFrame:
    """Return the share of held-out pairs in which the trusting reply leads."""
    return _optional(
        entry,
        FACETS,
        ["method", "control", "facet", "dose", "accuracy", "low", "high", "n", "unit"],
    )


def monotone_of(entry: Entry) -> pd.DataFrame:
    """Return the statistics of monotonicity over the doses."""
    told = ["statistic", "value", "low", "high", "p", "test", "n", "unit"]
    return _optional(entry, MONOTONE, ["method", "control", "facet", *told])


def displacement_of(entry: Entry) -> pd.DataFrame:
    """Return how far each dose moves the likelihood of each reply."""
    told = ["side", "change", "low", "high", "interval", "n", "unit"]
    return _optional(entry, DISPLACEMENT, ["method", "control", "facet", "dose", *told])


def transfer_of(entry: Entry) -> pd.DataFrame:
    """Return how far each dose moves the trust game."""
    told = ["measure", "condition", "change", "low", "high", "band", "beyond_band", "mass"]
    return _optional(entry, TRANSFER, ["method", "control", "dose", *told, "interval", "n", "unit"])


def blocks_of(entry: Entry) -> pd.DataFrame:
    """Return norms and cosines of each steering matrix by block."""
    return _optional(entry, BLOCKS, ["method", "control", "layer", "norm"])


def items_of(entry: Entry) -> pd.DataFrame:
    """Return each held-out pair's margin by method, control and dose.

    Raises:
        FormatError: a margin stands twice, as of two sweeps of one method.
    """
    keys = ["method", "control", "dose", "item"]
    table = _optional(entry, ITEMS, [*keys, "facet", "margin"])
    if table.duplicated(keys).any():
        first = table[table.duplicated(keys)].iloc[0]
        raise FormatError(
            f"{entry.path / ITEMS} holds the margin of {first['item']} under {first['method']} at "
            f"dose {first['dose']:g} twice; judge one sweep a method: workbench trust"
        )
    return table


def pair_of(entry: Entry, item: str) -> Mapping[str, Any] | None:
    """Return the conversation and the two replies of one item; None where the run keeps none.

    Raises:
        FormatError: as for every table.
    """
    columns = ["item", "facet", "prompt", "chosen", "rejected"]
    table = _optional(entry, PAIRS, columns)
    rows = table[table["item"].astype(str) == item]
    if rows.empty:
        return None
    row: dict[str, Any] = {str(key): value for key, value in rows.iloc[0].to_dict().items()}
    turns = row["prompt"]
    return {**row, "prompt": json.loads(turns) if isinstance(turns, str) else list(turns)}


def methods_of(entry: Entry) -> list[str]:
    """Return the methods in the order of the table."""
    table = margins_of(entry)
    return [str(name) for name in table.loc[table["control"] == OWN, "method"].unique()]


def facets_of(table: pd.DataFrame) -> list[str]:
    """Return the facets, the one that stands for all first."""
    found = [str(name) for name in table["facet"].unique()]
    return sorted(found, key=lambda name: (name != ALL, found.index(name)))


def before_and_after(entry: Entry, method: str, dose: float) -> pd.DataFrame:
    """Return each item's margin without an edit and at one dose: item, facet, before, after."""
    table = items_of(entry)
    own = table[(table["method"] == method) & (table["control"] == OWN)]
    at = {
        name: own[own["dose"] == value].set_index("item")["margin"].rename(name)
        for name, value in (("before", 0.0), ("after", dose))
    }
    joined = pd.concat(at.values(), axis=1, join="inner")
    facet = own.drop_duplicates("item").set_index("item")["facet"]
    return joined.join(facet).reset_index()[["item", "facet", "before", "after"]]


def item_by_dose(entry: Entry, item: str, methods: Sequence[str]) -> pd.DataFrame:
    """Return one item's margins, a row for each dose and a column for each method."""
    table = items_of(entry)
    own = table[(table["item"].astype(str) == item) & (table["control"] == OWN)]
    wide = own.pivot(index="dose", columns="method", values="margin")
    return wide.reindex(columns=[name for name in methods if name in wide.columns])


def _optional(entry: Entry, name: str, columns: Sequence[str]) -> pd.DataFrame:
    if entry.file(name) is None:
        return pd.DataFrame(columns=list(columns))
    return read_table(entry.path / name, columns)
