"""The bar that long calls show on stderr where nobody else is told of their progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.types import Progress

Shown = Progress | bool | None
"""True shows a bar, False and None nothing; or a function of (units done, units in all)."""


@contextmanager
def shown(progress: Shown, title: str) -> Iterator[Progress | None]:
    """Give what to tell of progress: the caller's function, or that of a bar on stderr.

    A bar comes after two seconds on a terminal; elsewhere after five, and is written anew every 30.
    """
    if not isinstance(progress, bool) or not progress:
        yield progress or None
        return
    from tqdm import tqdm

    live = sys.stderr.isatty()
    bar = tqdm(
        desc=title, file=sys.stderr, leave=False, dynamic_ncols=True,
        delay=2 if live else 5, mininterval=0.1 if live else 30.0,
    )  # fmt: skip

    def report(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    with bar:
        yield report
