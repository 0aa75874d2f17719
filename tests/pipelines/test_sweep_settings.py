"""From the settings of a sweep to its parts: the file that the edit takes, and its numbers."""

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from workbench.directions import Directions, LinearMap, open_directions, save_directions
from workbench.errors import FormatError
from workbench.pipelines.settings import SweepConfig
from workbench.pipelines.sweeping import GUARDS, guarded_readouts, sweep_parts

FIXTURES = Path(__file__).parent.parent / "fixtures"
MAP, DIRECTIONS = (str(FIXTURES / f"{kind}_v1.safetensors") for kind in ("map", "directions"))


def parts(**settings):
    given = {"model": "tiny", "readouts": ["claims"], "doses": [1.0], **settings}
    return sweep_parts(SweepConfig(**given))


def test_a_map_is_opened_for_the_edit_that_takes_one():
    found, _, design = parts(directions=MAP, edit="linear_map", keep_norm=True)
    assert isinstance(found, LinearMap)
    assert design.thresholds == {"keep_norm": True}
    assert isinstance(parts(directions=DIRECTIONS)[0], Directions)
    with pytest.raises(FormatError, match="no map file"):
        parts(directions=DIRECTIONS, edit="linear_map")
    with pytest.raises(FormatError, match="no directions file"):
        parts(directions=MAP, edit="add")


@pytest.mark.parametrize(
    ("edit", "numbers"),
    [
        ("cap", {"floor": -1.0}),
        ("rescale", {"factor": 0.0}),
        ("replace", {"value": "center"}),
        ("replace", {"value": 2.5}),
        ("affine", {"scale": 0.5, "offset": 1.0}),
        ("project_to_subspace", {"inside": 0.0, "outside": 1.0}),
    ],
)
def test_numbers_of_the_edit_are_passed_on_where_they_were_given(edit, numbers):
    assert parts(directions=DIRECTIONS, edit=edit, **numbers)[2].thresholds == numbers


def test_a_number_that_is_none_is_refused():
    with pytest.raises(ValidationError):
        parts(directions=DIRECTIONS, edit="replace", value="mean")
    with pytest.raises(ValidationError):
        parts(directions=DIRECTIONS, edit="rescale", factor=float("inf"))


@pytest.mark.parametrize(
    ("scope", "left_out"), [("all", set()), ("user+generated", {"perplexity", "capability"})]
)
def test_guards_on_plain_texts_stay_away_where_the_scope_names_a_part_of_a_chat(scope, left_out):
    config = SweepConfig(
        model="m", directions="d", readouts=["trust_game", "drift"], doses=[1.0], scope=scope
    )
    asked = guarded_readouts(config)
    assert asked[:2] == ["trust_game", "drift"]
    assert set(asked[1:]) == set(GUARDS) - left_out
    assert len(asked) == len(set(asked))


def test_layers_are_by_default_the_window_or_the_layer_that_was_chosen(tmp_path):
    own = open_directions(DIRECTIONS)
    file = tmp_path / "own.safetensors"
    last = own.layers[-1]
    for info, layers in (
        ({"layer": last}, [last]),
        ({"layer": last, "window": list(own.layers[-2:])}, list(own.layers[-2:])),
        ({}, None),
    ):
        save_directions(replace(own, info=info), file)
        assert parts(directions=str(file))[2].layers == layers
    assert parts(directions=str(file), layers=[own.layers[0]])[2].layers == [own.layers[0]]
