"""Persona vectors from the shell: each verb's words, its tables on the screen, and its refusals."""

import json

import numpy as np
import pytest

from workbench.directions import Directions, open_directions, save_directions


@pytest.fixture(scope="module")
def place(tiny_folder, tiny_subject, tmp_path_factory):
    """A model, a file of traits and one of the axis, and conversations."""
    root = tmp_path_factory.mktemp("place")
    model = tiny_folder(root / "model")
    draw = np.random.default_rng(0).normal(size=(3, 4, tiny_subject.width))
    layers = (0, 1, 2, 3)
    traits = Directions(("loud", "calm"), layers, draw[:2], tiny_subject.stamp)
    save_directions(traits, root / "traits.safetensors")
    axis = Directions(("assistant",), layers, draw[2:], tiny_subject.stamp)
    save_directions(axis, root / "axis.safetensors")
    chat = [{"role": role, "content": text} for role, text in
            (("user", "Is it true?"), ("assistant", "It is."), ("user", "And the city?"),
             ("assistant", "Not in the city."))]  # fmt: skip
    for name in ("one", "two"):
        rows = [{"id": f"{name}{n}", "messages": chat[: 2 + 2 * (n % 2)]} for n in range(2)]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"model": model, **{path.stem: path for path in root.glob("*.*")}}


def done(said):
    code, out, err = said
    assert code == 0, out + err
    told = json.loads(out)
    assert told["error"] is None
    return told


def test_combine_takes_weights_and_nuisances_from_the_words(run, place):
    words = ("combine", place["traits"], "--weights", "loud=1,calm=-1", "--name", "noise")
    told = done(run(*words, "--without", place["axis"], "--layers", "1,3", "--json"))
    found = open_directions(f"{told['path']}/directions.safetensors")
    assert (found.names, found.layers) == (("noise",), (1, 3))
    code, out, _ = run(*words, "--without", place["axis"], "--layers", "1,3")
    assert code == 0
    assert "removed: assistant" in out
    assert "retained" in out
    code, _, err = run("combine", place["traits"], "--weights", "loud")
    assert code == 1
    assert "write names and numbers, a=1,b=-1" in err


def test_drift_and_screen_take_models_and_files_from_the_words(run, place):
    common = ("--directions", place["traits"], "--layers", "2", "--device", "cpu",
              "--dtype", "float32")  # fmt: skip
    told = done(run("drift", place["model"], place["one"], *common, "--json"))
    assert told["result"]["conversations"] == 2
    code, out, _ = run("drift", place["model"], place["one"], *common)
    assert code == 0
    assert "role" in out
    assert "slope" in out
    data = (place["one"], place["two"], "--control", place["two"], "--tokens", "4")
    code, out, err = run("screen", place["model"], *data, *common)
    assert code == 0, err
    assert "own answers" in out
    assert "above" in out
    planned = done(run("screen", place["model"], *data, *common, "--dry", "--json"))
    assert planned["status"] == "planned"
    assert planned["result"]["items"] == {"one": 2, "two": 2}


@pytest.mark.parametrize("verb", ["personas", "monitor", "shift"])
def test_verbs_of_a_file_name_a_missing_file_and_an_unknown_setting(run, verb, tmp_path):
    code, _, err = run(verb, "nothing.toml")
    assert code == 1
    assert "no file 'nothing.toml'" in err
    (tmp_path / "odd.toml").write_text("odd = 1\n")
    code, out, err = run(verb, "odd.toml", "--json")
    assert code == 1
    assert "odd" in json.loads(out)["error"]
