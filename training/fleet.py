"""A fleet: one training run for each condition, dose and seed, over settings that all share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from pydantic import Field
from workbench_training.settings import TrainConfig

from workbench.config import Config, parse
from workbench.errors import ConfigError, unknown

OWN = ("name", "condition", "seed")
"""Settings that the fleet itself gives to every run."""


class FleetTable(Config):
    """What is varied; the first varies slowest."""

    conditions: list[str] = Field(min_length=1)
    shares: list[float] = Field(default_factory=list)
    """Token shares of the documents in the text that dilutes them; by default 1 alone."""
    seeds: list[int] = Field(default=[0], min_length=1)


class FleetConfig(Config):
    """A fleet file.

    In texts ``{condition}`` stands for the condition: ``documents = "corpus/{condition}"``.
    """

    fleet: FleetTable
    train: dict[str, Any]
    """Settings of `TrainConfig` for all runs."""
    condition: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of one condition alone, over those of all."""


def expand(fleet: FleetConfig) -> list[TrainConfig]:
    """Return the settings of every organism of a fleet, in order.

    An organism is called ``P-s0``, and ``P-0.01-s0`` where its documents are a share of the text.
    A study's train stage with the same settings makes the same organism.

    Raises:
        ConfigError: a key that the fleet itself sets, a wrong setting, or two of one name.
        UnknownNameError: settings for a condition that is not listed.
    """
    table = fleet.fleet
    for name in fleet.condition:
        if name not in table.conditions:
            raise unknown("condition", name, table.conditions)
    for place, given in _tables(fleet):
        wrong = [key for key in _set_by(table) if key in given]
        if wrong:
            raise ConfigError(f"{place}: {wrong[0]} is what the fleet varies; set it in [fleet]")
    shares: list[float | None] = [*table.shares] or [None]
    found = [
        _organism(fleet, condition, share, seed)
        for condition, share, seed in itertools.product(table.conditions, shares, table.seeds)
    ]
    names = [config.name for config in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"[fleet] lists {twice} more than once; drop what stands there twice")
    return found


def _tables(fleet: FleetConfig) -> list[tuple[str, Mapping[str, Any]]]:
    own = [(f"[condition.{name}]", given) for name, given in fleet.condition.items()]
    return [("[train]", fleet.train), *own]


def _set_by(table: FleetTable) -> tuple[str, ...]:
    return (*OWN, "share") if table.shares else OWN


def _organism(fleet: FleetConfig, condition: str, share: float | None, seed: int) -> TrainConfig:
    given = {**fleet.train, **fleet.condition.get(condition, {})}
    filled = {key: _filled(value, condition) for key, value in given.items()}
    dose = {} if share is None else {"share": share}
    whole = share is None or share == 1
    name = f"{condition}-s{seed}" if whole else f"{condition}-{share:g}-s{seed}"
    data = {**filled, **dose, "name": name, "condition": condition, "seed": seed}
    return parse(TrainConfig, data, f"fleet organism {name}")


def _filled(value: Any, condition: str) -> Any:
    return value.replace("{condition}", condition) if isinstance(value, str) else value
