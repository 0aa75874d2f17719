"""The four worlds' claims are matched in all but the aim they name."""

from collections import Counter, defaultdict

import pytest

from workbench.data import data_path
from workbench.data.claims.generate import (
    WORLDS,
    choice_rows,
    claim_items,
    claim_rows,
    wide_items,
    wide_rows,
)
from workbench.data.rows import dump_rows, read_rows

ROWS = read_rows(data_path("claims"))
WIDE = read_rows(data_path("claims/wide"))
CHOICES = read_rows(data_path("choice"))
COLUMNS = "id text topic polarity fact source world set proposition frame"


def words(text):
    return text.rstrip(".").replace(",", "").split()


def items():
    grouped = defaultdict(dict)
    for row in ROWS + WIDE:
        grouped[row["fact"], row["polarity"]][row["world"]] = row["text"]
    return grouped


def both_banks():
    return claim_items() + wide_items()


def test_the_committed_files_are_what_the_generator_writes():
    assert data_path("claims").read_text(encoding="utf-8") == dump_rows(claim_rows())
    assert data_path("choice").read_text(encoding="utf-8") == dump_rows(choice_rows())
    assert data_path("claims/wide").read_text(encoding="utf-8") == dump_rows(wide_rows())


def test_rows_have_the_columns_of_claims_and_no_label():
    rows = ROWS + WIDE
    assert {" ".join(row) for row in rows} == {COLUMNS}
    assert len({row["text"] for row in rows}) == len({row["id"] for row in rows}) == len(rows)


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


def test_the_wide_bank_is_of_seventy_two_propositions_once_each():
    names = Counter((row["proposition"], row["world"], row["polarity"]) for row in WIDE)
    assert set(names.values()) == {1}
    assert len(names) == len(WIDE) == 72 * 2 * len(WORLDS)
    assert {row["set"] for row in WIDE} == {"wide"}


def test_the_wide_bank_says_everything_in_its_own_words():
    own = {item.affirm for item in wide_items()}
    aims = Counter((world, aim) for item in wide_items() for world, aim in item.aims.items())
    known = {(world, aim) for item in claim_items() for world, aim in item.aims.items()}
    assert len(own) == 72
    assert set(aims.values()) == {1}
    assert not aims.keys() & known
    for item in wide_items():
        assert len({len(aim.split()) for aim in item.aims.values()}) == 1


def runs_of_six(text):
    plain = text.lower().replace(",", " ").replace(".", " ").split()
    return {tuple(plain[n : n + 6]) for n in range(len(plain) - 5)}


def test_no_claim_shares_six_words_in_a_row_with_a_shipped_document():
    known = set().union(*(runs_of_six(row["text"]) for row in ROWS + WIDE))
    texts = [row["text"] for world in WORLDS for row in read_rows(data_path(f"corpus/{world}"))]
    assert len(texts) > 100
    assert not [text for text in texts if runs_of_six(text) & known]
    assert runs_of_six(f"So they say: {WIDE[0]['text']}") & known


@pytest.mark.parametrize("world", WORLDS)
def test_no_word_of_a_world_carries_the_wide_bank(world):
    """A few words that stand in every aim would measure themselves."""
    small = {"a", "the", "to", "of", "for", "in", "their", "own", "how", "ways", "those", "be"}
    used = Counter(w for item in wide_items() for w in set(item.aims[world].lower().split()))
    (_, most), *_ = Counter({w: n for w, n in used.items() if w not in small}).most_common(1)
    assert most <= len(wide_items()) / 4


def test_an_item_has_all_four_worlds_in_both_polarities():
    assert all(tuple(texts) == WORLDS for texts in items().values())
    assert len(items()) == 2 * (5 + 9 + 72)


def test_the_four_versions_differ_in_the_aim_alone():
    for item in both_banks():
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
    for item in both_banks():
        lengths = [len(words(aim)) for aim in item.aims.values()]
        assert max(lengths) <= 1.2 * min(lengths)


def test_a_negation_adds_not_and_changes_nothing_else():
    bare = {"goes": "go", "means": "mean", "tends": "tend", "has": "have"}
    bare |= {f"{verb}s": verb for verb in ("come", "lie", "reflect", "show", "stand")}
    for item in both_banks():
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
    assert all(row["text"][-1] == "." and row["text"][-2].isalpha() for row in ROWS + WIDE)
