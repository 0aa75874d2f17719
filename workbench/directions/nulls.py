"""Directions that mean nothing: how large a cosine with a bank of vectors they reach by chance.

An isotropic direction is too easy a null, because activations are anisotropic; hence the further
ones, from activations. Each draws whole directions; a band is for the largest of the bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from workbench.directions.algebra import Difference
from workbench.directions.container import Directions
from workbench.directions.rows import group_column, read_items, read_rows
from workbench.errors import MismatchError
from workbench.linalg import chance_above, largest_cosines, random_band, unit
from workbench.types import ActivationsLike, ndarray

CHUNK = 500
"""Directions drawn at a time."""
FEWEST = 20
"""With fewer draws than this a 95% point is no better than the largest draw, which is used."""


@runtime_checkable
class Null(Protocol):
    """Directions drawn under a hypothesis of no meaning."""

    @property
    def name(self) -> str: ...

    @property
    def n(self) -> int:
        """How many units the null rests on."""
        ...

    @property
    def unit(self) -> str: ...

    def draw(self, layer: int, width: int) -> Iterator[Float[ndarray, "b d"]]:
        """Yield directions of one layer, of any length.

        Draw i of a null from activations is the same event at each layer (the same items count
        more), so that its likeness across layers means something.
        """
        ...

    def refuse_other(self, directions: Directions) -> None:
        """Check that the null is of the same residual stream."""
        ...


@dataclass(frozen=True)
class Isotropic:
    """Every direction alike."""

    draws: int = 10_000
    seed: int = 0
    name: str = "isotropic"
    unit: str = "draw"

    @property
    def n(self) -> int:
        return self.draws

    def draw(self, layer: int, width: int) -> Iterator[Float[ndarray, "b d"]]:
        rng = np.random.default_rng([self.seed, layer])
        for size in _chunks(self.draws):
            yield rng.standard_normal((size, width), np.float32)

    def refuse_other(self, directions: Directions) -> None:
        """Any residual stream will do."""


@dataclass(frozen=True, eq=False)
class CovarianceMatched:
    """Normal with the covariance of activations, so that it prefers the axes that they prefer.

    Of position ``all``, the covariance is over tokens, each item's first left out.
    """

    acts: ActivationsLike
    draws: int = 2000
    seed: int = 0
    name: str = "covariance-matched"

    @cached_property
    def _first(self) -> tuple[int, str]:
        rows = read_rows(self.acts, self.acts.layers[0])
        return len(rows.values), rows.unit

    @property
    def n(self) -> int:
        return self._first[0]

    @property
    def unit(self) -> str:
        return self._first[1]

    def draw(self, layer: int, width: int) -> Iterator[Float[ndarray, "b d"]]:
        values = _centered(read_rows(self.acts, layer).values)
        rng = np.random.default_rng(self.seed)
        for size in _chunks(self.draws):
            yield rng.standard_normal((size, len(values)), np.float32) @ values

    def refuse_other(self, directions: Directions) -> None:
        directions.refuse_other(self.acts)


@dataclass(frozen=True, eq=False)
class SplitHalf:
    """Difference of the means of two random halves of one condition's items.

    The halves are the same at every layer, so it also says how alike a meaningless difference is
    across layers.
    """

    acts: ActivationsLike
    groups: str | None = None
    """Column whose values stay together, such as ``fact``; by default each item is its own."""
    draws: int = 2000
    seed: int = 0
    name: str = "split-half"

    @cached_property
    def _groups(self) -> tuple[ndarray, int]:
        names, member = np.unique(group_column(self.acts, self.groups), return_inverse=True)
        return member, len(names)

    @property
    def n(self) -> int:
        return self._groups[1]

    @property
    def unit(self) -> str:
        return self.groups or "item"

    def draw(self, layer: int, width: int) -> Iterator[Float[ndarray, "b d"]]:
        values = _centered(read_items(self.acts, layer))
        member, n = self._groups
        if n < 4:
            raise MismatchError(f"{n} {self.unit}s cannot be halved at random; give at least 4")
        rng = np.random.default_rng(self.seed)
        for size in _chunks(self.draws):
            first = (rng.random((size, n)).argsort(axis=1) < n // 2)[:, member]
            share = first / first.sum(axis=1, keepdims=True)
            other = ~first / (~first).sum(axis=1, keepdims=True)
            yield (share - other).astype(np.float32) @ values

    def refuse_other(self, directions: Directions) -> None:
        directions.refuse_other(self.acts)


@dataclass(frozen=True, eq=False)
class SeedPairs:
    """Mean difference of two training seeds of one organism, for every pair of seeds."""

    seeds: Sequence[ActivationsLike]
    """One for each seed, on the same items."""
    name: str = "seed-vs-seed"
    unit: str = "seed pair"

    def __post_init__(self) -> None:
        if len(self.seeds) < 2:
            raise ValueError(f"{len(self.seeds)} seed makes no pair; give at least two")

    @cached_property
    def _pairs(self) -> list[Difference]:
        return [Difference(a, b, "seed-vs-seed") for a, b in combinations(self.seeds, 2)]

    @property
    def n(self) -> int:
        return len(self._pairs)

    def draw(self, layer: int, width: int) -> Iterator[Float[ndarray, "b d"]]:
        yield np.stack([pair.at(layer).mean(axis=0, dtype=np.float64) for pair in self._pairs])

    def refuse_other(self, directions: Directions) -> None:
        for acts in self.seeds:
            directions.refuse_other(acts)


@dataclass(frozen=True)
class Band:
    """The cosine, by size, that a null exceeds in ``1 - level`` of its draws."""

    value: float
    null: str
    """Name of the null, with what the band is the quantile of."""
    n: int
    unit: str
    largest: Float[ndarray, " b"] | None
    """Largest |cosine| with the bank for each draw; None for the closed form."""
    size: int
    width: int

    def chance(self, cosines: Float[ndarray, "*m"]) -> Float[ndarray, "*m"]:
        """Return how often the null reaches each |cosine|, the observed one counted in."""
        if self.largest is None:
            return chance_above(cosines, self.size, self.width)
        sorted_draws = np.sort(self.largest)
        above = len(sorted_draws) - np.searchsorted(sorted_draws, np.abs(cosines), "left")
        return np.asarray((above + 1) / (len(sorted_draws) + 1))


def band(
    null: Null | None, bank: Float[ndarray, "k d"], layer: int, *, level: float = 0.95
) -> Band:
    """Return the band of a null for the largest |cosine| with a bank at one layer.

    Args:
        null: what is drawn; None for isotropic directions in closed form, which takes the bank's
            vectors as independent.
        bank: vectors of any length.
        layer: 0-based block index.
        level: share of the draws inside the band.
    """
    return band_over(null, {layer: bank}, level=level)


def band_over(
    null: Null | None, banks: Mapping[int, Float[ndarray, "k d"]], *, level: float = 0.95
) -> Band:
    """Return the band for the largest |cosine| over banks of several layers, by layer.

    What a layer that was chosen for its cosine has to pass.
    """
    K, d = next(iter(banks.values())).shape
    size = K * len(banks)
    of = f"largest of {K}" if K > 1 else "one cosine"
    if len(banks) > 1:
        of = f"largest of {K} x {len(banks)} layers"
    if null is None:
        name = f"isotropic, closed form, {level:.0%} of {of}"
        return Band(random_band(size, d, level), name, size, "vector", None, size, d)
    drawn = [_largest(null, bank, layer) for layer, bank in banks.items()]
    largest = np.max(drawn, axis=0)
    few = len(largest) < FEWEST
    value = float(largest.max() if few else np.quantile(largest, level))
    name = f"{null.name}, {f'most of {len(largest)}' if few else f'{level:.0%}'} of {of}"
    return Band(value, name, null.n, null.unit, largest, size, d)


def nulls_named(nulls: Sequence[str | Null], directions: Directions) -> list[Null | None]:
    """Turn names into nulls ("isotropic", "closed form") and check the others' models."""
    known: dict[str, Null | None] = {"isotropic": Isotropic(), "closed form": None}
    found: list[Null | None] = []
    for null in nulls:
        if isinstance(null, str):
            if null not in known:
                raise ValueError(
                    f"null {null!r}; expected isotropic, closed form, or an object such as "
                    "SplitHalf(acts) or CovarianceMatched(acts)"
                )
            found.append(known[null])
        else:
            null.refuse_other(directions)
            found.append(null)
    if not found:
        raise ValueError("no null was asked for; a cosine without one says little")
    return found


def draw_all(null: Null, layer: int, width: int, limit: int) -> Float[ndarray, "b d"]:
    """Return up to ``limit`` unit directions of a null at one layer."""
    kept: list[ndarray] = []
    for drawn in null.draw(layer, width):
        kept.append(unit(drawn[: limit - sum(map(len, kept))]).astype(np.float32))
        if sum(map(len, kept)) >= limit:
            break
    return np.concatenate(kept)


def _largest(null: Null, bank: Float[ndarray, "k d"], layer: int) -> Float[ndarray, " b"]:
    if isinstance(null, Isotropic):  # the same distribution without drawing all d coordinates
        return largest_cosines(bank, null.draws, (null.seed, layer))
    units = unit(bank).astype(np.float32)
    drawn = null.draw(layer, bank.shape[1])
    return np.concatenate([np.abs(unit(some) @ units.T).max(axis=1) for some in drawn])


def _chunks(draws: int) -> Iterator[int]:
    for start in range(0, draws, CHUNK):
        yield min(CHUNK, draws - start)


def _centered(values: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
    return np.asarray(values - values.mean(axis=0, dtype=np.float64), np.float32)
