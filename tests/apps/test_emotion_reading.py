"""Own text along emotion vectors: what the page is told equals what a script reads."""

import emotion_runs
import numpy as np
import pytest
from workbench_apps.emotion_reading import SINK, read_texts
from workbench_apps.emotion_text import script_of

import workbench as wb
from workbench.api import load_for_readouts
from workbench.directions import open_directions
from workbench.errors import ConfigError, MismatchError

TEXTS = ["The city is true.", "I send you the rest of it."]


@pytest.fixture(scope="module", params=[False, True], ids=["bare", "bos"])
def made(request, tmp_path_factory, tiny_folder):
    root = tmp_path_factory.mktemp("reading")
    base = str(tiny_folder(root / "base", bos=request.param))
    subject = load_for_readouts(base)
    run = emotion_runs.write_emotions(root / "runs", subject.stamp, base)
    return base, subject, str(run / "emotions.safetensors")


def told(base, vectors, texts):
    return [
        part for part in read_texts(model=(base, None), vectors=vectors, texts=texts)
        if "text" in part
    ]  # fmt: skip


def test_pieces_join_to_the_text_and_means_are_those_of_a_capture(made):
    base, subject, vectors = made
    directions = open_directions(vectors)
    acts = wb.capture(
        subject, wb.PromptSet.from_records([{"text": text} for text in TEXTS], text="text"),
        layers=list(directions.layers), site=directions.site, position="mean:content",
    )  # fmt: skip
    found = told(base, vectors, TEXTS)
    assert ["".join(part["pieces"]) for part in found] == TEXTS
    for number, part in enumerate(found):
        assert part["values"].shape == (
            len(part["pieces"]), len(emotion_runs.NAMES), subject.n_layers,
        )  # fmt: skip
        places = part["first"] + np.arange(len(part["pieces"]))
        means = part["values"][places >= SINK].mean(axis=0)
        np.testing.assert_allclose(means, directions.project(acts)[:, :, number], atol=1e-4)


def test_vectors_of_another_model_are_refused(made, tmp_path):
    base, _, _ = made
    other = emotion_runs.write_emotions(tmp_path)
    with pytest.raises(MismatchError):
        told(base, str(other / "emotions.safetensors"), TEXTS)


def test_an_empty_text_is_refused(made):
    base, _, vectors = made
    with pytest.raises(ConfigError):
        told(base, vectors, [" "])


def test_a_text_without_a_token_for_the_mean_is_refused(made):
    base, subject, vectors = made
    if len(subject.tokenizer("a")["input_ids"]) > 1:  # a token before it is the sink
        assert len(told(base, vectors, ["a"])[0]["values"]) == 1
        return
    with pytest.raises(ConfigError, match="text 1, 'a', is the row's first token alone"):
        told(base, vectors, ["a"])


def test_the_script_prints_each_texts_largest_emotions(made, capsys):
    base, _, vectors = made
    code = script_of((base, None), vectors, 2, TEXTS)
    exec(compile(code, "script", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == TEXTS
    assert len(lines) == 2 + 2 * 5
    assert {line.split()[0] for line in lines if line.startswith("  ")} <= set(emotion_runs.NAMES)
