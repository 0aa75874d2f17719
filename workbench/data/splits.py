"""The column split: rows of ``train``, those held out, and others, which are neither."""

from __future__ import annotations

from typing import Any

from workbench.errors import ConfigError

TRAIN = "train"
"""The split that is trained on; rows that name none are of it, whoever reads them."""


def checked_split(split: Any, held_out: str, where: str) -> str:
    """Return a row's split; one that is not known may be another, but no slip of a known one.

    Args:
        split: what the row says.
        held_out: the split that is held out.
        where: the row, for the message.

    Raises:
        ConfigError: no text, or a known split in other letters or with spaces around it: its rows
            would be left out without a word.
    """
    if not isinstance(split, str):
        raise ConfigError(f"{where}: split = {split!r}; a text such as {TRAIN!r} is expected")
    for known in (TRAIN, held_out):
        if split != known and split.strip().lower() == known.lower():
            raise ConfigError(f"{where}: split = {split!r}; write {known!r}")
    return split
