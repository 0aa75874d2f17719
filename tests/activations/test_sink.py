"""The thread behind a capture: how late it may be, and what becomes of a failure."""

import threading

import pytest

from workbench.activations.sink import Background


def test_a_task_may_wait_behind_one_more_where_that_is_allowed():
    gate, done = threading.Event(), []
    with Background() as behind:
        behind.submit(lambda: gate.wait(10) and done.append(0))
        behind.submit(lambda: done.append(1), late=1)  # returns though the first still waits
        assert done == []
        gate.set()
        behind.submit(lambda: done.append(2))  # returns when both before it have ended
        assert done[:2] == [0, 1]
    assert done == [0, 1, 2]


def test_what_waits_behind_a_failure_does_not_run_and_the_failure_is_raised_once():
    gate, done = threading.Event(), []

    def fail():
        gate.wait(10)
        raise OSError("full")

    with pytest.raises(OSError, match="full") as caught, Background() as behind:  # noqa: PT012
        behind.submit(fail)
        waiting = behind.submit(lambda: done.append(1), late=1)
        gate.set()
        behind.settle()
    assert done == []
    assert waiting.exception() is caught.value
    assert not hasattr(caught.value, "__notes__")


def test_a_failure_that_nobody_waited_for_is_raised_at_the_end_or_noted():
    def fail():
        raise OSError("full")

    with pytest.raises(OSError, match="full"), Background() as behind:
        behind.submit(fail)
    with pytest.raises(ValueError, match="other") as caught, Background() as behind:  # noqa: PT012
        behind.submit(fail)
        raise ValueError("other")
    assert caught.value.__notes__ == ["writing had failed too: full"]
