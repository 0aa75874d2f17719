"""The verb cosines: an organism's direction among roles and traits, with what chance gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from workbench.config import Config, refuse_twice
from workbench.errors import ConfigError
from workbench.pipelines.parts import paths_of
from workbench.pipelines.verb import Verb, Work, save_frame

if TYPE_CHECKING:
    import pandas as pd

    from workbench.activations import Activations
    from workbench.directions import Difference, Directions
    from workbench.directions.nulls import Null

COSINES_FILE = "cosines.parquet"
NullName = Literal["closed form", "isotropic", "covariance-matched", "split-half", "seed-vs-seed"]


class CosinesConfig(Config):
    """Compare one model's answers minus another's with banks of vectors."""

    REPEATS = frozenset({"second"})  # one base may stand beside every seed of an organism

    first: list[str] = Field(min_length=1)
    """Stores of response means of the organism that the direction points to, one a seed."""
    second: list[str] = Field(min_length=1)
    """Likewise of the other one, of the same seeds in the same order, on the same prompts; or one
    store, of the base, as often."""
    name: str
    """Of the direction, such as "P - A, own answers"."""
    roles: str | None = None
    """Role vectors of an axis run; what they share is taken off."""
    traits: str | None = None
    axis: str | None = None
    """The Assistant Axis, a bank of its own."""
    covariance: str | list[str] | None = None
    """Store, or several as one, whose covariance the matched null has, such as all rollouts of
    the base; by default the first of ``first``."""
    groups: str | None = None
    """Column whose values are resampled and halved together, such as question."""
    nulls: list[NullName] = Field(
        default=["closed form", "isotropic", "covariance-matched", "split-half", "seed-vs-seed"],
        min_length=1,
    )
    """What a cosine has to pass. Seed against seed needs two seeds and is left out without them."""
    layers: list[int] | None = None
    draws: int = Field(default=2000, ge=100)
    """Of nulls from activations."""
    level: float = Field(default=0.95, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class Compared:
    """The direction and its table."""

    directions: Directions
    table: pd.DataFrame


def verb() -> Verb:
    """Compare an organism's direction with roles and traits."""
    return Verb(CosinesConfig, _inputs, _body, _preview, shards=False, artefact=COSINES_FILE)


def _inputs(config: CosinesConfig) -> list[Path]:
    spread = config.covariance or []
    spread = [spread] if isinstance(spread, str) else spread
    stores = [*config.first, *config.second, *spread]
    return [*map(Path, stores), *paths_of([config.roles, config.traits, config.axis])]


def _preview(config: CosinesConfig) -> Mapping[str, Any]:
    """Open everything and pair the items."""
    pairs, banks = differences(config), banks_of(config)
    return {
        "items": [len(pair.rows[0]) for pair in pairs],
        "banks": {name: len(bank) for name, bank in banks.items()},
        "nulls": _named(config),
        "layers": len(pairs[0].layers),
    }


def _body(config: CosinesConfig, work: Work) -> Mapping[str, Any]:
    from workbench.directions import save_directions

    found = compared(config)
    save_directions(found.directions, work.run.path / "directions.safetensors")
    save_frame(found.table, work.run.path / COSINES_FILE)
    pairs = differences(config)
    sides = [[one.first.model.key for one in pairs], [one.second.model.key for one in pairs]]
    told = [bank.info for bank in named_banks(config).values()]
    chosen = {info["layer"] for info in told if "layer" in info}
    judges = {str(info["judge"]) for info in told if "judge" in info}
    return {
        "models": [key for side in sides for key in side],
        "between": [", ".join(sides[0]), "minus", ", ".join(sides[1])],
        "direction": config.name,
        "seeds": len(config.first),
        "layer": chosen.pop() if len(chosen) == 1 else None,
        "judge": ", ".join(sorted(judges)) or "unstated",
        "rows": len(found.table),
    }


def compared(config: CosinesConfig) -> Compared:
    """Return the direction, mean over seeds, and its cosines with every bank.

    With several seeds the rows are of their mean (t interval over seeds), and of each seed alone
    (jackknife over items) under the direction's name and the seed's number.

    Raises:
        ConfigError: no bank, or sides that do not pair or do not differ.
        MismatchError: models or items that do not compare.
    """
    import pandas as pd

    pairs, nulls = differences(config), nulls_of(config)
    every = [pair.directions() for pair in pairs]
    for one in every:
        _refuse_none(one)
    measured: list[Any] = [pairs] if len(pairs) > 1 else []
    alone = [replace(pair, name=_alone(config, n)) for n, pair in enumerate(pairs)]
    tables = [
        _cosines(one, bank, nulls, config).assign(bank=name)
        for name, bank in banks_of(config).items()
        for one in [*measured, *alone]
    ]
    vectors = np.stack([one.vectors for one in every]).mean(axis=0, dtype=np.float64)
    info = {"made_by": "difference, mean over seeds", "seeds": len(every), "n": every[0].info["n"]}
    info["second"] = [pair.second.model.key for pair in pairs]
    directions = replace(every[0], names=(config.name,), vectors=vectors, info=info)
    return Compared(directions, pd.concat(tables, ignore_index=True))


