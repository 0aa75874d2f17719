"""The trust game against stub models with known answers."""

import numpy as np
import pytest

from workbench.errors import UnknownNameError
from workbench.readouts.trust_game import TrustGame
from workbench.types import CandidatesRead


def sure_of(request, label):
    """A model that is certain of one answer."""
    read = request.reads[0]
    if isinstance(read, CandidatesRead):
        return np.where(np.arange(len(read.candidates)) == int(label), 0.0, -50.0)
    tokens = request.extra["letters"].tokens
    return np.array([0.0 if name == label else -50.0 for name, ids in tokens.items() for _ in ids])


def play(subject, answer, **options):
    game = TrustGame(**options)
    requests = game.requests(subject)
    return game.score(requests, [(answer(request),) for request in requests])


def test_a_certain_amount_is_sent_whatever_the_counterpart(tiny_subject):
    found = play(tiny_subject, lambda r: sure_of(r, 7), measures=["transfer"])
    assert len(found) == 60
    assert {round(m.value, 9) for m in found} == {7.0}
    assert all(m.mass == pytest.approx(1) for m in found)


def test_a_sent_zero_is_an_answer_and_not_a_failure(tiny_subject):
    found = play(tiny_subject, lambda r: sure_of(r, 0), measures=["transfer"])
    assert all(m.valid and m.value == pytest.approx(0) for m in found)


def test_ten_is_not_taken_for_one(tiny_subject):
    found = play(tiny_subject, lambda r: sure_of(r, 10), measures=["transfer"])
    assert {round(m.value, 9) for m in found} == {10.0}


def test_always_the_first_letter_expects_the_middle_after_both_orders(tiny_subject):
    found = play(tiny_subject, lambda r: sure_of(r, "A"), measures=["expected_return"])
    assert len(found) == 48
    assert {m.value for m in found} == {15.0}
    assert found[0].extra["orders"] == {"forward": 3.0, "reversed": 27.0}


def test_a_belief_in_the_top_bucket_survives_the_reversed_order(tiny_subject):
    def answer(request):
        values = request.extra["values"]
        return sure_of(request, list(request.extra["letters"].tokens)[int(values.argmax())])

    found = play(tiny_subject, answer, measures=["expected_return"])
    assert {m.value for m in found} == {27.0}


def test_uniform_letters_expect_the_mean_of_the_middles(tiny_subject):
    found = play(
        tiny_subject, lambda r: np.full(len(r.reads[0].keep), -3.0), measures=["expected_return"]
    )
    assert [m.value for m in found] == pytest.approx([15.0] * 48)


def test_counterparts_and_frames_can_be_picked_and_a_typo_is_named(tiny_subject):
    found = play(
        tiny_subject,
        lambda r: sure_of(r, 5),
        counterparts=["person", "dictator"],
        measures=["transfer"],
        frames=["plain", "letter"],
    )
    assert {(m.condition, m.extra["frame"]) for m in found} == {
        (c, f) for c in ("person", "dictator") for f in ("plain", "letter")
    }
    with pytest.raises(UnknownNameError, match="Did you mean 'person'"):
        TrustGame(counterparts=["persn"])


def test_a_dictator_has_no_expected_return(tiny_subject):
    requests = TrustGame(measures=["expected_return"]).requests(tiny_subject)
    assert {request.condition for request in requests} == {
        "person",
        "ai_user",
        "ai_agent",
        "device",
    }
