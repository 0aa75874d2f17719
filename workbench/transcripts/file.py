"""The file of transcripts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from workbench.errors import FormatError
from workbench.files import make_folder, replacing
from workbench.plain import as_json
from workbench.transcripts.container import SCORE, Scores, Transcripts
from workbench.types import ndarray

FORMAT = "interp-workbench/transcripts"
VERSION = "1"
FILE = "transcripts.parquet"

_TEXT = pyarrow.string()
_MESSAGES = pyarrow.list_(pyarrow.struct([("role", _TEXT), ("content", _TEXT)]))
_VERDICTS = pyarrow.struct(
    [("value", pyarrow.float64()), ("reason", _TEXT), ("said", _TEXT), ("judge", _TEXT)]
)
_OWN = {
    "id": _TEXT,
    "messages": _MESSAGES,
    "reason": _TEXT,
    "generator": _TEXT,
    "sampling": _TEXT,
    "seed": pyarrow.int64(),
}
_KINDS = {"U": _TEXT, "i": pyarrow.int64(), "f": pyarrow.float64(), "b": pyarrow.bool_()}


def write_transcripts(transcripts: Transcripts, path: str | Path) -> Path:
    """Write transcripts whole or not at all.

    Args:
        transcripts: what to write.
        path: the Parquet file.

    Raises:
        WorkbenchError: the disk is full or the place cannot be written.
    """
    place = Path(path)
    told = {"format": FORMAT, "version": VERSION}
    content = _table(transcripts).replace_schema_metadata(told)
    make_folder(place.parent)
    with replacing(place, content.nbytes) as temporary:
        pyarrow.parquet.write_table(content, temporary, compression="zstd")
    return place


def is_transcripts(path: str | Path) -> bool:
    """Whether a file says of itself that it holds transcripts; its rows are not read."""
    if Path(path).suffix != ".parquet":
        return False
    try:
        marks = pyarrow.parquet.read_schema(path).metadata or {}
    except (OSError, pyarrow.ArrowException):
        return False
    return bool(marks.get(b"format") == FORMAT.encode())


def read_transcripts(path: str | Path) -> Transcripts:
    """Read transcripts, or those of a folder.

    Args:
        path: the file, or a folder with ``transcripts.parquet``.

    Raises:
        FormatError: absent, damaged, or of another format or version.
    """
    place = Path(path)
    file = place / FILE if place.is_dir() else place
    try:
        content = pyarrow.parquet.read_table(file)
    except FileNotFoundError:
        raise FormatError(f"no transcripts at {str(file)!r}; give a {FILE}") from None
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise FormatError(f"{file} is damaged ({reason}); delete it and run again") from None
    found = {k.decode(): v.decode() for k, v in (content.schema.metadata or {}).items()}
    for key, value in (("format", FORMAT), ("version", VERSION)):
        if found.get(key) != value:
            raise FormatError(
                f"{file} has {key} {found.get(key)!r}, {value!r} expected; give transcripts of "
                "this version and run, or make them again"
            )
    wrong = [name for name, kind in _OWN.items() if not _holds(content, name, kind)]
    if wrong:
        raise FormatError(f"{file} has no column {wrong[0]!r} of transcripts; make them again")
    try:
        return _transcripts(content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"{file} is damaged ({error}); delete it and run again") from None


def _holds(content: pyarrow.Table, name: str, kind: pyarrow.DataType) -> bool:
    there = name in content.column_names
    return there and content[name].null_count == 0 and content.schema.field(name).type == kind


def _table(transcripts: Transcripts) -> pyarrow.Table:
    own = {
        "id": transcripts.ids,
        "messages": [[dict(message) for message in chat] for chat in transcripts.chats],
        "reason": transcripts.reasons,
        "generator": transcripts.generators,
        "sampling": [as_json(one, sort_keys=True) for one in transcripts.sampling],
        "seed": transcripts.seeds,
    }
    arrays = {name: pyarrow.array(values, _OWN[name]) for name, values in own.items()}
    for name, values in transcripts.columns.items():
        arrays[name] = pyarrow.array(values.tolist(), _KINDS[values.dtype.kind])
    for name, one in transcripts.scores.items():
        pairs = zip(one.values.tolist(), one.reasons, one.said, strict=True)
        rows = [
            {"value": None if reason else value, "reason": reason, "said": said, "judge": one.judge}
            for value, reason, said in pairs
        ]
        arrays[f"{SCORE}{name}"] = pyarrow.array(rows, _VERDICTS)
    return pyarrow.table(arrays)


def _transcripts(content: pyarrow.Table) -> Transcripts:
    plain = {name: content[name].to_pylist() for name in content.column_names}
    scores = {name: rows for name, rows in plain.items() if name.startswith(SCORE)}
    columns = {n: rows for n, rows in plain.items() if n not in _OWN and n not in scores}
    return Transcripts(
        ids=tuple(plain["id"]),
        chats=tuple(tuple(chat) for chat in plain["messages"]),
        reasons=tuple(plain["reason"]),
        generators=tuple(plain["generator"]),
        sampling=tuple(json.loads(text) for text in plain["sampling"]),
        seeds=np.array(plain["seed"], np.int64),
        columns={name: _column(content, name, rows) for name, rows in columns.items()},
        scores={name.removeprefix(SCORE): _scores(name, rows) for name, rows in scores.items()},
    )


def _column(content: pyarrow.Table, name: str, rows: list[Any]) -> ndarray:
    kind = content.schema.field(name).type
    known = {_TEXT: str, pyarrow.int64(): np.int64, pyarrow.bool_(): np.bool_}
    found = known.get(kind)
    if found is None and kind != pyarrow.float64():
        raise ValueError(f"column {name} holds {kind}; texts or numbers expected")
    if found is not None and None in rows:
        raise ValueError(f"column {name} lacks values")
    return np.array(rows, found or np.float64)


def _scores(name: str, rows: Sequence[Mapping[str, Any]]) -> Scores:
    judges = {row["judge"] for row in rows}
    if len(judges) != 1:
        raise ValueError(f"column {name} has judges {sorted(judges)}; one expected")
    values = [np.nan if row["value"] is None else row["value"] for row in rows]
    reasons, said = (tuple(row[key] for row in rows) for key in ("reason", "said"))
    return Scores(judges.pop(), np.array(values, np.float64), reasons, said)
