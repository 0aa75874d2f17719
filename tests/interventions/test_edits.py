"""The laws of the edits: what each may change, and what it must leave alone."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from workbench.interventions.ablate import Ablate
from workbench.interventions.add import Add
from workbench.interventions.cap import Cap
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


def rows_of(name):
    return band(-0.5, 0.5) if name == "cap" else {}


def along(h, v):
    return torch.einsum("btd,bd->bt", h, v)


def rest(h, v):
    return h - along(h, v)[..., None] * v[:, None]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EDITS.names())
def test_rows_with_dose_zero_come_back_bit_for_bit(name, dtype, h, v):
    h = h.to(dtype)
    h[1, 2, 3] = float("inf")
    out = EDITS.create(name)(h, v, torch.tensor([0.0, 0.0, 1.0]), **rows_of(name))
    assert torch.equal(out[:2], h[:2])
    assert not torch.equal(out[2], h[2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EDITS.names())
def test_an_edit_keeps_dtype_and_shape_and_its_input(name, dtype, h, v):
    h = h.to(dtype)
    before = h.clone()
    out = EDITS.create(name)(h, v, torch.ones(3), **rows_of(name))
    assert (out.dtype, out.shape) == (dtype, h.shape)
    assert torch.equal(h, before)


@pytest.mark.parametrize("name", EDITS.names())
def test_an_edit_moves_only_along_its_direction(name, h, v):
    out = EDITS.create(name)(h, v, torch.tensor([1.0, 0.4, -2.0]), **rows_of(name))
    torch.testing.assert_close(rest(out, v), rest(h, v), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", EDITS.names())
def test_each_row_has_its_own_direction_and_dose(name, h, v):
    dose = torch.tensor([0.3, 1.0, -0.7])
    rows = rows_of(name)
    together = EDITS.create(name)(h, v, dose, **rows)
    for row in range(3):
        alone = {key: value[row : row + 1] for key, value in rows.items()}
        one = EDITS.create(name)(h[row : row + 1], v[row : row + 1], dose[row : row + 1], **alone)
        torch.testing.assert_close(together[row : row + 1], one)


@pytest.mark.parametrize("name", ["ablate", "cap"])
def test_a_blended_dose_goes_that_part_of_the_way(name, h, v):
    full = EDITS.create(name)(h, v, torch.ones(3), **rows_of(name))
    part = EDITS.create(name)(h, v, torch.full((3,), 0.25), **rows_of(name))
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


def test_float16_arithmetic_does_not_overflow(v):
    h = torch.full((3, 2, 16), 30000.0, dtype=torch.float16)
    assert Ablate()(h, v, torch.ones(3)).isfinite().all()


def test_a_double_model_is_edited_in_double_precision(h, v):
    unit = normalize(v.double(), dim=-1)
    out = Ablate()(h.double(), unit, torch.ones(3).double())
    assert along(out, unit).abs().max() < 1e-14


def test_an_unknown_number_is_refused(h, v):
    with pytest.raises(TypeError):
        Add()(h, v, torch.ones(3), floor=torch.ones(3))
