"""Directions out of directions: sums, residuals, denoising, and how much of each is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from workbench.directions.container import Directions
from workbench.directions.rows import (
    bootstrap_name,
    common_items,
    group_column,
    layers_in_common,
    read_items,
    read_rows,
    varying,
)
from workbench.errors import ConfigError, MismatchError
from workbench.linalg import orthonormal, principal_axes, random_unit, remove_span, unit
from workbench.stats import cluster_weights, percentiles
from workbench.types import ActivationsLike, ndarray

ROUNDING = 1e-12
"""Share of a variance below which another is rounding error (float64)."""
LEAST_RETAINED = 1e-5
"""A residual shorter than this share of its direction is rounding error (float32)."""


def combine(
    directions: Directions,
    weights: Mapping[str, float | int],
    *,
    name: str,
    unit_length: bool = False,
) -> Directions:
    """Return the weighted sum of named directions as one direction.

    Args:
        directions: hold every name.
        weights: by name, such as ``{"anger": 1, "fear": 1, "joy": -1}``.
        name: of the sum.
        unit_length: bring each to length one first, layer by layer, so that long vectors count no
            more than short ones.

    Raises:
        UnknownNameError: there is no such name.
        ValueError: no weights.
    """
    if not weights:
        raise ValueError("no weights, so there is nothing to combine")
    chosen = directions[tuple(weights)]
    vectors = chosen.vectors.astype(np.float64)
    if unit_length:
        vectors = unit(vectors)
    factors = np.array(list(weights.values()), np.float64)
    is_mean = chosen.kind == "mean" and not np.isclose(factors.sum(), 0)
    return replace(
        chosen,
        names=(name,),
        vectors=np.einsum("k,kld->ld", factors, vectors)[None],
        center=None,
        kind="mean" if is_mean else "difference",
        info={
            "made_by": "combine",
            "weights": {key: float(value) for key, value in weights.items()},
            "unit_length": unit_length,
        },
    )


def centered(directions: Directions) -> Directions:
    """Subtract the mean over names, so that what all of them share is gone (means -> differences).

    Raises:
        ValueError: there is one name alone.
    """
    if len(directions) < 2:
        raise ValueError(f"{directions.label} is one name alone, which is its own mean")
    vectors = directions.vectors.astype(np.float64)
    return replace(
        directions,
        vectors=vectors - vectors.mean(axis=0),
        center=None,
        kind="difference",
        info={"made_by": "centered", "n_names": len(directions)},
    )


def residualise(
    directions: Directions,
    nuisances: Directions | Sequence[Directions],
    *,
    renormalize: bool = False,
) -> Directions:
    """Remove the span of the nuisance directions, layer by layer.

    ``info["retained"]`` (l, k) is the length of what is left over the length before. By default
    what is left keeps its own, shorter length.

    Args:
        directions: what to clean; keeps its names.
        nuisances: every name of each is removed at once; they must hold the layers.
        renormalize: bring what is left back to the length before.

    Raises:
        MismatchError: another model or site, or a layer that a nuisance lacks.
        ConfigError: a direction lies in the span, so what is left would be rounding error.
    """
    stack = [nuisances] if isinstance(nuisances, Directions) else list(nuisances)
    if not stack:
        raise ValueError("no nuisances, so there is nothing to remove")
    for nuisance in stack:
        refuse_other_space(directions, nuisance)
        layers_in_common(directions.layers, directions.layers, nuisance.layers)
    names = [name for nuisance in stack for name in nuisance.names]
    bases = [
        orthonormal(np.concatenate([nuisance.at(layer) for nuisance in stack]))
        for layer in directions.layers
    ]
    told = {"made_by": "residualise", "nuisances": names}
    return _without(directions, bases, renormalize, told)


def denoise(
    directions: Directions,
    neutral: ActivationsLike,
    *,
    explained: float = 0.5,
    renormalize: bool = False,
    control: int | None = None,
) -> Directions:
    """Remove the fewest top principal components of neutral activations that reach ``explained``.

    ``info`` gets, by layer, ``components`` (how many), ``explained`` (their share of the variance)
    and ``retained`` (l, k). Of position ``all`` every token but each item's first counts; else one
    vector an item (Sofroniew et al. 2026).

    Args:
        directions: what to clean.
        neutral: activations of neutral texts, same model and site.
        explained: share of variance to reach, in (0, 1).
        renormalize: bring what is left back to the length before.
        control: a seed: remove as many random orthonormal directions instead. What survives the
            real subspace but not this one, or the other way round, tells whether it mattered.

    Raises:
        MismatchError: activations of another model or site, or without a layer.
        ConfigError: a direction lies in the removed span, or the neutral activations are alike.
    """
    directions.refuse_other(neutral)
    bases: list[ndarray] = []
    shares: list[float] = []
    n = 0
    for layer in directions.layers:
        axes, share, n = neutral_components(neutral, layer, explained)
        shares.append(share)
        bases.append(axes if control is None else random_basis(axes, control, layer))
    told = {
        "made_by": "denoise" if control is None else "denoise, random control",
        "n_neutral": n,
        "control_seed": control,
        "components": np.array([len(basis) for basis in bases], np.float32),
        "explained": np.array(shares, np.float32),
    }
    return _without(directions, bases, renormalize, told)


def neutral_components(
    neutral: ActivationsLike, layer: int, explained: float = 0.5
) -> tuple[Float[ndarray, "r d"], float, int]:
    """Return the fewest top components that reach ``explained``, their share, and n of what.

    Raises:
        ConfigError: the neutral activations are alike.
        ValueError: ``explained`` is no share in (0, 1).
    """
    if not 0 < explained < 1:
        raise ValueError(f"explained {explained}; expected a share of the variance in (0, 1)")
    values = read_rows(neutral, layer).values
    try:
        axes, share = principal_axes(values)
    except ValueError as error:
        raise ConfigError(f"neutral activations at layer {layer}: {error}") from None
    count = min(int(np.searchsorted(np.cumsum(share), explained)) + 1, len(share))
    return axes[:count], float(share[:count].sum()), len(values)


def random_basis(axes: Float[ndarray, "r d"], seed: int, layer: int) -> Float[ndarray, "r d"]:
    """Draw as many orthonormal directions as ``axes`` has, the same for one seed and layer."""
    rng = np.random.default_rng([seed, layer])
    return np.asarray(np.linalg.qr(rng.standard_normal(axes.shape[::-1]))[0].T)


def variance_along(
    directions: Directions,
    acts: ActivationsLike,
    *,
    groups: str | None = None,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the share of the activations' variance that lies along each direction.

    Args:
        directions: at the layers of interest.
        acts: activations, same model and site; of position ``all``, the mean of an item's tokens.
        groups: column whose values are resampled together; by default each item alone.
        draws: of the bootstrap, and of isotropic random directions.
        level: of the interval and of the band.
        seed: of both.

    Returns:
        Rows direction, layer, share, low, high, n, unit, interval, null, band: the band is the
        ``level`` quantile of the share of one isotropic direction, whose mean is 1/d.

    Raises:
        MismatchError: activations of another model or site, or without a layer.
        ConfigError: the items are alike at a layer.
    """
    directions.refuse_other(acts)
    group = group_column(acts, groups)
    weights, n = cluster_weights(group, draws, seed)
    weights /= weights.sum(axis=1, keepdims=True)
    told = {
        "n": n,
        "unit": groups or "item",
        "interval": bootstrap_name(level, groups or "item", n),
        "null": f"isotropic, {level:.0%} of {draws} draws",
    }
    rows = []
    for layer in directions.layers:
        X = varying(read_items(acts, layer), layer)
        total = _variance(X, weights).sum(axis=1)
        total[total <= ROUNDING * X.var(axis=0).sum()] = np.nan  # the same items over and over
        along = _variance(X @ unit(directions.at(layer)).T, weights) / total[:, None]
        value = (X @ unit(directions.at(layer)).T).var(axis=0) / X.var(axis=0).sum()
        drawn = (X @ random_unit(draws, X.shape[1], (seed, layer)).T).var(axis=0)
        band = float(np.quantile(drawn / X.var(axis=0).sum(), level))
        for name, share, boot in zip(directions.names, value, along.T, strict=True):
            low, high = percentiles(boot, level) if n > 1 else (np.nan, np.nan)
            found = {"direction": name, "layer": layer, "share": float(share)}
            rows.append({**found, "low": low, "high": high, **told, "band": band})
    return pd.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class Difference:
    """Mean of one model's activations minus another's over the same items, paired by ``id``.

    The direction between two organisms, with the items at hand to resample.
    """

    first: ActivationsLike
    second: ActivationsLike
    name: str
    groups: str | None = None
    """Column whose values are resampled together, such as ``fact``; by default each item alone."""

    def __post_init__(self) -> None:
        self.first.model.refuse_other(self.second.model, f"difference {self.name}")
        for part in ("site", "position"):
            mine, theirs = getattr(self.first, part), getattr(self.second, part)
            if mine != theirs:
                raise MismatchError(
                    f"difference {self.name}: {part} {mine!r} in the first activations, {theirs!r} "
                    "in the second; capture both alike"
                )

    @cached_property
    def layers(self) -> tuple[int, ...]:
        return layers_in_common(None, self.first.layers, self.second.layers)

    @cached_property
    def rows(self) -> tuple[Int[ndarray, " n"], Int[ndarray, " n"]]:
        """Rows of the same items in both."""
        return common_items(self.first, self.second, all_of_them=True)

    @cached_property
    def group(self) -> ndarray:
        """What each pair is resampled by."""
        return np.asarray(group_column(self.first, self.groups)[self.rows[0]])

    def at(self, layer: int) -> Float[ndarray, "n d"]:
        """Return the difference of every pair at one layer."""
        first, second = (read_items(acts, layer) for acts in (self.first, self.second))
        return np.asarray(first[self.rows[0]] - second[self.rows[1]])

    def directions(self) -> Directions:
        """Return the mean difference at every layer the two share.

        Raises:
            MismatchError: both are alike at every layer, so nothing points anywhere.
        """
        vectors = np.stack([self.at(layer).mean(axis=0, dtype=np.float64) for layer in self.layers])
        if not vectors.any():
            raise MismatchError(
                f"difference {self.name}: {_told(self.first)} and {_told(self.second)} are alike "
                f"on all {len(self.rows[0])} items at every layer, so there is no direction "
                "between them; give activations of two models that differ"
            )
        return Directions(
            names=(self.name,),
            layers=self.layers,
            vectors=vectors[None],
            model=self.first.model,
            site=self.first.site,
            position=self.first.position,
            info={
                "made_by": "difference",
                "first": self.first.model.key,
                "second": self.second.model.key,
                "n": len(self.rows[0]),
            },
        )


