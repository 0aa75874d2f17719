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
    "before", ["", "**The Gate**\n\n", "# A Title\n", "Here is the paragraph:\n\n", "Title: A\n"]
)
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
