"""The shipped scenarios and phrases, read and checked once."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from workbench.data.reply_pairs import FACETS
from workbench.errors import FormatError

FOLDER = Path(str(resources.files("workbench.data"))) / "trust_pairs"
HINGES, SHARED = 6, 3


@dataclass(frozen=True)
class Scenario:
    """A claim of the user's and what is asked for; texts have ``{name}``, ``{day}``, ... slots."""

    id: str
    facet: str
    family: str
    situation: str
    claims: tuple[str, ...]
    thing: str
    shared: tuple[str, ...]
    """What both replies say."""
    hinges: tuple[tuple[str, str], ...]
    """(builds on the claim, holds without it)."""


@dataclass(frozen=True)
class Phrases:
    """What all scenarios share."""

    names: tuple[str, ...]
    days: tuple[str, ...]
    times: tuple[str, ...]
    numbers: tuple[str, ...]
    personas: tuple[str, ...]
    asks: tuple[str, ...]
    acks: tuple[str, ...]
    requests: tuple[str, ...]
    manner: Mapping[str, Sequence[str]]
    openers: tuple[str, ...]
    closers: tuple[str, ...]
    closers_held_out: tuple[str, ...]
    """Of scenarios that nothing is trained on."""
    instructed: tuple[tuple[str, str], ...]
    """System texts (for the chosen way, for the other)."""


def data_files() -> list[Path]:
    """Return the files that the pairs are made from."""
    return [FOLDER / f"{name}.toml" for name in (*FACETS, "phrases", "writer")]


@functools.cache
def scenarios() -> tuple[Scenario, ...]:
    """Return all scenarios, facet by facet."""
    return tuple(
        _scenario(row, facet) for facet in FACETS for row in _table(f"{facet}.toml")["scenario"]
    )


@functools.cache
def phrases() -> Phrases:
    """Return the shared phrases."""
    table = _table("phrases.toml")
    around, told = table.pop("around"), table.pop("instructed")
    manner = table.pop("manner")
    return Phrases(
        **{name: tuple(values) for name, values in table.items()},
        **{name: tuple(values) for name, values in around.items()},
        manner=manner,
        instructed=tuple(zip(told["chosen"], told["rejected"], strict=True)),
    )


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


def _scenario(row: Mapping[str, Any], facet: str) -> Scenario:
    if len(row["hinge"]) != HINGES or len(row["shared"]) != SHARED:
        raise FormatError(
            f"scenario {row['id']!r} of {facet}.toml: {len(row['hinge'])} hinges and "
            f"{len(row['shared'])} shared sentences; expected {HINGES} and {SHARED}"
        )
    return Scenario(
        id=row["id"],
        facet=facet,
        family=row["family"],
        situation=row["situation"],
        claims=tuple(row["claim"]),
        thing=row["thing"],
        shared=tuple(row["shared"]),
        hinges=tuple((first, second) for first, second in row["hinge"]),
    )
