"""Prompt sets: texts or chats, an id each, and every other column kept beside them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import ConfigError


@dataclass(frozen=True)
class PromptSet:
    """Texts or chats in order; ``columns`` are arrays of the same length."""

    ids: tuple[str, ...]
    items: tuple[Any, ...]
    """A ``str`` each, or a chat: a tuple of ``{"role": ..., "content": ...}``."""
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = "memory"

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(self.ids).items() if count > 1]
        if twice:
            raise ConfigError(
                f"{self.source}: id {twice[0]!r} stands {self.ids.count(twice[0])} times; "
                f"ids must differ, so rename {len(twice)} of them or leave the id column out"
            )
        if not self.items:
            raise ConfigError(f"{self.source}: no rows; a prompt set needs at least one")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_chat(self) -> bool:
        """Whether the items are chats."""
        return not isinstance(self.items[0], str)

    def where(self, **columns: Any) -> PromptSet:
        """Keep the rows whose columns equal the given value, or are in the given list.

        Raises:
            ConfigError: there is no such column, or no row is left.
        """
        keep = np.ones(len(self), bool)
        for name, wanted in columns.items():
            allowed = wanted if isinstance(wanted, (list, tuple, set)) else [wanted]
            keep &= np.isin(self.column(name), list(allowed))
        return self.take(np.flatnonzero(keep))

    def take(self, rows: Sequence[int] | np.ndarray) -> PromptSet:
        """Keep the given rows, in that order."""
        return PromptSet(
            tuple(self.ids[i] for i in rows),
            tuple(self.items[i] for i in rows),
            {name: values[np.asarray(rows, int)] for name, values in self.columns.items()},
            self.source,
        )

    def column(self, name: str) -> np.ndarray:
        """Return one column.

        Raises:
            ConfigError: there is no such column.
        """
        if name == "id":
            return np.array(self.ids)
        if name not in self.columns:
            known = ", ".join(self.columns) or "none"
            raise ConfigError(f"{self.source}: no column {name!r}; columns: {known}")
        return self.columns[name]

    @classmethod
    def from_records(
        cls,
        records: Sequence[Mapping[str, Any]],
        text: str | None = None,
        *,
        source: str = "records",
    ) -> PromptSet:
        """Build from dictionaries.

        Args:
            records: rows; ``id`` is optional (row numbers are used), every other key is a column.
            text: the key that holds the text; by default ``messages`` (a chat) or ``text``.
            source: named in error messages.

        Raises:
            ConfigError: no rows, a missing key, duplicate ids, an empty text or a malformed chat.
        """
        rows = [dict(record) for record in records]
        if not rows:
            raise ConfigError(f"{source}: no rows; a prompt set needs at least one")
        key = text or ("messages" if "messages" in rows[0] else "text")
        items = tuple(_item(row, key, number, source) for number, row in enumerate(rows))
        if len({isinstance(item, str) for item in items}) == 2:
            raise ConfigError(f"{source}: texts and chats are mixed; keep them in two prompt sets")
        ids = tuple(str(row.get("id", number)) for number, row in enumerate(rows))
        names = [
            name
            for name in dict.fromkeys(k for row in rows for k in row)
            if name not in (key, "id")
        ]
        return cls(
            ids, items, {name: _array([row.get(name) for row in rows]) for name in names}, source
        )

    @classmethod
    def from_csv(cls, path: str | Path, text: str = "text") -> PromptSet:
        """Read a CSV file; ``text`` names its text column, every other column is kept.

        Raises:
            ConfigError: no such file or column, duplicate ids, an empty text.
        """
        with _existing(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = list(reader.fieldnames or ())
            if text not in header:
                raise ConfigError(
                    f"{path}: no column {text!r}; columns: {', '.join(header) or 'none'}. "
                    "Name the text column with text=..."
                )
            rows = [{k: _number(v) if k != text else v for k, v in row.items()} for row in reader]
        return cls.from_records(rows, text, source=str(path))

    @classmethod
    def from_jsonl(cls, path: str | Path, text: str | None = None) -> PromptSet:
        """Read one JSON object a line.

        Raises:
            ConfigError: no such file, a line that is not a JSON object, duplicate ids.
        """
        rows = []
        for number, line in enumerate(_existing(path).read_text(encoding="utf-8").splitlines(), 1):
            if line.strip():
                rows.append(_object(line, path, number))
        return cls.from_records(rows, text, source=str(path))

    @classmethod
    def from_parquet(cls, path: str | Path, text: str | None = None) -> PromptSet:
        """Read a Parquet table."""
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(_existing(path)).to_pylist()
        return cls.from_records(rows, text, source=str(path))


def read_prompts(path: str | Path, text: str | None = None) -> PromptSet:
    """Read a prompt set by its suffix: .csv, .jsonl or .parquet.

    Raises:
        ConfigError: another suffix, or what the readers raise.
    """
    suffix = Path(path).suffix
    if suffix == ".csv":
        return PromptSet.from_csv(path, text or "text")
    if suffix == ".jsonl":
        return PromptSet.from_jsonl(path, text)
    if suffix == ".parquet":
        return PromptSet.from_parquet(path, text)
    raise ConfigError(f"{str(path)!r} is no prompt set; give a .csv, .jsonl or .parquet file")


def _existing(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise ConfigError(f"no prompt file {str(path)!r}; give the path of an existing file")
    return Path(path)


def _object(line: str, path: str | Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}, line {number}: not JSON ({error.msg}); write one object a line"
        ) from None
    if not isinstance(row, dict):
        raise ConfigError(
            f"{path}, line {number}: {type(row).__name__} found, a JSON object expected"
        )
    return row


def _item(row: Mapping[str, Any], key: str, number: int, source: str) -> Any:
    if key not in row:
        raise ConfigError(f"{source}, row {number}: no key {key!r}; keys: {', '.join(row)}")
    value = row[key]
    if isinstance(value, str):
        if not value.strip():
            raise ConfigError(
                f"{source}, row {number}: {key} is empty; give it a text or drop the row"
            )
        return value
    try:
        return tuple({"role": str(m["role"]), "content": str(m["content"])} for m in value)
    except (TypeError, KeyError):
        raise ConfigError(
            f"{source}, row {number}: {key} = {value!r} is neither a text nor a list of "
            '{"role", "content"} messages'
        ) from None


def _number(text: Any) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text


def _array(values: list[Any]) -> np.ndarray:
    """Numbers and booleans keep their type; anything else becomes text ("" for a missing value)."""
    if all(isinstance(v, bool) for v in values):
        return np.array(values, bool)
    if all(isinstance(v, int) for v in values):
        return np.array(values, np.int64)
    if all(isinstance(v, (int, float)) for v in values):
        return np.array(values, np.float64)
    return np.array(
        ["" if v is None else v if isinstance(v, str) else json.dumps(v) for v in values]
    )
