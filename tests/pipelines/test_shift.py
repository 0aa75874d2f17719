"""The verbs shift and combine: planted displacements, seeds, random bands, residual directions."""

import shutil

import numpy as np
import pandas as pd
import pytest
from planted_rollouts import STAMP, organism, write_store

from workbench.directions import Directions, open_directions, save_directions
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.pipelines.verbs import carry_out, plan
from workbench.runs import read_run

LAYERS = (1, 3)
N = 40


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A base, organisms moved along the axis of "malicious", and directions."""
    folder = tmp_path_factory.mktemp("shift")
    values = np.random.default_rng(0).standard_normal((2, N, STAMP.width))
    columns = {"id": np.array([f"p{n}" for n in range(N)]), "kind": np.arange(N) % 8}
    write_store(folder / "base", values, columns, "last")
    for name, moved, seed in (("A-s0", 3.0, 1), ("A-s1", 2.0, 2), ("A-s2", 4.0, 3), ("P-s0", 0, 4)):
        organism(name, values, columns, folder, moved, seed=seed)
    vectors = np.zeros((2, 2, STAMP.width))
    vectors[0, :, 0], vectors[1, :, 1] = 5.0, 0.2
    traits = Directions(("malicious", "candid"), LAYERS, vectors, STAMP)
    save_directions(traits, folder / "traits.safetensors")
    axis = np.zeros((1, 2, STAMP.width))
    axis[0, :, :2] = -3.0, 4.0
    save_directions(Directions(("assistant",), LAYERS, axis, STAMP), folder / "axis.safetensors")
    return folder


def settings(place, *names, **changes):
    files = [str(place / f"{name}.safetensors") for name in ("traits", "axis")]
    tuned = [str(place / name) for name in names]
    return {
        "directions": files,
        "base": str(place / "base"),
        "tuned": tuned,
        "draws": 300,
        **changes,
    }


def shifted(place, tmp_path, *names, **changes):
    done = carry_out("shift", settings(place, *names, **changes), root=tmp_path)
    table = pd.read_parquet(done.path / "shift.parquet")
    return done, table.set_index(["model", "direction", "layer"])


def test_a_planted_shift_is_found_along_traits_and_the_axis_beside_random_bands(place, tmp_path):
    done, table = shifted(place, tmp_path, "A-s0", "P-s0")
    assert read_run(done.path).models == ("tiny+A-s0", "tiny+P-s0")
    row = table.loc[("tiny+A-s0", "malicious", 3)]
    assert row["low"] < 3.0 < row["high"]
    assert row["cosine"] > 0.95
    assert row["shift"] > row["random"] > 0
    assert row["shift"] > row["covariance"] > 0
    assert (row["organism"], row["seed"], row["n"], row["unit"]) == ("A", 0, N, "item")
    assert table.loc[("tiny+A-s0", "assistant", 3), "shift"] == pytest.approx(-0.6 * 3, abs=0.2)
    none = table.loc[("tiny+P-s0", "malicious", 3)]
    assert none["low"] < 0 < none["high"]


def test_the_isotropic_band_is_the_closed_form_of_one_random_direction(place, tmp_path):
    from workbench.linalg import random_band

    _, table = shifted(place, tmp_path, "A-s0", draws=20_000)
    row = table.loc[("tiny+A-s0", "malicious", 1)]
    assert row["random"] == pytest.approx(row["length"] * random_band(1, STAMP.width), rel=0.03)


def test_seeds_of_an_organism_are_averaged_with_the_seed_as_the_unit(place, tmp_path):
    _, table = shifted(place, tmp_path, "A-s0", "A-s1", "A-s2", "P-s0")
    mean = table.loc[("tiny+A", "malicious", 3)]
    each = [table.loc[(f"tiny+A-s{seed}", "malicious", 3), "shift"] for seed in range(3)]
    assert mean["shift"] == pytest.approx(np.mean(each))
    assert (mean["n"], mean["unit"]) == (3, "seed")
    assert mean["interval"] == "95% t over seeds"
    assert mean["low"] < 3 < mean["high"]
    assert pd.isna(mean["seed"])
    assert "tiny+P" not in table.index.get_level_values("model")


def test_prompts_of_one_kind_count_once_and_names_can_be_picked(place, tmp_path):
    picked = {"path": str(place / "traits.safetensors"), "names": ["candid"]}
    _, table = shifted(
        place, tmp_path, "A-s0", groups="kind", directions=[picked], layers=[3]
    )  # fmt: skip
    (row,) = table.reset_index().to_dict("records")
    assert (row["direction"], row["layer"], row["n"], row["unit"]) == ("candid", 3, 8, "kind")


def test_wrong_shifts_are_refused(place, tmp_path):
    twice = [str(place / "traits.safetensors")] * 2
    with pytest.raises(ConfigError, match=r"directions: .* stands twice"):
        shifted(place, tmp_path, "A-s0", directions=twice)
    with pytest.raises(ConfigError, match=r"tuned: .* stands twice"):
        shifted(place, tmp_path, "A-s0", "A-s0")
    copy = str(shutil.copytree(place / "A-s0", tmp_path / "copy"))
    with pytest.raises(ConfigError, match="give each organism once"):
        shifted(place, tmp_path, tuned=[str(place / "A-s0"), copy])
    values = np.ones((2, N, STAMP.width))
    ids = {"id": np.array([f"other{n}" for n in range(N)])}
    write_store(tmp_path / "others", values, ids, "last")
    with pytest.raises(MismatchError, match="capture the same prompts"):
        shifted(place, tmp_path, tuned=[str(tmp_path / "others")])
    told = plan("shift", settings(place, "A-s0"), root=tmp_path).result
    assert told["items"] == {"tiny+A-s0": N}


# --- combine --------------------------------------------------------------------------------------


def combined(place, tmp_path, **data):
    data = {"directions": [str(place / "traits.safetensors")], **data}
    done = carry_out("combine", data, root=tmp_path)
    table = pd.read_parquet(done.path / "retained.parquet")
    return open_directions(done.path / "directions.safetensors"), table


def test_a_combined_direction_is_the_signed_mean_of_unit_vectors(place, tmp_path):
    found, table = combined(
        place, tmp_path, weights={"malicious": 1, "candid": -1}, name="antisocial"
    )
    assert found.names == ("antisocial",)
    expected = np.zeros(STAMP.width)
    expected[:2] = np.sqrt(0.5), -np.sqrt(0.5)
    np.testing.assert_allclose(found.unit_vectors()[0, 0], expected, atol=1e-6)
    assert np.linalg.norm(found.at(3)) == pytest.approx((5.0 + 0.2) / 2, rel=1e-5)
    np.testing.assert_allclose(found.info["coherence"], np.sqrt(0.5), rtol=1e-5)
    assert table["coherence"].tolist() == pytest.approx([np.sqrt(0.5)] * 2)
    assert found.info["weights"] == {"malicious": 0.5, "candid": -0.5}


def test_residual_directions_have_no_axis_left_and_say_how_much_is_theirs(place, tmp_path):
    axis = str(place / "axis.safetensors")
    found, table = combined(place, tmp_path, without=[axis])
    assert found.names == ("malicious", "candid")
    line = open_directions(axis).unit_vectors()
    np.testing.assert_allclose(np.einsum("lkd,lmd->lkm", found.unit_vectors(), line), 0, atol=1e-6)
    told = table.set_index(["direction", "layer"])
    assert told.loc[("malicious", 3), "retained"] == pytest.approx(0.8)  # cosine -0.6
    assert told.loc[("candid", 3), "retained"] == pytest.approx(0.6)
    assert told["random"].iloc[0] == pytest.approx(np.sqrt(1 - 1 / STAMP.width))
    assert np.linalg.norm(found["malicious"].at(1)) == pytest.approx(5.0)
    assert set(told["removed"]) == {"assistant"}
    marked, _ = combined(place, tmp_path, without=[axis], mark=" (residual)")
    assert marked.names == ("malicious (residual)", "candid (residual)")
    short, _ = combined(place, tmp_path, without=[axis], renormalize=False)
    assert np.linalg.norm(short["malicious"].at(1)) == pytest.approx(4.0)


def test_a_combination_is_freed_of_the_axis_and_both_are_told(place, tmp_path):
    data = {"weights": {"malicious": 1, "candid": -1}, "layers": [3]}
    found, table = combined(place, tmp_path, **data, without=[str(place / "axis.safetensors")])
    axis = np.zeros(STAMP.width)
    axis[:2] = -0.6, 0.8
    plain = np.zeros(STAMP.width)
    plain[:2] = np.sqrt(0.5), -np.sqrt(0.5)
    left = plain - (plain @ axis) * axis
    np.testing.assert_allclose(found.unit_vectors()[0, 0], left / np.linalg.norm(left), atol=1e-6)
    assert table["retained"].tolist() == pytest.approx([np.linalg.norm(left)])
    assert "without assistant" in found.info["made_by"]
    assert found.info["coherence"] == pytest.approx([np.sqrt(0.5)])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({}, ConfigError, "neither weights nor without"),
        ({"directions": [], "weights": {"malicious": 1}}, ConfigError, "directions is empty"),
        ({"weights": {"malicious": 0.0}}, ConfigError, "all weights are 0"),
        ({"weights": {"brave": 1}}, UnknownNameError, "brave"),
        ({"weights": {"malicious": float("nan")}}, ConfigError, "finite"),
        ({"weights": {"malicious": 1}, "layers": [2]}, MismatchError, "layer 2 is not held"),
    ],
)
def test_wrong_combinations_are_refused(place, tmp_path, data, error, message):
    with pytest.raises(error, match=message):
        combined(place, tmp_path, **data)


def test_members_that_cancel_and_a_direction_that_is_all_axis_are_refused(place, tmp_path):
    vectors = np.zeros((2, 2, STAMP.width))
    vectors[0, :, 0], vectors[1, :, 0] = 1.0, -2.0
    file = save_directions(Directions(("a", "b"), LAYERS, vectors, STAMP), tmp_path / "ab")
    with pytest.raises(ConfigError, match="cancel out at layer 1"):
        combined(place, tmp_path, directions=[str(file)], weights={"a": 1, "b": 1})
    picked = {"path": str(file), "names": ["a"]}
    with pytest.raises(ConfigError, match="lies in the removed span"):
        combined(place, tmp_path, directions=[str(file)], without=[picked])
