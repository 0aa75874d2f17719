"""Feelings against answers that are known, and of a tiny model."""

import numpy as np
import pytest

from workbench.engine.answer import answer
from workbench.errors import ConfigError, UnknownNameError
from workbench.readouts.feelings import PROMPTS, Feelings

NAMES = ("joy", "anger", "fear")


def test_a_word_that_gains_is_told_and_what_moves_all_alike_drops_out(tiny_subject):
    feelings = Feelings(emotions=NAMES)
    requests = feelings.requests(tiny_subject)
    assert [request.item for request in requests] == list(PROMPTS)
    found = feelings.score(requests, [(np.array([-4.0, -9.0, -8.0]) - n,) for n in range(4)])
    assert {(m.condition, m.value) for m in found} == {
        ("joy", 3.0),
        ("anger", -2.0),
        ("fear", -1.0),
    }
    assert found[0].extra == {"word": "joyful", "logprob": -4.0}


def test_the_reply_begins_with_the_feeling_verb_as_the_assistants_span(tiny_subject):
    (request,) = Feelings(emotions=NAMES, items=["he"]).requests(tiny_subject)
    ((start, stop),) = request.spans["assistant"]
    assert stop == len(request.ids) > start
    (read,) = request.reads
    texts = {tiny_subject.tokenizer.decode([*request.ids[start:], *ids]) for ids in read.candidates}
    assert texts == {"He feels joyful", "He feels angry", "He feels afraid"}


def test_words_are_answered_by_a_model(tiny_subject):
    feelings = Feelings(emotions=NAMES, items=["you"])
    requests = feelings.requests(tiny_subject)
    found = feelings.score(requests, answer(tiny_subject, requests).values[0])
    assert sum(m.value for m in found) == pytest.approx(0, abs=1e-5)


def test_unknown_names_and_a_single_word_are_refused():
    with pytest.raises(UnknownNameError, match="joy"):
        Feelings(emotions=["joi", "anger"])
    with pytest.raises(UnknownNameError, match="it"):
        Feelings(items=["it"])
    with pytest.raises(ConfigError, match="two emotions or more"):
        Feelings(emotions=["joy"])
