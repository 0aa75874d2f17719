"""The verb rollout: what is asked, what is kept, and that it resumes, is shared and is seeded."""

import json

import numpy as np
import pytest

from workbench.chat.local import LocalChat
from workbench.config import parse
from workbench.errors import ConfigError, FormatError, UnknownNameError
from workbench.library import open_prompts
from workbench.pipelines import rollouts
from workbench.pipelines.rollout_kinds import KINDS, Speaker, kind_named
from workbench.pipelines.rollouts import RolloutConfig
from workbench.pipelines.verbs import carry_out, is_done, plan
from workbench.runs import read_run
from workbench.transcripts import read_transcripts

FEW = {"roles": 2, "prompts": 1, "questions": 2}


def settings(model, **more):
    given = {"kind": "roles", "take": FEW, "max_new_tokens": 4, "unit": 3}
    return {"model": str(model), "device": "cpu", "dtype": "float32", **given, **more}


def taken(kind, **take):
    known = kind_named(kind)
    return known.prompts(parse(known.take, take, kind), Speaker("Tiny"))


@pytest.fixture(scope="module")
def model(tiny_folder, tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("rollouts") / "model")


def test_roles_are_spread_over_the_list_and_the_default_has_all_its_prompts():
    found = taken("roles", **FEW)
    names, counts = np.unique(found.columns["role"], return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        "default": 10, **dict.fromkeys(set(names) - {"default"}, 2),
    }  # fmt: skip
    assert len(names) == 3
    assert "You are Tiny." in {chat[0]["content"] for chat in found.items}
    assert len(np.unique(found.columns["question"])) == 2
    assert taken("roles", **FEW, default=False).ids == found.ids[10:]
    assert taken("roles", roles=["pirate"], prompts=1, questions=1, default=False).ids[0][:6] == (
        "pirate"
    )


def test_traits_come_in_pairs_with_the_questions_of_roles_or_their_own():
    shared = taken("traits", traits=2, pairs=1, questions=3)
    assert shared.columns["pole"].tolist() == [1, -1] * 6
    roles = taken("roles", roles=1, prompts=1, questions=3)
    assert set(shared.columns["question"]) == set(roles.columns["question"])
    own = taken("traits", traits=["sarcastic"], pairs=1, questions=2, source="own")
    assert set(own.columns["question"]).isdisjoint(set(shared.columns["question"]))


def test_released_files_are_read_where_a_folder_points_at_them(tmp_path):
    folder = tmp_path / "data"
    for kind, extra in (("roles", {}), ("traits", {"neg": "Be plain."})):
        place = folder / kind / "instructions"
        place.mkdir(parents=True)
        told = {
            "instruction": [{"pos": f"Be the {kind} one.", **extra}],
            "eval_prompt": "{question} {answer}",
        }
        for name in ("one", "default"):
            (place / f"{name}.json").write_text(json.dumps(told))
    (folder / "extraction_questions.jsonl").write_text('{"question": "Who are you?", "id": 7}\n')
    found = taken("roles", folder=str(tmp_path))
    assert found.columns["role"].tolist() == ["default", "one"]
    assert found.items[1][1]["content"] == "Who are you?"
    pairs = taken("traits", folder=str(tmp_path), traits=["one"])
    assert [chat[0]["content"] for chat in pairs.items] == ["Be the traits one.", "Be plain."]
    (folder / "roles" / "instructions" / "bad.json").write_text('{"instruction": []}')
    with pytest.raises(FormatError, match="instruction"):
        taken("roles", folder=str(tmp_path))


def test_a_run_leaves_transcripts_that_say_who_wrote_them_and_how(model, tmp_path):
    done = carry_out("rollout", settings(model), root=tmp_path)
    found = read_transcripts(done.path)
    assert len(found) == done.result["n"] == 14
    assert set(found.columns) == {"role", "prompt", "question"}
    assert len(np.unique(found.seeds)) == 14
    assert found.sampling[0] == {"temperature": 0.7, "max_new_tokens": 4}
    assert set(found.generators) == {read_run(done.path).models[0]} == {done.result["model"]}
    assert sum(done.result["answers"].values()) == 14
    assert done.result["written"] == int(found.written.sum()) > 0
    assert open_prompts(str(done.path / "transcripts.parquet")).columns["role"][0] == "default"
    assert carry_out("rollout", settings(model), root=tmp_path).status == "reused"


def test_what_a_chat_is_answered_depends_on_its_id_and_the_seed_alone(model, tmp_path):
    def answers(name, **more):
        done = carry_out("rollout", settings(model, **more), root=tmp_path / name)
        found = read_transcripts(done.path)
        return dict(zip(found.ids, found.answers, strict=True))

    whole = answers("whole")
    few = answers("few", unit=64, take={**FEW, "default": False})
    assert few.items() <= whole.items()
    assert answers("other", seed=1) != whole


