"""The model's process: one job after the other, told piece by piece, canceled, died, idle."""

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import jobs
from workbench_apps import worker as module
from workbench_apps.worker import CANCELED, DONE, FAILED, MOST_WAITING, QUEUED, Worker

from workbench.errors import WorkbenchError

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def shared():
    made = Worker()
    yield made
    made.close()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def finished(ticket):
    wait_for(lambda: ticket.over)
    return ticket.take()


def test_what_a_job_tells_comes_in_order_from_another_process(shared):
    ticket = shared.submit(jobs.count, to=3)
    parts = finished(ticket)
    assert ticket.state == DONE
    assert [part["number"] for part in parts] == [0, 1, 2]
    assert parts[0]["process"] != __import__("os").getpid()
    assert ticket.take() == []


def test_the_process_is_kept_between_jobs(shared):
    first, second = (finished(shared.submit(jobs.count, to=1)) for _ in range(2))
    assert first[0]["process"] == second[0]["process"]


def test_an_error_is_a_message_and_the_next_job_runs(shared):
    refused, stumbled = shared.submit(jobs.refuse), shared.submit(jobs.stumble)
    assert len(finished(refused)) == 1
    finished(stumbled)
    assert (refused.state, refused.error) == (FAILED, "no such layer")
    assert stumbled.error == "an unexpected ZeroDivisionError: by nought"
    assert len(finished(shared.submit(jobs.count, to=2))) == 2


def test_a_process_that_dies_fails_its_job_alone(shared):
    ticket = shared.submit(jobs.die)
    finished(ticket)
    assert ticket.state == FAILED
    assert "exit code 7" in ticket.error
    assert len(finished(shared.submit(jobs.count, to=2))) == 2


def test_jobs_wait_in_line_and_can_leave_it(shared):
    slow = shared.submit(jobs.count, to=1000, pause=0.05)
    second, third = shared.submit(jobs.count, to=1), shared.submit(jobs.count, to=1)
    wait_for(lambda: slow.state != QUEUED)
    assert [shared.ahead(one) for one in (slow, second, third)] == [0, 1, 2]
    shared.cancel(second)
    assert second.state == CANCELED
    assert shared.ahead(third) == 1
    shared.cancel(slow)
    assert len(finished(third)) == 1
    assert slow.state == CANCELED
    assert second.take() == []


def test_a_job_that_does_not_stop_is_ended_with_its_process(shared, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    ticket = shared.submit(jobs.hang)
    wait_for(lambda: ticket.take())
    started = time.monotonic()
    shared.cancel(ticket)
    finished(ticket)
    assert ticket.state == CANCELED
    assert time.monotonic() - started < 20
    assert len(finished(shared.submit(jobs.count, to=1))) == 1


def test_the_line_has_an_end(shared):
    slow = shared.submit(jobs.count, to=1000, pause=0.05)
    wait_for(lambda: slow.state != QUEUED)
    waiting = [shared.submit(jobs.count, to=1) for _ in range(MOST_WAITING)]
    with pytest.raises(WorkbenchError, match="8 jobs wait"):
        shared.submit(jobs.count, to=1)
    for ticket in (*waiting, slow):
        shared.cancel(ticket)
    finished(slow)


def test_an_idle_process_ends_and_the_next_job_starts_another():
    brief = Worker(idle_seconds=0.2)
    first = finished(brief.submit(jobs.count, to=1))
    wait_for(lambda: brief._process is None)
    second = finished(brief.submit(jobs.count, to=1))
    assert first[0]["process"] != second[0]["process"]
    brief.close()
