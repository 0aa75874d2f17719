"""The persona page's state, and what it reads from the runs around an axis."""

import json
from dataclasses import replace

import pandas as pd
import persona_runs
import pytest
from workbench_apps import personas
from workbench_apps.catalogue import read_catalogue
from workbench_apps.persona_drift import assistant_turns
from workbench_apps.persona_state import PersonaState
from workbench_apps.state import parse_search

from workbench.directions import open_directions, save_directions
from workbench.errors import FormatError
from workbench.runs import open_run


@pytest.fixture
def root(tmp_path):
    return persona_runs.write_personas(tmp_path)


@pytest.fixture
def state(root):
    return PersonaState(read_catalogue(root))


def train(root, name, base):
    with open_run("train", {"model": base, "name": name}, out=root / "train" / name) as run:
        run.finish({}, models=[f"{base}+{name}"])
    return root / "train" / name


def test_defaults_are_the_middle_layer_and_the_papers_percentile_and_window(state):
    assert (state.layer, state.percentile, state.bank) == ("3", "25", "role")
    assert (state.direction, state.model, state.other) == ("P - A", "tiny", "")
    assert state.window == "4-4"
    assert state.floors() == {4: persona_runs.FLOOR}
    assert state.search() == ""


@pytest.mark.parametrize(
    ("n_layers", "window"),
    [(64, (46, 53)), (30, (22, 25)), (80, (58, 67)), (6, (4, 4)), (1, (0, 0))],
)
def test_the_window_of_a_cap_is_that_of_the_paper_at_the_models_depth(n_layers, window):
    assert personas.window_of(range(n_layers), n_layers) == window


def test_a_window_outside_the_stored_blocks_falls_back_to_the_middle():
    assert personas.window_of([3, 5, 7], 64) == (5, 5)
    assert personas.window_of([40, 50, 60], 64) == (50, 50)


def test_an_address_round_trips(root):
    train(root, "P-s0", "tiny")
    state = PersonaState(read_catalogue(root))
    wanted = {"layer": "1", "percentile": "75", "window": "2-4", "model": "P-s0", "other": "tiny"}
    assert state.settle(wanted) == []
    assert state.query() == wanted
    again = PersonaState(read_catalogue(root))
    assert again.settle(parse_search(state.search())) == []
    assert again.floors() == dict.fromkeys((2, 3, 4), persona_runs.FLOOR - 5)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"layer": "99"}, "layer=99 is not there; known: 0, 1, 2"),
        ({"window": "4-2"}, "window=4-2 is not there"),
        ({"window": "2-9"}, "window=2-9 is not there"),
        ({"window": "all"}, "the first and the last block, such as 22-25"),
        ({"percentile": "50"}, "percentile=50 is not there; known: 25, 75"),
        ({"other": "tiny"}, "other=tiny is not there"),
        ({"bank": "emotion"}, "bank=emotion"),
        ({"direction": "up"}, "direction=up"),
    ],
)
def test_what_is_not_there_is_refused_and_the_rest_kept(state, wanted, words):
    (refused,) = state.settle({"theme": "dark", **wanted})
    assert words in refused
    assert state.query() == {"theme": "dark"}


def test_the_layer_that_a_run_tells_of_is_shown_first(tmp_path):
    axis = persona_runs.write_axis(tmp_path)
    made = open_directions(axis / "axis.safetensors")
    save_directions(replace(made, info={**made.info, "layer": 5}), axis / "axis.safetensors")
    assert PersonaState(read_catalogue(tmp_path)).layer == "5"


def test_a_floor_comes_with_its_interval_and_the_defaults_place(state):
    floor, told = personas.floor_at(state.entry(), "25", 3)
    assert floor == 1.5
    assert told.startswith("Floor 1.5 [1.25, 1.75] (95% bootstrap over roles, n = 20 roles)")
    assert personas.floor_at(state.entry(), "33", 3) == (None, "")


def test_the_capping_run_along_this_axis_is_shown(root, state):
    assert state.capped().run.verb == "capping"
    assert state.readout == "trust_game · transfer · person"
    other = persona_runs.write_axis(root, model="another")
    moved = PersonaState(read_catalogue(root))
    moved.choose(run=moved.catalogue.entry(other.name).run.id)
    assert (moved.capped(), moved.readout) == (None, "")


def test_steps_stop_at_the_ends(state):
    for _ in range(9):
        state.step(1)
    assert state.layer == "5"
    state.step(-1)
    assert state.layer == "4"


