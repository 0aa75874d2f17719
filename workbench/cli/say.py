"""What is printed: one JSON object, tables, progress bars."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.plain import no_value, plain

if TYPE_CHECKING:
    import pandas as pd

    from workbench.runs import OpenRun


@dataclass
class Told:
    """What is known of a command while it runs, for the object that tells of its end."""

    verb: str
    id: str | None = None
    path: Path | None = None

    def opened(self, run: OpenRun) -> None:
        """Note which run the command is at."""
        self.id, self.path = run.id, run.path
        say_resumed(run)

    def failed(self, error: str) -> dict[str, Any]:
        """Return the object of a command that ended early."""
        told = {"verb": self.verb, "id": self.id, "status": "failed", "path": self.path}
        return {**told, "result": None, "error": error}


def say(said: Mapping[str, Any]) -> None:
    """Print one object as JSON on one line; a number that is not finite is null."""
    if _is_heard():
        print(json.dumps(plain(said, nonfinite=no_value, other=str), allow_nan=False))


def emit(verb: str, name: str, status: str, path: Path | None, result: Any) -> None:
    """Print the object of a command that ended well."""
    said = {"verb": verb, "id": name, "status": status, "path": path, "result": result}
    say({**said, "error": None})


def line(text: object = "") -> None:
    """Print a line for people."""
    if _is_heard():
        print(text, flush=True)


def _is_heard() -> bool:
    """Whether this process is the one that speaks, of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def note(text: str) -> None:
    """Print a line about the progress."""
    print(text, file=sys.stderr, flush=True)


def say_resumed(run: OpenRun) -> None:
    """Say of a run that goes on from what it goes on."""
    if run.kept:
        note(f"resuming {run.path}: {run.kept}")


def print_summary(path: Path, by: Sequence[str]) -> None:
    """Print the results of a run, averaged."""
    from workbench.results import read_results, summarize

    print_table(summarize(read_results(path / "results.parquet"), by=by))


def print_table(table: pd.DataFrame) -> None:
    """Print a table for people."""
    line(table.to_string(index=False, float_format=_number, na_rep="-"))


def _number(value: float) -> str:
    """Whole numbers (which a column with gaps holds as floats) without decimals."""
    return f"{value:.0f}" if value == int(value) and abs(value) >= 1000 else f"{value:.3f}"


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows under their names, what is a table itself left out."""
    import pandas as pd

    plain = [{k: v for k, v in row.items() if not isinstance(v, Mapping)} for row in rows]
    print_table(pd.DataFrame(plain))


def print_runs(rows: Sequence[Mapping[str, Any]], root: Path) -> None:
    """Print a list of runs under a header, and below each that is not done why."""
    if not rows:
        line(f"no runs below {root}")
        return
    names = ("id", "verb", "status", "started", "path", "models")
    table = [[str(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *table, strict=True)]
    for cells, row in zip([list(names), *table], [{}, *rows], strict=True):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        line("  ".join(padded).rstrip())
        if row.get("note"):
            line(f"    {row['note']}")


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr for what takes longer than two seconds."""
    from tqdm import tqdm

    often = 0.1 if sys.stderr.isatty() else 30.0
    shown = tqdm(
        desc=title, file=sys.stderr, delay=2, leave=False, dynamic_ncols=True, mininterval=often
    )
    with shown:

        def report(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield report
