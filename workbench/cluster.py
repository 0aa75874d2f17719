"""One callable over many units of work: here, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.forkserver import ensure_running
from typing import Any, Literal, TypeVar

from threadpoolctl import threadpool_limits

from workbench.errors import ConfigError, WorkbenchError

T = TypeVar("T")
R = TypeVar("R")
Workers = int | Literal["ray"]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def parse_workers(workers: str | int) -> Workers:
    """Return the number of processes, or ``"ray"``.

    Raises:
        ConfigError: it is neither.
    """
    if workers == "ray":
        return "ray"
    text = str(workers)
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigError(f"workers {workers!r}; give the number of processes from 1, or ray")


def prepare(call: Callable[..., Any] | str, threads: int = 1) -> None:
    """Begin to start the clean process that workers are forked from, and return at once.

    Args:
        call: what ``spread`` will be given, or the name of its module, which is imported there.
        threads: of BLAS in each worker.
    """
    if "forkserver" in multiprocessing.get_all_start_methods():
        _context(call)
        with _environment(threads):
            ensure_running()


def spread(
    call: Callable[[T], R],
    units: Sequence[T],
    workers: Workers = 1,
    *,
    threads: int = 1,
    cards: Sequence[str] = (),
) -> Iterator[tuple[int, R]]:
    """Call ``call`` with every unit, and yield (place of the unit, answer) as they end.

    Processes start clean (nothing is inherited but ``call`` and the units, which are pickled on
    the way) and end with this one, even where it is killed.

    Args:
        call: a function of a module, or an object of a class of a module.
        units: what to call it with.
        workers: 1 works in this process, one unit after the other; more are processes of this
            machine; ``"ray"`` are the processors of the Ray cluster of ``RAY_ADDRESS``, or of this
            machine without one.
        threads: of BLAS in each worker.
        cards: CUDA devices that are dealt to the processes in turn, as CUDA_VISIBLE_DEVICES names
            them; each process sees its own alone.

    Raises:
        ConfigError: Ray is asked for and not installed.
        WorkbenchError: a worker process died.
        BaseException: what ``call`` raises; units that have not begun are given up.
    """
    if workers == "ray":
        yield from _on_ray(call, units)
    elif workers == 1 or len(units) < 2:
        with threadpool_limits(threads, "blas"):
            for place, unit in enumerate(units):
                yield place, call(unit)
    else:
        yield from _in_processes(call, units, min(workers, len(units)), threads, cards)


def _in_processes(
    call: Callable[[T], R], units: Sequence[T], workers: int, threads: int, cards: Sequence[str]
) -> Iterator[tuple[int, R]]:
    context = _context(call)
    dealt = (context.Value("l", 0), tuple(cards)) if cards else None
    pool = ProcessPoolExecutor(workers, context, _start, (threads, dealt))
    try:
        with _environment(threads):
            futures: dict[Future[R], int] = {
                pool.submit(call, unit): place for place, unit in enumerate(units)
            }
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise WorkbenchError(
            "a worker process died (out of memory, or killed); what is finished is kept, so run "
            "the same command again, with fewer workers where memory is short"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _context(call: Callable[..., Any] | str) -> Any:
    """Return how processes start: forked from a clean one that imported the module, or spawned."""
    module = call if isinstance(call, str) else call.__module__
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    return context


@contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Let new processes load BLAS with as many threads as they may use."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start(threads: int, dealt: tuple[Any, Sequence[str]] | None) -> None:
    """Set a worker up: its threads, its card, Ctrl-C left to the caller, its end with the caller's.

    Args:
        threads: of BLAS.
        dealt: how many workers have begun, a number that all of them share, and the cards.
    """
    if dealt is not None:
        begun, cards = dealt
        with begun.get_lock():
            place, begun.value = begun.value, begun.value + 1
        os.environ["CUDA_VISIBLE_DEVICES"] = cards[place % len(cards)]  # read at the first use
    threadpool_limits(threads, "blas")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    wait([parent.sentinel])
    os._exit(1)


def _on_ray(call: Callable[[T], R], units: Sequence[T]) -> Iterator[tuple[int, R]]:
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "workers = 'ray' needs Ray: pip install 'interp-workbench[cluster]'; or give a number"
        ) from None
    own = not ray.is_initialized()
    if own:
        ray.init(log_to_driver=False)
    task, shared = ray.remote(_call), ray.put(call)
    pending = {task.remote(shared, unit): place for place, unit in enumerate(units)}
    try:
        while pending:
            (ready, *_), _rest = ray.wait(list(pending), num_returns=1)
            yield pending.pop(ready), ray.get(ready)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error  # as it would have been raised here
    finally:
        for reference in pending:
            ray.cancel(reference)
        if own:
            ray.shutdown()


def _call(call: Callable[[T], R], unit: T) -> R:
    """Run one unit in a Ray task, whose processor is one BLAS thread."""
    with threadpool_limits(1, "blas"):
        return call(unit)