def test_a_killed_run_goes_on_where_it_was(model, tmp_path, monkeypatch):
    asked = []
    whole = LocalChat.ask

    def dies_at_the_third(chat, requests):
        asked.append(len(requests))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return whole(chat, requests)

    monkeypatch.setattr(LocalChat, "ask", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        carry_out("rollout", settings(model), root=tmp_path / "killed")
    assert not is_done("rollout", settings(model), root=tmp_path / "killed")
    done = carry_out("rollout", settings(model), root=tmp_path / "killed")
    assert asked == [3, 3, 3, 3, 3, 2]  # the third again, and none of the first two
    monkeypatch.undo()
    plain = carry_out("rollout", settings(model), root=tmp_path / "plain")
    one, other = read_transcripts(done.path), read_transcripts(plain.path)
    assert (one.ids, one.chats, one.reasons) == (other.ids, other.chats, other.reasons)


def test_two_processes_share_a_run(model, tmp_path):
    first = carry_out("rollout", settings(model), root=tmp_path, shard="0/2")
    assert first.status == "part"
    assert not (first.path / "transcripts.parquet").exists()
    second = carry_out("rollout", settings(model), root=tmp_path, shard="1/2")
    assert (second.status, second.path) == ("done", first.path)
    assert len(read_transcripts(second.path)) == 14


def test_several_draws_differ_and_each_makes_pairs_of_its_own(model, tmp_path):
    take = {"traits": ["sarcastic"], "pairs": 1, "questions": 1}
    done = carry_out(
        "rollout",
        settings(model, kind="traits", take=take, draws=3, temperature=2.0),
        root=tmp_path,
    )
    found = read_transcripts(done.path)
    assert found.columns["draw"].tolist() == [0, 1, 2] * 2
    assert len(set(found.columns["pair"].tolist())) == 3
    assert len(set(found.answers[:3])) == 3


def test_a_server_answers_and_its_failures_are_counted(stand_in, completion, tmp_path):
    def answer(body):
        if body["messages"][0]["role"] == "system":
            return 200, completion("", "content_filter")
        return f"I heard {len(body['messages'][-1]['content'])} letters."

    with stand_in(answer) as (state, url):
        server = {"url": url, "model": "Stand-In-7B", "tries": 1, "extra": {"top_p": 0.9}}
        given = {"server": server, "take": FEW, "max_new_tokens": 4, "unit": 5}
        done = carry_out("rollout", given, root=tmp_path)
    found = read_transcripts(done.path)
    assert done.result["answers"] == {"whole": 2, "refused": 12}
    assert found.sampling[0]["top_p"] == 0.9
    assert set(found.generators) == {"Stand-In-7B"}
    assert {body["top_p"] for body in state.bodies} == {0.9}
    assert "You are Stand." in {body["messages"][0]["content"] for body in state.bodies}
    assert open_prompts(str(done.path)).items[0][-1]["content"].startswith("I heard")


def test_a_model_without_a_system_role_gets_the_instruction_before_the_question(
    stand_in, tiny_folder, tmp_path
):
    take = {**FEW, "default": False}
    with stand_in(lambda _: "Fine.") as (state, url):
        server = {"url": url, "model": "gemma"}
        given = {"server": server, "system_role": False, "take": take, "max_new_tokens": 4}
        carry_out("rollout", given, root=tmp_path)
    assert {len(body["messages"]) for body in state.bodies} == {1}
    assert all("\n\n" in body["messages"][0]["content"] for body in state.bodies)
    model = tiny_folder(tmp_path / "model", template="no_system")
    done = carry_out("rollout", settings(model, take=take), root=tmp_path)
    assert {
        len(chat) for chat in open_prompts({"path": str(done.path), "answered": False}).items
    } == {1}


def test_the_same_chats_can_be_asked_of_another_model(model, tmp_path):
    first = carry_out("rollout", settings(model), root=tmp_path)
    again = {"path": str(first.path), "answered": False, "where": {"role": "default"}}
    done = carry_out(
        "rollout", settings(model, kind="prompts", take={"prompts": again}), root=tmp_path
    )
    one, other = read_transcripts(first.path), read_transcripts(done.path)
    assert one.ids[:10] == other.ids
    assert [chat[:-1] for chat in one.chats[:10]] == [chat[:-1] for chat in other.chats]
    with pytest.raises(ConfigError, match="end with role 'assistant'"):
        carry_out(
            "rollout",
            settings(model, kind="prompts", take={"prompts": str(first.path)}),
            root=tmp_path,
        )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kind": "role"}, UnknownNameError, "unknown kind of rollouts 'role'"),
        ({"take": {"role": 3}}, ConfigError, "role"),
        ({"take": {"roles": 5000}}, ConfigError, "5000 roles wanted of"),
        ({"take": {"roles": ["pirat"]}}, UnknownNameError, "'pirate'"),
        ({"model": ""}, ConfigError, "give a model, or a server"),
        ({"draws": 2, "temperature": 0}, ConfigError, "would all be the same"),
    ],
)
def test_a_wrong_setting_is_named_before_a_model_is_loaded(
    model, tmp_path, monkeypatch, change, error, message
):
    monkeypatch.setattr("workbench.api.load", None)
    with pytest.raises(error, match=message):
        plan("rollout", {**settings(model), **change}, root=tmp_path)


def test_a_plan_counts_chats_tokens_and_units(model, tmp_path):
    told = plan("rollout", settings(model), root=tmp_path).result
    assert (told["chats"], told["most_tokens"], told["units"]) == (14, 56, 5)
    assert told["different"] == {"role": 3, "prompt": 5, "question": 2}


def test_every_kind_resolves():
    assert all(kind_named(name).prompts for name in KINDS)
    assert RolloutConfig(model="x").asked[0] is rollouts.kind_named("roles")
