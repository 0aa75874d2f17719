"""Notes are checked while tests run: in functions, inner functions and dataclasses."""

import importlib
import sys

import numpy as np
import pytest

ROWS = np.random.default_rng(0).normal(size=(4, 3))

SAMPLE = """
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float
from numpy import ndarray

if TYPE_CHECKING:
    from nowhere import Unseen


def dot(a: Float[ndarray, " d"], b: Float[ndarray, " d"]) -> float:
    return float(a @ b)


def halves(a: Float[ndarray, "n d"], rows: slice) -> Float[ndarray, "n d"]:
    return a[rows]


def scaled(a: Float[ndarray, " d"], by: Float[ndarray, " e"]) -> float:
    def inner(b: Float[ndarray, " e"]) -> float:
        return dot(a, b)

    return inner(by)


def count(start: int, *, more: Unseen = None) -> Iterator[int]:
    yield start


class Box:
    def open(self, times: int) -> str:
        return times if times > 1 else "open"


@dataclass(frozen=True)
class Rows:
    a: Float[ndarray, "n d"]
    label: str = "none"


@dataclass(frozen=True)
class Names:
    a: Rows
    label: str = "none"
"""


@pytest.fixture(scope="module")
def sample(check_notes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    (folder / "checked_sample.py").write_text(SAMPLE)
    finder = check_notes("checked_sample")
    sys.path.insert(0, str(folder))
    yield importlib.import_module("checked_sample")
    sys.path.remove(str(folder))
    sys.meta_path.remove(finder)
    del sys.modules["checked_sample"]


def test_what_is_as_its_notes_say_goes_through(sample):
    a = ROWS
    assert sample.dot(a[0], b=a[0]) > 0
    assert sample.halves(a, slice(None)) is not None
    assert sample.scaled(a[0], a[1]) == sample.dot(a[0], a[1])
    assert list(sample.count(3, more=[])) == [3]
    assert sample.Names(sample.Rows(a), "x").a.label == "none"
    assert sample.Box().open(1) == "open"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s, a: s.dot(a[0], a[0, :2]),
        lambda s, a: s.dot(a, a),
        lambda s, a: s.halves(a, slice(2)),
        lambda s, a: s.scaled(a[0], a[0, :2]),
        lambda s, _: s.count("3"),
        lambda s, _: s.Box().open(2),
        lambda s, a: s.Rows(a[0]),
        lambda s, a: s.Names(a),
    ],
)
def test_a_wrong_type_or_an_axis_of_two_lengths_is_refused(sample, wrong):
    with pytest.raises(TypeError, match="violates type hint"):
        wrong(sample, ROWS)


def test_a_wrong_call_is_told_as_python_tells_it(sample):
    with pytest.raises(TypeError, match=r"dot\(\) missing 1 required positional argument: 'b'"):
        sample.dot(ROWS[0])


def test_what_was_imported_before_cannot_be_checked(check_notes):
    with pytest.raises(RuntimeError, match="imported before it could be checked: workbench"):
        check_notes("workbench", "no_such_package")
