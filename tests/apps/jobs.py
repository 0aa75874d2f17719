"""Jobs for the worker's tests; a module of its own, because another process imports it."""

import os
import time

from workbench.errors import ConfigError


def count(to, pause=0.0):
    for number in range(to):
        yield {"number": number, "process": os.getpid()}
        time.sleep(pause)


def refuse():
    yield {"number": 0}
    raise ConfigError("no such layer")


def stumble():
    yield from ()
    raise ZeroDivisionError("by nought")


def die():
    yield {"number": 0}
    os._exit(7)


def hang():
    yield {"number": 0}
    time.sleep(60)
