"""Settings as JSON values, and how two of them differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from workbench.errors import ConfigError


def plain(value: Any) -> Any:
    """Return settings as JSON values; infinities and NaN become text.

    Raises:
        ConfigError: a value that has no JSON form.
    """
    if isinstance(value, BaseModel):
        return plain(value.model_dump())
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Path):
        return str(value)
    raise ConfigError(f"{value!r} ({type(value).__name__}) cannot stand in the settings of a run")


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
