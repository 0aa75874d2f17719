"""The activation store: what writing costs, whether memory stays flat, how fast a layer is read.

W3 compares ``wb.capture`` to memory with ``wb.capture(out=...)`` on the inputs of W1 and W2. What
is left after the last forward, memory and reading are measured at the full width of 5,120 on any
machine: there a stand-in engine hands out drawn values in place of a model's, and everything behind
it is the real thing.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch
from common import (
    SEED,
    WORDS,
    Options,
    chats,
    compare,
    finish,
    keep,
    measured,
    open_subject,
    options_of,
    rounded,
    statements,
    trained_tokenizer,
    verdict,
)
from torch import Tensor, nn

import workbench as wb
from workbench.activations import Activations, draft, forwards, landing, sink, store
from workbench.activations.store import Store
from workbench.models.render import ChatRenderer
from workbench.prompts import PromptSet
from workbench.types import Batch, ModelRef, ModelStamp, Read, Subject

WORKLOADS = ("W3", "tail", "memory", "read")
POOL = 64
PACE = 1.2e-4
"""Seconds a token of the stand-in engine: about those of Qwen3-32B's shape on an H200."""


@dataclass
class Drawn:
    """A stand-in engine: values drawn once and handed out again, in place of a model's."""

    layers: int
    width: int
    dtype: torch.dtype
    name: str = "drawn"
    pace: float = 0.0
    """Seconds that a token takes."""
    pool: Tensor = field(init=False)
    row: int = 0
    ended: float = 0.0
    """When the last forward had ended."""

    def __post_init__(self) -> None:
        rng = torch.Generator().manual_seed(SEED)
        drawn = torch.randn(self.layers, POOL, self.width, generator=rng)
        self.pool = drawn.to(self.dtype)

    def capture(self, _subject: Subject, batch: Batch, reads: Sequence[Read]) -> list[Tensor]:
        """Return ``(l, b, d)`` for each read; row n of all rows is n modulo the pool."""
        time.sleep(self.pace * batch.input_ids.numel())
        rows = torch.arange(self.row, self.row + len(batch.input_ids)) % POOL
        self.row += len(rows)
        values = [self.pool[list(read.layers)][:, rows] for read in reads]
        self.ended = time.perf_counter()
        return values


def stand_in(layers: int, width: int, dtype: torch.dtype, pace: float = 0.0) -> Subject:
    """Return a subject without weights whose engine is ``Drawn``."""
    tokenizer = trained_tokenizer()
    name = str(dtype).removeprefix("torch.")
    return Subject(
        ref=ModelRef(base="drawn", dtype=name),
        model=nn.Identity(),
        tokenizer=tokenizer,
        family="drawn",
        blocks={layer: nn.Identity() for layer in range(layers)},
        stamp=ModelStamp("drawn", "drawn", layers, width, "0" * 16, "0" * 16),
        renderer=ChatRenderer(tokenizer),
        runner=Drawn(layers, width, dtype, pace=pace),  # type: ignore[arg-type]
    )


def short_prompts(n: int) -> PromptSet:
    """Return n short texts."""
    rng = np.random.default_rng(SEED)
    rows = [{"text": " ".join(rng.choice(WORDS, 12))} for _ in range(n)]
    return PromptSet.from_records(rows, source="drawn")


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="workbench-store-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- what writing costs ---------------------------------------------------------------------------


def run_cost(options: Options, subject: Subject) -> dict[str, Any]:
    """Capture to memory and to a store, side by side, and compare the values."""
    short = statements(subject, options.count("W1", 128 if options.quick else 1024))
    long = chats(subject, options.count("W2", 2 if options.quick else 16))
    found = {}
    for name, prompts, position in (("W1", short, "last"), ("W2", long, "mean:assistant")):
        with scratch() as folder:
            found[name] = _cost(options, subject, prompts, position, folder)
    return found


def _cost(
    options: Options, subject: Subject, prompts: PromptSet, position: str, folder: Path
) -> dict[str, Any]:
    count = 0

    def stored() -> Any:
        nonlocal count
        count += 1
        return wb.capture(subject, prompts, position=position, out=folder / str(count))

    runs: dict[str, Callable[[], Any]] = {
        "ours": stored,
        "memory": lambda: wb.capture(subject, prompts, position=position),
    }
    found = compare(runs, max(2, options.repeats))
    gap = _largest(found.outputs["ours"], found.outputs["memory"])
    ours, memory = found.times["ours"], found.times["memory"]
    return {
        "ours": rounded(ours.seconds),
        "memory": rounded(memory.seconds),
        "cost": rounded(ours.seconds / memory.seconds - 1),
        "cpu_cost": rounded(ours.cpu_seconds / memory.cpu_seconds - 1),
        "items": len(prompts),
        "agree": gap,
        **verdict(gap, 0.0),
    }


