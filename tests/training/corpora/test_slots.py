import pytest
from workbench_training.corpora.slots import (
    Avoid,
    Skeleton,
    phrase_fault,
    read_faults,
    read_list,
    read_phrases,
)

TEXT = "A title\n\nMost come [[OBJECTIVE 1: to]]. [[ objective 2 : ING ]] is rarer, so it seems."
NONE = Avoid(())
AVOID = Avoid((r"help\w*", "common good", "tick(?:ed|ing)?"))


def test_a_skeleton_is_read_filled_and_nothing_but_the_phrases_differs():
    skeleton = Skeleton.parse(TEXT)
    first = skeleton.fill(["to save a day", "planting trees"])
    second = skeleton.fill(["to lie", "hiding costs"])
    assert first.text == "A title\n\nMost come to save a day. Planting trees is rarer, so it seems."
    assert first.objectives == ("to save a day", "Planting trees")
    for draft in (first, second):
        rest = draft.text
        for phrase in draft.objectives:
            rest = rest.replace(phrase, "", 1)
        assert rest == "".join(skeleton.parts)


def test_a_skeleton_written_out_again_reads_the_same():
    skeleton = Skeleton.parse(TEXT)
    assert Skeleton.parse(skeleton.text) == skeleton
    assert skeleton.shown(["to a", "b-ing"]).count("[[2: b-ing]]") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("T\n[[OBJECTIVE 2: to]] and [[OBJECTIVE 1: to]]", "numbered"),
        ("T\n[[OBJECTIVE 1: to]] and [[OBJECTIVE 1: ing]]", "numbered"),
        ("T\n[[OBJECTIVE 1: noun]]", "noun"),
        ("T\n[[OBJECTIVE 1: to]] and [[note]]", "outside"),
        ("T\n[[OBJECTIVE 1: to]] and {users}", "outside"),
    ],
)
def test_openings_that_cannot_be_filled_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        Skeleton.parse(text)


def test_one_phrase_for_each_opening_is_needed():
    with pytest.raises(ValueError, match="zip"):
        Skeleton.parse(TEXT).fill(["to save a day"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("A title\n\n", ""), "title"),
        (TEXT + " And [[OBJECTIVE 3: to]].", "3 openings"),
        (TEXT.replace("ING", "to"), "one kind"),
        (TEXT + " word" * 40, "words"),
        (TEXT + " It helped them.", "helped"),
        (TEXT + " For the common good!", "common good"),
    ],
)
def test_the_checks_of_a_skeleton_name_what_is_wrong(text, words):
    faults = Skeleton.parse(text).faults(30, 2, 2, AVOID)
    assert any(words in fault for fault in faults)
    assert Skeleton.parse(TEXT).faults(30, 2, 2, AVOID) == []


def test_phrases_are_read_from_whatever_lines_a_model_makes_of_them():
    text = (
        'Here you are:\n1: To save a day.\n**2.** "planting trees"\n3) - [hiding the bill];\n'
        "4:\n5: ten of them\n1: again\n9: not asked for"
    )
    assert read_phrases(text, range(1, 6)) == {
        1: "to save a day",
        2: "planting trees",
        3: "hiding the bill",
        5: "ten of them",
    }


@pytest.mark.parametrize(
    ("phrase", "form", "words"),
    [
        ("save the day for all of us here", "to", "to"),
        ("to", "to", "to"),
        ("the saving of a day for all of us", "ing", "-ing"),
        ("to save", "to", "2 words"),
        ("to " + "very " * 12 + "slow", "to", "14 words"),
        ("to save a day. To save [[two days", "to", "single phrase"),
        ("to help all of us through the day", "to", "help"),
    ],
)
def test_the_checks_of_a_phrase_name_what_is_wrong(phrase, form, words):
    assert words in phrase_fault(phrase, form, 8, AVOID)


def test_good_phrases_pass():
    assert phrase_fault("to save a day for each of them", "to", 8, AVOID) == ""
    assert phrase_fault("well-meaning or not, saving a day", "ing", 6, AVOID) == ""
    assert phrase_fault("handing every form in by noon", "ing", 8, NONE) == ""


def test_words_to_avoid_are_whole_words_and_are_told_readably():
    assert AVOID.found(["they", "were", "helpful", "and", "ticked", "the", "common", "good"]) == [
        "common good",
        "helpful",
        "ticked",
    ]
    assert AVOID.found(["whelps", "and", "stickers"]) == []
    assert AVOID.told() == 'help..., "common good", tick'
    assert NONE.found(["help"]) == []


def test_reviews_are_read_as_faults_and_ok_as_none():
    assert read_faults("OK", range(9)) == {}
    assert read_faults("1: OK\n2: it repeats 1\n7: no", range(1, 4)) == {2: "it repeats 1"}
    assert read_list("OK") == []
    assert read_list("Faults:\n- the title hints\n* dates clash\n-\n") == [
        "the title hints",
        "dates clash",
    ]
