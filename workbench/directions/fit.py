"""From activations with columns to ``Directions``: one fit a layer, one layer read at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from sklearn.base import clone

from workbench.directions.cells import binary
from workbench.directions.container import Directions
from workbench.errors import ConfigError, FormatError
from workbench.given import Blocks, blocks_of
from workbench.registry import METHODS, needs_model
from workbench.stats import permute_within
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
    layers: Blocks | None = None,
    names: str | Sequence[str] | None = None,
    shuffle: int | None = None,
    **params: Any,
) -> Directions:
    """Fit directions at every layer; positive means label 1.

    Args:
        acts: activations whose columns hold the labels.
        method: a registered method that gives directions.
        y: column of 0/1 labels.
        groups: column of topics, roles or the like.
        polarity: column of +1 (affirmed) and -1 (negated).
        pairs: column that names matched items.
        layers: block indices; by default all of ``acts``.
        names: the direction's name, by default that of the label column; of a method that gives k,
            k names, or one that it extends (NAME:pc1).
        shuffle: a seed: fit to shuffled labels, which gives the null direction of the same fit.
        params: of the method.

    Raises:
        UnknownNameError: no such method.
        ConfigError: no such column or layer, labels of one class, a column or parameter that the
            method needs or refuses, a method that gives maps, or labels that nothing tells apart.
        FormatError: activations that are not finite.
    """
    estimator = create(method, params)
    columns = read_columns(acts, y=y, groups=groups, polarity=polarity, pairs=pairs)
    refuse_missing(estimator, columns, method)
    if shuffle is not None:
        columns = replace(columns, y=shuffled(columns, shuffle))
    chosen = layers_of(acts, layers)
    fits = [fit_one(estimator, acts, layer, columns, method) for layer in chosen]
    vectors = np.stack([getattr(fit, "components_", fit.coef_[None]) for fit in fits], axis=1)
    _refuse_zero(vectors, chosen, method)
    centers = np.stack([fit.center_ for fit in fits])
    return Directions(
        names=_names(
            (names,) if isinstance(names, str) else names or (y,),
            getattr(fits[0], "names_", ("1",)),
        ),
        layers=chosen,
        vectors=vectors,
        center=np.broadcast_to(centers, vectors.shape),
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
            **({} if shuffle is None else {"shuffle": shuffle}),
            **stacked([getattr(fit, "info_", {}) for fit in fits]),
        },
    )


def create(method: str, params: Mapping[str, Any], gives: str = "direction") -> Any:
    """Return an estimator of a registered method.

    Args:
        method: its name.
        params: its parameters.
        gives: what its class must say that it gives: ``direction`` (where it says nothing) or
            ``map``.

    Raises:
        UnknownNameError: no such method.
        ConfigError: a method that gives something else, or a parameter that it does not have.
    """
    factory = METHODS.factory(method)
    refuse_model_trained(method, factory)
    given = getattr(factory, "gives", "direction")
    if given != gives:
        verb = "wb.fit_map" if given == "map" else "wb.fit"
        raise ConfigError(
            f"method {method!r} gives a {given}, not a {gives}; use `workbench fit ACTS --method "
            f"{method}`, in Python {verb}"
        )
    return METHODS.create(method, **params)


def refuse_model_trained(method: str, factory: Any) -> None:
    """Check that a method is fitted to activations.

    Raises:
        ConfigError: a model trains it.
    """
    if needs_model(factory):
        raise ConfigError(
            f"method {method!r} is trained by a model on pairs of replies, not fitted to "
            "activations; use `workbench fit PAIRS --model MODEL`, in Python wb.fit_trained"
        )


def fit_one(
    estimator: Any, acts: ActivationsLike, layer: int, columns: Columns, method: str
) -> Any:
    """Read one layer and fit a clone of the estimator to it.

    Raises:
        ConfigError: what the method says of these items or of its parameters.
        FormatError: activations that are not finite.
    """
    X = read_layer(acts, layer)
    try:
        return clone(estimator).fit(X, columns.y, **columns.take(slice(None)))
    except ValueError as error:
        raise ConfigError(f"method {method!r} at layer {layer}: {error}") from error


def _refuse_zero(vectors: Float[ndarray, "k l d"], layers: Sequence[int], method: str) -> None:
    still = np.argwhere(~vectors.any(axis=-1))
    if len(still):
        raise ConfigError(
            f"method {method!r} at layer {layers[still[0, 1]]}: items of both labels have the same "
            "mean, so there is no direction; leave that layer out, or read another position"
        )


def _names(given: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """Return a name for each direction of a method that calls its own ``own``."""
    if len(given) == len(own):
        return tuple(given)
    if len(given) == 1:
        return tuple(f"{given[0]}:{name}" for name in own)
    raise ConfigError(
        f"{len(given)} names ({', '.join(given)}) for {len(own)} directions; give one or {len(own)}"
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


def shuffled(columns: Columns, seed: int) -> Bool[ndarray, " n"]:
    """Return the labels shuffled within each group and polarity; matched items trade theirs.

    Every group, polarity and pair keeps its number of items of each label.

    Raises:
        ConfigError: no two items of different labels may trade, so that nothing would be shuffled.
    """
    strata = np.zeros(len(columns.y), np.int64)
    for kept in (columns.groups, columns.polarity, columns.pairs):
        if kept is None:
            continue
        own = np.unique(kept, return_inverse=True)[1].ravel()
        strata = np.unique(np.stack([strata, own]), axis=1, return_inverse=True)[1].ravel()
    true = np.bincount(strata, columns.y)
    if not ((true > 0) & (true < np.bincount(strata))).any():
        raise ConfigError(
            "shuffled labels would be the labels: within each group, polarity and pair all items "
            "have one label; name fewer of these columns for the fit to shuffled labels"
        )
    return np.asarray(permute_within(columns.y, strata, 1, seed)[0])


def column(acts: ActivationsLike, name: str) -> Shaped[ndarray, " n"]:
    """Return one column.

    Raises:
        ConfigError: there is no such column, or it holds no value for some items.
    """
    if name not in acts.columns:
        known = ", ".join(acts.columns) or "none"
        raise ConfigError(f"the activations have no column {name!r}; columns: {known}")
    values = np.asarray(acts.columns[name])
    empty = _missing(values)
    if empty.any():
        raise ConfigError(
            f"column {name!r} holds no value for {int(empty.sum())} of {len(values)} items (the "
            f"first is item {int(empty.argmax())}); leave those items out "
            "(in Python acts.where), or fill it"
        )
    return np.array(values.tolist()) if values.dtype == object else values


def _missing(values: Shaped[ndarray, " n"]) -> Bool[ndarray, " n"]:
    """Say which values are None or NaN."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    if values.dtype != object:
        return np.zeros(len(values), bool)
    return np.array([one is None or (isinstance(one, float) and one != one) for one in values])


