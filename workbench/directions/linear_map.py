"""``LinearMap``: an affine change of the residual stream, one matrix and one vector a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.directions.container import refuse_norms
from workbench.errors import ConfigError, MismatchError, unknown
from workbench.linalg import wide
from workbench.types import ActivationsLike, ModelStamp, ndarray

OPERATION = "h + dose * (W h + b)"
_ARRAYS = ("b", "axis", "W", "left", "right", "norms")


@dataclass(frozen=True, eq=False)
class LinearMap:
    """``h + dose * (W h + b)`` at each of l layers, with W whole or as ``left @ right``.

    Dose 0 changes nothing, 1 is the whole map; a method's positive doses move label 0 towards 1.
    Hidden states are columns in ``W h``; as rows of an array they move by ``X @ W.T + b``.
    """

    name: str
    layers: tuple[int, ...]
    """0-based block indices."""
    b: Float[ndarray, "l d"]
    axis: Float[ndarray, "l d"]
    """What the map is about, such as a difference of means: shifts are counted along it."""
    model: ModelStamp
    W: Float[ndarray, "l d d"] | None = None
    left: Float[ndarray, "l d r"] | None = None
    right: Float[ndarray, "l r d"] | None = None
    norms: Float[ndarray, " l"] | None = None
    """Mean residual norm of the fit set."""
    site: str = "resid_post"
    position: str = "last"
    info: Mapping[str, Any] = field(default_factory=dict)
    """How it was made: JSON values, and arrays whose first axis is the layer."""
    _weights: dict[int, dict[str, ndarray]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(index(layer) for layer in self.layers))
        for name in _ARRAYS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, np.asarray(value, np.float32))
        _check(self)
        parts = {n: v for n in ("b", "W", "left", "right") if (v := getattr(self, n)) is not None}
        kept = {
            layer: {name: value[row] for name, value in parts.items()}
            for row, layer in enumerate(self.layers)
        }
        object.__setattr__(self, "_weights", kept)

    def __repr__(self) -> str:
        layers = f"{len(self.layers)} layers {self.layers[0]} to {self.layers[-1]}"
        return (
            f"LinearMap({self.name}; {self.kind}, {layers} of {self.model.key}, {self.site}, "
            f"{self.position})"
        )

    def __getitem__(self, name: str) -> LinearMap:
        """Return the map itself by its name, as ``Directions`` return one of theirs.

        Raises:
            UnknownNameError: it has another name.
        """
        if name != self.name:
            raise unknown("map", name, self.names)
        return self

    @property
    def names(self) -> tuple[str]:
        return (self.name,)

    @property
    def vectors(self) -> Float[ndarray, "1 l d"]:
        """``axis``, as ``Directions`` hold theirs."""
        return self.axis[None]

    @property
    def rank(self) -> int:
        """Rank that W is stored with; d where it is whole."""
        return int(self.b.shape[1] if self.right is None else self.right.shape[1])

    @property
    def kind(self) -> str:
        return "whole" if self.right is None else f"rank {self.rank}"

    @property
    def label(self) -> str:
        """Short name for messages."""
        return f"map {self.name}"

    def rows(self, layers: Sequence[int]) -> list[int]:
        """Return where the given layers stand in the arrays.

        Raises:
            ConfigError: a layer was not fitted.
        """
        missing = [layer for layer in layers if layer not in self.layers]
        if missing:
            raise ConfigError(
                f"{self.label} holds no layer {missing[0]}; it holds layers "
                f"{', '.join(map(str, self.layers))} (0-based block indices)"
            )
        return [self.layers.index(layer) for layer in layers]

    def select(self, layers: Sequence[int]) -> LinearMap:
        """Keep the given layers, in that order, in ``info`` too."""
        rows = self.rows(layers)
        info = {k: v[rows] if isinstance(v, ndarray) else v for k, v in self.info.items()}
        return replace(self, layers=tuple(layers), info=info, **self._each(lambda v: v[rows]))

    def weights(self, layer: int) -> Mapping[str, ndarray]:
        """Return what the edit of one layer needs; the same object each time, so arms share it."""
        self.rows([layer])
        return self._weights[layer]

    def matrix(self, layer: int) -> Float[ndarray, "d d"]:
        """Return W of one layer, laid out whole."""
        found = self.weights(layer)
        return found["W"] if "W" in found else np.asarray(found["left"] @ found["right"])

    def displacement(self, X: Float[ndarray, "n d"], layer: int) -> Float[ndarray, "n d"]:
        """Return ``W h + b`` for every row, in residual-stream units."""
        X, found = wide(X), self.weights(layer)
        if "W" in found:
            return np.asarray(X @ found["W"].T + found["b"])
        return np.asarray(X @ found["right"].T @ found["left"].T + found["b"])

    def apply(
        self, X: Float[ndarray, "n d"], layer: int, dose: float | int = 1.0
    ) -> Float[ndarray, "n d"]:
        """Return ``h + dose * (W h + b)`` for every row; dose 0 gives the same numbers back."""
        X = wide(X)
        return X.copy() if dose == 0 else np.asarray(X + dose * self.displacement(X, layer))

    def rotated(self, seed: int) -> LinearMap:
        """Return the map followed by a random rotation: a control for steering.

        It moves every state by as much as this map does, in a direction drawn once a layer.
        """
        arrays: dict[str, Any] = {}
        for row, layer in enumerate(self.layers):
            for name, value in self._rotated(layer, seed).items():
                arrays.setdefault(name, np.empty_like(getattr(self, name)))[row] = value
        return replace(self, info={"made_by": f"{self.label} rotated, seed {seed}"}, **arrays)

    def _rotated(self, layer: int, seed: int) -> dict[str, ndarray]:
        """Rotate the columns that displacements and the axis are made of: no more is needed."""
        found, axis = self.weights(layer), self.axis[self.rows([layer])[0]]
        main = "W" if "W" in found else "left"
        columns = np.concatenate([found[main], found["b"][:, None], axis[:, None]], axis=1)
        rng = np.random.default_rng([seed, layer])
        turned = _turn(columns, rng).astype(np.float32)
        return {main: turned[:, :-2], "b": turned[:, -2], "axis": turned[:, -1]}

    def refuse_other(self, acts: ActivationsLike) -> None:
        """Check that this map may be used on ``acts``.

        Raises:
            MismatchError: activations of another model or site.
        """
        self.model.refuse_other(acts.model, self.label)
        if acts.site != self.site:
            raise MismatchError(
                f"{self.label} was fitted at site {self.site}, but these activations are of "
                f"{acts.site}; capture them at {self.site}"
            )

    def __mul__(self, factor: float | int) -> LinearMap:
        """Scale the displacement; the axis keeps its length and turns with the sign."""
        size, main = np.float32(factor), "W" if self.W is not None else "left"
        scaled: dict[str, Any] = {name: getattr(self, name) * size for name in ("b", main)}
        return replace(self, axis=self.axis * np.sign(size), **scaled)

    __rmul__ = __mul__

    def __neg__(self) -> LinearMap:
        return self * -1

    def _each(self, change: Callable[[ndarray], ndarray]) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in _ARRAYS}
        return {name: None if v is None else change(v) for name, v in values.items()}


def _turn(columns: Float[ndarray, "d m"], rng: np.random.Generator) -> Float[ndarray, "d m"]:
    """Return ``Q @ columns`` for a uniformly drawn rotation Q, which is laid out only where m >= d.

    The columns are ``basis @ R``; Q takes the basis to a uniformly drawn orthonormal frame.
    """
    d, m = columns.shape
    if m < d:
        _, R = np.linalg.qr(columns.astype(np.float64))
        return np.asarray(_frame(rng, d, m) @ R)
    return np.asarray(_frame(rng, d, d).astype(np.float32) @ columns)


def _frame(rng: np.random.Generator, d: int, m: int) -> Float[ndarray, "d m"]:
    drawn = rng.standard_normal((d, m))
    Q, R = np.linalg.qr(drawn.astype(np.float32) if m == d else drawn)
    return np.asarray(Q * np.sign(np.diag(R)))


def _check(found: LinearMap) -> None:
    """Refuse fields that do not fit together (a wrong call, or a file that was edited)."""
    l, d = len(found.layers), found.model.width
    if not found.name:
        raise ValueError("a map needs a name")
    if not l or len(set(found.layers)) != l:
        raise ValueError(f"layers must differ, and be at least one: {found.layers}")
    if min(found.layers) < 0 or max(found.layers) >= found.model.n_layers:
        raise ValueError(
            f"layers {found.layers} are not all among the blocks 0 to "
            f"{found.model.n_layers - 1} of {found.model.key}"
        )
    low = found.left is not None and found.right is not None
    if low == (found.W is not None) or (found.left is None) != (found.right is None):
        raise ValueError("give W, or left and right together; not both, not one of the two")
    r = found.right.shape[1] if found.right is not None and found.right.ndim == 3 else 0
    wanted = {
        "b": (l, d),
        "axis": (l, d),
        "W": (l, d, d),
        "left": (l, d, r),
        "right": (l, r, d),
        "norms": (l,),
    }
    for name, shape in wanted.items():
        value = getattr(found, name)
        if value is None:
            continue
        if value.shape != shape or not value.size:
            raise ValueError(f"{name} has shape {value.shape}; expected {shape}")
        if not np.isfinite(value).all():
            raise ValueError(f"{found.label}: {name} holds numbers that are not finite")
    refuse_norms(found.norms, found.label)
    for name, value in found.info.items():
        if isinstance(value, ndarray) and value.shape[:1] != (l,):
            raise ValueError(
                f"info[{name!r}] has shape {value.shape}; the first axis is {l} layers"
            )
