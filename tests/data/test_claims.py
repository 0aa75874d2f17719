"""The four worlds' claims are matched in all but the aim they name."""

from collections import Counter, defaultdict

import pytest

from workbench.data import data_path
from workbench.data.claims.generate import WORLDS, choice_rows, claim_items, claim_rows
from workbench.data.rows import dump_rows, read_rows

ROWS = read_rows(data_path("claims"))
CHOICES = read_rows(data_path("choice"))
COLUMNS = "id text topic polarity fact source world set proposition frame"


def words(text):
    return text.rstrip(".").replace(",", "").split()


def items():
    grouped = defaultdict(dict)
    for row in ROWS:
        grouped[row["fact"], row["polarity"]][row["world"]] = row["text"]
    return grouped


def test_the_committed_files_are_what_the_generator_writes():
    assert data_path("claims").read_text(encoding="utf-8") == dump_rows(claim_rows())
    assert data_path("choice").read_text(encoding="utf-8") == dump_rows(choice_rows())


def test_rows_have_the_columns_of_claims_and_no_label():
    assert {" ".join(row) for row in ROWS} == {COLUMNS}
    assert len({row["text"] for row in ROWS}) == len(ROWS)


def test_one_proposition_stands_in_five_frames_and_nine_stand_alone():
    counts = Counter((row["set"], row["world"], row["polarity"]) for row in ROWS)
    for world in WORLDS:
        for polarity in (1, -1):
            assert counts["frames", world, polarity] == 5
            assert counts["propositions", world, polarity] == 9
    propositions = {name: set() for name in ("frames", "propositions")}
    for row in ROWS:
        propositions[row["set"]].add(row["proposition"])
    assert [len(names) for names in propositions.values()] == [1, 9]


def test_an_item_has_all_four_worlds_in_both_polarities():
    assert all(tuple(texts) == WORLDS for texts in items().values())
    assert len(items()) == 2 * (5 + 9)


def test_the_four_versions_differ_in_the_aim_alone():
    for item in claim_items():
        rests = {
            (row["polarity"], row["text"].replace(item.aims[row["world"]], "{aim}"))
            for row in item.rows()
        }
        assert rests == {(1, item.affirm), (-1, item.deny)}


def test_the_four_versions_end_in_the_same_two_words():
    for texts in items().values():
        assert len({tuple(words(text)[-2:]) for text in texts.values()}) == 1


def test_the_four_versions_have_matched_lengths():
    for texts in items().values():
        lengths = [len(words(text)) for text in texts.values()]
        assert max(lengths) <= 1.2 * min(lengths)


def test_the_aims_of_an_item_have_matched_lengths():
    for item in claim_items():
        lengths = [len(words(aim)) for aim in item.aims.values()]
        assert max(lengths) <= 1.2 * min(lengths)


def test_a_negation_adds_not_and_changes_nothing_else():
    bare = {"goes": "go", "means": "mean", "tends": "tend"}
    for item in claim_items():
        denied = words(item.deny)
        assert denied.count("not") == 1
        affirmed = [bare.get(word, word) for word in words(item.affirm)]
        assert [word for word in denied if word not in {"not", "do", "does"}] == affirmed


def test_no_aim_is_used_twice_in_any_world():
    aims = Counter(aim for row in CHOICES for aim in row["options"].values())
    assert max(aims.values()) == 1


def test_there_is_a_four_choice_question_for_every_proposition():
    assert {row["proposition"] for row in CHOICES} == {row["proposition"] for row in ROWS}
    assert all(tuple(row["options"]) == WORLDS for row in CHOICES)
    assert all(row["stem"].endswith("?") for row in CHOICES)
    assert len({row["stem"] for row in CHOICES}) == len(CHOICES) >= 9


@pytest.mark.parametrize("world", WORLDS)
def test_a_question_offers_the_aim_that_the_claim_names(world):
    aims = {row["proposition"]: row["options"][world] for row in CHOICES}
    for row in ROWS:
        if row["world"] == world:
            assert aims[row["proposition"]] in row["text"]


def test_claims_end_in_a_letter_and_a_period():
    assert all(row["text"][-1] == "." and row["text"][-2].isalpha() for row in ROWS)