def test_organisms_of_the_same_base_are_offered_and_others_are_not(root):
    own = train(root, "P-s0", "tiny")
    train(root, "X-s0", "another")
    catalogue = read_catalogue(root)
    (entry,) = catalogue.usable("personas")
    models = personas.models_of(catalogue, entry)
    assert models == {"tiny": ("tiny", None), "P-s0": (str(own), "tiny")}


def test_the_base_is_found_above_an_axis_that_names_no_model(tmp_path):
    own = train(tmp_path, "P-s0", "tiny")
    moved = "elsewhere/P-s0"  # as a study in another folder calls it
    for name, model, above in (("organism", moved, [own]), ("base", "tiny", [])):
        with open_run("cache", {"model": model}, out=tmp_path / name, inputs=above) as run:
            run.finish({})
    above = [tmp_path / "organism", tmp_path / "base"]
    judged = tmp_path / "judged"  # by nobody, so that it names no model
    with open_run("judge", {"model": ""}, out=judged, inputs=above) as run:
        run.finish({})
    with open_run("axis", {}, root=tmp_path, inputs=[judged]) as run:
        run.finish({})
    catalogue = read_catalogue(tmp_path)
    entry = catalogue.entry(run.id)
    assert list(personas.models_of(catalogue, entry)) == ["tiny", "P-s0"]
    with open_run("axis", {"name": "alone"}, root=tmp_path) as alone:
        alone.finish({})
    catalogue = read_catalogue(tmp_path)
    assert personas.models_of(catalogue, catalogue.entry(alone.id)) == {}


def test_the_newest_of_two_runs_that_compare_one_direction_counts(root, state):
    entry = state.entry()
    (older,) = (root / "cosines").iterdir()
    table = pd.read_parquet(older / "cosines.parquet")
    told = json.loads((older / "run.json").read_text())
    (older / "run.json").write_text(json.dumps({**told, "started": "2020-01-01T00:00:00+00:00"}))
    with open_run(
        "cosines", {"again": 1}, root=root, inputs=[entry.path / "axis.safetensors"]
    ) as run:
        table.assign(cosine=0.25).to_parquet(run.path / "cosines.parquet")
        run.finish({})
    with open_run("cosines", {"of": "another axis"}, root=root) as other:
        table.assign(first="other").to_parquet(other.path / "cosines.parquet")
        other.finish({})
    found = personas.cosines_of(read_catalogue(root), entry)
    assert set(found["cosine"]) == {0.25}
    assert set(found["first"]) == {"P - A"}


def test_the_reference_is_a_band_or_the_default_alone(root, state, tmp_path):
    entry = state.entry()
    default = state.placed().set_index("role").loc["default", "axis"]
    band, told = personas.reference_at(entry, 3)
    assert band == pytest.approx({"mean": default, "low": default - 1, "high": default + 1})
    assert "n = 12" in told
    (entry.path / "reference.parquet").unlink()
    assert personas.reference_at(entry, 3)[0] == pytest.approx({"mean": default})


def test_who_judged_and_how_many_were_kept_is_told(state):
    told = personas.judged(state.entry())
    assert told.startswith("Judged by nobody: every rollout counts; rule all rollouts")
    assert told.endswith("20 of 20 roles kept, 240 rollouts")


def test_a_damaged_table_names_its_path(state):
    entry = state.entry()
    (entry.path / "coordinates.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match=r"coordinates\.parquet"):
        personas.coordinates_of(entry)
    assert state.options("layer") == {}


def test_turns_are_counted_among_the_assistants_and_leave_the_first_token_out():
    rows = [
        ("a", 0, "assistant", 0, "So", 90.0), ("a", 0, "assistant", 1, " be", 1.0),
        ("a", 1, "user", 2, "no", 7.0), ("a", 2, "assistant", 3, " it", 3.0),
        ("a", 2, "assistant", 4, " is", 5.0), ("b", 2, "assistant", 3, " it", -1.0),
    ]  # fmt: skip
    tokens = pd.DataFrame(rows, columns=["model", "turn", "role", "position", "text", "value"])
    found = assistant_turns(tokens).to_dict("records")
    assert [(row["model"], row["turn"], row["mean"], row["n"]) for row in found] == [
        ("a", 1, 1.0, 1), ("a", 2, 4.0, 2), ("b", 2, -1.0, 1),
    ]  # fmt: skip
    assert found[1]["said"] == " it is"
