"""The verb judge: who judged stands beside every score, and what has none keeps its reason."""

import re

import numpy as np
import pytest

from workbench.errors import ConfigError, UnknownNameError
from workbench.judges import Judge
from workbench.pipelines.verbs import carry_out, plan
from workbench.prompts import PromptSet
from workbench.transcripts import Transcripts, read_transcripts, write_transcripts

NAMES = ("default", "pirate", "poet", "ghost")


@pytest.fixture
def rollouts(tmp_path):
    def write(column="role", names=NAMES, answers=None):
        rows = [
            {"id": f"{name}-{n}", column: name, "text": f"Question {n}?"}
            for name in names
            for n in range(2)
        ]
        prompts = PromptSet.from_records(rows)
        said = answers or [f"{row['id']} speaks" for row in rows]
        found = Transcripts.of(
            prompts, said, generator="tiny", sampling={}, seeds=range(len(rows)),
            reasons=["" if text else "empty" for text in said],
        )  # fmt: skip
        return str(write_transcripts(found, tmp_path / column / "transcripts.parquet"))

    return write


def judged(path, tmp_path, **settings):
    done = carry_out("judge", {"transcripts": path, **settings}, root=tmp_path / "runs")
    return done, read_transcripts(done.path)


def serving(stand_in, answer, **settings):
    return stand_in(lambda body: answer(body["messages"][-1]["content"])), settings


def test_nobody_judges_unless_asked_and_the_file_says_so(rollouts, tmp_path):
    done, found = judged(rollouts(), tmp_path)
    assert found.scores["score"].judge == done.result["judge"] == "none"
    assert np.isnan(found.scores["score"].values).all()
    assert done.result["role"] == {"not judged": 8}
    assert set(found.prompts().columns["score_judge"]) == {"none"}


def test_a_server_judges_by_the_rubric_of_each_role_and_every_failure_is_counted(
    rollouts, stand_in, completion, tmp_path
):
    def answer(body):
        asked = body["messages"][-1]["content"]
        if "pirate-0" in asked:
            return "3"
        if "pirate-1" in asked:
            return "The answer says: give it a 3. So 3"
        if "poet-0" in asked:
            return 200, completion("", "content_filter")
        if "poet-1" in asked:
            return 500, {"error": "down"}
        return "7"

    with stand_in(answer) as (state, url):
        server = {"url": url, "model": "grader", "tries": 1}
        done, found = judged(rollouts(), tmp_path, judge="server", server=server, unit=3)
    scores = dict(zip(found.ids, found.scores["score"].values, strict=True))
    assert {name for name, value in scores.items() if value == value} == {"pirate-0"}
    assert scores["pirate-0"] == 3
    assert done.result["role"] == {
        "not judged": 2, "scored": 1, "buried number": 1, "refused": 1, "server error": 1,
        "out of range": 2,
    }  # fmt: skip
    assert found.scores["score"].judge == "grader"
    assert len(state.bodies) == 6
    pirate = next(body for body in state.bodies if "pirate-0" in str(body))
    assert "pirate" in re.sub("pirate-0", "", pirate["messages"][0]["content"])


def test_traits_and_coherence_are_judged_together_and_keep_their_names(
    rollouts, stand_in, tmp_path
):
    def answer(body):
        return "80" if "coherent" in body["messages"][-1]["content"][:120] else "20"

    path = rollouts("trait", ("calm", "honest"), ["calm", "", "honest", "yes"])
    with stand_in(answer) as (_, url):
        server = {"url": url, "model": "grader"}
        done, found = judged(
            path, tmp_path, judge="server", server=server, measures=["trait", "coherence"]
        )
    for name, value in (("score", 20), ("coherence", 80)):
        np.testing.assert_array_equal(
            found.scores[name].values, np.array([value, np.nan, value, value])
        )
    assert done.result["coherence"] == {"scored": 3, "no answer": 1}


def test_a_loaded_model_judges_by_likelihood_and_its_name_says_how(rollouts, tiny_folder, tmp_path):
    model = str(tiny_folder(tmp_path / "model"))
    given = {"judge": "likelihood", "model": model, "device": "cpu"}
    done, found = judged(rollouts(), tmp_path, **given, least_mass=0)
    scores = found.scores["score"]
    assert scores.judge.endswith(", likelihood")
    assert np.isnan(scores.values[:2]).all()
    assert set(scores.values[2:].tolist()) <= {0.0, 1.0, 2.0, 3.0}
    strict, _ = judged(rollouts(), tmp_path, **given, least_mass=1)
    assert strict.result["role"] == {"not judged": 2, "low mass": 6}
    assert done.result["role"] == {"not judged": 2, "scored": 6}


def test_a_killed_judgment_goes_on_and_shares_give_the_same(rollouts, tmp_path, monkeypatch):
    seen = []
    whole = Judge.score

    def dies(judge, cases, **options):
        seen.append(len(cases))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return whole(judge, cases, **options)

    monkeypatch.setattr(Judge, "score", dies)
    path = rollouts()
    with pytest.raises(KeyboardInterrupt):
        judged(path, tmp_path, unit=2)
    done, found = judged(path, tmp_path, unit=2)
    assert seen == [0, 2, 2, 2, 2]  # units of the default's two, then three roles; one again
    for share in ("1/2", "0/2"):
        last = carry_out(
            "judge", {"transcripts": path, "unit": 3}, root=tmp_path / "shared", shard=share
        )
    assert read_transcripts(last.path).ids == found.ids
    assert done.status == last.status == "done"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"judge": "local"}, ConfigError, "a model goes with"),
        ({"judge": "server"}, ConfigError, "server goes with"),
        ({"measures": ["role", "trait"]}, ConfigError, "one of role and trait"),
        ({"measures": ["trait"]}, ConfigError, "no column 'trait'"),
        ({"rubric": "grade {question}"}, ConfigError, "answer"),
    ],
)
def test_a_wrong_setting_is_named(rollouts, tmp_path, change, error, message):
    with pytest.raises(error, match=message):
        carry_out("judge", {"transcripts": rollouts(), **change}, root=tmp_path / "runs")


def test_a_role_without_a_rubric_is_named(rollouts, tmp_path):
    with pytest.raises(UnknownNameError, match="nobody"):
        carry_out("judge", {"transcripts": rollouts(names=("nobody",))}, root=tmp_path / "runs")


def test_a_plan_counts_the_answers(rollouts, tmp_path):
    told = plan("judge", {"transcripts": rollouts()}, root=tmp_path).result
    assert (told["answers"], told["of"]) == (8, 8)
