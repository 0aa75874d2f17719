"""Vectors and their angles, in float32 or better; functions of arrays alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import betainc, betaincinv


def wide(x: ndarray) -> ndarray:
    """Return ``x`` in float64 where it has that, else in float32: half floats overflow."""
    return np.asarray(x, np.float64 if np.asarray(x).dtype == np.float64 else np.float32)


def unit(v: Float[ndarray, "*batch d"]) -> Float[ndarray, "*batch d"]:
    """Scale every vector to length one.

    Raises:
        ValueError: a vector is zero or not finite, so it has no direction.
    """
    v = wide(v)
    length = np.linalg.norm(v, axis=-1, keepdims=True)
    bad = ~(np.isfinite(length) & (length > 0))
    if bad.any():
        raise ValueError(f"{int(bad.sum())} of {bad.size} vectors are zero or not finite")
    return np.asarray(v / length)


def project(x: Float[ndarray, "*n d"], v: Float[ndarray, " d"]) -> Float[ndarray, "*n"]:
    """Return the coordinate of ``x`` along ``unit(v)``, in the units of ``x``."""
    return np.asarray(wide(x) @ unit(v))


def cosine(a: Float[ndarray, "k d"], b: Float[ndarray, "m d"]) -> Float[ndarray, "k m"]:
    """Return the cosine of every row of ``a`` with every row of ``b``."""
    return np.asarray(np.clip(unit(a) @ unit(b).T, -1.0, 1.0))


def orthonormal(vectors: Float[ndarray, "m d"]) -> Float[ndarray, "r d"]:
    """Return an orthonormal basis of the span; dependent rows give no basis row of their own."""
    _, sizes, basis = np.linalg.svd(unit(vectors.astype(np.float64)), full_matrices=False)
    rank = int((sizes > sizes[0] * max(vectors.shape) * np.finfo(np.float64).eps * 8).sum())
    return np.asarray(basis[:rank])


def residualise(
    v: Float[ndarray, "*batch d"], nuisances: Float[ndarray, "m d"]
) -> Float[ndarray, "*batch d"]:
    """Remove from ``v`` all that lies in the span of ``nuisances``; the length is not restored."""
    return remove_span(v, orthonormal(nuisances))


def remove_span(
    v: Float[ndarray, "*batch d"], basis: Float[ndarray, "r d"]
) -> Float[ndarray, "*batch d"]:
    """Remove from ``v`` all that lies along the rows of an orthonormal basis."""
    exact = v.astype(np.float64)
    exact = exact - (exact @ basis.T) @ basis
    exact = exact - (exact @ basis.T) @ basis  # twice is enough: rounding of the first pass goes
    return np.asarray(exact, wide(v).dtype)


def random_unit(n: int, d: int, seed: int | Sequence[int]) -> Float[ndarray, "n d"]:
    """Draw ``n`` isotropic unit vectors, float32; a seed may be (seed, layer), say."""
    drawn = np.random.default_rng(seed).standard_normal((n, d))
    return unit(drawn).astype(np.float32)


def random_band(K: int, d: int, level: float = 0.95) -> float:
    """Return the ``level`` quantile of max |cos(g, v)| over K vectors, for an isotropic random g.

    Exact for one vector (cos squared is Beta(1/2, (d-1)/2)); for K it takes them as independent,
    so that a correlated bank has a slightly lower band (see ``simulated_band``).
    """
    if K < 1 or d < 2 or not 0 < level < 1:
        raise ValueError(f"random_band needs K >= 1, d >= 2, 0 < level < 1; got {K}, {d}, {level}")
    return float(np.sqrt(betaincinv(0.5, (d - 1) / 2, level ** (1 / K))))


def chance_above(cosines: Float[ndarray, "*m"], K: int, d: int) -> Float[ndarray, "*m"]:
    """Return P(max |cos(g, v)| over K independent vectors >= |cosine|): inverse of the band."""
    inside = betainc(0.5, (d - 1) / 2, np.asarray(cosines, np.float64) ** 2)
    return np.asarray(-np.expm1(K * np.log(np.maximum(inside, np.finfo(np.float64).tiny))))


def largest_cosines(
    vectors: Float[ndarray, "k d"], draws: int, seed: int | Sequence[int]
) -> Float[ndarray, " b"]:
    """Draw isotropic directions; return the largest |cosine| of each with the bank.

    Only the part of a direction inside the bank's span is drawn; of the part outside, its squared
    length, which is chi-squared. The distribution is exactly that of whole directions.
    """
    bank, rng = unit(vectors.astype(np.float64)), np.random.default_rng(seed)
    short = len(bank) < bank.shape[1]
    inside = np.asarray(np.linalg.qr(bank.T, mode="r")).T if short else bank
    outside, largest = bank.shape[1] - inside.shape[1], []
    for start in range(0, draws, 1000):
        drawn = rng.standard_normal((min(1000, draws - start), inside.shape[1]))
        squared = (drawn**2).sum(axis=1)
        if outside:
            squared += rng.chisquare(outside, len(drawn))
        largest.append(np.abs(drawn @ inside.T).max(axis=1) / np.sqrt(squared))
    return np.concatenate(largest)


def simulated_band(
    vectors: Float[ndarray, "k d"], draws: int = 10_000, level: float = 0.95, seed: int = 0
) -> float:
    """Return the same quantile for this bank, from ``draws`` random directions."""
    return float(np.quantile(largest_cosines(vectors, draws, seed), level))


def principal_axes(
    x: Float[ndarray, "n d"],
) -> tuple[Float[ndarray, "r d"], Float[ndarray, " r"]]:
    """Return orthonormal principal axes of the centered rows and their shares of the variance.

    Largest first, float64; as many as the rows span, found in the smaller of the two Gram matrices.

    Raises:
        ValueError: fewer than two rows, or rows that are all the same.
    """
    centered = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    short = len(x) <= x.shape[1]
    gram = centered @ centered.T if short else centered.T @ centered
    sizes, vectors = np.linalg.eigh(gram)
    kept = sizes > max(sizes[-1], 0) * max(x.shape) * np.finfo(np.float64).eps
    sizes, vectors = sizes[kept][::-1], vectors[:, kept][:, ::-1].T
    if not len(sizes):
        raise ValueError(f"{len(x)} rows that do not differ have no principal axes")
    axes = vectors @ centered / np.sqrt(sizes)[:, None] if short else vectors
    return np.asarray(axes), np.asarray(sizes / sizes.sum())
