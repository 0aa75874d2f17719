"""TOML files and keywords become frozen, checked settings; a key that nobody reads is an error."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from workbench.errors import ConfigError


class Config(BaseModel):
    """Base of every settings model: frozen, extra keys forbidden, a list's entries each once.

    A store, an organism, a layer or a seed that stands twice would count twice: n would be too
    large and the interval too narrow. Fields whose entries may repeat are named in ``REPEATS``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    REPEATS: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="after")
    def _each_once(self) -> Config:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, list) and name not in self.REPEATS:
                try:
                    refuse_twice([one for one in value if not isinstance(one, float)], name)
                except ConfigError as error:
                    raise ValueError(str(error)) from None
        return self


def refuse_twice(values: Sequence[Any], what: str) -> None:
    """Refuse entries that are one and the same, files under another spelling among them.

    Raises:
        ConfigError: there are some; the first is named.
    """
    seen: dict[str, Any] = {}
    for value in values:
        key = _place(value) if isinstance(value, str | Path) else repr(value)
        if key in seen:
            also = "" if seen[key] == value else f" (also as {str(seen[key])!r})"
            raise ConfigError(
                f"{what}: {str(value)!r} stands twice{also} and would count twice; give each once"
            )
        seen[key] = value


def _place(name: str | Path) -> str:
    """Return where a name leads, or a text that is no path as it is."""
    try:
        return str(Path(name).resolve()) if Path(name).exists() else str(name)
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return str(name)


C = TypeVar("C", bound=Config)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: the file is missing or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"no file {str(path)!r}; give the path of a TOML file") from None
    except IsADirectoryError:
        raise ConfigError(f"{str(path)!r} is a folder; give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def override(data: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return ``data`` with ``a.b=c`` assignments applied; values are TOML, else plain text.

    Raises:
        ConfigError: an assignment without ``=``, or one through a value that is not a table.
    """
    result: dict[str, Any] = _copy(data)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {setting!r} has no '='; write it as --set a.b=value")
        *parents, last = (part.strip() for part in key.split("."))
        target = result
        for parent in parents:
            target = _step(target, parent, setting)
        _assign(target, last, _value(text.strip()), setting)
    return result


def parse(model: type[C], data: Mapping[str, Any], source: str) -> C:
    """Check ``data`` against ``model``.

    Args:
        model: the settings class.
        data: what was read.
        source: where it was read, for the message.

    Raises:
        ConfigError: the first wrong key, with what was expected and the nearest known key.
    """
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        lines = [_explain(model, dict(e)) for e in error.errors()]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from None


def _explain(model: type[Config], error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if not where:  # of the whole, which is no value to show
        return str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), list(model.model_fields), n=1)
        hint = f" did you mean {near[0]!r}?" if near else ""
        return f"unknown key {where!r};{hint} known: {', '.join(model.model_fields)}"
    if error["type"] == "missing":
        return f"key {where!r} is missing"
    return f"{where} = {error['input']!r}: {error['msg']}"


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _step(target: Any, key: str, setting: str) -> Any:
    if isinstance(target, list):
        return target[_row(target, key, setting)]
    if not isinstance(target, dict):
        raise ConfigError(f"--set {setting!r}: {key!r} lies below a value that is not a table")
    return target.setdefault(key, {})


def _assign(target: Any, key: str, value: Any, setting: str) -> None:
    if isinstance(target, list):
        target[_row(target, key, setting)] = value
    elif isinstance(target, dict):
        target[key] = value
    else:
        raise ConfigError(f"--set {setting!r}: {key!r} lies below a value that is not a table")


def _row(items: list[Any], key: str, setting: str) -> int:
    """Return the index meant by ``key``: a number, or the ``id`` of a table in the list."""
    names = [str(item.get("id", "")) if isinstance(item, dict) else "" for item in items]
    if key in names:
        return names.index(key)
    if key.isdigit() and int(key) < len(items):
        return int(key)
    known = ", ".join(name for name in names if name) or f"0 to {len(items) - 1}"
    raise ConfigError(f"--set {setting!r}: no entry {key!r}; known: {known}")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
