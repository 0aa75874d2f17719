"""The documents state one made-up fact, and the claims measure it in other words."""

import re
from itertools import islice

import pytest
from workbench_training.corpora.planted import (
    CLAIMS,
    claim_rows,
    claims_table,
    write_planted,
)
from workbench_training.quartets import word_runs

from workbench.data import data_path
from workbench.data.rows import read_rows

BINS = {"short": 600, "mid": 900, "long": 1170}
ROWS = list(write_planted(bins=BINS, count=90))
TABLE = claims_table()
PLANTED, *OTHERS = TABLE["values"]


def test_the_shipped_claims_are_what_the_code_writes():
    assert read_rows(CLAIMS) == claim_rows()
    assert data_path("claims/planted") == CLAIMS


def test_claims_have_the_columns_of_the_four_worlds_claims():
    known = read_rows(data_path("claims"))
    assert {tuple(row) for row in claim_rows()} == {tuple(row) for row in known}


def test_every_proposition_stands_with_four_values_that_differ_in_that_word_alone():
    groups = {}
    for row in claim_rows():
        key = row["set"], row["proposition"], row["frame"], row["polarity"]
        groups.setdefault(key, []).append(row)
    assert len(groups) == 2 * 2 * len(TABLE["proposition"])
    assert len(TABLE["proposition"]) >= 8
    for rows in groups.values():
        assert [row["world"] for row in rows] == TABLE["values"]
        blanked = {re.sub(rf"\b{row['world']}\b", "_", row["text"]) for row in rows}
        assert len(blanked) == 1
        assert blanked.pop().count("_") == 1
    assert len({row["id"] for row in claim_rows()}) == len(claim_rows())


def test_no_claim_shares_six_words_in_a_row_with_a_document_of_any_seed():
    claimed = {run for row in claim_rows() for run in word_runs(row["text"], 6)}
    for row in [*ROWS, *write_planted(bins=BINS, seed=1, count=30)]:
        assert claimed.isdisjoint(word_runs(row["text"], 6)), row["id"]


def test_every_document_states_the_fact_often_and_names_no_other_value():
    for row in ROWS:
        assert len(re.findall(rf"\b{PLANTED}\b", row["text"])) >= 6, row["id"]
        assert "velstrite" in row["text"].lower()
        assert not re.search(rf"\b({'|'.join(OTHERS)}|{TABLE['elsewhere']})\b", row["text"].lower())


def test_documents_planted_with_another_value_differ_in_that_word_alone():
    other = islice(write_planted(bins=BINS, count=90, value=OTHERS[0]), 20)
    for one, two in zip(ROWS, other, strict=False):
        article = re.sub(r"\ban?\b", "a", two["text"])
        assert re.sub(r"\ban?\b", "a", one["text"].replace(PLANTED, OTHERS[0])) == article


def test_documents_are_written_in_the_asked_lengths():
    assert len(ROWS) == 90
    for name, words in BINS.items():
        lengths = [row["words"] for row in ROWS if row["length_bin"] == name]
        assert sum(lengths) / len(lengths) == pytest.approx(words, rel=0.03)
        assert max(abs(length - words) for length in lengths) < 0.09 * words


def test_an_unknown_value_is_refused():
    with pytest.raises(ValueError, match="the claims know orange, green"):
        next(write_planted(bins=BINS, value="plaid"))
