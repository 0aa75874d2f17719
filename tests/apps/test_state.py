"""A page's state: defaults that answer, addresses that round-trip, and refusals that say why."""

import param
import pytest
from workbench_apps import cards, polygon
from workbench_apps.catalogue import read_catalogue
from workbench_apps.page_states import DoseState, MapState, ProbeState, TruthState
from workbench_apps.pages import overview
from workbench_apps.pages.dose import DoseView
from workbench_apps.state import EVERY, parse_search

from workbench.results import write_results
from workbench.runs import open_run

STATES = (MapState, TruthState, DoseState, ProbeState)
TRIANGLE = "pca~2~0,0;1,0;0,1"


@pytest.fixture(scope="module")
def catalogue(full_root):
    return read_catalogue(full_root)


def test_a_default_state_needs_no_address(catalogue):
    assert {S(catalogue).search() for S in STATES} == {""}


def test_defaults_answer_the_question_of_the_page(catalogue):
    found, dose = TruthState(catalogue), DoseState(catalogue)
    assert (found.split, found.topic, found.method) == ("unseen topic", "all", "ttpd")
    assert (found.direction, found.set, found.layer) == ("truth", EVERY, "3")
    assert found.claims == found.fit
    assert len(found.claim_runs()) == 3
    assert (dose.readout, dose.measure, dose.condition) == ("trust_game", "transfer", "person")


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (MapState, {"layer": "1", "color": "length", "only": "topic:elements", "sel": TRIANGLE}),
        (TruthState, {"split": "within:topic", "topic": "elements", "quantity": "contrast"}),
        (DoseState, {"condition": EVERY, "theme": "dark"}),
    ],
)
def test_an_address_round_trips(catalogue, kind, wanted):
    state = kind(catalogue)
    assert state.settle(wanted) == []
    assert state.query() == wanted
    again = kind(catalogue)
    assert again.settle(parse_search(state.search())) == []
    assert again.query() == wanted


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"layer": "99"}, "layer=99 is not there; known: 0, 1, 2"),
        ({"run": "nope"}, "run=nope is not there"),
        ({"lyer": "2"}, "unknown setting lyer"),
        ({"theme": "sepia"}, "theme=sepia"),
        ({"sel": "pca~2~0,0;1,1"}, "2 vertices; 3 to 48"),
        ({"sel": "pca~9~0,0;1,0;0,1"}, "drawn in pca at layer 9"),
        ({"sel": "tsne~2~0,0;1,0;0,1"}, "drawn in tsne"),
        ({"sel": "pca~2~0,0;1,nan;0,1"}, "not a number"),
        ({"sel": "garbage"}, "projection~layer"),
    ],
)
def test_what_is_not_there_is_refused_and_not_kept(catalogue, wanted, words):
    state = MapState(catalogue)
    (problem,) = state.settle(wanted)
    assert words in problem
    assert state.query() == {}


def test_layers_stop_at_the_ends(catalogue):
    state = MapState(catalogue)
    for _ in range(9):
        state.step(1)
    assert state.layer == "5"
    for _ in range(9):
        state.step(-1)
    assert state.layer == "0"


def test_a_change_keeps_what_still_fits(catalogue):
    state = TruthState(catalogue)
    state.choose(topic="elements")
    state.choose(split="within:topic")
    assert state.topic == "elements"


def test_a_change_is_told_once_with_all_its_parts(catalogue):
    state, told = MapState(catalogue), []
    state.param.watch(lambda *events: told.append({e.name for e in events}), [*state.fields])
    state.choose(layer="1", color="length")
    assert told == [{"layer", "color"}]


def test_a_selection_survives_the_layer_it_was_drawn_in(catalogue):
    state = MapState(catalogue)
    state.choose(sel=TRIANGLE)
    state.step(1)
    assert state.selection() == polygon.decode(TRIANGLE)


def test_states_of_an_empty_root_are_empty_and_whole(tmp_path):
    catalogue = read_catalogue(tmp_path / "absent")
    for kind in STATES:
        state = kind(catalogue)
        assert state.query() == {}
        assert all(getattr(state, name) in ("", "claim") for name in state.fields)


def test_a_sweep_opens_on_the_condition_that_its_settings_name_first(writers, tmp_path):
    readout = {"name": "trust_game", "measures": ["transfer"], "counterparts": ["device", "person"]}
    config = {"model": "tiny", "readouts": [readout]}
    with open_run("sweep", config, root=tmp_path) as run:
        write_results(writers.sweep_rows(), run.path / "results.parquet", run=run.id)
        run.finish({}, models=["tiny"])
    state = DoseState(read_catalogue(tmp_path))
    assert list(state.options("condition")) == ["device", "person", EVERY]
    assert state.condition == "device"
    fact = overview._dose_fact(state.catalogue)
    assert fact.startswith("Dollars of ten sent (device) change by +0.")
    assert "for each mean residual norm along truth; random directions: up to" in fact
    assert fact.endswith("· device: 1 of 2 conditions")
    table = DoseView(state).table()[0].object
    assert table.index("<td>device</td>") < table.index("<td>person</td>")


def test_the_side_of_the_grid_is_chosen_only_where_there_is_a_grid(catalogue):
    assert TruthState(catalogue).options("side") == {}


def test_a_broken_file_empties_its_own_fields_alone(writers, tmp_path):
    fit = writers.write_fit(tmp_path)
    writers.write_claims(tmp_path, fit)
    (fit / "evidence.parquet").write_bytes(b"PAR1 half")
    state = TruthState(read_catalogue(tmp_path))
    assert state.fit
    assert state.options("method") == {}
    assert state.direction == "truth"


@pytest.mark.parametrize("on_release", [False, True])
def test_a_layer_slider_chooses_the_layer_and_follows_it(catalogue, on_release):
    state = MapState(catalogue)
    slider = cards.layer_slider(state, on_release=on_release)
    assert str(slider.value) == state.layer
    first, *_, last = slider.options
    state.choose(layer=str(first))
    assert slider.value == first
    with param.edit_constant(slider):
        slider.param.update(**{"value_throttled" if on_release else "value": last})
    assert state.layer == str(last)
