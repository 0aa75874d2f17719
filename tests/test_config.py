"""Settings: TOML, overrides, and messages that name the key."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from workbench.config import Config, override, parse, read_toml
from workbench.errors import ConfigError


class Settings(Config):
    """An example."""

    layers: list[int]
    dose: float = 1.0


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    with pytest.raises(
        ConfigError, match=r"here: unknown key 'dosis'; did you mean 'dose'\? known: "
    ):
        parse(Settings, {"layers": [1], "dosis": 2.0}, "here")


def test_a_missing_key_and_a_wrong_value_are_both_named():
    with pytest.raises(ConfigError, match=r"key 'layers' is missing; dose = 'much'"):
        parse(Settings, {"dose": "much"}, "here")


def test_overrides_reach_tables_and_list_entries_by_their_id_and_leave_the_original_alone():
    data = {"a": {"b": 1}, "stage": [{"id": "fit", "seed": 0}]}
    changed = override(data, ["a.b=2.5", "a.c=[1, 2]", "stage.fit.seed=7", "name=plain text"])
    assert changed == {
        "a": {"b": 2.5, "c": [1, 2]},
        "stage": [{"id": "fit", "seed": 7}],
        "name": "plain text",
    }
    assert data == {"a": {"b": 1}, "stage": [{"id": "fit", "seed": 0}]}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("a.b", "has no '='"),
        ("a.b.c=1", "below a value that is not a table"),
        ("stage.absent.seed=1", "no entry 'absent'; known: fit"),
    ],
)
def test_an_override_that_goes_nowhere_is_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        override({"a": {"b": 1}, "stage": [{"id": "fit"}]}, [setting])


def test_a_broken_or_missing_file_is_named(tmp_path):
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = 1")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        read_toml(broken)
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        read_toml(tmp_path / "absent.toml")
    marked = tmp_path / "marked.toml"
    marked.write_bytes(b"\xef\xbb\xbfa = 1\r\n")  # as Windows editors save it
    assert read_toml(marked) == {"a": 1}
    with pytest.raises(ConfigError, match="is a folder"):
        read_toml(tmp_path)


class Listed(Config):
    """Lists, as verbs have them."""

    stores: list[str] = Field(default_factory=list)
    readouts: list[str | dict[str, Any]] = Field(default_factory=list)
    layers: list[int] | list[list[int]] = Field(default_factory=list)
    other: list[str] = Field(default_factory=list)
    REPEATS = frozenset({"other"})


@pytest.mark.parametrize(
    "given",
    [
        {"stores": ["P-s0", "A-s0", "P-s0"]},
        {"stores": ["acts", "./acts"]},
        {"stores": ["acts", "link"]},
        {"readouts": [{"name": "claims"}, "choice", {"name": "claims"}]},
        {"layers": [3, 4, 3]},
        {"layers": [[3], [3]]},
    ],
)
def test_an_entry_that_stands_twice_in_a_list_is_refused_by_name(given, tmp_path, monkeypatch):
    """It counted twice: n too large, the interval too narrow, a block edited twice."""
    (tmp_path / "acts").mkdir()
    Path(tmp_path / "link").symlink_to(tmp_path / "acts")
    monkeypatch.chdir(tmp_path)
    (name,) = given
    with pytest.raises(ConfigError, match=rf"{name}: .* stands twice.* would count twice"):
        parse(Listed, given, "here")


def test_entries_that_differ_or_may_repeat_are_taken():
    told = {"stores": ["a", "b", "x" * 5000, ""], "layers": [[3], [4]], "other": ["base", "base"]}
    assert parse(Listed, told, "here").other == ["base", "base"]