def layers_of(acts: ActivationsLike, layers: Blocks | None) -> tuple[int, ...]:
    """Return the layers asked for, or all.

    Raises:
        ConfigError: no layer, one named twice, or one that was not captured.
    """
    chosen = tuple(acts.layers) if layers is None else blocks_of(layers, acts.layers)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError(f"layers = {list(chosen)}; name at least one block, each once")
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
        return np.asarray(estimator.fit_many(X, Y, **columns))
    return np.stack([clone(estimator).fit(X, y, **columns).coef_ for y in Y.T])


def refuse_missing(estimator: Any, columns: Columns, method: str) -> None:
    """Check that every column that the method needs was named."""
    refuse_model_trained(method, type(estimator))
    for name in getattr(estimator, "needs", ()):
        if getattr(columns, name, None) is None:
            raise ConfigError(
                f"method {method!r} needs {name}; name its column: --{name} COLUMN, in files and "
                f'Python {name} = "COLUMN"'
            )


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


def stacked(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stack what each layer's fit learned beside its result, first axis = layer; keep text once."""
    shared = [key for key in infos[0] if all(key in found for found in infos)]
    return {key: _stack([found[key] for found in infos]) for key in shared}


def _stack(values: Sequence[Any]) -> Any:
    if isinstance(values[0], str):
        return values[0] if len(set(values)) == 1 else list(values)
    return np.stack([np.asarray(value, np.float32) for value in values])