def _told(acts: ActivationsLike) -> str:
    """Name activations by their store, where they have one, and their model."""
    path = getattr(acts, "path", None)
    return acts.model.key if path is None else f"{path} ({acts.model.key})"


def refuse_other_space(first: Directions, second: Directions) -> None:
    """Check that two sets of directions live in one residual stream; positions may differ.

    Raises:
        MismatchError: another kind of model, or another site.
    """
    try:
        first.model.refuse_other(second.model, first.label)
    except MismatchError as error:
        raise MismatchError(
            f"{error}, or compare what both read on common items (projection_correlations)"
        ) from None
    if first.site != second.site:
        raise MismatchError(
            f"{first.label} is of site {first.site}, {second.label} of {second.site}; vectors of "
            "two sites have no common axes, so fit both at one"
        )


def _without(
    directions: Directions,
    bases: Sequence[Float[ndarray, "r d"]],
    renormalize: bool,
    told: Mapping[str, object],
) -> Directions:
    """Remove each layer's orthonormal basis, and say how much is left."""
    before = directions.vectors.astype(np.float64)
    after = np.stack([remove_span(before[:, l], basis) for l, basis in enumerate(bases)], axis=1)
    length = np.linalg.norm(before, axis=-1)
    if not length.all():
        k, l = np.argwhere(length == 0)[0]
        raise ConfigError(f"{directions.names[k]!r} is zero at layer {directions.layers[l]}")
    retained = np.linalg.norm(after, axis=-1) / length
    if (retained < LEAST_RETAINED).any():
        k, l = np.argwhere(retained < LEAST_RETAINED)[0]
        raise ConfigError(
            f"{directions.names[k]!r} at layer {directions.layers[l]} lies in the removed span "
            f"({retained[k, l]:.1e} of its length is left), so what is left has no direction; "
            "leave it out, or remove less"
        )
    if renormalize:
        after = after / retained[..., None]
    info = {**told, "renormalized": renormalize, "retained": retained.T.astype(np.float32)}
    return replace(directions, vectors=after, center=None, info=info)


def _variance(x: Float[ndarray, "n m"], weights: Float[ndarray, "b n"]) -> Float[ndarray, "b m"]:
    """Return the variance of each column under each row of weights that sum to one."""
    return np.asarray(weights @ x**2 - (weights @ x) ** 2)
