"""Texts side by side: one row a prompt and draw, one column an arm."""

from __future__ import annotations

import json

import pandas as pd

from workbench.errors import ConfigError


def side_by_side(frame: pd.DataFrame, *, readout: str = "reply") -> pd.DataFrame:
    """Return the texts of a sweep, prompts down and doses across; zero comes first.

    Args:
        frame: a results table whose rows of ``readout`` hold ``text`` in ``extra``.
        readout: ``reply``, or ``repetition``, whose greedy replies are kept too.

    Returns:
        Indexed by subject, item and draw, with the prompt as the first column where it is kept. A
        column is named by direction and dose, and by the control where it is one.

    Raises:
        ConfigError: no such rows, or rows without a text.
    """
    rows = frame[frame["readout"] == readout]
    extra = rows["extra"].map(json.loads)
    if rows.empty or not extra.map(lambda told: "text" in told).all():
        raise ConfigError(
            f"no texts of the readout {readout!r}; sweep or measure the readout reply first"
        )
    rows = rows.assign(
        _text=extra.map(lambda told: told["text"]),
        _prompt=extra.map(lambda told: _plain(told.get("prompt"))),
        _arm=[_arm(*row) for row in rows[["direction", "dose", "control"]].itertuples(index=False)],
        _zero=(rows["dose"] != 0).astype(int),
    ).sort_values("_zero", kind="stable")
    index = ["subject", "item", "draw"]
    wide = rows.drop_duplicates([*index, "_arm"]).pivot(index=index, columns="_arm", values="_text")
    wide = wide[list(dict.fromkeys(rows["_arm"]))].rename_axis(columns=None)
    prompts = rows.drop_duplicates(index).set_index(index)["_prompt"]
    if prompts.notna().any():
        wide.insert(0, "prompt", prompts.reindex(wide.index))
    return wide


def _arm(direction: str | None, dose: float, control: str) -> str:
    if direction is None or pd.isna(dose):
        return "unedited" if control == "none" else control
    if dose == 0:
        return "dose 0"
    return f"{direction} {dose:+g}" + ("" if control == "none" else f" ({control})")


def _plain(prompt: object) -> str | None:
    """A chat reads as its last message."""
    if isinstance(prompt, list):
        return str(prompt[-1]["content"])
    return None if prompt is None else str(prompt)
