"""Settings and results as JSON values, and how two settings differ."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from workbench.errors import ConfigError


def no_value(value: object) -> None:
    """Stand for a number that a result does not have, as JSON null."""


def refuse(value: object) -> Any:
    """Refuse what has no JSON form.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(f"{value!r} ({type(value).__name__}) cannot stand in the settings of a run")


def plain(
    value: Any,
    *,
    nonfinite: Callable[[float], Any] = str,
    other: Callable[[object], Any] = refuse,
) -> Any:
    """Return settings or a result as JSON values.

    Args:
        value: what is to be told.
        nonfinite: what becomes of infinities and NaN: text in settings, `no_value` in a result.
        other: what becomes of a value that has no JSON form.

    Raises:
        ConfigError: there is such a value, and it is refused.
    """

    def each(item: Any) -> Any:
        return plain(item, nonfinite=nonfinite, other=other)

    if isinstance(value, BaseModel):
        return each(value.model_dump())
    if is_dataclass(value) and not isinstance(value, type):
        return each(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): each(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return each(value.tolist())
    if isinstance(value, (set, frozenset)):
        return sorted(each(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [each(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return nonfinite(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value) if isinstance(value, Path) else other(value)


def as_json(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Return a result as JSON that any language reads: a number that is not finite is null.

    What is written goes through here; ``json.dumps`` alone writes NaN and Infinity, which are no
    JSON. `number` reads null as NaN.

    Raises:
        ConfigError: a value that has no JSON form.
    """
    told = plain(value, nonfinite=no_value)
    return json.dumps(told, indent=indent, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False)


def number(value: Any) -> float:
    """Return a result's number, NaN where it has none."""
    return math.nan if value is None else float(value)


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describe every key whose value differs, as ``a.b: old -> new``."""
    before, after = _flat(old), _flat(new)
    return [
        f"{key}: {_short(before.get(key, 'absent'))} -> {_short(after.get(key, 'absent'))}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key, "absent") != after.get(key, "absent")
    ]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        return {prefix: value}
    result: dict[str, Any] = {}
    for key, item in value.items():
        result |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
    return result