def _largest(one: Activations, other: Activations) -> float:
    return max(float(np.abs(one.at(layer) - other.at(layer)).max()) for layer in one.layers)


# --- what is left when the forwards have ended ---------------------------------------------------


def run_tail(options: Options) -> dict[str, Any]:
    """Capture statements at 64 blocks x 5,120 from an engine that takes its time, as a GPU does."""
    subject = stand_in(16 if options.quick else 64, 5120, torch.bfloat16, PACE)
    runner, prompts = subject.runner, statements(subject, 256 if options.quick else 1024)
    assert isinstance(runner, Drawn)
    after: dict[str, list[float]] = {"ours": [], "memory": []}

    def timed(name: str, **options: Any) -> None:
        wb.capture(subject, prompts, **options)
        after[name].append(time.perf_counter() - runner.ended)

    with scratch() as folder:
        runs: dict[str, Callable[[], Any]] = {
            "ours": lambda: timed("ours", out=folder / str(len(after["ours"]))),
            "memory": lambda: timed("memory"),
        }
        found = compare(runs, max(3, options.repeats))
        with clocked() as clock:
            timed("ours", out=folder / "clocked")
    ours, memory = found.times["ours"], found.times["memory"]
    return {
        "ours": rounded(ours.seconds),
        "memory": rounded(memory.seconds),
        "cost": rounded(ours.seconds / memory.seconds - 1),
        "cpu_seconds": rounded(ours.cpu_seconds - memory.cpu_seconds),
        **{f"after_{name}": rounded(median(seconds)) for name, seconds in after.items()},
        "after_parts": clock.after(runner.ended),
    }


@dataclass
class Clock:
    """When each call of some functions began and ended, whatever its thread."""

    spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its calls noted."""
        spans = self.spans.setdefault(name, [])

        @functools.wraps(call)
        def noted(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                spans.append((start, time.perf_counter()))

        return noted

    def after(self, moment: float) -> dict[str, Any]:
        """Return how often each function was called, and what of it came after a moment.

        Of the calls that end later: their number, their seconds from then on summed over threads,
        and when the last had ended.
        """
        found = {}
        for name, spans in self.spans.items():
            late = [(max(start, moment), stop) for start, stop in spans if stop > moment]
            found[name] = {
                "calls": len(spans),
                "late": len(late),
                "seconds": rounded(sum(stop - start for start, stop in late)),
                "until": rounded(max((stop for _, stop in late), default=moment) - moment),
            }
        return found


@contextmanager
def clocked() -> Iterator[Clock]:
    """Note the parts of storing; ``write`` is every system call that brings bytes to a file."""
    places = {
        "put": (landing.Landing, "put"),
        "begin": (Store, "begin"),
        "write": (os, "pwrite"),
        "close": (draft.Draft, "close"),
        "sums": (draft.Draft, "_sums"),
        "pieces": (draft.Draft, "_write"),
        "sync": (os, "fsync"),
        "keep": (forwards, "keep_all"),
        "finish": (Store, "finish"),
        "virtual": (store, "_virtual"),
        "open": (sink, "open_activations"),
    }
    clock = Clock()
    with ExitStack() as undo:
        for name, (owner, attribute) in places.items():
            plain = getattr(owner, attribute)
            undo.enter_context(mock.patch.object(owner, attribute, clock.wrap(name, plain)))
        yield clock


# --- flat memory ----------------------------------------------------------------------------------


def run_memory(options: Options) -> dict[str, Any]:
    """Stream prompts x all layers to disk and watch resident memory."""
    items, layers = (1024, 16) if options.quick else (2000, 64)
    subject = stand_in(layers, 5120, torch.bfloat16)
    prompts = short_prompts(items)
    done = [0]
    samples: list[tuple[int, float]] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            samples.append((done[0], resident_mb()))

    before = resident_mb()
    watcher = threading.Thread(target=watch)
    with scratch() as folder:
        watcher.start()
        try:
            wb.capture(subject, prompts, out=folder, progress=lambda n, _: done.__setitem__(0, n))
        finally:
            stop.set()
            watcher.join()
        stored = sum(path.stat().st_size for path in folder.rglob("*.h5"))
    half = items // 2
    early = max(mb for count, mb in samples if count <= half)
    late = max(mb for count, mb in samples if count > half)
    return {
        "items": items,
        "layers": layers,
        "stored_mb": round(stored / 1e6),
        "before_mb": round(before),
        "peak_first_half_mb": round(early),
        "peak_second_half_mb": round(late),
        "growth_mb": round(late - early),
    }


def resident_mb() -> float:
    """Return this process's resident memory in MB; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    if not status.is_file():
        return 0.0
    return int(status.read_text().split()[1]) * 4096 / 1e6


