"""Doses in units of the norm, for directions that bring no norms: measured on the subject."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.directions import Directions
from workbench.engine import norms
from workbench.engine.hooks import HookRunner
from workbench.errors import MismatchError, WorkbenchError
from workbench.interventions import Intervention

RUNNER = HookRunner()


def directions(subject, layers=(1, 3)):
    vectors = np.random.default_rng(0).standard_normal((1, len(layers), subject.width))
    return Directions(("drawn",), tuple(layers), vectors.astype(np.float32), subject.stamp)


@pytest.fixture
def plain_norms(forward_plainly):
    """One unpadded text at a time, the first token left out."""

    def measure(subject):
        rows = [subject.renderer.render(text).ids for text in norms.TEXTS]
        hidden = [forward_plainly(subject, ids)[1] for ids in rows]
        return [
            float(torch.cat([one[layer][1:].norm(dim=-1) for one in hidden]).mean())
            for layer in subject.blocks
        ]

    return measure


def test_a_residual_norm_is_the_mean_over_all_tokens_but_each_first(
    family, subject_of, plain_norms
):
    subject = subject_of(family)
    found = norms.residual_norms(subject, (3, 0))
    expected = plain_norms(subject)
    np.testing.assert_allclose(found, [expected[3], expected[0]], rtol=1e-5)


def test_a_dose_in_norms_moves_by_that_fraction_of_what_was_measured(tiny_subject):
    along = directions(tiny_subject)
    edit = Intervention.add(along, dose=0.25, unit="norm")
    with RUNNER.intervene(tiny_subject, [edit]) as log:
        RUNNER.generate(tiny_subject, ["A B C"], max_new_tokens=2)
    measured = norms.residual_norms(tiny_subject, along.layers)
    np.testing.assert_allclose([row.realised for row in log.rows], 0.25 * measured, rtol=1e-4)


def test_the_public_verb_measures_them_too(tiny_subject):
    along = directions(tiny_subject)
    with wb.intervene(tiny_subject, [wb.Intervention.add(along, dose=-0.5, unit="norm")]) as log:
        RUNNER.generate(tiny_subject, ["A B C"], max_new_tokens=2)
    measured = norms.residual_norms(tiny_subject, along.layers)
    np.testing.assert_allclose([row.realised for row in log.rows], -0.5 * measured, rtol=1e-4)


def test_norms_that_the_directions_hold_are_used_and_nothing_is_measured(tiny_subject, monkeypatch):
    monkeypatch.setattr(norms, "_measure", lambda _: 1 / 0)
    held = replace(directions(tiny_subject), norms=np.array([2.0, 4.0], np.float32))
    for one in (
        Intervention.add(held, unit="norm"),
        Intervention.add(directions(tiny_subject), unit="raw"),
    ):
        assert norms.norms_for(tiny_subject, one) is None


def test_a_model_is_measured_once(make_subject, monkeypatch):
    subject, counted = make_subject("qwen3"), []
    original = norms._measure
    monkeypatch.setattr(norms, "_measure", lambda one: counted.append(1) or original(one))
    first = norms.residual_norms(subject, (0, 1))
    assert norms.residual_norms(subject, (1,))[0] == first[1]
    assert len(counted) == 1


def test_an_edited_model_is_not_measured(make_subject, make_edit):
    subject = make_subject("qwen3")
    edit = Intervention.add(directions(subject), unit="norm")
    with RUNNER.intervene(subject, [(make_edit("add", 1, 1.0),)]):
        with (
            pytest.raises(WorkbenchError, match="cannot be measured inside intervene"),
            RUNNER.intervene(subject, [edit]),
        ):
            pass
        RUNNER.generate(subject, ["A B C"], max_new_tokens=1)


def test_directions_of_another_model_are_refused_before_anything_runs(
    make_subject, subject_of, monkeypatch
):
    monkeypatch.setattr(norms, "_measure", lambda _: 1 / 0)
    foreign = Intervention.add(directions(subject_of("llama")), unit="norm")
    with pytest.raises(MismatchError, match="is used with"):
        norms.norms_for(make_subject("qwen3"), foreign)


def test_states_that_are_not_finite_are_no_norm(make_subject):
    subject = make_subject("qwen3")
    with torch.no_grad():
        subject.blocks[2].mlp.down_proj.weight.mul_(torch.inf)
    with pytest.raises(WorkbenchError, match="block 2 are not finite in float32"):
        norms.residual_norms(subject, (0,))
