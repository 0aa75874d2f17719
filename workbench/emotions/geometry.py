"""How emotion vectors lie to one another: cosines, and whether their main axis is valence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from workbench.directions import Directions
from workbench.emotions.items import Emotion
from workbench.emotions.vectors import Stories, label_of
from workbench.errors import ConfigError
from workbench.linalg import cosine, principal_axes, random_band
from workbench.types import ndarray

PLANNED = ((1, "valence"), (2, "arousal"))
"""What was to be asked before anything was seen; the other pairs stand beside."""
FEWEST = 4
"""Emotions without which no correlation is asked for."""


def similarity_table(directions: Directions) -> pd.DataFrame:
    """Return cosines of all pairs at every layer.

    Rows layer, first, second, cosine, band: a pair of isotropic directions stays within the band in
    95% of draws.
    """
    band = random_band(1, directions.model.width)
    found = []
    for layer in directions.layers:
        square = cosine(directions.at(layer), directions.at(layer))
        for row, first in enumerate(directions.names):
            found += [
                {"layer": layer, "first": first, "second": second, "cosine": value, "band": band}
                for second, value in zip(directions.names, square[row].tolist(), strict=True)
            ]
    return pd.DataFrame(found)


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
    windows: Sequence[Sequence[int]],
    *,
    draws: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate the first two components with marks of valence and arousal.

    Rows layers, layer (the middle one), component, against, r, p, n, unit, explained, planned,
    permutations, for each window; the vectors of a window's layers stand side by side. ``r`` is
    Pearson's, turned so that component 1 goes with valence and 2 with arousal; ``p`` is the share
    of permuted marks with an |r| as large, the observed one counted in. ``planned`` marks the two
    pairs that were to be asked. After Sofroniew et al. (2026), who found 0.81 and 0.66.

    Raises:
        ConfigError: no marks of an emotion, marks that do not vary, or fewer than four emotions.
    """
    marks = _marks(directions, emotions)
    orders = _orders(len(directions), draws, seed)
    rows = []
    for window in windows:
        scores, share = components(directions, window)
        for c, part in enumerate(share):
            turn = _sign(scores, marks, c)
            for mark, values in marks.items():
                r, p = permuted_correlation(scores[:, c], values, orders)
                rows.append(
                    {
                        "layers": label_of(window),
                        "layer": window[len(window) // 2],
                        "component": c + 1,
                        "against": mark,
                        "r": r * turn,
                        "p": p,
                        "n": len(directions),
                        "unit": "emotion",
                        "explained": float(part),
                        "planned": (c + 1, mark) in PLANNED,
                        "permutations": draws,
                    }
                )
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


def reference_table(directions: Directions, stories: Stories) -> pd.DataFrame:
    """Return where the stories lie along each emotion: a zero and a unit for other texts.

    Rows emotion, layer, mean, sd (over stories of all emotions, residual-stream units), n, unit.
    """
    found = directions.project(stories.acts).astype(np.float64)
    return pd.DataFrame(
        {
            "emotion": name,
            "layer": layer,
            "mean": float(found[k, row].mean()),
            "sd": float(found[k, row].std(ddof=1)),
            "n": len(stories),
            "unit": "story",
        }
        for k, name in enumerate(directions.names)
        for row, layer in enumerate(directions.layers)
    )


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