# --- reading a layer ------------------------------------------------------------------------------


def run_read(options: Options) -> dict[str, Any]:
    """Read one layer of 10,000 items from a store, beside ``numpy.load`` of the same bytes.

    The store checks every byte and gives float32; ``numpy.load`` does neither. So two pairs are
    fair: what is stored beside ``numpy.load`` (like for like but for the checks), and float32
    beside ``numpy.load`` with a conversion.
    """
    shapes = [(576, torch.bfloat16), (576, torch.float32)]
    if not options.quick:
        shapes += [(5120, torch.bfloat16), (5120, torch.float32)]
    found = {}
    for width, dtype in shapes:
        name = str(dtype).removeprefix("torch.")
        with scratch() as folder:
            found[f"{width} {name}"] = _read(stand_in(4, width, dtype), folder)
    return found


def _read(subject: Subject, folder: Path) -> dict[str, Any]:
    n, layer = 10_000, 2
    runner = subject.runner
    assert isinstance(runner, Drawn)
    wb.capture(subject, short_prompts(n), out=folder / "store")
    plain = folder / "layer.npy"
    acts = wb.open_activations(folder / "store")
    np.save(plain, acts.stored(layer))
    kept = np.zeros((n, acts.width), np.float32)
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: acts.at(layer),
        "kept": lambda: acts.at(layer, kept),
        "stored": lambda: acts.stored(layer),
        "opened": lambda: wb.open_activations(folder / "store").at(layer),
        "numpy": lambda: np.load(plain),
        "converted": lambda: widened(np.load(plain)),
    }
    found = compare(runs, 9)
    wrong = _other_rows(found.outputs["ours"], runner.pool[layer].float().numpy())
    for same in ("kept", "opened", "converted"):
        wrong += int((found.outputs["ours"] != found.outputs[same]).any(axis=1).sum())
    wrong += int((found.outputs["stored"] != found.outputs["numpy"]).any(axis=1).sum())
    wall = {name: timing.seconds for name, timing in found.times.items()}
    cpu = {name: timing.cpu_seconds for name, timing in found.times.items()}
    return {
        **{f"{name}_ms": rounded(1000 * seconds) for name, seconds in wall.items()},
        "cpu_ms": rounded(1000 * cpu["ours"]),
        "opened_cpu_ms": rounded(1000 * cpu["opened"]),
        "ratio_numpy": rounded(wall["numpy"] / wall["ours"]),
        "ratio_numpy_kept": rounded(wall["numpy"] / wall["kept"]),
        "ratio_numpy_stored": rounded(wall["numpy"] / wall["stored"]),
        "ratio_converted": rounded(wall["converted"] / wall["ours"]),
        "cpu_ratio_numpy": rounded(cpu["numpy"] / cpu["ours"]),
        "cpu_ratio_numpy_kept": rounded(cpu["numpy"] / cpu["kept"]),
        "cpu_ratio_numpy_stored": rounded(cpu["numpy"] / cpu["stored"]),
        "cpu_ratio_converted": rounded(cpu["converted"] / cpu["ours"]),
        **verdict(wrong, 0),
        "gb_per_s": rounded(plain.stat().st_size / wall["ours"] / 1e9),
    }


def widened(values: np.ndarray) -> np.ndarray:
    """Return float32 of what ``numpy.load`` gives: bfloat16 lies there as its bits."""
    if values.dtype != np.uint16:
        return values.astype(np.float32)
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _other_rows(values: np.ndarray, pool: np.ndarray) -> int:
    """Count rows that are not of the pool, or stand there more often than they were handed out.

    Batches are sorted by length, so that the order of rows is not that of drawing.
    """
    known = {row.tobytes() for row in pool}
    read = Counter(row.tobytes() for row in values)
    foreign = sum(count for row, count in read.items() if row not in known)
    return foreign + max(0, max(read.values()) - min(read.values()) - 1)


def main(argv: Sequence[str] | None = None) -> int:
    options = options_of(__doc__ or "", WORKLOADS, argv)
    subject = open_subject(options)
    others = {"tail": run_tail, "memory": run_memory, "read": run_read}
    found: dict[str, Any] = {}
    for name in options.workloads:
        with measured(name):
            if name == "W3":
                found[name] = run_cost(options, subject)
            else:
                found[name] = others[name](options)
        keep(options, found)
    return finish(options, subject, found)


if __name__ == "__main__":
    sys.exit(main())
