"""Whole runs side by side: each is done by one of several processes, and their order is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.pipelines.verb import Done
from workbench.pipelines.verbs import RUNS, carry_out, is_done
from workbench.registry import load_plugin, plugins
from workbench.types import Progress

if TYPE_CHECKING:
    from workbench.cluster import Workers

Piece = tuple[str, Mapping[str, Any]]
"""A verb and its settings."""


@dataclass(frozen=True)
class Carry:
    """Carries one run out; travels to worker processes."""

    root: Path
    force: bool
    plugins: tuple[Path, ...]

    def __call__(self, piece: Piece) -> Done:
        for path in self.plugins:
            if path not in plugins():
                load_plugin(path)
        verb, settings = piece
        return carry_out(verb, settings, root=self.root, force=self.force)


def abreast(
    pieces: Sequence[Piece],
    workers: Workers,
    *,
    root: Path = RUNS,
    force: bool = False,
    progress: Progress | None = None,
) -> Iterator[Done]:
    """Carry runs out that do not need one another, and yield them in their order.

    Finished ones are looked up here; each process that does the others gets its part of the
    processors. CUDA devices are dealt to the processes in turn, unless a run names a device or
    spreads its model: several processes on one device do no harm, a small model does not fill it.

    Args:
        pieces: verbs and settings.
        workers: processes, or ``"ray"``.
        root: where run folders go.
        force: move folders of other runs aside.
        progress: called with (runs done, runs in all).

    Raises:
        WorkbenchError: what a run raises, or a worker process died; finished runs stay, those that
            have not begun are given up.
    """
    from workbench.cluster import spread

    call = Carry(Path(root), force, plugins())
    ended = {n: call(piece) for n, piece in enumerate(pieces) if is_done(*piece, root=root)}
    left = [n for n in range(len(pieces)) if n not in ended]
    work, threads = [pieces[n] for n in left], threads_each(workers, len(left))
    given = 0
    for place, done in spread(call, work, workers, threads=threads, cards=cards_for(work)):
        ended[left[place]] = done
        if progress is not None:
            progress(len(ended), len(pieces))
        while given in ended:
            yield ended[given]
            given += 1
    yield from (ended[n] for n in range(given, len(pieces)))


def cards_for(pieces: Sequence[Piece]) -> list[str]:
    """Return the CUDA devices to deal to processes; none where a run has its own idea of them."""
    from workbench.models.placement import visible_cards

    places = [
        (settings.get("device", "auto"), (settings.get("load") or {}).get("device_map"))
        for _, settings in pieces
    ]
    if not pieces or any(place not in (("auto", None), ("cuda", None)) for place in places):
        return []
    cards = visible_cards()
    return cards if len(cards) > 1 else []


def threads_each(workers: Workers, pieces: int) -> int:
    """Return how many threads of this machine's processors one of several workers may use."""
    if workers == "ray":
        return 1
    return max(1, (os.cpu_count() or 1) // min(workers, max(pieces, 1)))
