"""``Directions``: named directions of one model, one raw vector a block, and their algebra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.errors import ConfigError, MismatchError, unknown
from workbench.given import Blocks, blocks_of
from workbench.linalg import unit
from workbench.types import ActivationsLike, ModelStamp, ndarray

KINDS = ("difference", "mean")


@dataclass(frozen=True, eq=False)
class Directions:
    """k named directions; positive means more of the name, at every layer.

    ``a + b`` and ``a - b`` work name by name; one side may hold a single direction, which then
    meets every name of the other. Numbers scale. A mean minus a mean is a difference.
    """

    names: tuple[str, ...]
    layers: tuple[int, ...]
    """0-based block indices."""
    vectors: Float[ndarray, "k l d"]
    """Raw, in residual-stream units, float32."""
    model: ModelStamp
    norms: Float[ndarray, " l"] | None = None
    """Mean residual norm of the fit set; None makes edits in norm units measure it."""
    center: Float[ndarray, "k l d"] | None = None
    """Point of the residual stream that counts as zero, frozen with the direction."""
    kind: str = "difference"
    site: str = "resid_post"
    position: str = "last"
    info: Mapping[str, Any] = field(default_factory=dict)
    """How it was made: JSON values, and arrays whose first axis is the layer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "layers", tuple(index(layer) for layer in self.layers))
        for name in ("vectors", "norms", "center"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, np.asarray(value, np.float32))
        _check(self)

    def __repr__(self) -> str:
        names = ", ".join(self.names[:5]) + (", ..." if len(self) > 5 else "")
        layers = f"{len(self.layers)} layers {self.layers[0]} to {self.layers[-1]}"
        return f"Directions({names}; {layers} of {self.model.key}, {self.site}, {self.position})"

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, names: str | Sequence[str]) -> Directions:
        """Keep the named directions.

        Raises:
            UnknownNameError: there is no such name.
        """
        wanted = (names,) if isinstance(names, str) else tuple(names)
        for name in wanted:
            if name not in self.names:
                raise unknown("direction", name, self.names)
        rows = [self.names.index(name) for name in wanted]
        center = None if self.center is None else self.center[rows]
        return replace(self, names=wanted, vectors=self.vectors[rows], center=center)

    def rows(self, layers: Blocks) -> list[int]:
        """Return where the given layers stand in ``vectors``.

        Raises:
            ConfigError: a layer was not fitted.
        """
        chosen = blocks_of(layers, self.layers)
        missing = [layer for layer in chosen if layer not in self.layers]
        if missing:
            raise ConfigError(
                f"{self.label} holds no layer {missing[0]}; it holds layers "
                f"{', '.join(map(str, self.layers))} (0-based block indices)"
            )
        return [self.layers.index(layer) for layer in chosen]

    def at(self, layer: int) -> Float[ndarray, "k d"]:
        """Return the raw vectors of one layer."""
        return self.vectors[:, self.rows([layer])[0]]

    def select(self, layers: Blocks) -> Directions:
        """Keep the given layers, in that order, in ``info`` too."""
        rows = self.rows(layers)
        info = {k: v[rows] if isinstance(v, ndarray) else v for k, v in self.info.items()}
        return replace(
            self,
            layers=tuple(self.layers[row] for row in rows),
            vectors=self.vectors[:, rows],
            norms=None if self.norms is None else self.norms[rows],
            center=None if self.center is None else self.center[:, rows],
            info=info,
        )

    def project(self, acts: ActivationsLike, *, centered: bool = False) -> Float[ndarray, "k l n"]:
        """Return the coordinate of each item along each unit vector, in raw residual units.

        Args:
            acts: activations that hold every layer of these directions, at the same site.
            centered: measure from the frozen ``center``, not from the origin.

        Raises:
            MismatchError: activations of another model, width or site, or without a layer.
        """
        self.refuse_other(acts)
        if centered and self.center is None:
            raise ValueError(f"{self.label} has no center to measure from")
        found = np.empty((len(self), len(self.layers), len(acts.at(self.layers[0]))), np.float32)
        for row, (layer, v) in enumerate(zip(self.layers, self.unit_vectors(), strict=True)):
            found[:, row] = v @ acts.at(layer).astype(np.float32, copy=False).T
            if centered and self.center is not None:
                found[:, row] -= np.einsum("kd,kd->k", v, self.center[:, row])[:, None]
        return found

    def unit_vectors(self) -> Float[ndarray, "l k d"]:
        """Return the vectors at length one, layer by layer."""
        return unit(np.swapaxes(self.vectors, 0, 1))

    def refuse_other(self, acts: ActivationsLike) -> None:
        """Check that these directions may be used on ``acts``."""
        self.model.refuse_other(acts.model, self.label)
        if acts.site != self.site:
            raise MismatchError(
                f"{self.label} was fitted at site {self.site}, but these activations are of "
                f"{acts.site}; capture them at {self.site}"
            )
        missing = [layer for layer in self.layers if layer not in acts.layers]
        if missing:
            raise MismatchError(
                f"{self.label} holds layer {missing[0]}, these activations do not (they hold "
                f"{', '.join(map(str, acts.layers))}); capture it, or use .select(layers)"
            )

    @property
    def label(self) -> str:
        """Short name for messages."""
        shown = ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")
        return f"direction {shown}" if len(self.names) == 1 else f"directions {shown}"

    def __add__(self, other: Directions) -> Directions:
        return self._combine(other, +1)

    def __sub__(self, other: Directions) -> Directions:
        return self._combine(other, -1)

    def __mul__(self, factor: float | int) -> Directions:
        return replace(self, vectors=self.vectors * np.float32(factor))

    __rmul__ = __mul__

    def __truediv__(self, factor: float | int) -> Directions:
        return self * (1 / factor)

    def __neg__(self) -> Directions:
        return self * -1

    def _combine(self, other: Directions, sign: int) -> Directions:
        _refuse_unlike(self, other)
        means = (self.kind == "mean") + sign * (other.kind == "mean")
        return replace(
            self if len(self) >= len(other) else other,
            names=_joined(self, other, sign),
            vectors=self.vectors + sign * other.vectors,
            norms=self.norms if _same(self.norms, other.norms) else None,
            center=None,
            kind="mean" if means else "difference",
            info={"made_by": f"{self.label} {'+' if sign > 0 else '-'} {other.label}"},
        )


