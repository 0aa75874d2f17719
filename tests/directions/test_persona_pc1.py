"""The axis against the first component: as the plain way has it, and right where it is planted."""

import numpy as np
import pytest
from planted import STAMP

from workbench.directions import Directions
from workbench.directions.persona import PersonaSpace
from workbench.directions.persona_map import persona_axes
from workbench.directions.persona_pc1 import axis_against_first
from workbench.errors import ConfigError
from workbench.linalg import cosine

D = STAMP.width


def means(values, names):
    return Directions(names=names, layers=(0, 1), vectors=values.swapaxes(0, 1), model=STAMP,
                      kind="mean")  # fmt: skip


def planted_space(off=(8.0, 0.0), roles=30, seed=0):
    """Roles spread along axis 0; the default lies ``off`` along axes 0 and 1 from their mean."""
    rng = np.random.default_rng(seed)
    places = 0.3 * rng.standard_normal((2, roles, D)) + 50
    places[:, :, 0] += rng.permutation(np.linspace(-5, 5, roles))
    default = places.mean(axis=1, keepdims=True)
    default[..., 0] += off[0]
    default[..., 1] += off[1]
    names = tuple(f"r{n}" for n in range(roles))
    return PersonaSpace(means(places, names), means(default, ("default",)))


def test_it_is_what_the_components_themselves_say():
    space = planted_space(off=(3.0, 4.0))
    found = axis_against_first(space)
    axes = persona_axes(space)
    np.testing.assert_allclose(found["cosine"], axes.info["cosine_axis"][:, 0], atol=1e-5)
    np.testing.assert_allclose(found["explained"], axes.info["explained"][:, 0], atol=1e-6)
    assert found["components_70"].tolist() == axes.info["components_70"].tolist()
    spread = np.linalg.norm(axes.vectors[0], axis=-1)
    np.testing.assert_allclose(found["default"], axes.info["default"][:, 0] / spread, rtol=1e-4)


def test_each_role_in_the_place_of_the_default_is_the_control():
    space = planted_space()
    (_, row) = next(axis_against_first(space).iterrows())
    roles = space.roles.at(0).astype(float)
    first = persona_axes(space).at(0)[:1]
    plain = [
        abs(cosine((role - np.delete(roles, k, axis=0).mean(axis=0))[None], first)[0, 0])
        for k, role in enumerate(roles)
    ]
    assert row["control"] == pytest.approx(np.mean(plain), abs=1e-5)
    assert row["control_high"] == pytest.approx(np.quantile(plain, 0.95), abs=1e-5)


def test_an_assistant_along_the_component_is_told_from_one_beside_it():
    along, beside = (axis_against_first(planted_space(off)) for off in ((8.0, 0), (0, 8.0)))
    assert (along["low"] > 0.95).all()
    assert (along["cosine"] > along["control"]).all()
    assert (beside["high"] < 0.3).all()
    assert (beside["cosine"] < beside["control"]).all()


def test_the_interval_holds_the_value_and_narrows_with_roles():
    few, many = (axis_against_first(planted_space((4.0, 4.0), roles=n)) for n in (8, 120))
    for table in (few, many):
        assert ((table["low"] <= table["cosine"]) & (table["cosine"] <= table["high"])).all()
    assert ((many["high"] - many["low"]) < (few["high"] - few["low"])).all()
    assert set(few["n"]) == {8}


def test_roles_without_a_component_are_refused():
    with pytest.raises(ConfigError, match="2 roles"):
        axis_against_first(planted_space(roles=2))
    space = planted_space()
    same = means(np.ones((2, 5, D)), tuple("abcde"))
    with pytest.raises(ConfigError, match="alike at layer 0"):
        axis_against_first(PersonaSpace(same, space.default))
