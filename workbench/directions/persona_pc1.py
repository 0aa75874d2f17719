"""The Assistant Axis against the first component of the roles, by layer, with what chance gives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from workbench.directions.persona import PersonaSpace
from workbench.directions.persona_map import MOST
from workbench.directions.rows import bootstrap_name
from workbench.errors import ConfigError
from workbench.stats import percentiles
from workbench.types import ndarray

LEVEL = 0.95
FEWEST = 3
"""Roles that have a first component worth the name."""
ROUNDING = 1e-12
"""Share of the squared length of what is compared below which a variance is rounding error."""


class _First(NamedTuple):
    """The first component of some roles, as far as inner products tell it."""

    cosine: float
    """With the axis from the mean role to the default."""
    shares: Float[ndarray, " k"]
    """Of the variance, of each component."""
    default: float
    """Where the default lies along it, in standard deviations of the roles."""
    roles: Float[ndarray, " k"]
    """The |cosine| with it of each role, taken from the mean of the others."""


def axis_against_first(
    space: PersonaSpace, *, somewhat: bool = False, draws: int = 200, seed: int = 0
) -> pd.DataFrame:
    """Return the cosine of the axis with the first component of the roles, by layer.

    The component points to the side of the default Assistant, so the cosine is never below 0. The
    interval resamples roles, of which both are made. The control puts each role in the Assistant's
    place, away from the mean of the others: every role lies somewhere along the first component,
    and the Assistant should lie along it more than they do.

    Args:
        space: roles, default and axis.
        somewhat: let the vectors of score 2 take part, as in ``persona_axes``.
        draws: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        Rows layer, cosine, low, high, n, unit, interval, explained (share of the first component),
        components_70, control (mean over roles), control_high (their 95% point), default (the
        Assistant's coordinate along the component, in standard deviations of the roles).

    Raises:
        ConfigError: fewer than three roles, or roles that are alike.
    """
    bank = space.bank if somewhat else space.roles
    k = len(bank)
    if k < FEWEST:
        raise ConfigError(f"{k} roles have no first component worth the name; give {FEWEST}")
    drawn = np.random.default_rng(seed).integers(0, k, (draws, k))
    rows: list[dict[str, Any]] = []
    for layer in bank.layers:
        gram = _gram(bank.at(layer), space.default.at(layer))
        found = _first(gram, np.arange(k))
        if found is None:
            raise ConfigError(f"the {k} roles are alike at layer {layer}; leave that layer out")
        cosines = [one.cosine for some in drawn if (one := _first(gram, some)) is not None]
        low, high = percentiles(np.array(cosines), LEVEL)
        rows.append(
            {
                "layer": layer, "cosine": found.cosine, "low": low, "high": high, "n": k,
                "unit": "role", "interval": bootstrap_name(LEVEL, "role", k),
                "explained": float(found.shares[0]),
                "components_70": int(np.searchsorted(np.cumsum(found.shares), MOST)) + 1,
                "control": float(found.roles.mean()),
                "control_high": float(np.quantile(found.roles, LEVEL)),
                "default": found.default,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _gram(roles: Float[ndarray, "k d"], default: Float[ndarray, "1 d"]) -> Float[ndarray, "m m"]:
    """Return the inner products of the roles and, last, the default, about the mean role."""
    exact = np.concatenate([roles, default]).astype(np.float64)
    exact -= exact[:-1].mean(axis=0)
    return np.asarray(exact @ exact.T)


def _first(gram: Float[ndarray, "m m"], drawn: Int[ndarray, " k"]) -> _First | None:
    """Return the first component of the drawn roles; None where they are alike.

    With C the centered roles and u the first eigenvector of C C', the component is C'u, whose
    squared length is the eigenvalue, and C(C'u) is that times u.
    """
    among, with_default = gram[np.ix_(drawn, drawn)], gram[drawn, -1]
    means, whole = among.mean(axis=0), among.mean()
    centered = among - means - means[:, None] + whole
    values, vectors = np.linalg.eigh(centered)
    variance, u = values[-1], vectors[:, -1]
    axis = gram[-1, -1] - 2 * with_default.mean() + whole  # squared length
    if variance <= ROUNDING * np.trace(gram) or axis <= ROUNDING * np.trace(gram):
        return None
    along = float(u @ (with_default - with_default.mean() - means + whole)) / np.sqrt(variance)
    lengths = np.sqrt(np.diag(centered).clip(min=0))
    roles = np.divide(
        np.sqrt(variance) * np.abs(u), lengths, out=np.zeros(len(u)), where=lengths > 0
    )
    return _First(
        cosine=abs(along) / float(np.sqrt(axis)),
        shares=values[::-1].clip(min=0) / values.clip(min=0).sum(),
        default=abs(along) / float(np.sqrt(variance / len(u))),
        roles=roles,
    )
