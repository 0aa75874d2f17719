"""The verb shift: how far finetuning moved organisms along trait vectors and the axis, beforehand.

Read at the last prompt token, before anything is answered (Chen et al. 2025).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from workbench.config import Config
from workbench.errors import ConfigError
from workbench.pipelines.vectors import Vectors, open_vectors, vector_files
from workbench.pipelines.verb import Verb, Work, save_frame

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float

    from workbench.activations import Activations
    from workbench.directions import Directions
    from workbench.types import ndarray

FILE = "shift.parquet"
TOLD = ["direction", "layer"]


class ShiftConfig(Config):
    """Compare organisms' stores with their base's, along directions."""

    directions: list[Vectors] = Field(min_length=1)
    """Trait vectors, the Assistant Axis."""
    base: str
    """Store of the base: the prompts at position last."""
    tuned: list[str] = Field(min_length=1)
    """Stores of the organisms, of the same prompts. A name such as antisocial-s0 tells the organism
    and its training seed."""
    groups: str | None = None
    """Column that counts as one unit, such as question; by default each prompt."""
    layers: list[int] | None = None
    draws: int = Field(default=2000, ge=100)
    """Of the bootstrap, and random directions."""
    level: float = Field(default=0.95, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


def verb() -> Verb:
    """Measure finetuning shifts."""
    return Verb(ShiftConfig, _inputs, _body, _preview, shards=False, artefact=FILE)


def shifts(config: ShiftConfig) -> pd.DataFrame:
    """Return each organism's shift along each direction, then the mean over its training seeds.

    Returns:
        Rows model, organism, seed (missing where it is a mean over seeds), direction, layer, shift
        (residual units, organism minus base), low, high, n, unit, interval, position, length (of
        the mean displacement), cosine (shift over length), random and covariance: the ``level``
        quantile of |shift| along random directions, isotropic and with the covariance of the
        base's states. The last four are missing of means over seeds.

    Raises:
        MismatchError: other prompts, models or sites, or an organism given twice.
        ConfigError: another position, or a layer that is missing.
    """
    import pandas as pd

    from workbench.activations import open_activations
    from workbench.directions.shifts import finetuning_shift
    from workbench.results import organism_of

    base, directions = open_activations(config.base), open_vectors(config.directions, config.layers)
    how = {"draws": config.draws, "level": config.level, "seed": config.seed}
    tables = []
    for path in config.tuned:
        tuned = open_activations(path)
        lines = directions.select([l for l in directions.layers if l in base.layers])
        found = finetuning_shift(lines, tuned, base, groups=config.groups, **how)
        found = found.merge(_controls(lines, tuned, base, config), on="layer")
        organism, seed = organism_of(tuned.model.key.rpartition("+")[2])
        told = {"model": tuned.model.key, "organism": organism, "seed": seed}
        tables.append(found.assign(**told, cosine=found["shift"] / found["length"]))
    each = pd.concat(tables, ignore_index=True)
    twice = each.duplicated(["model", *TOLD])
    if twice.any():
        raise ConfigError(
            f"two stores are of {each.loc[twice, 'model'].iloc[0]}; give each organism once"
        )
    both = pd.concat([each, *_over_seeds(each, config.level)], ignore_index=True)
    front = ["model", "organism", "seed"]
    both["seed"] = both["seed"].astype("Int64")
    return both[front + [name for name in both.columns if name not in [*front, "first", "second"]]]


def _over_seeds(each: pd.DataFrame, level: float) -> list[pd.DataFrame]:
    """Return the mean over training seeds, where an organism has two or more."""
    import pandas as pd

    from workbench.stats import seed_mean

    rows = []
    for (organism, *told), part in each.groupby(["organism", *TOLD], sort=False):
        if part["seed"].nunique() > 1:
            mean = seed_mean(part["shift"].to_numpy(float), level)
            ends = {"shift": mean.value, "low": mean.low, "high": mean.high}
            own = {"n": mean.n, "unit": mean.unit, "interval": mean.name}
            named = dict(zip(TOLD, told, strict=True))
            base = str(part["model"].iloc[0]).partition("+")[0]
            rows.append({"model": f"{base}+{organism}", "organism": organism, **named, **ends,
                         **own, "position": part["position"].iloc[0]})  # fmt: skip
    return [pd.DataFrame(rows)] if rows else []


def _controls(
    directions: Directions, tuned: Activations, base: Activations, config: ShiftConfig
) -> pd.DataFrame:
    """Return by layer how long the mean displacement is, and how far random directions see it."""
    import pandas as pd

    from workbench.directions.algebra import Difference
    from workbench.directions.nulls import CovarianceMatched, Isotropic, Null

    difference = Difference(tuned, base, "shift", config.groups)
    nulls: dict[str, Null] = {
        "random": Isotropic(config.draws, config.seed),
        "covariance": CovarianceMatched(base, config.draws, config.seed),
    }
    rows = []
    for layer in directions.layers:
        mean = difference.at(layer).mean(axis=0, dtype=np.float64)
        bands = {name: _quantile(null.draw(layer, len(mean)), mean, config.level)
                 for name, null in nulls.items()}  # fmt: skip
        rows.append({"layer": layer, "length": float(np.linalg.norm(mean)), **bands})
    return pd.DataFrame(rows)


def _quantile(drawn: Any, mean: Float[ndarray, " d"], level: float) -> float:
    from workbench.linalg import unit

    along = [np.abs(unit(lines.astype(np.float64)) @ mean) for lines in drawn]
    return float(np.quantile(np.concatenate(along), level))


def _inputs(config: ShiftConfig) -> Sequence[Path]:
    stores = [config.base, *config.tuned]
    return [*vector_files(config.directions), *map(Path, stores)]


def _body(config: ShiftConfig, work: Work) -> Mapping[str, Any]:
    table = shifts(config)
    save_frame(table, work.run.path / FILE)
    models = sorted(set(table.loc[table["seed"].notna() | table["length"].notna(), "model"]))
    return {"models": models, "directions": int(table["direction"].nunique()), "rows": len(table)}


def _preview(config: ShiftConfig) -> Mapping[str, Any]:
    from workbench.activations import open_activations
    from workbench.directions.algebra import Difference

    base, directions = open_activations(config.base), open_vectors(config.directions, config.layers)
    stores = [open_activations(path) for path in config.tuned]
    pairs = [len(Difference(store, base, "shift", config.groups).rows[0]) for store in stores]
    items = dict(zip([store.model.key for store in stores], pairs, strict=True))
    return {"directions": list(directions.names), "layers": len(directions.layers), "items": items}