def stack(parts: Sequence[Directions]) -> Directions:
    """Put the names of several directions of one model into one ``Directions``.

    Raises:
        MismatchError: they differ in model, layers, site, position or kind.
        ValueError: none is given, or two have one name.
    """
    if not parts:
        raise ValueError("no directions to stack; give at least one")
    first = parts[0]
    for part in parts[1:]:
        _refuse_unlike(first, part)
        if part.kind != first.kind:
            raise MismatchError(f"{first.label} is a {first.kind}, {part.label} a {part.kind}")
    centers = [part.center for part in parts if part.center is not None]
    return replace(
        first,
        names=tuple(name for part in parts for name in part.names),
        vectors=np.concatenate([part.vectors for part in parts]),
        norms=first.norms if all(_same(first.norms, part.norms) for part in parts) else None,
        center=np.concatenate(centers) if len(centers) == len(parts) else None,
        info={"made_by": "stack", "parts": [_plain(part.info) for part in parts]},
    )


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if not isinstance(value, ndarray)}


def _joined(left: Directions, right: Directions, sign: int) -> tuple[str, ...]:
    if left.names == right.names:
        return left.names
    if len(left) != len(right) and 1 not in (len(left), len(right)):
        raise MismatchError(f"{len(left)} directions do not pair with {len(right)}; select names")
    longest = max(len(left), len(right))
    pairs = zip(*(d.names * (longest if len(d) == 1 else 1) for d in (left, right)), strict=True)
    return tuple(f"{a}{'+' if sign > 0 else '-'}{b}" for a, b in pairs)


def _refuse_unlike(left: Directions, right: Directions) -> None:
    left.model.refuse_other(right.model, left.label)
    for name in ("layers", "site", "position"):
        mine, theirs = getattr(left, name), getattr(right, name)
        if mine != theirs:
            raise MismatchError(
                f"{left.label} has {name} {mine}, {right.label} has {theirs}; they must be the same"
            )


def _same(a: ndarray | None, b: ndarray | None) -> bool:
    return a is not None and b is not None and np.allclose(a, b, rtol=1e-3)


def _check(directions: Directions) -> None:
    """Refuse fields that do not fit together (a wrong call, or a file that was edited)."""
    k, l, d = len(directions.names), len(directions.layers), directions.model.width
    if directions.vectors.shape != (k, l, d):
        raise ValueError(f"vectors have shape {directions.vectors.shape}; expected ({k}, {l}, {d})")
    if not all(isinstance(name, str) and name for name in directions.names):
        raise ValueError(f"direction names must be texts: {directions.names}")
    if not k or len(set(directions.names)) != k:
        raise ValueError(f"direction names must differ, and be at least one: {directions.names}")
    if not l or len(set(directions.layers)) != l:
        raise ValueError(f"layers must differ, and be at least one: {directions.layers}")
    if min(directions.layers) < 0 or max(directions.layers) >= directions.model.n_layers:
        raise ValueError(
            f"layers {directions.layers} are not all among the blocks 0 to "
            f"{directions.model.n_layers - 1} of {directions.model.key}"
        )
    if directions.kind not in KINDS:
        raise ValueError(f"kind {directions.kind!r}; expected one of {', '.join(KINDS)}")
    for name, shape in (("norms", (l,)), ("center", (k, l, d))):
        value = getattr(directions, name)
        if value is not None and value.shape != shape:
            raise ValueError(f"{name} has shape {value.shape}; expected {shape}")
    for name, value in directions.info.items():
        if isinstance(value, ndarray) and value.shape[:1] != (l,):
            raise ValueError(
                f"info[{name!r}] has shape {value.shape}; the first axis is {l} layers"
            )
    for name in ("vectors", "center", "norms"):
        value = getattr(directions, name)
        if value is not None and not np.isfinite(value).all():
            raise ValueError(f"{directions.label} has {name} that are not finite")
    refuse_norms(directions.norms, directions.label)


def refuse_norms(norms: Float[ndarray, " l"] | None, what: str) -> None:
    """Check that doses may be fractions of these.

    Raises:
        ValueError: one is not above 0.
    """
    if norms is not None and not (norms > 0).all():
        raise ValueError(f"{what}: norms are {norms.tolist()}; mean residual norms are above 0")
