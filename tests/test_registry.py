"""Registries: names, near misses, plug-ins."""

import pytest

from workbench import registry
from workbench.errors import ConfigError, UnknownNameError
from workbench.registry import EDITS, Registry, load_plugin


def test_a_file_named_after_the_idea_is_found_without_a_list():
    assert EDITS.create("cap") is not None
    assert {"add", "ablate", "cap"} <= set(EDITS.names())


def test_a_near_miss_is_named():
    with pytest.raises(UnknownNameError, match=r"unknown edit 'abblate'.*Did you mean 'ablate'"):
        EDITS.factory("abblate")


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
