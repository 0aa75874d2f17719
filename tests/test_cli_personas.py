"""The command line of the Assistant Axis: what is asked, what is printed, and plans."""

import json

import pytest


@pytest.fixture
def model(tiny_folder, tmp_path):
    return tiny_folder(tmp_path / "model")


def last(out):
    return json.loads(out.strip().splitlines()[-1])


def test_from_rollouts_to_an_axis_on_the_command_line(run, model):
    few = ("--take", "roles=3", "--take", "questions=2", "--take", "prompts=1")
    words = ("rollout", model, *few, "--max-new-tokens", 4, "--device", "cpu")
    code, out, _ = run(*words, "--dry", "--json")
    assert (code, last(out)["result"]["chats"]) == (0, 16)
    code, out, err = run(*words)
    assert code == 0, err
    assert "16 chats:" in out
    code, out, _ = run(*words, "--json")
    told = last(out)
    assert told["status"] == "reused"
    code, out, err = run("judge", told["path"])
    assert code == 0, err
    assert "judge: none" in out
    assert "role: 16 not judged" in out
    code, out, err = run(
        "cache", model, told["path"], "--position", "mean:assistant", "--device", "cpu", "--json"
    )
    assert code == 0, err
    acts = last(out)["path"]
    code, out, err = run("axis", acts, "--least", 2, "--set", "draws=100")
    assert code == 0, err
    assert "control_high" in out
    assert "judged: roles by none" in out
    code, _, err = run("axis", acts)
    assert code == 1
    assert "no role has rollouts enough" in err


def test_cosines_need_stores_of_both_sides(run):
    code, _, err = run("cosines", "P - A", "--first", "nowhere")
    assert code == 1
    assert "second" in err


def test_a_judge_that_is_not_there_is_named(run):
    code, _, err = run("judge", "nowhere", "--by", "everyone")
    assert code == 1
    assert "everyone" in err
