"""Interventions: from a direction in some unit to edits in raw units, or a clear refusal."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from workbench.errors import ConfigError, MismatchError, UnknownNameError, WorkbenchError
from workbench.interventions import Gap, Intervention
from workbench.interventions.keep_norm import KeepNorm
from workbench.registry import EDITS
from workbench.types import DirectionsLike, LinearMapLike, ModelStamp

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
    band = {"floor": 0.0} if edit == "cap" else {}
    assert [e.dose for e in Intervention.of(edit, truth, dose=0.5, **band).arm(STAMP)] == [0.5] * 3
    with pytest.raises(ValueError, match="is a blend"):
        Intervention.of(edit, truth, unit="norm", **band)


@pytest.mark.parametrize(
    ("edit", "numbers"),
    [("ablate", {}), ("cap", {"floor": 0.0}), ("rescale", {"factor": 2.0}), ("affine", {}),
     ("replace", {"value": 1.0}), ("project_to_subspace", {})],
)  # fmt: skip
@pytest.mark.parametrize("dose", [5, -0.5])
def test_a_blend_outside_0_to_1_is_refused(edit, numbers, dose, truth):
    with pytest.raises(ValueError, match=rf"dose {dose} for {edit}.*from 0 \(none\) to 1 \(full\)"):
        Intervention.of(edit, truth, dose=dose, **numbers)
    made = Intervention.of(edit, truth, **numbers)
    with pytest.raises(ValueError, match="from 0"):
        replace(made, dose=float(dose))


def test_an_ablation_further_than_all_of_it_is_told_as_the_rescaling_that_it_is(truth):
    with pytest.raises(ValueError, match=r"give rescale with factor=-1$"):
        Intervention.ablate(truth, dose=2)


@pytest.mark.parametrize("make", [Intervention.cap, lambda one: Intervention.of("cap", one)])
def test_a_cap_without_floor_or_ceiling_is_refused_where_it_is_made(make, truth):
    with pytest.raises(ValueError, match="without floor or ceiling changes nothing; give one"):
        make(truth)


def test_a_cap_whose_sides_are_switched_off_in_so_many_words_stays(truth):
    (edit,) = Intervention.cap(truth, layers=[1], floor=-math.inf).arm(STAMP)
    assert edit.rows == {"floor": -math.inf, "ceiling": math.inf}


def test_an_intervention_shows_itself_in_one_line(truth):
    shown = repr(Intervention.cap(truth, layers=[1, 4], floor={1: -1.0, 4: 2.0}, dose=0.5))
    assert shown == (
        "Intervention(cap truth; blocks 1, 4; dose 0.5 raw; scope all; floor -1 2, ceiling inf)"
    )
    assert repr(Intervention.add(truth, layers=[3], dose=0.1, unit="norm", keep_norm=True)) == (
        "Intervention(add truth; blocks 3; dose 0.1 norm; scope all; norm kept)"
    )


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
    with pytest.raises(UnknownNameError, match="unknown scope 'usr'"):
        Intervention.add(truth, scope="usr")
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


@dataclass(frozen=True)
class Map(Bank):
    """What a LinearMap shows of itself."""

    def weights(self, layer):
        return WEIGHTS[layer]


WEIGHTS = {
    layer: {"W": layer * np.eye(3, dtype=np.float32), "b": np.ones(3)} for layer in (1, 3, 4)
}


@pytest.fixture
def trust(truth):
    return Map(("trust",), vectors=truth.vectors, norms=truth.norms)


def test_a_map_brings_its_arrays_to_each_layer_and_its_axis_as_the_vector(trust, truth):
    assert isinstance(trust, LinearMapLike)
    assert not isinstance(truth, LinearMapLike)
    arm = Intervention.map(trust, layers=[4, 1], dose=0.5, scope="last").arm(STAMP)
    assert [(e.layer, e.name, e.dose, e.scope) for e in arm] == [
        (4, "linear_map", 0.5, "last"),
        (1, "linear_map", 0.5, "last"),
    ]
    assert [e.weights is WEIGHTS[e.layer] for e in arm] == [True, True]
    np.testing.assert_allclose(arm[0].v, [1, 0, 0])


def test_maps_and_directions_are_not_mistaken_for_each_other(trust, truth):
    with pytest.raises(ValueError, match=r"linear_map takes a LinearMap.*got a Bank"):
        Intervention.of("linear_map", truth)
    with pytest.raises(ValueError, match="add takes a direction; got a Map"):
        Intervention.add(trust)
    with pytest.raises(ValueError, match="is a blend"):
        Intervention.map(trust, unit="norm")
    with pytest.raises(WorkbenchError, match="no vector at layer 2"):
        Intervention.map(trust, layers=[2])
    with pytest.raises(MismatchError, match="width"):
        Intervention.map(trust).arm(replace(STAMP, width=4))


def test_numbers_by_layer_reach_the_edits_along_a_direction(truth):
    one = Intervention.replace(truth, layers=[1, 4], value={1: 2.0, 4: -1.0})
    assert [edit.rows for edit in one.arm(STAMP)] == [{"value": 2.0}, {"value": -1.0}]
    two = Intervention.affine(truth, layers=[1], scale=2)
    assert two.arm(STAMP)[0].rows == {"scale": 2.0, "offset": 0.0}
    three = Intervention.rescale(truth, layers=[1], factor=0.5, name="half")
    assert (three.arm(STAMP)[0].rows, three.name) == ({"factor": 0.5}, "half")


@pytest.mark.parametrize(
    ("edit", "numbers", "message"),
    [
        ("rescale", {}, "rescale needs factor"),
        ("replace", {"factor": 1.0}, "replace needs value"),
        ("replace", {"value": 1.0, "floor": 0.0}, "takes no floor; it takes value"),
        ("add", {"floor": 0.0}, "add takes no floor; it takes no such numbers"),
        ("rescale", {"factor": math.inf}, "factor inf at layer 1; expected a finite number"),
        ("affine", {"offset": math.nan}, "offset nan"),
        ("ablate", {"centered": True}, "ablate is not measured from a center"),
    ],
)
def test_numbers_that_an_edit_does_not_take_are_refused(edit, numbers, message, truth):
    with pytest.raises(ValueError, match=message):
        Intervention.of(edit, truth, **numbers)


def test_a_subspace_is_the_span_of_all_directions_layer_by_layer(truth):
    vectors = np.array([[[3.0, 0, 4], [0, 2, 0], [1, 0, 0]], [[0, 1, 0], [0, 5, 0], [1, 1, 0]]])
    two = replace(truth, names=("joy", "fear"), vectors=vectors.astype(np.float32))
    one = Intervention.project_to_subspace(two, inside=0.0, outside=1.0)
    assert one.name == "project_to_subspace joy+fear"
    for row, edit in enumerate(one.arm(STAMP)):
        basis = edit.weights["basis"]
        assert len(basis) == np.linalg.matrix_rank(vectors[:, row])
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-6)
        np.testing.assert_allclose(vectors[:, row] @ basis.T @ basis, vectors[:, row], atol=1e-5)
        assert edit.rows == {"inside": 0.0, "outside": 1.0}
    with pytest.raises(ConfigError, match="directions joy, fear have no center"):
        Intervention.project_to_subspace(two, centered=True)
    weaker = replace(one, dose=0.5)
    assert weaker.arm(STAMP)[0].weights is one.arm(STAMP)[0].weights


def test_a_kept_norm_wraps_the_edit_and_equal_ones_are_one(truth):
    edits = [Intervention.add(truth, dose=d, keep_norm=True).arm(STAMP)[0].edit for d in (1, 2)]
    assert edits[0] == edits[1] == KeepNorm(EDITS.create("add"))
    assert hash(edits[0]) == hash(edits[1])


def test_the_center_of_a_direction_is_a_value_to_replace_with(truth):
    @dataclass(frozen=True)
    class Centered(Bank):
        center: np.ndarray = None

    center = np.array([[[5.0, 7, 10], [1, -3, 1], [4, 4, 4]]])
    own = Centered(vectors=truth.vectors, center=center)
    arm = Intervention.replace(own, value="center", layers=[3, 1]).arm(STAMP)
    assert [edit.rows["value"] for edit in arm] == pytest.approx([-3, (15 + 40) / 5])
    with pytest.raises(ConfigError, match="have no center"):
        Intervention.replace(truth, value="center")
    with pytest.raises(ValueError, match="factor 'center'; expected a number"):
        Intervention.of("rescale", truth, factor="center")


@pytest.mark.parametrize("site", ["attn_out", "mlp_out", "resid_pre"])
def test_a_direction_of_another_site_is_not_added_to_what_a_block_puts_out(truth, site):
    with pytest.raises(MismatchError, match=f"'truth' was fitted at site {site}, but edits act on"):
        Intervention.add(replace(truth, site=site))
    both = replace(truth, names=("a", "b"), vectors=np.ones((2, 3, 3)), site=site)
    with pytest.raises(MismatchError, match="'a', 'b' was fitted"):
        Intervention.project_to_subspace(both)
