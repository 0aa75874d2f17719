"""The laws of the likely and unlikely endings."""

import random
from collections import Counter

import pytest

from workbench.data import data_path
from workbench.data.likely.generate import TOPIC, derange, likely_rows
from workbench.data.rows import dump_rows, read_rows

ROWS = read_rows(data_path("likely"))


def last_word(row):
    return row["text"].rstrip(".").split()[-1]


def test_the_committed_file_is_what_the_generator_writes():
    assert data_path("likely").read_text(encoding="utf-8") == dump_rows(likely_rows())


def test_every_ending_stands_once_as_likely_and_once_as_unlikely():
    for label in (0, 1):
        words = Counter(last_word(row) for row in ROWS if row["label"] == label)
        assert set(words.values()) == {1}
    assert len({last_word(row) for row in ROWS}) == len(ROWS) / 2


def test_a_scene_has_one_ending_of_each_kind_and_nothing_else_differs():
    pairs = Counter((row["fact"], row["text"].rsplit(" ", 1)[0]) for row in ROWS)
    assert len(pairs) == len(ROWS) / 2
    assert set(pairs.values()) == {2}
    assert Counter(row["label"] for row in ROWS) == {0: 96, 1: 96}


def test_texts_begin_alike_and_end_in_a_letter_and_a_period():
    assert all(row["text"].startswith("The ") for row in ROWS)
    assert all(row["text"][-1] == "." and row["text"][-2].isalpha() for row in ROWS)
    assert {(row["topic"], row["polarity"]) for row in ROWS} == {(TOPIC, 1)}


@pytest.mark.parametrize("count", [2, 3, 24])
def test_no_word_stays_in_its_place(count):
    words = [str(number) for number in range(count)]
    for seed in range(20):
        moved = derange(words, random.Random(seed))
        assert sorted(moved) == sorted(words)
        assert not any(a == b for a, b in zip(words, moved, strict=True))
