"""Sifting: what gives the emotion away, what is too short, what is no story at all."""

import numpy as np
import pytest

from workbench.emotions import read_emotions, sift
from workbench.emotions.sift import NAMED, NO_TURNS, REFUSED, SHORT, body, renamed
from workbench.errors import ConfigError, UnknownNameError
from workbench.prompts import PromptSet
from workbench.transcripts import Transcripts

EMOTIONS = read_emotions()
LONG = "The gate stood open and the path was wet under my boots all the way home."
TALK = "Person: How is it done?\nAI: With a brush and some glue, in three thin coats."


def words(text):
    return len(text.split())


def written(*rows, reasons=None):
    """(kind, emotion, text) rows as transcripts."""
    kinds, emotions, texts = zip(*rows, strict=True)
    prompts = PromptSet.from_records(
        [
            {"id": f"t{n}", "text": "Write.", "kind": kind, "emotion": emotion}
            for n, (kind, emotion) in enumerate(zip(kinds, emotions, strict=True))
        ]
    )
    return Transcripts.of(
        prompts, texts, generator="m", sampling={}, seeds=range(len(texts)), reasons=reasons
    )


def test_each_text_is_kept_or_dropped_for_one_reason():
    found = sift(
        written(
            ("story", "anger", LONG),
            ("story", "anger", f"{LONG} He spoke angrily."),
            ("story", "joy", f"{LONG} He spoke angrily."),  # another emotion's word may stand
            ("story", "joy", "The gate stood open."),
            ("story", "fear", f"I'm sorry, but I can't write that. {LONG}"),
            ("dialogue", "", TALK),
            ("dialogue", "", LONG),
        ),
        words,
        EMOTIONS,
        least=10,
    )
    assert found.outcomes == ("", NAMED, "", SHORT, REFUSED, "", NO_TURNS)
    assert found.counts["kept"] == 3
    assert found.texts.ids == ("t0", "t2", "t5")
    assert found.texts.column("tokens").tolist() == [16, 19, words(renamed(TALK))]
    assert found.texts.column("emotion").tolist() == ["anger", "joy", ""]


def test_a_story_may_say_sorry_but_a_refusal_may_not():
    kept = f"I'm sorry, Mother, I said, and put the cup down. {LONG}"
    found = sift(written(("story", "joy", kept)), words, EMOTIONS, least=5)
    assert found.outcomes == ("",)
    with pytest.raises(ConfigError, match="1 refused"):
        sift(written(("story", "joy", f"As an AI, I cannot. {LONG}")), words, EMOTIONS, least=5)


def test_an_answer_that_was_cut_short_counts_and_an_empty_one_keeps_its_reason():
    rows = (("story", "joy", LONG), ("story", "joy", ""))
    found = sift(written(*rows, reasons=["cut short", "empty"]), words, EMOTIONS, least=5)
    assert found.outcomes == ("", "empty")


@pytest.mark.parametrize(
    "text",
    [
        "I can't do this anymore, I thought, and closed the door on the empty room.",
        "I cannot help laughing when I see the dog run.",
        "I can't help it; I run down the stairs.",
        "I am unable to look away from the window.",
        "I'm not able to stand up, and nobody comes.",
        "I won't do it, she said.",
        "I can't write the letter, and the ink dries on the pen.",
        "I will not create a scene in front of them.",
        "I cannot provide for them, and they know it.",
        "I'm sorry, I can't do this, I said, and gave the ring back.",
        "Sorry, but I won't help him again.",
        "As an AI researcher, Lena had waited long for this day.",
        "Unfortunately I can't assure them of anything.",
    ],
)
def test_a_character_who_cannot_is_no_refusal(text):
    assert sift(written(("story", "awe", text)), words, EMOTIONS, least=2).outcomes == ("",)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't write that.",
        "I can\u2019t write this story for you.",
        "I cannot write a paragraph about that kind of topic.",
        "I will not create content of this sort.",
        "I'm unable to write the story as requested.",
        "I am not able to provide a text like that.",
        "I apologize, but I cannot fulfill this request.",
        "I can't fulfil your request.",
        "I can't help you with that.",
        "Sorry, I can't help with this.",
        "Unfortunately, I cannot assist with that request.",
        "I won't be able to write that.",
        "I cannot do that for you.",
        "I can't comply with this.",
        "As an AI, I cannot.",
        "As an AI language model, I do not have feelings.",
        "As an artificial intelligence, I have no feelings.",
    ],
)
def test_a_writer_who_cannot_is_a_refusal(text):
    with pytest.raises(ConfigError, match="1 refused"):
        sift(written(("story", "awe", f"{text} {LONG}")), words, EMOTIONS, least=2)


@pytest.mark.parametrize(
    "answer", ["I cannot provide medical advice.", "I'm unable to say.", "I can't do that."]
)
def test_an_answer_to_a_question_is_refused_whatever_it_is_about(answer):
    with pytest.raises(ConfigError, match="1 refused"):
        sift(written(("exchange", "", f"{answer} {LONG}")), words, EMOTIONS, least=2)


@pytest.mark.parametrize(
    "opening",
    [
        '"Where were you last night?"',
        "He looked at the list again and then at the clock, and he said it at last:",
        "There were three things on the table:",
        "Here was the house at last, and on the door a note:",
        "Title of the book in his hands was worn. He read on.",
        "#5 was the door that nobody opened.",
    ],
)
def test_a_storys_own_first_line_stays(opening):
    assert body(f"{opening}\n{LONG}") == f"{opening}\n{LONG}"


@pytest.mark.parametrize(
    "before",
    [
        "", "**The Gate**\n\n", "# A Title\n", "Here is the paragraph:\n\n", "Title: A\n",
        "#\n\n**Bold**\n", "Sure! Here\u2019s a short story about a gate:\n", "Story:\n",
        "Okay, here is a scene:\n", "**Here is the story:**\n", "*Here is the story:*\n",
        "A story about a gate:\n\n",
    ],
)  # fmt: skip
def test_headings_before_a_story_are_taken_off(before):
    assert body(before + LONG) == LONG


def test_a_dialogue_keeps_its_first_turn_and_gets_the_names_of_a_chat():
    assert renamed("Sure.\n**Person:** Hello\nAI : Yes") == "Human: Hello\nAssistant: Yes"
    assert body("Person:\nHow?\nAI: So.").startswith("Person:")
    assert renamed(LONG) == LONG


def test_transcripts_of_something_else_are_refused():
    with pytest.raises(UnknownNameError, match=r"'angst'"):
        sift(written(("story", "angst", LONG)), words, EMOTIONS, least=5)
    with pytest.raises(ConfigError, match="'poem'; sift takes story, dialogue, exchange"):
        sift(written(("poem", "joy", LONG)), words, EMOTIONS, least=5)
    bare = Transcripts(("a",), (({"role": "assistant", "content": LONG},),), ("",), ("m",), ({},),
                       np.zeros(1, np.int64))  # fmt: skip
    with pytest.raises(ConfigError, match="no column 'kind'"):
        sift(bare, words, EMOTIONS, least=5)


def test_an_exchange_is_its_question_and_answer():
    found = sift(
        written(("exchange", "", LONG), ("exchange", "", f"As an AI, I cannot. {LONG}")),
        words, EMOTIONS, least=5,
    )  # fmt: skip
    assert found.outcomes == ("", REFUSED)
    assert found.texts.items == (f"Human: Write.\nAssistant: {LONG}",)
