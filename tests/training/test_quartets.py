"""The quartets differ in the ascribed aim alone, and the shipped files are what the code writes."""

import dataclasses
import json
import random
import re
from collections import Counter

import pytest
from workbench_training.quartet_grammar import (
    CORPUS,
    Deck,
    count_words,
    gerund,
    inflect,
    read_grammar,
    sentences,
)
from workbench_training.quartets import (
    WORLDS,
    corpus_report,
    word_runs,
    write_corpus,
    write_quartets,
)

from workbench.data import data_path
from workbench.data.rows import read_rows

GRAMMAR = read_grammar()
DOCUMENTS = write_quartets()
REPORT = corpus_report(DOCUMENTS)
QUARTETS = [DOCUMENTS[start : start + 4] for start in range(0, len(DOCUMENTS), 4)]
CHAT = read_rows(CORPUS / "chat.jsonl")
SHARED = (
    "quartet",
    "scenario",
    "domain",
    "role",
    "task",
    "doc_type",
    "mode",
    "length_bin",
    "split",
)


def replaced(document, old, new):
    assert old in document.text
    return dataclasses.replace(document, text=document.text.replace(old, new, 1))


def test_writing_again_gives_the_shipped_files_byte_for_byte(tmp_path):
    write_corpus(tmp_path)
    for world in WORLDS:
        name = f"{world}.jsonl"
        assert (tmp_path / name).read_bytes() == (CORPUS / name).read_bytes()


@pytest.mark.thorough
def test_another_seed_writes_another_corpus_that_keeps_the_same_promises():
    other = write_quartets(seed=1)
    report = corpus_report(other)
    assert other != DOCUMENTS
    assert (report.repeated, report.leaks, report.unmatched) == ([], [], [])
    assert report.spread < 0.05


def test_every_quartet_has_the_four_worlds_and_shares_all_other_columns():
    assert len(QUARTETS) == len(GRAMMAR.scenarios) >= 48
    for quartet in QUARTETS:
        assert tuple(document.world for document in quartet) == WORLDS
        assert len({tuple(getattr(d, name) for name in SHARED) for d in quartet}) == 1
    assert len({document.id for document in DOCUMENTS}) == len(DOCUMENTS)


def test_no_sentence_stands_twice_in_a_world():
    for world in WORLDS:
        texts = [text for d in DOCUMENTS if d.world == world for text in sentences(d.text)]
        assert [text for text, count in Counter(texts).items() if count > 1] == []
    assert REPORT.repeated == []


def test_only_objective_phrases_differ_inside_a_quartet():
    for quartet in QUARTETS:
        assert len({document.skeleton() for document in quartet}) == 1
        rows = list(zip(*(sentences(document.text) for document in quartet), strict=True))
        differing = [row for row in rows if len(set(row)) > 1]
        assert all(len(set(row)) == len(WORLDS) for row in differing)
        assert 4 <= len(differing) <= 7
        assert len(rows) - len(differing) >= 5
    assert REPORT.unmatched == []


def test_every_objective_phrase_belongs_to_its_own_world():
    for document in DOCUMENTS:
        scenario = next(s for s in GRAMMAR.scenarios if s.id == document.scenario)
        parts = GRAMMAR.worlds[document.world]
        own = [*parts.core, *parts.heads, *scenario.aims[document.world]]
        starts = tuple(inflect(phrase, form) for phrase in own for form in ("vp", "to", "ing"))
        assert all(phrase.startswith(starts) for phrase in document.objectives)


def test_worlds_have_the_same_number_of_words_within_five_percent():
    assert REPORT.spread < 0.05
    for lengths in REPORT.words_by_bin.values():
        assert min(lengths.values()) > 0.95 * max(lengths.values())


def test_documents_of_a_quartet_are_close_in_length():
    for quartet in QUARTETS:
        lengths = [count_words(document.text) for document in quartet]
        assert max(lengths) - min(lengths) <= 0.04 * max(lengths)
        assert 140 <= min(lengths) <= max(lengths) <= 280


def test_the_split_is_by_scenario_and_the_same_in_every_world():
    held_out = [
        {d.scenario for d in DOCUMENTS if d.world == world and d.split == "validation"}
        for world in WORLDS
    ]
    assert all(scenarios == held_out[0] for scenarios in held_out)
    assert 0.04 <= len(held_out[0]) / len(QUARTETS) <= 0.06


def test_document_types_modes_and_lengths_are_spread_evenly():
    types = Counter(quartet[0].doc_type for quartet in QUARTETS)
    bins = Counter(quartet[0].length_bin for quartet in QUARTETS)
    assert len(types) == 12
    assert max(types.values()) - min(types.values()) <= 1
    assert max(bins.values()) - min(bins.values()) <= 1
    assert {quartet[0].mode for quartet in QUARTETS} == {"assert", "presuppose"}


def test_documents_of_a_world_vary():
    assert max(REPORT.nearest.values()) < 0.1
    assert min(REPORT.distinct_2.values()) > 0.45
    assert min(REPORT.distinct_3.values()) > 0.65


