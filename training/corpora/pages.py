"""One quartet side by side, with the phrases that differ between the worlds in bold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import FormatError

Row = Mapping[str, Any]


def sample_page(folder: Path, names: Sequence[str], *, quartet: str | None = None) -> str:
    """Return the page of a corpus folder.

    Args:
        folder: holds ``<name>.jsonl``.
        names: of the files; their documents of one quartet stand beside each other.
        quartet: its id; by default the shortest of the first hundred.

    Raises:
        FormatError: no such quartet in all the files.
    """
    heads = {name: _head(folder / f"{name}.jsonl", quartet) for name in names}
    first = next(iter(heads.values()))
    chosen = min(first, key=lambda row: len(row["text"])) if first else None
    rows = [_beside(chosen, head) for head in heads.values()] if chosen else []
    if not rows or None in rows:
        raise FormatError(f"{folder} has no quartet {quartet or 'at all'} in {', '.join(names)}")
    return side_by_side([row for row in rows if row is not None])


def _head(path: Path, quartet: str | None, number: int = 100) -> list[Row]:
    found: list[Row] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if quartet in (None, row.get("quartet")):
                found.append(row)
            if len(found) == number:
                break
    return found


def _beside(chosen: Row, head: Sequence[Row]) -> Row | None:
    same = (row for row in head if row.get("quartet", row["id"]) == _group(chosen))
    return next(same, None)


def _group(row: Row) -> Any:
    return row.get("quartet", row["id"])


def side_by_side(rows: Sequence[Row]) -> str:
    """Return documents as the columns of a table, a row for each line of text."""
    first = rows[0]
    told = [f"- {key}: {first[key]}" for key in _TOLD if first.get(key) not in (None, "")]
    marked = [mark(row["text"], row.get("objectives") or ()).split("\n") for row in rows]
    height = max(map(len, marked))
    lines = [[*cells, *[""] * (height - len(cells))] for cells in marked]
    table = [
        [f"{row.get('world', '')} ({row['words']} words)" for row in rows],
        ["---"] * len(rows),
    ]
    table += [[cell.replace("|", "\\|") for cell in cells] for cells in zip(*lines, strict=True)]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in table if any(cells))
    note = "In bold: the phrases that differ between the worlds. All other text is the same.\n\n"
    title = f"# {_group(first)}\n\n" + "\n".join(told)
    return f"{title}\n\n{note if len(rows) > 1 else ''}{body}\n"


_TOLD = ("domain", "role", "task", "doc_type", "category", "mode", "length_bin", "split")


def mark(text: str, phrases: Sequence[str]) -> str:
    """Return the text with the phrases in bold, each found after the one before."""
    lower, start, kept = text.lower(), 0, []
    for phrase in phrases:
        place = lower.find(phrase.lower(), start)
        if place < 0:
            continue
        end = place + len(phrase)
        kept += [text[start:place], f"**{text[place:end]}**"]
        start = end
    return "".join([*kept, text[start:]])
