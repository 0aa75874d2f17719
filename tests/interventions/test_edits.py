"""The laws of the edits: what each may change, and what it must leave alone."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from workbench.interventions.ablate import Ablate
from workbench.interventions.add import Add
from workbench.interventions.affine import Affine
from workbench.interventions.cap import Cap
from workbench.interventions.keep_norm import KeepNorm
from workbench.interventions.linear_map import AffineMap
from workbench.interventions.project_to_subspace import ProjectToSubspace
from workbench.interventions.replace import Replace
from workbench.interventions.rescale import Rescale
from workbench.linalg import orthonormal
from workbench.registry import EDITS

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def h(rng):
    return 5 * torch.randn(3, 6, 16, generator=rng)


@pytest.fixture
def v(rng):
    return normalize(torch.randn(3, 16, generator=rng), dim=-1)


def band(floor, ceiling, rows=3):
    return {"floor": torch.full((rows,), floor), "ceiling": torch.full((rows,), ceiling)}


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / shape[-1] ** 0.5


def basis_of(rank, seed=5):
    rows = np.random.default_rng(seed).standard_normal((rank, 16))
    return torch.from_numpy(orthonormal(rows).astype(np.float32))


NUMBERS = {
    "cap": {"floor": -0.5, "ceiling": 0.5},
    "rescale": {"factor": 2.5},
    "affine": {"scale": 0.4, "offset": -3.0},
    "replace": {"value": 1.5},
    "project_to_subspace": {"inside": 0.9, "outside": 0.2},
}
WHOLE = {"W": drawn(16, 16), "b": drawn(16, seed=2)}
LOW = {"left": drawn(16, 2), "right": drawn(2, 16, seed=3), "b": drawn(16, seed=2)}
WEIGHTS = {
    "linear_map": WHOLE,
    "linear_map low": LOW,
    "project_to_subspace": {"basis": basis_of(3)},
    "project_to_subspace centered": {"basis": basis_of(3), "center": drawn(16, seed=4)},
}
CASES = sorted({*EDITS.names(), *WEIGHTS})
CASES += [f"{case}, norm kept" for case in CASES]
ALONG = ["ablate", "add", "affine", "cap", "replace", "rescale"]


def edit_of(case):
    """The edit of a case with the arrays that its rows share."""
    plain = case.removesuffix(", norm kept")
    made = EDITS.create(plain.split()[0])
    return partial(KeepNorm(made) if case != plain else made, **WEIGHTS.get(plain, {}))


def rows_of(case, rows=3):
    numbers = NUMBERS.get(case.removesuffix(", norm kept").split()[0], {})
    return {name: torch.full((rows,), value) for name, value in numbers.items()}


def along(h, v):
    return torch.einsum("btd,bd->bt", h, v)


def rest(h, v):
    return h - along(h, v)[..., None] * v[:, None]


def test_every_registered_edit_is_held_to_the_laws():
    assert set(EDITS.names()) <= {case.split()[0] for case in CASES}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_rows_with_dose_zero_come_back_bit_for_bit(name, dtype, h, v):
    h = h.to(dtype)
    h[1, 2, 3] = float("inf")
    out = edit_of(name)(h, v, torch.tensor([0.0, 0.0, 1.0]), **rows_of(name))
    assert torch.equal(out[:2], h[:2])
    assert not torch.equal(out[2], h[2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_an_edit_keeps_dtype_and_shape_and_its_input(name, dtype, h, v):
    h = h.to(dtype)
    before = h.clone()
    out = edit_of(name)(h, v, torch.ones(3), **rows_of(name))
    assert (out.dtype, out.shape) == (dtype, h.shape)
    assert torch.equal(h, before)


@pytest.mark.parametrize("name", ALONG)
def test_an_edit_moves_only_along_its_direction(name, h, v):
    out = edit_of(name)(h, v, torch.tensor([1.0, 0.4, -2.0]), **rows_of(name))
    torch.testing.assert_close(rest(out, v), rest(h, v), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_each_row_has_its_own_direction_and_dose(name, h, v):
    dose = torch.tensor([0.3, 1.0, -0.7])
    rows = rows_of(name)
    together = edit_of(name)(h, v, dose, **rows)
    for row in range(3):
        alone = {key: value[row : row + 1] for key, value in rows.items()}
        one = edit_of(name)(h[row : row + 1], v[row : row + 1], dose[row : row + 1], **alone)
        torch.testing.assert_close(together[row : row + 1], one)


@pytest.mark.parametrize("name", CASES)
def test_repeated_rows_are_edited_as_the_rows_were(name, h, v):
    dose, rows = torch.tensor([0.3, 0.0, -0.7]), rows_of(name)
    once = edit_of(name)(h, v, dose, **rows)
    again = {key: value.repeat_interleave(4) for key, value in rows.items()}
    h, v, dose = (part.repeat_interleave(4, 0) for part in (h, v, dose))
    torch.testing.assert_close(edit_of(name)(h, v, dose, **again), once.repeat_interleave(4, 0))


@pytest.mark.parametrize(
    "name", [case for case in CASES if case != "add" and "norm kept" not in case]
)
def test_a_blended_dose_goes_that_part_of_the_way(name, h, v):
    full = edit_of(name)(h, v, torch.ones(3), **rows_of(name))
    part = edit_of(name)(h, v, torch.full((3,), 0.25), **rows_of(name))
    torch.testing.assert_close(part, h + 0.25 * (full - h))


def test_add_shifts_by_the_dose(h, v):
    dose = torch.tensor([2.0, -3.0, 0.5])
    torch.testing.assert_close(Add()(h, v, dose), h + dose[:, None, None] * v[:, None])


def test_ablate_removes_the_component(h, v):
    out = Ablate()(h, v, torch.ones(3))
    torch.testing.assert_close(along(out, v), torch.zeros(3, 6), rtol=0, atol=1e-5)


def test_ablating_twice_equals_once_and_dose_two_reflects(h, v):
    once = Ablate()(h, v, torch.ones(3))
    torch.testing.assert_close(Ablate()(once, v, torch.ones(3)), once, rtol=0, atol=1e-6)
    torch.testing.assert_close(along(Ablate()(h, v, torch.full((3,), 2.0)), v), -along(h, v))


def test_a_cap_is_idempotent_and_leaves_the_orthogonal_part_alone(h, v):
    once = Cap()(h, v, torch.ones(3), **band(-0.2, 0.3))
    torch.testing.assert_close(
        Cap()(once, v, torch.ones(3), **band(-0.2, 0.3)), once, rtol=0, atol=1e-6
    )
    torch.testing.assert_close(rest(once, v), rest(h, v), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("floor", "ceiling"), [(1.0, math.inf), (-math.inf, -1.0), (-0.2, 0.3)])
def test_the_projection_ends_inside_the_band(floor, ceiling, h, v):
    out = along(Cap()(h, v, torch.ones(3), **band(floor, ceiling)), v)
    assert (out >= floor - 1e-5).all()
    assert (out <= ceiling + 1e-5).all()


def test_inside_the_band_nothing_changes_and_outside_something_does(h, v):
    projection = along(h, v)
    out = Cap()(h, v, torch.ones(3), **band(-1.0, 1.0))
    inside = projection.abs() < 1
    assert inside.any()
    assert (~inside).any()
    assert torch.equal(out[inside], h[inside])
    assert (out[~inside] != h[~inside]).any(-1).all()


def test_infinite_thresholds_change_nothing_in_any_dtype(h, v):
    for dtype in DTYPES:
        wide_open = Cap()(h.to(dtype), v, torch.ones(3), **band(-math.inf, math.inf))
        assert torch.equal(wide_open, h.to(dtype))


def test_a_floor_is_a_ceiling_along_the_opposite_direction(h, v):
    floor = Cap()(h, v, torch.ones(3), **band(0.7, math.inf))
    ceiling = Cap()(h, -v, torch.ones(3), **band(-math.inf, -0.7))
    torch.testing.assert_close(floor, ceiling, rtol=0, atol=1e-6)


def test_the_cap_is_the_published_formula(h, v):
    tau = 0.4
    expected = h - v[:, None] * (along(h, v) - tau).clamp(max=0)[..., None]
    out = Cap()(h, v, torch.ones(3), **band(tau, math.inf))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)


def test_rescaling_multiplies_the_coordinate(h, v):
    out = Rescale()(h, v, torch.ones(3), factor=torch.tensor([2.0, 0.0, -1.0]))
    torch.testing.assert_close(along(out, v)[0], 2 * along(h, v)[0])
    torch.testing.assert_close(out[1], Ablate()(h, v, torch.ones(3))[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(along(out, v)[2], -along(h, v)[2])


def test_an_affine_edit_scales_and_shifts_the_coordinate(h, v):
    scale, offset = torch.tensor([2.0, 0.5, 0.0]), torch.tensor([1.0, -1.0, 3.0])
    out = along(Affine()(h, v, torch.ones(3), scale=scale, offset=offset), v)
    expected = scale[:, None] * along(h, v) + offset[:, None]
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)


def test_replacing_sets_the_coordinate_and_twice_is_once(h, v):
    value = torch.tensor([0.7, 0.0, -4.0])
    once = Replace()(h, v, torch.ones(3), value=value)
    torch.testing.assert_close(along(once, v), value[:, None].expand(3, 6), rtol=0, atol=1e-5)
    torch.testing.assert_close(
        Replace()(once, v, torch.ones(3), value=value), once, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("weights", [WHOLE, LOW], ids=["whole", "low"])
def test_a_map_adds_its_dose_of_w_h_plus_b(weights, h, v):
    W = weights["W"] if "W" in weights else weights["left"] @ weights["right"]
    dose = torch.tensor([1.0, -0.5, 2.0])
    out = AffineMap()(h, v, dose, **weights)
    for row in range(3):
        for token in range(6):
            state = h[row, token]
            expected = state + dose[row] * (W @ state + weights["b"])
            torch.testing.assert_close(out[row, token], expected, rtol=0, atol=1e-5)


def test_a_map_of_nothing_but_b_is_an_addition(h, v):
    out = AffineMap()(h, v, torch.full((3,), 2.0), W=torch.zeros(16, 16), b=v[0])
    torch.testing.assert_close(out, Add()(h, v[:1].expand(3, 16), torch.full((3,), 2.0)))


def test_a_map_without_a_matrix_is_refused(h, v):
    with pytest.raises(ValueError, match="needs W, or left and right"):
        AffineMap()(h, v, torch.ones(3), b=v[0], left=LOW["left"])


def test_projecting_keeps_the_subspace_and_removing_keeps_the_rest(h, v):
    basis, one, none = basis_of(3), torch.ones(3), torch.zeros(3)
    kept = ProjectToSubspace()(h, v, one, basis=basis, inside=one, outside=none)
    rest_ = ProjectToSubspace()(h, v, one, basis=basis, inside=none, outside=one)
    torch.testing.assert_close(kept + rest_, h, rtol=0, atol=1e-5)
    torch.testing.assert_close(kept @ basis.T, h @ basis.T, rtol=0, atol=1e-5)
    torch.testing.assert_close(rest_ @ basis.T, torch.zeros(3, 6, 3), rtol=0, atol=1e-5)
    twice = ProjectToSubspace()(kept, v, one, basis=basis, inside=one, outside=none)
    torch.testing.assert_close(twice, kept, rtol=0, atol=1e-5)


def test_a_projection_about_a_center_leaves_the_center_where_it_is(v):
    center = drawn(16, seed=4)
    parts = {"basis": basis_of(2), "center": center}
    at_center = center.expand(3, 1, 16)
    numbers = {"inside": torch.ones(3), "outside": torch.zeros(3)}
    out = ProjectToSubspace()(at_center, v, torch.ones(3), **parts, **numbers)
    torch.testing.assert_close(out, at_center, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [case for case in CASES if "norm kept" in case])
def test_a_kept_norm_is_that_of_the_state_before(name, h, v):
    dose, numbers = torch.tensor([1.0, 0.4, -2.0]), rows_of(name)
    out = edit_of(name)(h, v, dose, **numbers)
    torch.testing.assert_close(out.norm(dim=-1), h.norm(dim=-1))
    bare = edit_of(name.removesuffix(", norm kept"))(h, v, dose, **numbers)
    torch.testing.assert_close(normalize(out, dim=-1), normalize(bare, dim=-1), rtol=0, atol=1e-5)


def test_where_nothing_moves_a_kept_norm_changes_no_bit(h, v):
    out = KeepNorm(Cap())(h, v, torch.ones(3), **band(-1.0, 1.0))
    inside = along(h, v).abs() < 1
    assert torch.equal(out[inside], h[inside])


def test_a_state_that_an_edit_makes_zero_stays_zero(v):
    h = v[:, None].clone()
    numbers = {"inside": torch.zeros(3), "outside": torch.zeros(3)}
    out = KeepNorm(ProjectToSubspace())(h, v, torch.ones(3), basis=basis_of(1), **numbers)
    torch.testing.assert_close(out, torch.zeros_like(h), rtol=0, atol=1e-6)


def test_float16_arithmetic_does_not_overflow(v):
    h = torch.full((3, 2, 16), 30000.0, dtype=torch.float16)
    assert Ablate()(h, v, torch.ones(3)).isfinite().all()
    W = 1e-3 * drawn(16, 16)
    assert AffineMap()(h, v, torch.ones(3), W=W, b=v[0]).isfinite().all()


def test_a_double_model_is_edited_in_double_precision(h, v):
    unit = normalize(v.double(), dim=-1)
    out = Ablate()(h.double(), unit, torch.ones(3).double())
    assert along(out, unit).abs().max() < 1e-14
    W = drawn(16, 16)
    moved = AffineMap()(h.double(), unit, torch.ones(3).double(), W=W, b=v[0])
    exact = h.double() + h.double() @ W.double().T + v[0].double()
    torch.testing.assert_close(moved, exact, rtol=0, atol=1e-13)


def test_an_unknown_number_is_refused(h, v):
    with pytest.raises(TypeError):
        Add()(h, v, torch.ones(3), floor=torch.ones(3))
