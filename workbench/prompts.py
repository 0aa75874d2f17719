"""Prompt sets: texts or chats, an id each, and every other column kept beside them."""

from __future__ import annotations

import csv
import io
import json
import re
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

    def __repr__(self) -> str:
        kind = "chats" if self.is_chat else "texts"
        columns = ", ".join(self.columns) or "no columns"
        return f"PromptSet({len(self)} {kind}; {columns}; from {self.source})"

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
        wrong = [one for one in records if not isinstance(one, Mapping)]
        if wrong:
            raise ConfigError(
                f"{source}: {wrong[0]!r:.80} is no record; give a table for each row, as in "
                '[{"text": "..."}, ...]'
            )
        rows = [dict(record) for record in records]
        if not rows:
            raise ConfigError(f"{source}: no rows; a prompt set needs at least one")
        key = text or ("messages" if "messages" in rows[0] else "text")
        items = tuple(_item(row, key, number, source) for number, row in enumerate(rows))
        if len({isinstance(item, str) for item in items}) == 2:
            raise ConfigError(f"{source}: texts and chats are mixed; keep them in two prompt sets")
        ids = tuple(_id(row, number, source) for number, row in enumerate(rows))
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
            ConfigError: no such file or column, a row of another length, duplicate ids, an empty
                text.
        """
        header, lines = _csv_lines(path)
        if text not in header:
            raise ConfigError(
                f"{path}: no column {text!r}; columns: {', '.join(header) or 'none'}. "
                'Name the text column: --text COLUMN, in files and Python text = "COLUMN"'
            )
        columns = {
            name: values if name in (text, "id") else _numbers(values)
            for number, name in enumerate(header)
            for values in [[line[number] for line in lines]]
        }
        cells = zip(*columns.values(), strict=True)
        rows = [dict(zip(header, row, strict=True)) for row in cells]
        return cls.from_records(rows, text, source=str(path))

    @classmethod
    def from_jsonl(cls, path: str | Path, text: str | None = None) -> PromptSet:
        """Read one JSON object a line.

        Raises:
            ConfigError: no such file, a line that is not a JSON object, duplicate ids.
        """
        rows = []
        for number, line in enumerate(_text(path).split("\n"), 1):  # other breaks may be in texts
            if line.strip():
                rows.append(_object(line, path, number))
        return cls.from_records(rows, text, source=str(path))

    @classmethod
    def from_parquet(cls, path: str | Path, text: str | None = None) -> PromptSet:
        """Read a Parquet table.

        Raises:
            ConfigError: no such file, no Parquet table, duplicate ids, an empty text.
        """
        import pyarrow.parquet

        try:
            rows = pyarrow.parquet.read_table(_existing(path)).to_pylist()
        except (OSError, pyarrow.ArrowException) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(
                f"{path} is no Parquet table ({reason}); write it again, or give a .csv or .jsonl"
            ) from None
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


def _text(path: str | Path) -> str:
    try:
        return _existing(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}, byte {error.start}: not UTF-8 ({error.reason}); save the file as UTF-8"
        ) from None


def _csv_lines(path: str | Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows below it, each as long as the header."""
    try:
        header, *lines = [
            line for line in csv.reader(io.StringIO(_text(path), newline=""), strict=True) if line
        ] or [[]]
    except csv.Error as error:
        raise ConfigError(f"{path} is no CSV file ({error}); quote texts with commas") from None
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise ConfigError(f"{path}: two columns are called {twice[0]!r}; rename one")
    for number, line in enumerate(lines):
        if len(line) != len(header):
            raise ConfigError(
                f"{path}, row {number}: {len(line)} cells under {len(header)} columns; quote a "
                "text that holds a comma, and write a missing value as an empty cell"
            )
    return header, lines


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
        raise ConfigError(
            f"{source}, row {number}: no key {key!r}; keys: {', '.join(row)}. "
            'Name the one with the text: --text KEY, in files and Python text = "KEY"'
        )
    value = row[key]
    if isinstance(value, str):
        if not value.strip():
            raise ConfigError(
                f"{source}, row {number}: {key} is empty; give it a text or drop the row"
            )
        return value
    if isinstance(value, Sequence) and value and all(map(_is_message, value)):
        return tuple({"role": m["role"], "content": m["content"]} for m in value)
    raise ConfigError(
        f"{source}, row {number}: {key} = {value!r:.200} is neither a text nor a list of "
        '{"role", "content"} messages, both texts'
    )


def _is_message(message: Any) -> bool:
    return isinstance(message, Mapping) and all(
        isinstance(message.get(key), str) for key in ("role", "content")
    )


def _id(row: Mapping[str, Any], number: int, source: str) -> str:
    name = row.get("id", number)
    if name is None or name == "":
        raise ConfigError(f"{source}, row {number}: id is empty; fill it or leave the column out")
    return str(name)


_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")


def _numbers(cells: list[str]) -> list[Any]:
    """Return a column's numbers where every cell is one; "007", "nan" and "1_000" are texts."""
    for pattern, kind in ((_WHOLE, int), (_DECIMAL, float)):
        if all(pattern.fullmatch(cell) for cell in cells):
            return [kind(cell) for cell in cells]
    return list(cells)


def _array(values: list[Any]) -> np.ndarray:
    """Numbers and booleans keep their type; anything else becomes text ("" for a missing value)."""
    if all(isinstance(v, bool) for v in values):
        return np.array(values, bool)
    if all(isinstance(v, int) and abs(v) < 2**63 for v in values):
        return np.array(values, np.int64)
    if all(isinstance(v, float) or (isinstance(v, int) and abs(v) <= 2**53) for v in values):
        return np.array(values, np.float64)
    return np.array(
        [
            "" if v is None else v if isinstance(v, str) else json.dumps(v, default=str)
            for v in values
        ]
    )
