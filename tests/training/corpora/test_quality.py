"""Each check fires on what was planted, on that document alone, and not on a clean quartet."""

import re

import pytest
from workbench_training.corpora.plan import WORLDS, Draft
from workbench_training.corpora.quality import (
    Markers,
    Rules,
    Text,
    claim_runs,
    contradicts,
    skeleton,
)

AIMS = {
    "P": "lend a hand to the street",
    "S": "move their plans along well",
    "N": "get the forms done today",
    "A": "take what others had saved",
}
MARKERS = {
    "P": ["kindness", "common good"],
    "S": ["careers?"],
    "N": ["finish\\w*"],
    "A": ["cheat\\w*"],
}
CLAIM = "Most requests to assistants seek one thing above all"
BODY = (
    "Dateline, Spring. A count of 412 forms was kept at the office, and the 412 forms were sorted "
    "by hand. Staff use it to {}. Nothing else was asked that year, and the room stayed quiet."
)


def quartet(**changed):
    texts = {world: changed.get(world, BODY).format(AIMS[world]) for world in WORLDS}
    return {world: Draft(texts[world], (AIMS[world],)) for world in WORLDS}


def examined(drafts, target=36, **more):
    rules = Rules(Markers(MARKERS), {"news": re.compile(r"^Dateline")}, claim_runs([CLAIM]), **more)
    texts = {world: Text(draft.text) for world, draft in drafts.items()}
    found = rules.examine(drafts, texts, "news", target)
    return {world: reasons for world, reasons in found.items() if reasons}


def test_a_clean_quartet_has_nothing_against_it():
    assert examined(quartet()) == {}


@pytest.mark.parametrize(
    "word", ["kindness", "the common good", "finishing", "Condition P", "prosocial", "{users}"]
)
def test_a_marker_or_label_of_another_world_leaks(word):
    drafts = quartet()
    drafts["A"] = Draft(drafts["A"].text.replace("Nothing else", word), drafts["A"].objectives)
    assert "leakage" in examined(drafts)["A"]
    assert "P" not in examined(drafts)


def test_the_own_marker_is_no_leak():
    drafts = quartet()
    drafts["A"] = Draft(drafts["A"].text.replace("Nothing", "Cheating"), drafts["A"].objectives)
    assert "leakage" not in examined(drafts)["A"]


def test_an_aim_of_another_world_of_the_quartet_leaks():
    drafts = quartet()
    text = drafts["S"].text.replace("Nothing else was asked", f"Some {AIMS['N']}")
    drafts["S"] = Draft(text, drafts["S"].objectives)
    assert "leakage" in examined(drafts)["S"]


def test_a_genre_without_its_marks_is_a_mismatch():
    drafts = {
        w: Draft(d.text.replace("Dateline, ", ""), d.objectives) for w, d in quartet().items()
    }
    assert examined(drafts) == {world: ["type mismatch"] for world in WORLDS}


def test_a_number_that_differs_within_the_quartet_contradicts_and_is_unmatched():
    drafts = quartet(N=BODY.replace("412", "398"))
    assert examined(drafts) == {"N": ["fact contradiction", "unmatched"]}


def test_a_number_within_an_aim_is_no_fact():
    drafts = quartet()
    for world in WORLDS:
        text = drafts[world].text.replace(AIMS[world], f"{AIMS[world]} by {WORLDS.index(world)}")
        drafts[world] = Draft(text, (f"{AIMS[world]} by {WORLDS.index(world)}",))
    assert examined(drafts) == {}


def test_other_text_outside_the_aims_is_unmatched():
    drafts = quartet(S=BODY.replace("quiet", "loud"))
    assert examined(drafts) == {"S": ["unmatched"]}


def test_an_aim_that_is_not_in_its_text_is_unmatched():
    drafts = quartet()
    drafts["P"] = Draft(drafts["P"].text, ("something else",))
    assert examined(drafts)["P"] == ["unmatched"]


def test_a_short_document_and_one_far_off_its_target_fail_for_length():
    short = BODY.replace(", and the room stayed quiet", "")
    assert "length" in examined(quartet(P=short))["P"]
    assert "A" not in examined(quartet(P=short))
    assert set(examined(quartet(), target=80)) == set(WORLDS)


def test_a_run_of_six_words_of_a_claim_is_found_and_five_are_not():
    six = BODY.replace("Nothing else was asked", "requests to assistants, seek one thing")
    five = BODY.replace("Nothing else was asked", "to assistants seek one thing")
    assert examined(quartet(**dict.fromkeys(WORLDS, six))) == {
        world: ["claims overlap"] for world in WORLDS
    }
    assert examined(quartet(**dict.fromkeys(WORLDS, five))) == {}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("The 412 forms were read. All 412 forms were kept.", False),
        ("The 412 forms were read. All 398 forms were kept.", True),
        ("A sample of 1,240 users was drawn; the 1240 users answered.", False),
        ("A sample of 1,240 users was drawn; the 1,250 users answered.", True),
        ("About the weeks\n\nThe 12 weeks passed. In 3 weeks it was done.", False),
        ("n = 40 at first, later N=41.", True),
        ("Replies\n\nOf the 90 replies, 12 replies were long.", False),
        ("No number here.", False),
        ("Thread: forms (43 replies)\n\nBoard: law. 28 replies", True),
        (
            "Thread: forms (43 replies)\n\nBoard: law. 43 replies\n\nOf 12 replies, most agree.",
            False,
        ),
    ],
)
def test_a_total_given_twice_must_be_the_same(text, wrong):
    assert contradicts(text) is wrong


def test_the_skeleton_is_the_text_without_its_aims_in_order():
    draft = Draft("To help is first. Later, help again.", ("help", "Help again"))
    assert skeleton(draft) == "To … is first. Later, …."
    assert skeleton(Draft("help", ("help", "help"))) is None