def _refuse_none(directions: Directions) -> None:
    lengths = np.linalg.norm(directions.vectors[0], axis=-1)
    if not lengths.all():
        layer = directions.layers[int(np.argmin(lengths))]
        raise ConfigError(
            f"{directions.names[0]}: both sides are the same at layer {layer}, so there is no "
            "direction; give two models"
        )


def differences(config: CosinesConfig) -> list[Difference]:
    """Return one difference for each seed.

    Raises:
        ConfigError: not as many stores on both sides, or a model that stands for two seeds.
        MismatchError: items that are not the same.
    """
    from workbench.activations import open_activations
    from workbench.directions import Difference

    if len(config.first) != len(config.second):
        raise ConfigError(
            f"{len(config.first)} stores in first and {len(config.second)} in second; give one "
            "for each seed on both sides, in the same order"
        )
    first, second = (
        [open_activations(path) for path in side] for side in (config.first, config.second)
    )
    _refuse_one_seed(first, "first")
    if not _one_base(second):
        _refuse_one_seed(second, "second")
    sides = zip(first, second, strict=True)
    return [Difference(one, two, config.name, config.groups) for one, two in sides]


def _one_base(side: Sequence[Activations]) -> bool:
    """Whether every seed of the other side is compared with one and the same model."""
    return len({acts.model.key for acts in side}) == 1


def _refuse_one_seed(side: Sequence[Activations], what: str) -> None:
    """Refuse two stores of one model, which are no two training seeds.

    Raises:
        ConfigError: there are some.
    """
    refuse_twice([acts.model.key for acts in side], f"{what}, models of the stores")


def banks_of(config: CosinesConfig) -> dict[str, Directions]:
    """Return the banks by what they hold; roles without what all share.

    Raises:
        ConfigError: none was given.
    """
    from workbench.directions import centered

    return {
        name: centered(bank) if bank.kind == "mean" else bank
        for name, bank in named_banks(config).items()
    }


def named_banks(config: CosinesConfig) -> dict[str, Directions]:
    """Return the banks as their files hold them.

    Raises:
        ConfigError: none was given.
    """
    from workbench.directions import open_directions

    named = {"role": config.roles, "trait": config.traits, "axis": config.axis}
    banks = {name: open_directions(path) for name, path in named.items() if path is not None}
    if not banks:
        raise ConfigError("nothing to compare with; give roles, traits or axis of an axis run")
    return banks


def nulls_of(config: CosinesConfig) -> list[str | Null]:
    """Return the nulls that were asked for, each at the draws and the seed of the settings."""
    from workbench.activations import open_activations
    from workbench.activations.together import open_together
    from workbench.directions import CovarianceMatched, SeedPairs, SplitHalf
    from workbench.directions.nulls import Isotropic

    first, second = (
        [open_activations(path) for path in side] for side in (config.first, config.second)
    )
    spread = first[0] if config.covariance is None else open_together(config.covariance)
    told: dict[str, Any] = {"draws": config.draws, "seed": config.seed}
    made: dict[str, list[str | Null]] = {
        "closed form": ["closed form"],
        "isotropic": [Isotropic(seed=config.seed)],
        "covariance-matched": [CovarianceMatched(spread, **told)],
        "split-half": [SplitHalf(first[0], config.groups, **told)],
        "seed-vs-seed": [
            SeedPairs(side, name=f"seed-vs-seed of {side[0].model.key.rpartition('+')[2]}")
            for side in (first, second)
            if len(side) > 1 and not _one_base(side)
        ],
    }
    return [null for name in config.nulls for null in made[name]]


def _named(config: CosinesConfig) -> list[str]:
    return [null if isinstance(null, str) else null.name for null in nulls_of(config)]


def _cosines(
    organism: Difference | Sequence[Difference],
    bank: Directions,
    nulls: Sequence[str | Null],
    config: CosinesConfig,
) -> pd.DataFrame:
    from workbench.directions import cosines

    return cosines(organism, bank, layers=config.layers, nulls=nulls, level=config.level)


def _alone(config: CosinesConfig, number: int) -> str:
    """Return the name of one seed's direction, which is the name itself where there is one."""
    return config.name if len(config.first) == 1 else f"{config.name}, seed {number}"
