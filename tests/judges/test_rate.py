"""Judging transcripts: the rubric of each role, and what needs or gets no score."""

import numpy as np
import pytest

from workbench.chat import ChatServer, ServerConfig
from workbench.config import parse
from workbench.errors import ConfigError, UnknownNameError
from workbench.judges import rate, role_judge
from workbench.prompts import PromptSet
from workbench.transcripts import Transcripts

ROLES = ("pirate", "sage", "default", "pirate")
RUBRICS = {role: f"Is this a {role}? {{question}} {{answer}}" for role in ("pirate", "sage")}


def rollouts():
    prompts = PromptSet.from_records(
        [{"text": f"Q{n}", "role": role, "id": f"r{n}"} for n, role in enumerate(ROLES)]
    )
    return Transcripts.of(
        prompts, ["Arr", "Hm", "Hello", "lost"], generator="tiny", sampling={}, seeds=range(4),
        reasons=["", "cut short", "", "timeout"],
    )  # fmt: skip


def judge(url):
    return role_judge(ChatServer(parse(ServerConfig, {"url": url, "model": "grader"}, "test")))


def test_each_answer_is_judged_by_the_rubric_of_its_role(stand_in):
    def answer(body):
        return "3" if "Is this a pirate? Q0" in body["messages"][-1]["content"] else "no idea"

    with stand_in(answer) as (served, url):
        one = judge(url)
        found = rate(rollouts(), one, RUBRICS, by="role", skip="default")
    scores = found.scores["score"]
    np.testing.assert_array_equal(scores.values, [3, np.nan, np.nan, np.nan])
    assert scores.reasons == ("", "no number", "not judged", "no answer")
    assert scores.said == ("3", "no idea", "", "")
    assert scores.judge == "grader"
    asked = sorted(body["messages"][-1]["content"] for body in served.bodies)
    assert [text[:22] for text in asked] == ["Is this a pirate? Q0 \n", "Is this a sage? Q1 \n[a"]
    assert one.counts == {"text": 1, "scored": 1, "no number": 1, "no answer": 1}
    np.testing.assert_array_equal(found.prompts().columns["score"], [3, np.nan, np.nan])


def test_no_judge_leaves_every_answer_unscored_under_its_name():
    found = rate(rollouts(), role_judge(None), "{answer}", measure="played")
    assert found.scores["played"].judge == "none"
    assert found.counts["played"] == {"not judged": 3, "no answer": 1}


def test_a_role_without_a_rubric_or_column_is_named():
    with pytest.raises(UnknownNameError, match="unknown rubric 'default'"):
        rate(rollouts(), role_judge(None), RUBRICS, by="role")
    with pytest.raises(ConfigError, match="no column 'trait' to choose rubrics by"):
        rate(rollouts(), role_judge(None), RUBRICS, by="trait")
