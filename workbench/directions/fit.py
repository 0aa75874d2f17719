"""From activations with columns to ``Directions``: one fit a layer, one layer read at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from sklearn.base import clone

from workbench.directions.cells import binary
from workbench.directions.container import Directions
from workbench.errors import ConfigError, FormatError
from workbench.registry import METHODS
from workbench.types import ActivationsLike, ndarray


@dataclass(frozen=True)
class Columns:
    """The columns that a fit reads, checked."""

    y: Bool[ndarray, " n"]
    groups: Shaped[ndarray, " n"] | None = None
    polarity: Int[ndarray, " n"] | None = None
    pairs: Shaped[ndarray, " n"] | None = None

    def take(self, rows: ndarray | slice) -> dict[str, Any]:
        """Return the keywords of ``fit`` for some rows."""
        columns = {"groups": self.groups, "polarity": self.polarity, "pairs": self.pairs}
        return {k: None if value is None else value[rows] for k, value in columns.items()}


def fit_layers(
    acts: ActivationsLike,
    *,
    method: str = "mass_mean",
    y: str = "label",
    groups: str | None = None,
    polarity: str | None = None,
    pairs: str | None = None,
    layers: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    **params: Any,
) -> Directions:
    """Fit one direction at every layer; positive means label 1.

    Args:
        acts: activations whose columns hold the labels.
        method: a registered method.
        y: column of 0/1 labels.
        groups: column of topics, roles or the like.
        polarity: column of +1 (affirmed) and -1 (negated).
        pairs: column that names matched items.
        layers: block indices; by default all of ``acts``.
        names: the direction's name, by default that of the label column.
        params: of the method.

    Raises:
        UnknownNameError: no such method.
        ConfigError: no such column or layer, labels of one class, a column the method needs.
        FormatError: activations that are not finite.
    """
    estimator = METHODS.create(method, **params)
    columns = read_columns(acts, y=y, groups=groups, polarity=polarity, pairs=pairs)
    refuse_missing(estimator, columns, method)
    chosen = layers_of(acts, layers)
    fits = [
        clone(estimator).fit(read_layer(acts, layer), columns.y, **columns.take(slice(None)))
        for layer in chosen
    ]
    return Directions(
        names=tuple(names or (y,)),
        layers=chosen,
        vectors=np.stack([fit.coef_ for fit in fits])[None],
        center=np.stack([fit.center_ for fit in fits])[None],
        norms=mean_norms(acts, chosen),
        model=acts.model,
        site=acts.site,
        position=acts.position,
        info={
            "method": method,
            "params": params,
            "columns": {"y": y, "groups": groups, "polarity": polarity, "pairs": pairs},
            "n": len(columns.y),
            "n_true": int(columns.y.sum()),
            **_stacked([getattr(fit, "info_", {}) for fit in fits]),
        },
    )


def read_columns(
    acts: ActivationsLike,
    *,
    y: str,
    groups: str | None = None,
    polarity: str | None = None,
    pairs: str | None = None,
) -> Columns:
    """Look the columns up and check them once, before any layer is read."""
    return Columns(
        y=_labels(column(acts, y), y),
        groups=None if groups is None else column(acts, groups),
        polarity=None if polarity is None else _polarity(column(acts, polarity), polarity),
        pairs=None if pairs is None else column(acts, pairs),
    )


def column(acts: ActivationsLike, name: str) -> Shaped[ndarray, " n"]:
    """Return one column.

    Raises:
        ConfigError: there is no such column.
    """
    if name not in acts.columns:
        known = ", ".join(acts.columns) or "none"
        raise ConfigError(f"the activations have no column {name!r}; columns: {known}")
    return np.asarray(acts.columns[name])


def layers_of(acts: ActivationsLike, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Return the layers asked for, or all.

    Raises:
        ConfigError: a layer was not captured.
    """
    chosen = tuple(acts.layers) if layers is None else tuple(int(layer) for layer in layers)
    for layer in chosen:
        if layer not in acts.layers:
            raise ConfigError(
                f"layer {layer} was not captured; these activations hold layers "
                f"{', '.join(map(str, acts.layers))} (0-based block indices)"
            )
    return chosen


def read_layer(acts: ActivationsLike, layer: int) -> Float[ndarray, "n d"]:
    """Return one layer in float32.

    Raises:
        FormatError: some rows are not finite; how many is said.
        ConfigError: more vectors than items (position ``all``).
    """
    X = np.asarray(acts.at(layer), np.float32)
    for name, values in acts.columns.items():
        if len(values) != len(X):
            raise ConfigError(
                f"layer {layer} holds {len(X)} vectors, column {name!r} {len(values)} items; "
                f"position {acts.position!r} is not one vector an item, so capture last or a mean"
            )
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise FormatError(
            f"layer {layer}: {len(bad)} of {len(X)} rows are not finite (the first is row "
            f"{bad[0]}); capture again in bfloat16 or float32"
        )
    return X


def fit_many(
    estimator: Any, X: Float[ndarray, "n d"], Y: Bool[ndarray, "n m"], columns: Mapping[str, Any]
) -> Float[ndarray, "m d"]:
    """Return the direction that ``estimator`` gives for each column of labels."""
    if hasattr(estimator, "fit_many"):
        kept = {k: v for k, v in columns.items() if k != "pairs"}
        return np.asarray(estimator.fit_many(X, Y, **kept))
    return np.stack([clone(estimator).fit(X, y, **columns).coef_ for y in Y.T])


def refuse_missing(estimator: Any, columns: Columns, method: str) -> None:
    """Check that every column that the method needs was named."""
    for name in getattr(estimator, "needs", ()):
        if getattr(columns, name, None) is None:
            raise ConfigError(f"method {method!r} needs {name}; name its column with {name}=...")


def mean_norms(acts: ActivationsLike, layers: Sequence[int]) -> Float[ndarray, " l"] | None:
    """Return the mean residual norm at each layer, where the activations carry norms."""
    norms = getattr(acts, "norms", None)
    if norms is None:
        return None
    found = np.asarray(norms, np.float64)
    found = found.mean(axis=1) if found.ndim == 2 else found
    return found[[acts.layers.index(layer) for layer in layers]].astype(np.float32)


def _labels(values: ndarray, name: str) -> ndarray:
    found, counts = np.unique(values, return_counts=True)
    if len(found) == 1 and found.dtype.kind in "biuf":
        raise ConfigError(
            f"column {name!r} holds one class alone ({counts[0]} times {found[0]}); a fit needs "
            "items of both"
        )
    try:
        return binary(values)
    except ValueError:
        shown = ", ".join(f"{v!r} ({c})" for v, c in zip(found[:4].tolist(), counts, strict=False))
        raise ConfigError(
            f"column {name!r} holds {len(found)} values: {shown}; labels must be 0 and 1"
        ) from None


def _polarity(values: ndarray, name: str) -> ndarray:
    found = np.unique(values)
    if found.dtype.kind not in "iuf" or not np.isin(found, (-1, 1)).all():
        raise ConfigError(
            f"column {name!r} holds {found[:4].tolist()}; polarity must be 1 (affirmed) or -1"
        )
    return values.astype(np.int64)


def _stacked(infos: Sequence[Mapping[str, Any]]) -> dict[str, ndarray]:
    """Stack what each layer's fit learned beside its direction, first axis = layer."""
    shared = [key for key in infos[0] if all(key in found for found in infos)]
    return {
        key: np.stack([np.asarray(found[key], np.float32) for found in infos]) for key in shared
    }
