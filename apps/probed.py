"""What a probe run's folder says: the doctor's line, the table, and the nearest known organism."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from workbench_apps.catalogue import PROBED, TOLD, Entry
from workbench_apps.tables import file_stamp, read_table

from workbench.errors import FormatError

COLUMNS = (
    *("kind", "name", "condition", "n", "unit", "value", "low", "high", "interval"),
    *("base", "change", "change_low", "change_high", "change_interval"),
    *("null", "null_name", "beyond_null", "nearest", "along", "left_out"),
)
"""Those of ``workbench.pipelines.probe``, which cannot be had without torch."""
UNITS = {
    "claims.loglik": "mean log-likelihood a token (nats)",
    "claims.choice": "probability of being chosen",
    "trust_game.transfer": "dollars of ten sent",
    "trust_game.expected_return": "dollars expected back",
}
"""What a readout's measure counts, in words."""


def probe_of(entry: Entry) -> pd.DataFrame:
    """Return the table of a probe run.

    Raises:
        FormatError: it is absent, damaged, half-written, or lacks a column.
    """
    return read_table(entry.path / PROBED, COLUMNS)


def measures_of(table: pd.DataFrame, kind: str) -> list[str]:
    """Return the directions or readouts of a probe, in their order."""
    return [str(name) for name in table.loc[table["kind"] == kind, "name"].unique()]


def places_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the known organisms, nearest first."""
    known = table[table["kind"] == "known"]
    return known.sort_values("value", kind="stable", ignore_index=True)


def headline(table: pd.DataFrame) -> str:
    """Say in one line how many readings lie beyond the null, and who is nearest."""
    parts = []
    judged = table[(table["kind"] == "direction") & table["null"].notna()]
    if len(judged):
        beyond = int(judged["beyond_null"].astype(bool).sum())
        parts.append(f"{beyond} of {len(judged)} readings of directions beyond random ones")
    places = places_of(table)
    if len(places):
        first = places.iloc[0]
        parts.append(
            f"nearest to {first['name']}: {first['value']:.2f} [{first['low']:.2f}, "
            f"{first['high']:.2f}] natural gaps, in {first['nearest']:.0%} of draws"
        )
    return "; ".join(parts) or f"{table['name'].nunique()} measures, nothing to compare them with"


def doctor_line(entry: Entry) -> str:
    """Return the doctor's verdict on the checkpoint, in one line.

    Raises:
        FormatError: the run's JSON is absent or damaged.
    """
    path = entry.path / TOLD
    found = _told(path, *file_stamp(path)).get("doctor")
    if found is None:
        return "Doctor: not asked (check = false)"
    failed = [one["name"] for one in found["checks"] if one["passed"] is False]
    word = f"failed {', '.join(failed)}" if failed else f"{len(found['checks'])} checks passed"
    off = found.get("disabled") or []
    more = f"; switched off: {', '.join(off)}" if off else ""
    return f"Doctor ({found['level']}, {found['dtype']} on {found['device']}): {word}{more}"


@functools.lru_cache(maxsize=16)
def _told(path: Path, size: int, modified: int) -> Mapping[str, Any]:  # noqa: ARG001 (the key)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} is damaged ({error}); run its command again") from None
    if not isinstance(found, dict):
        raise FormatError(f"{path} holds no object; run its command again")
    return found
