"""One callable over many units: the same answers wherever it runs, and no process left behind."""

import functools
import importlib
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from workbench.cluster import parse_workers, prepare, spread
from workbench.errors import ConfigError, FormatError, WorkbenchError

power = functools.partial(pow, 2)


def test_every_unit_is_answered_with_its_place():
    units = list(range(7))
    wanted = {place: 2**unit for place, unit in enumerate(units)}
    assert dict(spread(power, units)) == wanted
    assert dict(spread(functools.partial(pow, 2), units, 2)) == wanted
    assert dict(spread(power, [])) == {}


def test_workers_may_be_prepared_before_there_is_work():
    prepare("fractions")
    prepare(power)
    assert dict(spread(power, [1, 2, 3], 2)) == {0: 2, 1: 4, 2: 8}


def test_an_error_of_a_worker_is_the_callers():
    with pytest.raises(ValueError, match="invalid literal"):
        list(spread(int, ["1", "x", "3"], 2))
    with pytest.raises(ValueError, match="invalid literal"):
        list(spread(int, ["1", "x", "3"]))


def test_a_worker_that_dies_is_told_and_the_others_end():
    with pytest.raises(WorkbenchError, match="a worker process died"):
        list(spread(os._exit, [1, 1], 2))


WORK = """
import os, time

def blas_threads(unit):
    import numpy
    from threadpoolctl import threadpool_info
    return {e["num_threads"] for e in threadpool_info() if e["user_api"] == "blas"}

def card(unit):
    time.sleep(0.5)
    return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")

def slow_pid(unit):
    time.sleep(0.5)
    return os.getpid()
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A module whose functions workers can import."""
    (tmp_path / "units_of_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("units_of_work")
    sys.modules.pop("units_of_work")


def test_workers_use_one_blas_thread_unless_told_otherwise(work):
    before = dict(os.environ)
    assert [found for _, found in spread(work.blas_threads, [0, 1], 2)] == [{1}, {1}]
    assert dict(os.environ) == before
    assert [found for _, found in spread(work.blas_threads, [0])] == [{1}]
    assert [found for _, found in spread(work.blas_threads, [0], threads=2)] == [{2}]


@pytest.mark.thorough
def test_cards_are_dealt_to_workers_in_turn_and_each_sees_one(work, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = [found for _, found in spread(work.card, range(8), 4, cards=["3", "7"])]
    by_process = dict(seen)
    assert len(set(seen)) == len(by_process) == 4  # one card a process, whatever it does
    assert sorted(by_process.values()) == ["3", "3", "7", "7"]
    assert [found[1] for _, found in spread(work.card, range(2), 2)] == [None, None]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.thorough
def test_workers_end_when_their_caller_is_killed(work, tmp_path):
    script = tmp_path / "caller.py"
    script.write_text(
        "from workbench.cluster import spread\nfrom units_of_work import slow_pid\n"
        "if __name__ == '__main__':\n"
        "    for _, pid in spread(slow_pid, range(1000), 2):\n        print(pid, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    pids = {int(child.stdout.readline()) for _ in range(3)}
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert child.pid not in pids
    deadline = time.monotonic() + 20
    while any(map(_runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_runs, pids))


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class TaskError(Exception):
    """What Ray wraps an error of a task in."""

    def __init__(self, cause):
        super().__init__("a page of traceback")
        self.cause = cause


class StandIn(types.ModuleType):
    """The part of Ray that is used, in this process, in an order of its own."""

    def __init__(self):
        super().__init__("ray")
        self.said = []
        self.exceptions = types.SimpleNamespace(RayTaskError=TaskError)

    def is_initialized(self):
        return False

    def init(self, **options):
        self.said.append("init")

    def shutdown(self):
        self.said.append("shutdown")

    def put(self, value):
        return value

    def remote(self, function):
        return types.SimpleNamespace(remote=lambda *words: functools.partial(function, *words))

    def wait(self, references, num_returns):
        return [references[-1]], references[:-1]

    def get(self, reference):
        try:
            return reference()
        except FormatError as error:
            raise self.exceptions.RayTaskError(error) from None

    def cancel(self, reference):
        self.said.append("cancel")


def test_ray_gets_the_same_units(monkeypatch):
    ray = StandIn()
    monkeypatch.setitem(sys.modules, "ray", ray)
    found = list(spread(power, [3, 1, 2], "ray"))
    assert found == [(2, 4), (1, 2), (0, 8)]
    assert ray.said == ["init", "shutdown"]

    def fail(unit):
        raise FormatError("no such unit")

    with pytest.raises(FormatError, match="no such unit"):
        list(spread(fail, [1, 2, 3], "ray"))
    assert ray.said[2:] == ["init", "cancel", "cancel", "shutdown"]


def test_without_ray_the_install_line_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"interp-workbench\[cluster\]"):
        list(spread(power, [1], "ray"))


@pytest.mark.parametrize("words", ["0", "-1", "two", "", "1.5"])
def test_workers_are_a_number_or_ray(words):
    with pytest.raises(ConfigError, match="number of processes from 1, or ray"):
        parse_workers(words)


def test_workers_are_read():
    assert [parse_workers(word) for word in ("1", 8, "ray")] == [1, 8, "ray"]
