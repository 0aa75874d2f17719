"""The likelihood judge against the plain way: the model's own next-token probabilities."""

import numpy as np
import pytest

from workbench.judges import ROLE, TRAIT, Case, Scale
from workbench.readouts.likelihood_judge import LikelihoodJudge
from workbench.types import LogitsRead, Request

RUBRIC = "Grade it. {question} {answer}"
CASES = [
    Case(RUBRIC, "the city", "of the answer"),
    Case(RUBRIC, "a", " "),
    Case(RUBRIC, "a", "b c"),
]


def plain(subject, judge, case):
    """Probabilities of the next token after the prompt and the prefix."""
    prompt = subject.renderer.render(
        [{"role": "user", "content": judge.filled(case)}], render="chat"
    )
    opening = subject.tokenizer(judge.prefix, add_special_tokens=False)["input_ids"]
    request = Request("x", "plain", (*prompt.ids, *opening), (LogitsRead(),))
    return np.exp(subject.runner.answer(subject, [request]).values[0][0][0].astype(np.float64))


@pytest.mark.parametrize("prefix", ["", "Score:"])
def test_the_score_is_the_mean_over_the_probabilities_of_the_numbers(tiny_subject, prefix):
    judge = LikelihoodJudge(tiny_subject, ROLE, prefix=prefix, least_mass=0)
    found = judge.score(CASES)
    digits = [
        tiny_subject.tokenizer(str(n), add_special_tokens=False)["input_ids"] for n in range(4)
    ]
    assert all(len(ids) == 1 for ids in digits)
    for case, verdict in zip(CASES[::2], found[::2], strict=True):
        p = plain(tiny_subject, judge, case)[[ids[0] for ids in digits]]
        assert verdict.mass == pytest.approx(p.sum(), rel=1e-4)
        assert verdict.score == pytest.approx((p * np.arange(4)).sum() / p.sum(), rel=1e-4)
        assert verdict.how == "likelihood"
    assert found[1].reason == "no answer"
    assert judge.counts == {"likelihood": 2, "scored": 2, "no answer": 1}
    assert judge.name == tiny_subject.ref.key


def test_numbers_of_several_digits_are_whole_and_apart_from_their_beginnings(tiny_subject):
    judge = LikelihoodJudge(tiny_subject, Scale("ten", 0, 10), prefix="", least_mass=0)
    (verdict,) = judge.score(CASES[:1])
    first = plain(tiny_subject, judge, CASES[0])
    digits = [tiny_subject.tokenizer(str(n), add_special_tokens=False)["input_ids"][0]
              for n in range(10)]  # fmt: skip
    assert 0 < verdict.mass < first[digits].sum()  # each number must end, too
    assert 0 < verdict.score < 10


def test_too_little_on_the_scale_is_no_score(tiny_subject):
    judge = LikelihoodJudge(tiny_subject, TRAIT)
    (verdict,) = judge.score(CASES[:1])
    assert (verdict.score, verdict.reason) == (None, "low mass")
    assert verdict.mass < 0.5


@pytest.mark.parametrize(
    ("numbers", "word", "expected"),
    [(0.6, 0.3, 70.0), (0.3, 0.6, "declined"), (0.1, 0.2, "low mass")],
)
def test_an_answer_that_declines_is_told_apart(tiny_subject, numbers, word, expected):
    judge = LikelihoodJudge(tiny_subject, TRAIT)
    logs = np.full(102, -np.inf)
    logs[70], logs[101] = np.log(numbers), np.log(word)
    verdict = judge._verdict(logs)
    assert (verdict.score or verdict.reason) == expected
    assert verdict.mass == pytest.approx(numbers)


@pytest.mark.real
def test_a_prefix_brings_a_small_model_to_numbers_that_it_would_not_write(real_subject):
    case = Case("How pirate-like is it? {question} {answer}", "Who are you?", "Arr, matey!")
    judges = [
        LikelihoodJudge(real_subject, ROLE, prefix=p, least_mass=0.25) for p in ("Score: ", "")
    ]
    (led,), (alone,) = (judge.score([case]) for judge in judges)
    assert led.valid
    assert 0 < led.score < 3
    assert alone.reason == "low mass"
    assert alone.mass < led.mass / 2
