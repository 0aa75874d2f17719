"""How many threads may read and check at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

THREADED_BYTES = 1 << 23
"""Work on more bytes than this is spread over several threads."""


def processors() -> int:
    """Return how many threads may be used here."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(8, allowed or 1)


@contextmanager
def spread(size: int) -> Iterator[Callable[..., Iterable[None]]]:
    """Give a ``map`` for work on ``size`` bytes: plain, or that of a pool of threads."""
    workers = processors() if size > THREADED_BYTES else 1
    if workers < 2:
        yield map
        return
    with ThreadPoolExecutor(workers, "activations") as pool:
        yield pool.map
