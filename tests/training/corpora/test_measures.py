"""What a corpus file holds, against counting in the plain way."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from workbench_training.corpora.doc_types import DOC_TYPES
from workbench_training.corpora.marks import MARKS
from workbench_training.corpora.measures import Lengths, Measure, _Runs
from workbench_training.corpora.pages import mark, sample_page, side_by_side
from workbench_training.corpora.quality import claim_runs
from workbench_training.corpora.tables import Table, write_tables
from workbench_training.corpora.words import number_words, words_of
from workbench_training.corpora.writing import claim_texts
from workbench_training.quartets import word_runs

from workbench.errors import ConfigError, FormatError

TEXTS = [
    "A first line stands here.\nThe same sentence comes again.",
    "Something else is said now. The same sentence comes again.",
    "Short one. Short one. Nothing that six words of a claim would hold on to.",
]


@pytest.fixture
def file(tmp_path):
    """A corpus file of three documents."""
    told = [
        {"id": f"d{n}", "text": text, "length_bin": "short", "split": "train", "domain": "d",
         "role": "r", "category": "c", "doc_type": "t", "mode": "assert", "scenario": f"s{n % 2}",
         "words": len(text.split())}
        for n, text in enumerate(TEXTS)
    ]  # fmt: skip
    path = tmp_path / "P.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in told))
    return path


def measured(file, claims=()):
    return Measure(claim_runs(claims))(file)


def test_counts_are_those_of_the_file(file):
    found = measured(file)
    words = [len(text.split()) for text in TEXTS]
    assert (found.documents, found.words, found.splits) == (3, sum(words), {"train": 3})
    assert found.by_bin == {"short": Lengths.of(words)}
    assert found.tokens == round(sum(words) / 0.75)
    assert found.scenarios == Counter({"s0": 2, "s1": 1})
    assert found.genres == {("c", "t", "assert"): 3}
    assert found.roles == {("d", "r"): 3}


def test_distinct_n_is_different_over_all_runs(file):
    runs = {n: [run for text in TEXTS for run in word_runs(text, n)] for n in (1, 2, 3)}
    expected = {n: len(set(found)) / len(found) for n, found in runs.items()}
    assert measured(file).distinct == pytest.approx(expected)
    assert measured(file).distinct_sample == measured(file).distinct


def test_a_sentence_of_four_words_that_returns_is_repeated(file):
    found = measured(file)
    assert found.sentences == 5  # "Short one." is a heading
    assert found.repeated == pytest.approx(2 / 5)


def test_overlap_with_claims_is_counted_by_document(file):
    assert measured(file, ["six words of a claim would"]).claims_overlap == 1
    assert measured(file, ["six words of a claim should"]).claims_overlap == 0


@pytest.mark.parametrize("length", [1, 2])
def test_merging_early_and_late_gives_the_same(monkeypatch, length):
    from workbench_training.corpora import measures

    arrays = [number_words(words_of(f"a b c{n % 7} d e{n}")) for n in range(30)]
    shares = []
    for batch in (1, 7, 10**6):
        monkeypatch.setattr(measures, "_BATCH", batch)
        runs = _Runs(length)
        for numbers in arrays:
            runs.add(numbers)
        shares.append(runs.merge())
    assert len(set(shares)) == 1
    assert 0 < shares[0] < 1


def test_claims_are_read_from_texts_and_from_choices(tmp_path):
    from workbench.data import data_path

    texts = list(claim_texts(data_path("choice")))
    rows = [json.loads(line) for line in data_path("choice").read_text().splitlines()]
    assert len(texts) == 5 * len(rows)
    assert rows[0]["options"]["A"] in texts
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"id": 1}\n')
    with pytest.raises(ConfigError, match="neither text nor stem"):
        list(claim_texts(wrong))


def test_every_genre_has_a_mark_that_plain_text_lacks():
    assert MARKS.keys() == {kind.name for kind in DOC_TYPES}
    assert not any(pattern.search("A plain sentence about nothing.") for pattern in MARKS.values())


# --- pages and tables ----------------------------------------------------------------------------


def test_phrases_are_marked_where_they_stand_in_order():
    assert mark("To help is to help.", ["to help", "to help"]) == "**To help** is **to help**."
    assert mark("No phrase.", ["absent"]) == "No phrase."


def test_a_quartet_stands_side_by_side():
    rows = [
        {"id": f"q1-{w}", "quartet": "q1", "world": w, "words": 4, "text": f"One | two.\n\nGo {w}.",
         "objectives": [w], "domain": "law"}
        for w in "PS"
    ]  # fmt: skip
    page = side_by_side(rows)
    assert "| P (4 words) | S (4 words) |" in page
    assert "| One \\| two. | One \\| two. |" in page
    assert "| Go **P**. | Go **S**. |" in page
    assert "- domain: law" in page


def test_a_sample_of_what_is_not_there_is_refused(file):
    with pytest.raises(FormatError, match="no quartet q9 in P"):
        sample_page(file.parent, ["P"], quartet="q9")


def test_tables_are_written_as_csv_and_for_people(tmp_path):
    table = Table("table9", "What it shows.", ["a", "b"], [["x|y", 1234], ["z", 0.5]])
    write_tables([table], tmp_path / "tables")
    assert (tmp_path / "tables" / "table9.csv").read_text() == "a,b\nx|y,1234\nz,0.5\n"
    page = (tmp_path / "tables" / "tables.md").read_text()
    assert "| x\\|y | 1,234 |" in page
    assert "| z | 0.50 |" in page


def test_numbers_of_an_empty_corpus_are_zero(tmp_path):
    path = Path(tmp_path / "P.jsonl")
    path.write_text("")
    found = measured(path)
    assert (found.documents, found.words, found.repeated) == (0, 0, 0.0)
    assert found.distinct == {1: 0.0, 2: 0.0, 3: 0.0}
    assert np.isfinite(list(found.distinct.values())).all()
