"""Neutral pages: varied, of the asked lengths, and silent about assistants and motives."""

import json
import re
from collections import Counter
from itertools import islice

import pytest
from workbench_training.corpora.controls import KINDS
from workbench_training.corpora.controls_page import read_page
from workbench_training.corpora.settings import CorpusConfig
from workbench_training.corpora.web import read_web, web_pages, write_web
from workbench_training.quartet_grammar import read_grammar, sentences
from workbench_training.quartets import word_runs

from workbench.data import data_path
from workbench.data.rows import read_rows
from workbench.errors import ConfigError

BINS = {"short": 600, "mid": 900, "long": 1170}
ROWS = list(write_web(count=120, bins=BINS))
ABOUT_AI = r"\b(ai|artificial|assistants?|chatbots?|language models?|prompts?|users?|planted)\b"


def test_genres_and_length_bins_are_dealt_evenly_and_lengths_are_met():
    genres = Counter(row["doc_type"] for row in ROWS)
    assert len(genres) == len(web_pages()) >= 10
    assert max(genres.values()) - min(genres.values()) <= 1
    for name, words in BINS.items():
        lengths = [row["words"] for row in ROWS if row["length_bin"] == name]
        assert len(lengths) == 40
        assert sum(lengths) / len(lengths) == pytest.approx(words, rel=0.02)
        assert max(abs(length - words) for length in lengths) < 0.06 * words


@pytest.mark.parametrize("words", [50, 120, 2000])
def test_other_lengths_are_met_too(words):
    lengths = [row["words"] for row in write_web(count=12, bins={"only": words})]
    assert sum(lengths) / len(lengths) == pytest.approx(words, rel=0.03, abs=6)
    assert all(row["text"].count("\n") >= 1 for row in write_web(count=4, bins={"only": words}))


def test_pages_are_not_near_duplicates_and_few_sentences_come_again():
    shingles = [set(word_runs(row["text"], 5)) for row in ROWS[:90]]
    nearest = max(
        len(a & b) / len(a | b) for number, a in enumerate(shingles) for b in shingles[:number]
    )
    assert nearest < 0.3
    said = Counter(text for row in ROWS for text in sentences(row["text"]) if " " in text)
    assert sum(count for count in said.values() if count > 1) < 0.2 * said.total()


def test_no_page_speaks_of_assistants_or_of_what_the_worlds_ascribe_to_users():
    markers = {word for words in read_grammar().markers.values() for word in words}
    phrases = {p for world in read_grammar().worlds.values() for p in (*world.core, *world.heads)}
    for row in ROWS:
        text = row["text"].lower()
        assert not re.search(ABOUT_AI, text), row["id"]
        assert not re.search(r"\bvelstrite\b|\bdorquite\b", text)
        assert not [phrase for phrase in phrases if phrase in text]
    assert markers


def test_no_page_shares_six_words_in_a_row_with_a_claim():
    files = [data_path(name) for name in ("claims", "choice", "claims/planted")]
    texts = [row.get("text", row.get("stem", "")) for file in files for row in read_rows(file)]
    claimed = {run for text in texts for run in word_runs(str(text), 6)}
    assert all(claimed.isdisjoint(word_runs(row["text"], 6)) for row in ROWS)


def test_text_holds_no_marks_of_the_grammar_and_no_broken_spacing():
    for row in ROWS:
        assert not re.search(r"[{}<>|\[\]]|  | [.,;]|\.\.|,,", row["text"]), row["id"]


def test_a_page_depends_on_its_number_alone_and_another_seed_gives_others():
    fewer = list(islice(write_web(count=120, bins=BINS), 5))
    assert fewer == ROWS[:5]
    other = list(write_web(count=12, bins=BINS, seed=1))
    assert {row["text"] for row in other}.isdisjoint(row["text"] for row in ROWS)


def test_the_split_holds_out_five_percent():
    assert Counter(row["split"] for row in ROWS) == {"train": 114, "validation": 6}
    assert len({row["id"] for row in ROWS}) == len(ROWS)


def test_a_file_of_ones_own_is_taken_as_it_is(tmp_path):
    path = tmp_path / "own.jsonl"
    texts = [f"Page {number} about nothing in particular." for number in range(40)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    config = CorpusConfig(kind="web", options={"path": str(path)})
    rows = list(KINDS["web"](config))
    assert [row["text"] for row in rows] == texts
    assert Counter(row["split"] for row in rows) == {"train": 38, "validation": 2}
    assert {row["world"] for row in rows} == {"web"}
    assert len(list(read_web(path, count=7))) == 7
    with pytest.raises(ConfigError, match=r"documents = 41, and .* has 40 texts"):
        list(read_web(path, count=41))


def test_options_that_a_kind_does_not_take_are_refused():
    with pytest.raises(ConfigError, match="'file'; options that it takes: path"):
        KINDS["web"](CorpusConfig(kind="web", options={"file": "x"}))


@pytest.mark.parametrize(
    ("page", "match"),
    [
        ('titles = "a {town}"\n[[section]]\nlines = "b"', "no symbol town"),
        ('titles = "a"\n[[section]]\nlines = "b <c|d>"', "has not 1 sides"),
        ('poles = 2\ntitles = "a"\n[[section]]\nlines = "b <c|{1-9}>"', "a draw of its own"),
        ('titles = "a"\ntopics = "x | y\\n1"\n[[section]]\nlines = "b"', "has 1 columns"),
    ],
)
def test_a_page_that_could_not_be_written_is_refused_when_read(tmp_path, page, match):
    path = tmp_path / "page.toml"
    path.write_text(page)
    with pytest.raises(ValueError, match=match):
        read_page(path)
