"""How emotion vectors lie to one another: cosines, and whether their main axis is valence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.directions import Directions
from workbench.emotions.items import Emotion
from workbench.emotions.vectors import label_of
from workbench.errors import ConfigError
from workbench.linalg import cosine, principal_axes, random_band
from workbench.types import ndarray

PLANNED = (("PC1", "valence"), ("PC2", "arousal"))
"""What was to be asked before anything was seen; the other pairs stand beside."""
FEWEST = 4
"""Emotions without which no correlation is asked for."""


def similarity_table(directions: Directions, window: Sequence[int]) -> pd.DataFrame:
    """Return cosines of all pairs at each layer of a window, and their mean over it.

    Rows layers, emotion, other, cosine, band: a single pair of isotropic directions stays within
    the band in 95% of draws.
    """
    at = {layer: cosine(directions.at(layer), directions.at(layer)) for layer in window}
    tables = {str(layer): found for layer, found in at.items()}
    if len(window) > 1:
        tables[label_of(window)] = np.mean(list(at.values()), axis=0)
    band = random_band(1, directions.model.width)
    return pd.DataFrame(
        {"layers": layers, "emotion": a, "other": b, "cosine": float(found[i, j]), "band": band}
        for layers, found in tables.items()
        for i, a in enumerate(directions.names)
        for j, b in enumerate(directions.names)
    )


def components(
    directions: Directions, layers: Sequence[int], number: int = 2
) -> tuple[Float[ndarray, "k c"], Float[ndarray, " c"]]:
    """Return coordinates of the emotions on their own principal components, and the shares.

    The vectors of several layers stand side by side. The sign of a component is arbitrary.

    Raises:
        ConfigError: fewer emotions than `FEWEST`.
    """
    if len(directions) < FEWEST:
        raise ConfigError(
            f"{len(directions)} emotions have no geometry to speak of; give at least {FEWEST}"
        )
    X = np.concatenate([directions.at(layer) for layer in layers], axis=1).astype(np.float64)
    axes, share = principal_axes(X)
    centered = X - X.mean(axis=0)
    return centered @ axes[:number].T, share[:number]


def valence_table(
    directions: Directions,
    emotions: Mapping[str, Emotion],
    window: Sequence[int],
    *,
    draws: int = 10_000,
    seed: int = 0,
    variant: str = "denoised",
) -> pd.DataFrame:
    """Correlate the first two components with marks of valence and arousal.

    Rows for the window, with the vectors of its layers side by side, and for every layer. ``r`` is
    Pearson's, its sign such that PC1 goes with valence and PC2 with arousal; ``p`` is the share of
    permuted marks with an |r| as large, the observed one counted in. ``planned`` marks the
    two pairs that were to be asked. After Sofroniew et al. (2026), who found 0.81 and 0.66.

    Raises:
        UnknownNameError, ConfigError: no marks of an emotion, marks that do not vary, or fewer than
            four emotions.
    """
    marks = _marks(directions, emotions)
    orders = _orders(len(directions), draws, seed)
    windows = {label_of(window): list(window)}
    windows |= {str(layer): [layer] for layer in directions.layers}
    rows = []
    for layers, chosen in windows.items():
        scores, share = components(directions, chosen)
        for c in range(scores.shape[1]):
            for mark, values in marks.items():
                r, p = permuted_correlation(scores[:, c], values, orders)
                named = (f"PC{c + 1}", mark)
                rows.append(
                    {
                        "variant": variant, "layers": layers, "component": named[0], "mark": mark,
                        "r": abs(r) if named in PLANNED else r * _sign(scores, marks, c),
                        "p": p, "n": len(directions), "unit": "emotion",
                        "explained": float(share[c]), "planned": named in PLANNED,
                        "permutations": draws,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def coordinates_table(
    directions: Directions, emotions: Mapping[str, Emotion], window: Sequence[int]
) -> pd.DataFrame:
    """Return where each emotion lies on the window's components, oriented as `valence_table`."""
    marks = _marks(directions, emotions)
    scores, share = components(directions, list(window))
    signs = np.array([_sign(scores, marks, c) for c in range(scores.shape[1])])
    table = pd.DataFrame(scores * signs, columns=[f"pc{c + 1}" for c in range(scores.shape[1])])
    table.insert(0, "emotion", list(directions.names))
    named = {f"explained{c + 1}": float(part) for c, part in enumerate(share)}
    return table.assign(layers=label_of(window), **marks, **named)


def permuted_correlation(
    x: Float[ndarray, " k"], y: Float[ndarray, " k"], orders: ndarray
) -> tuple[float, float]:
    """Return Pearson's r and the two-sided p of ``y`` in other orders, the observed counted in."""
    a, b = (value - value.mean() for value in (x.astype(np.float64), y.astype(np.float64)))
    size = np.sqrt((a @ a) * (b @ b))
    r, others = float(a @ b / size), b[orders] @ a / size
    return r, float((1 + (np.abs(others) >= abs(r) - 1e-12).sum()) / (1 + len(orders)))


def _orders(n: int, draws: int, seed: int) -> ndarray:
    rng = np.random.default_rng(seed)
    return rng.permuted(np.tile(np.arange(n), (draws, 1)), axis=1)


def _marks(directions: Directions, emotions: Mapping[str, Emotion]) -> dict[str, Any]:
    missing = [name for name in directions.names if name not in emotions]
    if missing:
        raise ConfigError(
            f"emotion {missing[0]!r} has no marks of valence and arousal; give a file that has them"
        )
    own = [emotions[name] for name in directions.names]
    marks = {
        "valence": np.array([one.valence for one in own], np.float64),
        "arousal": np.array([one.arousal for one in own], np.float64),
    }
    flat = [name for name, values in marks.items() if not np.ptp(values)]
    if flat:
        raise ConfigError(f"all {len(own)} emotions have one {flat[0]}; choose some that differ")
    return marks


def _sign(scores: Float[ndarray, "k c"], marks: Mapping[str, Any], c: int) -> float:
    """Orient PC1 by valence, PC2 by arousal."""
    values = marks["valence" if c == 0 else "arousal"]
    return float(np.sign(scores[:, c] @ (values - values.mean()))) or 1.0