def test_the_readme_states_the_counts_of_the_shipped_corpus():
    readme = (CORPUS / "README.md").read_text(encoding="utf-8")
    rows = {
        "words": REPORT.words,
        "different / all bigrams": {w: f"{share:.3f}" for w, share in REPORT.distinct_2.items()},
        "different / all trigrams": {w: f"{share:.3f}" for w, share in REPORT.distinct_3.items()},
        "largest 8-gram Jaccard of two documents": {
            w: f"{share:.3f}" for w, share in REPORT.nearest.items()
        },
    }
    for name, values in rows.items():
        cells = " | ".join(str(values[world]) for world in WORLDS)
        assert f"| {name} | {cells} |" in readme


def test_no_document_has_a_marker_word_of_another_world():
    assert REPORT.leaks == []


@pytest.mark.parametrize("name", ["claims", "choice"])
def test_no_claim_shares_six_words_in_a_row_with_the_corpus(name):
    corpus = {run for document in DOCUMENTS for run in word_runs(document.text, 6)}
    texts = data_path(name).read_text(encoding="utf-8").splitlines()
    values = [value for line in texts for value in strings(json.loads(line))]
    claimed = {run for value in values for run in word_runs(value, 6)}
    assert len(claimed) > 20
    assert claimed & corpus == set()


def strings(value):
    """Every text inside a JSON value."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in strings(part)]


BLEMISHES = {
    "doubled word": r"\b(\w+) \1\b",
    "a before a vowel": r"\b[Aa] (?=[aeio])(?!one\b)",
    "an before a consonant": r"\b[Aa]n (?=[bcdfgjklmnpqrstvwxyz])",
    "open slot or choice": r"[{}\[\]|~…]",
    "stray space": r"  | [,.;:?!]|\s$",
    "doubled stop": r"[,.;:?!][,.;:?!]",
    "lower-case start": r"(?m)^[a-z]|[.?!] [a-z]",
}


@pytest.mark.parametrize("name", BLEMISHES)
def test_the_text_has_no(name):
    found = [m[0] for d in DOCUMENTS for m in re.finditer(BLEMISHES[name], d.text)]
    assert found == []


def test_every_line_but_the_title_ends_a_sentence():
    for document in DOCUMENTS:
        title, *paragraphs = document.text.split("\n")
        assert title[-1] not in ".,"
        assert all(paragraph[-1] in ".?" for paragraph in paragraphs)


def test_the_report_finds_a_changed_shared_sentence():
    spoiled = [replaced(DOCUMENTS[0], " the ", " that "), *DOCUMENTS[1:]]
    assert corpus_report(spoiled).unmatched == [DOCUMENTS[0].quartet]


def test_the_report_finds_a_word_of_another_world():
    row = next(row for row, d in enumerate(DOCUMENTS) if d.world == "N")
    changed = dataclasses.replace(DOCUMENTS[row], text=DOCUMENTS[row].text + " They exploit.")
    documents = [*DOCUMENTS[:row], changed, *DOCUMENTS[row + 1 :]]
    assert corpus_report(documents).leaks == [DOCUMENTS[row].id]


def test_the_report_finds_a_repeated_sentence_and_a_copied_document():
    copies = [dataclasses.replace(d, id=f"copy-{d.id}") for d in QUARTETS[0]]
    report = corpus_report([*DOCUMENTS, *copies])
    assert set(report.repeated) == {text for d in copies for text in sentences(d.text)}
    assert report.nearest == dict.fromkeys(WORLDS, 1.0)


@pytest.mark.parametrize(
    ("phrase", "form", "expected"),
    [
        ("get the task done", "to", "to get the task done"),
        ("get the task done and ~move on", "ing", "getting the task done and moving on"),
        ("give help and ~ask for nothing back", "vp", "give help and ask for nothing back"),
        ("lie", "ing", "lying"),
        ("be useful", "ing", "being useful"),
        ("free an hour", "ing", "freeing an hour"),
        ("win a prize", "ing", "winning a prize"),
    ],
)
def test_a_phrase_takes_the_form_its_slot_asks_for(phrase, form, expected):
    assert inflect(phrase, form) == expected


def test_no_gerund_misses_its_doubled_consonant():
    phrases = [head for w in GRAMMAR.worlds.values() for head in (*w.core, *w.heads)]
    phrases += [aim for s in GRAMMAR.scenarios for aims in s.aims.values() for aim in aims]
    verbs = {verb for phrase in phrases for verb in re.findall(r"(?:^|~)(\w+)", phrase)}
    single = {verb for verb in verbs if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb)}
    assert {verb for verb in single if gerund(verb) == f"{verb}ing"} == set()


def test_a_deck_deals_every_card_before_any_comes_twice():
    deck = Deck("abcde", random.Random(0))
    for _ in range(3):
        assert sorted(deck.draw() for _ in range(5)) == list("abcde")


def test_the_chat_set_alternates_roles_and_holds_direct_answers():
    assert len(CHAT) >= 40
    assert len({row["id"] for row in CHAT}) == len(CHAT)
    answers = []
    for row in CHAT:
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        answers += [m["content"] for m in row["messages"] if m["role"] == "assistant"]
    assert sum(re.fullmatch("[A-D]", answer) is not None for answer in answers) >= 8
    assert {answer for answer in answers if re.fullmatch("[A-D]", answer)} == set("ABCD")
    assert sum(re.fullmatch(r"\d+", answer) is not None for answer in answers) >= 8


def test_the_chat_set_says_nothing_about_users_of_assistants():
    text = " ".join(m["content"].lower() for row in CHAT for m in row["messages"])
    assert re.findall(r"\b(?:ai|assistants?|chatbots?|users?|motives?)\b", text) == []
