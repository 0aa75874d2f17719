"""The guard readouts: what they measure on stubs, and that a planted edit moves them."""

import json

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.errors import ConfigError
from workbench.readouts.ask import ask
from workbench.readouts.capability import Capability
from workbench.readouts.drift import Drift, divergence
from workbench.readouts.perplexity import Perplexity
from workbench.readouts.repetition import Repetition, repeated_share
from workbench.types import LayerEdit

TEXTS = [{"id": "a", "text": "the river is low"}, {"id": "b", "text": "bread is baked in an oven"}]


def prompts(rows=TEXTS):
    return wb.PromptSet.from_records(rows, text="text")


def shift(subject, dose):
    v = np.zeros(subject.width, np.float32)
    v[0] = 1
    edit = wb.EDITS.create("add")
    return (LayerEdit(1, "add", edit, v, dose, "all"),)


def test_perplexity_is_the_exponential_of_the_mean_loss_of_the_plain_forward(tiny_subject):
    outcome = ask(tiny_subject, [Perplexity(prompts())])[0]
    for found, row in zip(outcome.measurements, TEXTS, strict=True):
        batch = tiny_subject.encode([row["text"]], render="bare")
        with torch.no_grad():
            loss = tiny_subject.model(input_ids=batch.input_ids, labels=batch.input_ids).loss
        assert found.value == pytest.approx(float(loss.exp()), rel=1e-4)
        assert found.extra == {"tokens": batch.input_ids.shape[1] - 1}


def test_drift_is_zero_without_an_edit_and_grows_with_it(tiny_subject):
    arms = [(), shift(tiny_subject, 1.0), shift(tiny_subject, 8.0)]
    outcomes = ask(tiny_subject, [Drift(prompts())], arms)
    none, small, large = (np.mean([m.value for m in one.measurements]) for one in outcomes)
    assert none == pytest.approx(0, abs=1e-6)
    assert 0 < small < large


def test_divergence_is_that_of_the_definition():
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    assert divergence(np.log(p), np.log(q)) == pytest.approx(0.25 * np.log(2))
    with np.errstate(divide="ignore"):
        holed, pure = np.log([0.5, 0.0, 0.5]), np.log([0.0, 0.5, 0.5])
    assert divergence(np.log(p), holed) == np.inf
    assert divergence(holed, np.log(p)) == pytest.approx(0.5 * np.log(2))
    assert divergence(pure, pure) == 0
    assert np.isnan(divergence(np.log(p), np.full(3, np.nan)))


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("one two three four five", 0.0),
        ("go go go go go go", 0.75),
        ("a b c a b c a b c", 4 / 7),
        ("one two three", None),
        ("", None),
    ],
)
def test_repetition_is_the_share_of_word_runs_that_stood_before(text, share):
    assert repeated_share(text) == (share if share is None else pytest.approx(share))


def test_replies_too_short_to_repeat_are_invalid_with_the_reason(tiny_subject):
    readout = Repetition(prompts(), max_new_tokens=8)
    requests = readout.requests(tiny_subject)
    found = readout.score(requests, [(["Two words"],), ([" "],)])
    assert [(m.value, m.valid, m.reason) for m in found] == [
        (None, False, "unparseable"),
        (None, False, "refusal"),
    ]
    with pytest.raises(ConfigError, match="max_new_tokens = 3"):
        Repetition(prompts(), max_new_tokens=3)


def test_capability_prefers_the_ending_the_model_finds_likelier(tiny_subject):
    readout = Capability()
    requests = readout.requests(tiny_subject)
    answers = [(np.array([-1.0, -2.0, -3.0, -4.0]),) for _ in requests]
    answers[1] = (np.array([-3.0, -2.0, -9.0, -9.0]),)
    answers[2] = (np.full(4, -np.inf),)
    with np.errstate(invalid="ignore"):
        found = readout.score(requests, answers)
    accuracy = [m.value for m in found if m.measure == "accuracy"]
    assert accuracy[:2] == [1.0, 0.0]
    assert np.isnan(accuracy[2])
    assert [m.value for m in found if m.measure == "margin"][:2] == [1.0, -1.0]


def test_capability_refuses_a_probe_whose_wrong_endings_hold_the_right_one(tmp_path):
    row = {"id": "x", "text": "A cat says", "right": "meow", "wrong": json.dumps(["meow", "moo"])}
    (tmp_path / "probes.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match="probe 'x': wrong"):
        Capability(tmp_path / "probes.jsonl")


def test_the_shipped_probes_are_balanced_and_have_four_different_endings():
    probes = Capability()
    assert len(probes.endings) == 50
    assert all(len(set(endings)) == 4 for endings in probes.endings)
    topics, counts = np.unique(probes.probes.column("topic"), return_counts=True)
    assert len(topics) == 5
    assert set(counts) == {10}


@pytest.mark.real
def test_the_guards_of_the_real_model_are_those_of_a_working_one(real_subject):
    measured = wb.summarize(
        wb.measure(real_subject, ["perplexity", "capability", "repetition", "drift"])
    ).set_index("measure")["mean"]
    assert 20 < measured["perplexity"] < 60
    assert 0.7 < measured["accuracy"] < 0.95
    assert measured["repetition"] < 0.2
    assert measured["kl"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(("n", "temperature"), [(1, np.nan), (2, 0.0), (1, -1.0), (0, 1.0)])
def test_a_temperature_that_is_no_number_above_zero_is_refused(n, temperature):
    from workbench.readouts.reply import Reply

    with pytest.raises(ConfigError, match="greedy draws are all the same"):
        Reply(n=n, temperature=temperature)
