"""Interventions: from a direction in some unit to edits in raw units, or a clear refusal."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from workbench.errors import ConfigError, MismatchError, UnknownNameError, WorkbenchError
from workbench.interventions import Gap, Intervention
from workbench.types import DirectionsLike, ModelStamp

STAMP = ModelStamp("tiny", "llama", 6, 3, "tok", "weights")


@dataclass(frozen=True)
class Bank:
    names: tuple = ("truth",)
    layers: tuple = (1, 3, 4)
    vectors: np.ndarray = None
    norms: np.ndarray | None = None
    site: str = "resid_post"
    position: str = "last"
    model: ModelStamp = STAMP


@pytest.fixture
def truth():
    vectors = np.array([[[3.0, 0, 4], [0, 2, 0], [1, 0, 0]]], np.float32)
    return Bank(vectors=vectors, norms=np.array([10.0, 20, 40], np.float32))


def test_a_bank_is_what_an_intervention_takes(truth):
    assert isinstance(truth, DirectionsLike)


def test_raw_units_multiply_the_stored_vector(truth):
    arm = Intervention.add(truth, dose=2.0).arm(STAMP)
    assert [edit.layer for edit in arm] == [1, 3, 4]
    for row, edit in enumerate(arm):
        assert np.linalg.norm(edit.v) == pytest.approx(1)
        assert edit.v.dtype == np.float32
        np.testing.assert_allclose(edit.dose * edit.v, 2 * truth.vectors[0, row], rtol=1e-6)


def test_norm_units_are_fractions_of_the_mean_norm(truth):
    arm = Intervention.add(truth, layers=[4, 1], dose=0.1, unit="norm").arm(STAMP)
    assert [(edit.layer, edit.dose) for edit in arm] == [(4, pytest.approx(4)), (1, 1)]


def test_given_norms_go_before_stored_ones(truth):
    norms = np.array([1.0, 2, 3], np.float32)
    arm = Intervention.add(truth, layers=[3], unit="norm").arm(STAMP, norms=norms)
    assert arm[0].dose == 2


def test_gap_units_are_the_same_shift_at_every_layer(truth):
    gap = Gap(-5.0, 0.1, 3, "seed")
    arm = Intervention.add(truth, dose=2, unit="gap").arm(STAMP, gap=gap)
    assert [edit.dose for edit in arm] == [-10, -10, -10]


def test_norms_of_other_layers_are_refused(truth):
    with pytest.raises(MismatchError, match="2 norms for 3 layers"):
        Intervention.add(truth, unit="norm").arm(STAMP, norms=np.ones(2, np.float32))


def test_norm_units_without_any_norm_are_refused(truth):
    with pytest.raises(ConfigError, match="mean residual norm"):
        Intervention.add(replace(truth, norms=None), unit="norm").arm(STAMP)


@pytest.mark.parametrize("edit", ["ablate", "cap"])
def test_a_blend_keeps_its_dose_and_has_no_other_unit(edit, truth):
    assert [e.dose for e in Intervention.of(edit, truth, dose=0.5).arm(STAMP)] == [0.5] * 3
    with pytest.raises(ValueError, match="is a blend"):
        Intervention.of(edit, truth, unit="norm")


def test_thresholds_by_layer_reach_their_layers(truth):
    arm = Intervention.cap(truth, layers=[1, 4], floor={1: -1.0, 4: 2.0}).arm(STAMP)
    assert [edit.rows for edit in arm] == [
        {"floor": -1.0, "ceiling": math.inf},
        {"floor": 2.0, "ceiling": math.inf},
    ]


@pytest.mark.parametrize(
    ("band", "message"),
    [
        ({"floor": math.inf}, "would send every token to infinity"),
        ({"ceiling": -math.inf}, "would send every token to infinity"),
        ({"floor": 2.0, "ceiling": 1.0}, "above ceiling"),
        ({"floor": math.nan}, "expected numbers"),
        ({"floor": {1: 0.0}}, "no floor for layer 3"),
    ],
)
def test_a_band_that_is_none_is_refused(band, message, truth):
    with pytest.raises(ValueError, match=message):
        Intervention.cap(truth, **band)


def test_several_directions_must_be_picked_from(truth):
    two = replace(truth, names=("joy", "fear"), vectors=np.ones((2, 3, 3), np.float32))
    with pytest.raises(ValueError, match=r"'joy', 'fear'.*directions\[\"name\"\]"):
        Intervention.add(two)


def test_an_unknown_layer_lists_the_known_ones(truth):
    with pytest.raises(WorkbenchError, match=r"no vector at layer 2.*its layers: 1, 3, 4"):
        Intervention.add(truth, layers=[1, 2])


@pytest.mark.parametrize("layers", [[], [1, 1]])
def test_layers_are_named_once_each(layers, truth):
    with pytest.raises(ValueError, match="at least one, each once"):
        Intervention.add(truth, layers=layers)


def test_unknown_scopes_edits_and_units_are_refused(truth):
    with pytest.raises(UnknownNameError, match="unknown scope 'user'"):
        Intervention.add(truth, scope="user")
    with pytest.raises(UnknownNameError, match="unknown edit 'rotate'"):
        Intervention.of("rotate", truth)
    with pytest.raises(ValueError, match="expected one of raw, norm, gap"):
        Intervention.add(truth, unit="sigma")


def test_a_dose_that_is_not_finite_is_refused(truth):
    with pytest.raises(ValueError, match="finite"):
        Intervention.add(truth, dose=math.nan)


@pytest.mark.parametrize(("value", "message"), [(0.0, "is zero"), (math.nan, "not finite")])
def test_a_vector_that_points_nowhere_is_refused(value, message, truth):
    broken = replace(truth, vectors=np.full((1, 3, 3), value, np.float32))
    with pytest.raises(WorkbenchError, match=rf"'truth' at layer 1.*{message}"):
        Intervention.add(broken).arm(STAMP)


def test_another_model_is_refused_and_an_organism_is_not(truth):
    with pytest.raises(MismatchError, match="width = 3"):
        Intervention.add(truth).arm(replace(STAMP, width=4))
    assert Intervention.add(truth).arm(replace(STAMP, key="organism", fingerprint="other"))
