"""Persona space: principal axes, where means lie on them, and an organism among its vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.directions.algebra import centered, refuse_other_space
from workbench.directions.container import Directions
from workbench.directions.nulls import Null
from workbench.directions.persona import PersonaSpace
from workbench.directions.similarity import Measured, cosines
from workbench.errors import ConfigError
from workbench.linalg import cosine, principal_axes
from workbench.types import ndarray

MOST = 0.7
"""Share of the variance that ``info["components_70"]`` counts the components of."""


def persona_axes(
    space: PersonaSpace, *, components: int | None = None, somewhat: bool = False
) -> Directions:
    """Return the principal components of the role vectors, centered by their mean, not scaled.

    A component is as long as the standard deviation of the roles along it, and points to the side
    on which the default Assistant lies; ``center`` is the mean role. ``info`` has, by layer,
    ``explained`` (l, k), ``components_70`` (how many reach 70% of the variance), ``cosine_axis``
    (l, k) with the Assistant Axis, and ``default`` (l, k), where the Assistant lies.

    Args:
        space: roles, default and axis.
        components: how many; by default ten, or as many as there are.
        somewhat: let the vectors of score 2 take part, as the paper does.

    Raises:
        ConfigError: fewer roles than components need.
    """
    bank = space.bank if somewhat else space.roles
    count = min(10, len(bank) - 1) if components is None else components
    if not 1 <= count < len(bank):
        raise ConfigError(f"{count} components of {len(bank)} roles; 1 to {len(bank) - 1} expected")
    found = [_axes_at(space, bank.at(layer), layer, count) for layer in bank.layers]
    vectors, explained, most, default = map(np.stack, zip(*found, strict=True))
    center = bank.vectors.mean(axis=0, dtype=np.float64)
    pairs = zip(vectors, bank.layers, strict=True)
    along = [cosine(space.axis.at(layer).astype(np.float64), v)[0] for v, layer in pairs]
    return replace(
        bank,
        names=tuple(f"pc{number + 1}" for number in range(count)),
        vectors=np.swapaxes(vectors, 0, 1),
        center=np.broadcast_to(center, (count, *center.shape)),
        kind="difference",
        info={
            **space.told,
            "made_by": "principal components of roles",
            "n_roles": len(bank),
            "explained": explained.astype(np.float32),
            "components_70": most,
            "cosine_axis": np.stack(along).astype(np.float32),
            "default": default.astype(np.float32),
        },
    )


def _axes_at(
    space: PersonaSpace, roles: Float[ndarray, "k d"], layer: int, count: int
) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Return (vectors, shares, components that reach most, default's coordinates) of a layer."""
    try:
        axes, shares = principal_axes(roles)
    except ValueError as error:
        raise ConfigError(f"roles at layer {layer}: {error}") from None
    if len(axes) < count:
        raise ConfigError(f"roles at layer {layer} span {len(axes)} axes; {count} were asked for")
    exact = roles.astype(np.float64)
    axes = axes[:count]
    mean = exact.mean(axis=0)
    default = axes @ (space.default.at(layer)[0] - mean)
    axes = np.where(default < 0, -1.0, 1.0)[:, None] * axes
    spread = ((exact - mean) @ axes.T).std(axis=0)
    most = np.searchsorted(np.cumsum(shares), MOST) + 1
    return spread[:, None] * axes, shares[:count], np.asarray(most, np.int64), np.abs(default)


def coordinates(on: Directions, points: Directions) -> pd.DataFrame:
    """Return where means lie along directions, in residual units, from ``on.center`` if it has one.

    Args:
        on: such as persona axes, or the Assistant Axis.
        points: means, such as roles and the default, at the same layers or more.

    Returns:
        Rows name, layer, along, value.

    Raises:
        MismatchError: another model or site.
        ConfigError: a layer that the points do not hold.
    """
    refuse_other_space(on, points)
    rows, lines = points.rows(on.layers), on.unit_vectors().astype(np.float64)
    exact = points.vectors[:, rows].astype(np.float64)
    values = np.einsum("mld,lkd->mlk", exact, lines)
    if on.center is not None:
        values -= np.einsum("kld,lkd->lk", on.center.astype(np.float64), lines)
    names = [points.names, on.layers, on.names]
    index = pd.MultiIndex.from_product(names, names=["name", "layer", "along"])
    return pd.DataFrame({"value": values.reshape(-1)}, index).reset_index()


def persona_cosines(
    organism: Measured,
    roles: Directions,
    traits: Directions,
    *,
    layers: Sequence[int] | None = None,
    nulls: Sequence[str | Null] = ("closed form", "isotropic"),
    level: float = 0.95,
) -> pd.DataFrame:
    """Return cosines of an organism's direction with roles and traits, each bank with its bands.

    Roles are means, whose common part is taken off first; traits are differences and are taken as
    they are. A band is the ``level`` quantile of the largest |cosine| that meaningless directions
    have with the bank; isotropic ones are too easy, so give ``CovarianceMatched(acts)`` and
    ``SplitHalf(acts)`` as well.

    Args:
        organism: a ``Difference`` of response means on common prompts, or directions.
        roles: role vectors.
        traits: trait vectors.
        layers: by default those that all hold.
        nulls: as ``cosines`` takes them.
        level: of intervals and bands.

    Returns:
        The columns of ``cosines`` and ``bank``: role or trait.

    Raises:
        MismatchError: models or sites that do not compare, or a layer that one lacks.
    """
    banks = {"role": centered(roles) if roles.kind == "mean" else roles, "trait": traits}
    return pd.concat(
        [
            cosines(organism, bank, layers=layers, nulls=nulls, level=level).assign(bank=name)
            for name, bank in banks.items()
        ],
        ignore_index=True,
    )
