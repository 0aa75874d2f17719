"""One process beside the server that holds a model: a queue of jobs, told piece by piece.

A model would stall every page if a request thread ran it, and takes the server down with it where
memory runs out. So it lives in a process of its own, which the first job starts, an idle quarter
of an hour ends, and the next job starts again if it died. Jobs run one after the other.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

from workbench.errors import WorkbenchError

logger = logging.getLogger(__name__)

QUEUED, RUNNING, DONE, FAILED, CANCELED = "queued", "running", "done", "failed", "canceled"
IDLE_SECONDS = 900.0
"""After so long without a job the process ends and gives its memory back."""
PATIENCE = 3.0
"""Seconds that a canceled job gets to stop by itself before its process is ended."""
MOST_WAITING = 8
"""Jobs that may wait; more are refused, since nobody waits for the ninth."""
Job = Callable[..., Iterator[Mapping[str, Any]]]
_PART, _DONE, _FAILED = "part", "done", "failed"


class Ticket:
    """One job that was asked for: how it stands, and what it has told so far."""

    def __init__(self, job: Job, options: Mapping[str, Any]) -> None:
        self.job, self.options = job, dict(options)
        self.state = QUEUED
        self.error = ""
        self.stop = threading.Event()
        self._parts: list[Mapping[str, Any]] = []
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.state in (DONE, FAILED, CANCELED)

    def add(self, part: Mapping[str, Any]) -> None:
        """Note what the job told."""
        with self._lock:
            self._parts.append(part)

    def take(self) -> list[Mapping[str, Any]]:
        """Return what was told since the last call."""
        with self._lock:
            found, self._parts = self._parts, []
        return found


class Worker:
    """The queue, the thread that serves it, and the process that does the work.

    Args:
        idle_seconds: how long the process is kept without a job.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self.idle_seconds = idle_seconds
        self._waiting: list[Ticket] = []
        self._now: Ticket | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process: multiprocessing.process.BaseProcess | None = None
        self._line: Connection | None = None

    def submit(self, job: Job, **options: Any) -> Ticket:
        """Queue a job and return its ticket.

        Args:
            job: a generator function of an importable module; what it yields is told.
            options: its keywords, which have to travel between processes.

        Raises:
            WorkbenchError: too many jobs wait.
        """
        ticket = Ticket(job, options)
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                raise WorkbenchError(
                    f"{MOST_WAITING} jobs wait for the model already; try again when some are done"
                )
            self._waiting.append(ticket)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, daemon=True, name="worker")
                self._thread.start()
            self._changed.notify_all()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Take a job out of the queue, or stop it where it runs."""
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                ticket.state = CANCELED
            ticket.stop.set()
            self._changed.notify_all()

    def ahead(self, ticket: Ticket) -> int:
        """Return how many jobs run or wait before this one."""
        with self._changed:
            if ticket not in self._waiting:
                return 0
            return self._waiting.index(ticket) + (self._now is not None)

    def close(self) -> None:
        """End the process; jobs that wait start another."""
        process, self._process, self._line = self._process, None, None
        if process is not None:
            process.terminate()
            process.join(10)

    def _serve(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._changed.wait(self.idle_seconds)
                if not self._waiting:
                    self._thread = None
                    self.close()  # while nobody can ask for a job and get this process
                    return
                ticket = self._now = self._waiting.pop(0)
                ticket.state = RUNNING
            try:
                self._run(ticket)
            finally:
                with self._changed:
                    self._now = None

    def _run(self, ticket: Ticket) -> None:
        """Send one job to the process and pass on what it tells, until it is over."""
        try:
            line = self._connected()
            line.send((ticket.job, ticket.options))
            state = self._follow(ticket, line)
        except (EOFError, OSError):
            state = self._died(ticket)
        ticket.state = state

    def _follow(self, ticket: Ticket, line: Connection) -> str:
        asked: float | None = None
        while True:
            if line.poll(0.1):
                kind, told = line.recv()
                if kind == _PART and not ticket.stop.is_set():
                    ticket.add(told)
                elif kind == _FAILED:
                    ticket.error = told
                    return CANCELED if ticket.stop.is_set() else FAILED
                elif kind == _DONE:
                    return CANCELED if ticket.stop.is_set() else DONE
            if ticket.stop.is_set() and asked is None:
                asked = time.monotonic()
                line.send(None)
            if asked is not None and time.monotonic() - asked > PATIENCE:
                self.close()
                return CANCELED

    def _died(self, ticket: Ticket) -> str:
        process = self._process
        self.close()
        if ticket.stop.is_set():
            return CANCELED
        code = None if process is None else process.exitcode
        ticket.error = (
            f"the process that holds the model ended (exit code {code}), perhaps out of memory; "
            "run it again, or choose a smaller model"
        )
        return FAILED

    def _connected(self) -> Connection:
        """Return the line to the process, started anew where there is none."""
        if self._line is None or self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._line, theirs = context.Pipe()
            self._process = context.Process(target=_work, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        return self._line


WORKER = Worker()
"""The one that all sessions share; in an imported module, so that it outlives each of them."""


def _work(line: Connection) -> None:
    """Do jobs until the line is closed; any error becomes a message, as a page's do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    while True:
        try:
            asked = line.recv()
        except EOFError:
            return
        if asked is None:  # asked to stop a job that was over by then
            continue
        try:
            _do(line, *asked)
        except WorkbenchError as error:
            line.send((_FAILED, str(error)))
        except Exception as error:
            logger.exception("%s failed", asked[0].__name__)
            line.send((_FAILED, f"an unexpected {type(error).__name__}: {error}"))


def _do(line: Connection, job: Job, options: Mapping[str, Any]) -> None:
    for part in job(**options):
        line.send((_PART, part))
        if line.poll():
            line.recv()
            break
    line.send((_DONE, None))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    wait([parent.sentinel])
    os._exit(1)
