"""Registries: names, near misses, plug-ins."""

import pytest

from workbench import registry
from workbench.emotions.items import read_emotions
from workbench.errors import ConfigError, UnknownNameError
from workbench.readouts.ask import make_readout
from workbench.registry import EDITS, Registry, load_plugin


def test_a_file_named_after_the_idea_is_found_without_a_list():
    assert EDITS.create("cap") is not None
    assert {"add", "ablate", "cap"} <= set(EDITS.names())


def test_a_near_miss_is_named():
    with pytest.raises(UnknownNameError, match=r"unknown edit 'abblate'.*Did you mean 'ablate'"):
        EDITS.factory("abblate")


@pytest.mark.parametrize(
    ("registry_", "name", "params", "message"),
    [
        ("READOUTS", "trust_game", {"counterpart": ["person"]},
         r"readout 'trust_game' has no parameter 'counterpart'; it has counterparts, measures, "
         r"frames, items. Did you mean 'counterparts'\?"),
        ("METHODS", "lda", {"shrink": 1}, r"method 'lda' has no parameter 'shrink'.*'shrinkage'"),
        ("EDITS", "cap", {"flor": 1}, "edit 'cap' has no parameter 'flor'; it has none"),
        ("READOUTS", "reply_margin", {}, "readout 'reply_margin' needs its parameter 'pairs'"),
    ],
)  # fmt: skip
def test_a_parameter_that_a_thing_does_not_have_is_told_with_those_that_it_has(
    registry_, name, params, message
):
    with pytest.raises(ConfigError, match=message):
        getattr(registry, registry_).create(name, **params)


def test_a_readout_table_is_checked_as_the_registry_checks():
    with pytest.raises(ConfigError, match=r"has no parameter 'counterpart'.*Did you mean"):
        make_readout({"name": "trust_game", "counterpart": "person"})


def test_a_text_where_a_readout_takes_several_is_one():
    def made(name, **params):
        return make_readout({"name": name, **params})

    one = made("trust_game", counterparts="person", measures="transfer", frames=None)
    assert set(one.items.column("counterpart")) == {"person"}
    assert made("feelings", items="he").items == ("he",)
    with pytest.raises(ConfigError, match="two emotions or more"):
        made("feelings", emotions=next(iter(read_emotions())))
    assert made("claims", measures="loglik").measures == ("loglik",)


def test_a_name_that_is_no_identifier_is_unknown_rather_than_imported():
    with pytest.raises(UnknownNameError):
        EDITS.factory("../cap")


def test_a_second_owner_of_a_name_is_refused():
    own = Registry("edit", "workbench.interventions")
    own.register("twice")(dict)
    own.register("twice")(dict)
    with pytest.raises(ConfigError, match=r"'twice' is registered by .* and again by"):
        own.register("twice")(list)


def test_a_plug_in_file_adds_a_name(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(
        "from workbench.registry import EDITS\n@EDITS.register('mine')\nclass Mine:\n    pass\n"
    )
    monkeypatch.setattr(EDITS, "_factories", dict(EDITS._factories))
    load_plugin(file)
    assert EDITS.factory("mine").__name__ == "Mine"
    assert "mine" in EDITS


def test_an_installed_plug_in_is_loaded_before_a_name_is_given_up(monkeypatch):
    class Point:
        value = "elsewhere:plugin"

        def load(self):
            EDITS.register("elsewhere")(dict)

    monkeypatch.setattr(EDITS, "_factories", dict(EDITS._factories))
    monkeypatch.setattr(registry, "entry_points", lambda **_: [Point()])
    assert EDITS.factory("elsewhere") is dict


def test_a_missing_plug_in_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.py"):
        load_plugin(tmp_path / "absent.py")
