"""Files in the released form, made by hand from known vectors, mean here what they mean there."""

import numpy as np
import pytest
import torch
from planted import STAMP

import workbench as wb
from workbench.directions.exchange import released_caps
from workbench.directions.persona import PersonaSpace
from workbench.directions.persona_map import persona_axes, persona_cosines
from workbench.interventions import Intervention
from workbench.linalg import cosine

L, D, K = STAMP.n_layers, STAMP.width, 7
RNG = np.random.default_rng(11)
DEFAULT = RNG.standard_normal((L, D)).astype(np.float32) + 3
ROLES = {f"role{k}": (DEFAULT + RNG.standard_normal((L, D)) * 2 - 1.5).astype(np.float32)
         for k in range(K)}  # fmt: skip
TRAITS = {f"trait{k}": RNG.standard_normal((L, D)).astype(np.float32) for k in range(3)}
AXIS = DEFAULT - np.mean(list(ROLES.values()), axis=0)
CAPPED = range(2, 5)
CAPS = {layer: -0.5 - layer / 10 for layer in CAPPED}
EXPERIMENT = "layers_2:5-p0.25"


@pytest.fixture
def folder(tmp_path):
    """What the released data set holds of one model."""
    for name, vectors in (("role_vectors", ROLES), ("trait_vectors", TRAITS)):
        (tmp_path / name).mkdir()
        for one, rows in vectors.items():
            torch.save(torch.tensor(rows), tmp_path / name / f"{one}.pt")
    torch.save(torch.tensor(DEFAULT), tmp_path / "default_vector.pt")
    torch.save(torch.tensor(AXIS), tmp_path / "assistant_axis.pt")
    vector = "layer_{}/contrast_role_pos3_default1"
    content = {
        "vectors": {
            vector.format(layer): {"layer": layer, "vector": torch.tensor(-AXIS[layer])}
            for layer in range(L)
        },
        "experiments": [
            {
                "id": EXPERIMENT,
                "interventions": [
                    {"vector": vector.format(layer), "cap": cap} for layer, cap in CAPS.items()
                ],
            }
        ],
    }
    torch.save(content, tmp_path / "capping_config.pt")
    return tmp_path


def read(folder, name):
    return wb.import_directions(folder / name, STAMP)


def test_the_released_roles_and_default_give_the_released_axis(folder, tmp_path):
    space = PersonaSpace(read(folder, "role_vectors"), read(folder, "default_vector.pt"))
    np.testing.assert_allclose(space.axis.vectors[0], AXIS, atol=1e-5)
    released = read(folder, "assistant_axis.pt")
    assert released.names == space.axis.names == ("assistant",)
    assert released.kind == space.axis.kind == "difference"
    assert released.position == space.axis.position == "mean:assistant"
    saved = wb.open_directions(wb.save_directions(space.axis, tmp_path / "own.safetensors"))
    np.testing.assert_array_equal(saved.vectors, space.axis.vectors)
    axes = persona_axes(space)
    assert len(axes) == K - 1
    assert axes.info["explained"].sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_an_organism_is_placed_among_the_released_vectors(folder):
    roles, traits = read(folder, "role_vectors"), read(folder, "trait_vectors")
    shift = wb.combine(wb.centered(roles), {"role3": 2.0}, name="organism")
    table = persona_cosines(shift, roles, traits, layers=[2], nulls=["closed form"])
    best = table.set_index("second")["cosine"]
    assert best.idxmax() == "role3"
    assert best["role3"] == pytest.approx(1, abs=1e-6)
    assert set(table["bank"]) == {"role", "trait"}


def test_the_released_caps_are_ceilings_away_from_the_axis_and_floors_on_it(folder):
    released, axis = read(folder, "capping_config.pt"), read(folder, "assistant_axis.pt")
    ceiling = released_caps(released, EXPERIMENT)
    assert list(ceiling) == list(CAPPED)
    for layer in CAPPED:
        assert cosine(released.at(layer), axis.at(layer))[0, 0] == pytest.approx(-1, abs=1e-6)
    floor = {layer: -cap for layer, cap in ceiling.items()}
    h = torch.randn(3, 4, D, generator=torch.Generator().manual_seed(1)) * 3
    theirs = Intervention.cap(released, layers=list(CAPPED), ceiling=ceiling).arm(STAMP)
    ours = Intervention.cap(axis, layers=list(CAPPED), floor=floor).arm(STAMP)
    for one, other, layer in zip(ours, theirs, CAPPED, strict=True):
        assert (one.layer, other.layer) == (layer, layer)
        capped, also = (
            edit.edit(
                h, torch.tensor(edit.v).expand(3, D), torch.ones(3),
                **{name: torch.full((3,), value) for name, value in edit.rows.items()},
            )
            for edit in (one, other)
        )  # fmt: skip
        torch.testing.assert_close(capped, also, atol=1e-6, rtol=1e-6)
        v = torch.tensor(AXIS[layer] / np.linalg.norm(AXIS[layer]))
        plain = h - v * torch.clamp(h @ v - floor[layer], max=0)[..., None]
        torch.testing.assert_close(capped, plain, atol=1e-5, rtol=1e-5)
        assert ((capped @ v) >= floor[layer] - 1e-4).all()
        assert not torch.equal(capped, h)
