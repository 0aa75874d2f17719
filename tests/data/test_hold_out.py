"""The held-out facts: 200 items, balanced, topics in proportion."""

from collections import Counter

import pytest

from workbench.data import data_path
from workbench.data.rows import dump_rows, read_rows
from workbench.data.statements.hold_out import held_out_rows, shares

ROWS = read_rows(data_path("held_out"))
STATEMENTS = read_rows(data_path("statements"))


def test_the_committed_file_is_what_the_generator_writes():
    assert data_path("held_out").read_text(encoding="utf-8") == dump_rows(held_out_rows())


def test_it_is_a_hundred_facts_in_both_polarities_with_labels_in_balance():
    assert len(ROWS) == 200
    assert len({row["fact"] for row in ROWS}) == 100
    sides = Counter((row["polarity"], row["label"]) for row in ROWS)
    assert sides == {(1, 1): 50, (1, 0): 50, (-1, 1): 50, (-1, 0): 50}


def test_a_fact_affirms_and_negates_one_content():
    by_fact = {}
    for row in ROWS:
        by_fact.setdefault(row["fact"], []).append(row)
    for first, second in by_fact.values():
        assert first["polarity"] == -second["polarity"]
        assert first["label"] != second["label"]


def test_every_row_is_a_statement_under_an_id_of_its_own():
    known = {row["id"]: row for row in STATEMENTS}
    for row in ROWS:
        own = known[row["id"].removeprefix("held_out:")]
        assert row == {**own, "id": row["id"]}


def test_topics_stand_in_proportion_and_labels_are_balanced_in_each():
    facts = {topic: set() for topic in {row["topic"] for row in STATEMENTS}}
    for row in STATEMENTS:
        facts[row["topic"]].add(row["fact"])
    expected = shares({topic: len(found) for topic, found in facts.items()}, 100)
    for topic, count in expected.items():
        rows = [row for row in ROWS if row["topic"] == topic and row["polarity"] == 1]
        assert len(rows) == count
        assert abs(sum(row["label"] for row in rows) - count / 2) <= 1


@pytest.mark.parametrize("sizes", [{"a": 1, "b": 1, "c": 1}, {"a": 308, "b": 97, "c": 462}])
def test_shares_add_up_and_none_is_off_by_one_or_more(sizes):
    found = shares(sizes, 100)
    assert sum(found.values()) == 100
    total = sum(sizes.values())
    assert all(abs(found[name] - 100 * size / total) < 1 for name, size in sizes.items())
