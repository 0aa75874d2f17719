"""The verb combine: one direction out of several, and what is left of them without others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, FiniteFloat, model_validator

from workbench.config import Config
from workbench.errors import ConfigError
from workbench.pipelines.vectors import FILE, Vectors, open_vectors, vector_files
from workbench.pipelines.verb import Verb, Work, save_frame

if TYPE_CHECKING:
    import pandas as pd

    from workbench.directions import Directions

CANCELS = 1e-5
"""A mean shorter than this share of its members is rounding error (float32)."""


class CombineConfig(Config):
    """Combine directions into one, or keep each; then take the span of others off."""

    directions: Vectors | list[Vectors]
    """One file of directions, or several; or tables {path, names}."""
    weights: dict[str, FiniteFloat] = Field(default_factory=dict)
    """By name, such as {malicious = 1, empathetic = -1}: their weighted mean is one direction. Each
    is brought to length one before, layer by layer. Without weights each direction stays one."""
    name: str = Field(default="combined", min_length=1)
    """Of the mean."""
    without: list[Vectors] = Field(default_factory=list)
    """Directions whose span is projected out, such as the Assistant Axis."""
    renormalize: bool = True
    """Bring what is left back to the length before."""
    mark: str = ""
    """Ends the name of each, such as " (residual)"."""
    layers: list[int] | None = None

    @model_validator(mode="after")
    def _sensible(self) -> CombineConfig:
        if not self.directions:
            raise ValueError("directions is empty; name at least one file")
        if not self.weights and not self.without:
            raise ValueError("neither weights nor without, so there is nothing to do; give one")
        if self.weights and not any(self.weights.values()):
            raise ValueError("all weights are 0; give one that is not")
        return self

    @property
    def sources(self) -> list[Vectors]:
        """What is combined, as a list."""
        return self.directions if isinstance(self.directions, list) else [self.directions]


def verb() -> Verb:
    """Combine directions, and take others off."""
    return Verb(CombineConfig, _inputs, _body, _preview, shards=False, artefact=FILE)


def weighted_mean(directions: Directions, weights: Mapping[str, float], name: str) -> Directions:
    """Return the weighted mean of unit vectors, as long as its members are on average.

    Weights are divided by the sum of their sizes, so that signs alone give a plain mean.
    ``info["coherence"]`` (l) is the length of that mean before it is scaled: 1 where all members
    point the same way, about 1/sqrt(k) for k that have nothing in common.

    Raises:
        UnknownNameError: there is no such name.
        ConfigError: the members cancel out at a layer.
    """
    from workbench.directions import combine

    total = sum(map(abs, weights.values()))
    shares = {key: value / total for key, value in weights.items()}
    mean = combine(directions, shares, name=name, unit_length=True)
    members = directions[tuple(weights)].vectors.astype(np.float64)
    lengths = np.linalg.norm(members, axis=-1).mean(axis=0)
    coherence = np.linalg.norm(mean.vectors[0].astype(np.float64), axis=-1)
    if (coherence < CANCELS).any():
        layer = mean.layers[int(coherence.argmin())]
        raise ConfigError(f"{name!r}: the members cancel out at layer {layer}; change the weights")
    info = {
        "made_by": "weighted mean of unit vectors, as long as its members",
        "weights": shares,
        "coherence": coherence.astype(np.float32),
    }
    scale = (lengths / coherence)[None, :, None]
    return replace(mean, vectors=mean.vectors * scale, kind="difference", info=info)


def retained_table(
    before: Directions, after: Directions, nuisances: Directions | None
) -> pd.DataFrame:
    """Return how much of each direction is left, beside what a random one would keep.

    Returns:
        Rows direction, layer, length, coherence (of a mean; else NaN), retained (length left over
        length before), random (root mean square of the same for an isotropic direction),
        removed, n_removed (directions in the span).
    """
    import pandas as pd

    retained = after.info.get("retained", np.ones((len(before.layers), len(before))))
    coherence = before.info.get("coherence", np.full(len(before.layers), np.nan))
    names = () if nuisances is None else nuisances.names
    rows = []
    for k, name in enumerate(before.names):
        for l, layer in enumerate(before.layers):
            rank = 0 if nuisances is None else np.linalg.matrix_rank(nuisances.at(layer))
            found = {
                "length": float(np.linalg.norm(before.vectors[k, l].astype(np.float64))),
                "coherence": float(coherence[l]),
                "retained": float(retained[l, k]),
                "random": float(np.sqrt(1 - rank / before.model.width)),
            }
            told = {"removed": ", ".join(names), "n_removed": int(rank)}
            rows.append({"direction": name, "layer": layer, **found, **told})
    return pd.DataFrame(rows)


def _inputs(config: CombineConfig) -> Sequence[Path]:
    return vector_files([*config.sources, *config.without])


def _combined(config: CombineConfig) -> tuple[Directions, Directions | None]:
    """Return the directions before anything is taken off, and what is to be."""
    nuisances = open_vectors(config.without, config.layers) if config.without else None
    found = open_vectors(config.sources, config.layers)
    if nuisances is not None:
        from workbench.directions.rows import layers_in_common

        shared = layers_in_common(config.layers, found.layers, nuisances.layers)
        found, nuisances = found.select(shared), nuisances.select(shared)
    if config.weights:
        found = weighted_mean(found, config.weights, config.name)
    return found, nuisances


def _body(config: CombineConfig, work: Work) -> Mapping[str, Any]:
    from workbench.directions import residualise, save_directions

    before, nuisances = _combined(config)
    after = before
    if nuisances is not None:
        after = residualise(before, nuisances, renormalize=config.renormalize)
        told = {key: value for key, value in before.info.items() if key != "made_by"}
        made = f"{before.info['made_by']}; without {', '.join(nuisances.names)}"
        after = replace(after, info={**told, **after.info, "made_by": made})
    after = replace(after, names=tuple(f"{name}{config.mark}" for name in after.names))
    save_directions(after, work.run.path / FILE)
    table = retained_table(before, after, nuisances)
    save_frame(table, work.run.path / "retained.parquet")
    return {"model": after.model.key, "names": list(after.names), "layers": len(after.layers),
            "retained_least": float(table["retained"].min())}  # fmt: skip


def _preview(config: CombineConfig) -> Mapping[str, Any]:
    before, nuisances = _combined(config)
    removed = [] if nuisances is None else list(nuisances.names)
    return {"names": list(before.names), "layers": len(before.layers), "removed": removed}
