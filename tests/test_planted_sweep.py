"""A model with a planted direction: the chain from sweep to verdict finds it, and no other."""

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.effects import control_slopes, slopes
from workbench.linalg import random_unit
from workbench.types import LogitsRead, Measurement, Request

TOKEN, LAYER, WIDTH = 300, 2, 32
PROMPTS = [tuple(range(20 + 7 * n, 90 + 7 * n, 10)) for n in range(8)]
BEYOND = "beyond random directions"


class Says:
    """Log-probability of the planted token after each prompt."""

    name = "says"

    def requests(self, subject):
        return [Request(str(n), "x", ids, (LogitsRead((TOKEN,)),)) for n, ids in enumerate(PROMPTS)]

    def score(self, requests, answers):
        return [
            Measurement(self.name, "logp", r.item, r.condition, float(a[0][0]))
            for r, a in zip(requests, answers, strict=True)
        ]


@pytest.fixture(scope="module")
def planted(make_subject):
    """A tiny model that says one token the more, the farther its states lie along an axis."""
    subject = make_subject("qwen3")
    axis = random_unit(1, WIDTH, seed=5)[0]
    head = subject.model.get_output_embeddings()
    with torch.no_grad():
        head.weight[TOKEN] += 2.0 * torch.tensor(axis, dtype=head.weight.dtype)
    return subject, axis


def judged(subject, vector, **options):
    norms = np.full(1, 4.0)
    own = wb.Directions(("v",), (LAYER,), vector[None, None], subject.stamp, norms=norms)
    table = wb.sweep(
        subject, own, readouts=[Says()], doses=[-0.2, -0.1, 0.1, 0.2], unit="norm", **options
    )
    return table, slopes(table).iloc[0]


@pytest.mark.thorough
def test_the_planted_direction_is_beyond_random_directions_and_monotone(planted):
    subject, axis = planted
    table, found = judged(subject, axis, controls=["random:10", "sign"])
    assert found["verdict"] == BEYOND
    assert found["monotone"]
    assert (found["n"], found["unit"]) == (len(PROMPTS), "item")
    assert found["low"] > found["band"] > 0
    assert found["band_name"] == "largest of 10 random directions"
    turned = control_slopes(table).iloc[0]
    assert turned["control"] == "sign"
    assert turned["slope"] == pytest.approx(-found["slope"], rel=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_a_direction_that_means_nothing_is_not(planted, seed):
    subject, axis = planted
    drawn = random_unit(1, WIDTH, seed=100 + seed)[0]
    drawn = drawn - (drawn @ axis) * axis
    _, found = judged(subject, drawn.astype(np.float32), controls=10)
    assert found["verdict"] in ("no reliable change", "not beyond random directions")


def test_without_random_directions_nothing_is_judged(planted):
    subject, axis = planted
    table, found = judged(subject, axis, controls=0)
    assert found["verdict"] == "not judged: no random directions"
    assert control_slopes(table).empty
