"""Item rows as JSON lines: one text for one list of rows, so that a file can be rebuilt exactly."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

from workbench.errors import FormatError


def slug(text: str) -> str:
    """Return ``text`` in lower-case ASCII with hyphens, for use inside an id."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def dump_rows(rows: Iterable[Mapping[str, object]]) -> str:
    """Return the JSON lines of ``rows``, keys in the order of each row.

    Raises:
        ValueError: a number that is not finite, which JSON does not have.
    """
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def read_text(path: Path) -> str:
    """Return the text of a file that people write, with or without a byte order mark.

    Raises:
        FormatError: it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path}, byte {error.start}: not UTF-8 ({error.reason}); save the file as UTF-8"
        ) from None


def read_rows(path: Path) -> list[dict[str, object]]:
    """Return the rows of a JSON lines file that this package wrote."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Replace ``path`` by the JSON lines of ``rows`` in one step."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(dump_rows(rows), encoding="utf-8")
    temporary.replace(path)
