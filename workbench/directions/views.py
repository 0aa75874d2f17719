"""Some items of some activations, and the same items rendered otherwise; nothing is copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from workbench.directions.rows import ids_of
from workbench.errors import ConfigError, MismatchError
from workbench.types import ActivationsLike, ModelStamp, ndarray


class Wrapped:
    """What stays the same of activations when their items or columns change."""

    acts: ActivationsLike

    @property
    def layers(self) -> tuple[int, ...]:
        return self.acts.layers

    @property
    def site(self) -> str:
        return self.acts.site

    @property
    def position(self) -> str:
        return self.acts.position

    @property
    def model(self) -> ModelStamp:
        return self.acts.model


@dataclass(frozen=True, eq=False)
class View(Wrapped):
    """Rows of activations of one vector an item, in the given order."""

    acts: ActivationsLike
    rows: Int[ndarray, " n"]

    @cached_property
    def columns(self) -> Mapping[str, ndarray]:
        return {name: np.asarray(values)[self.rows] for name, values in self.acts.columns.items()}

    @cached_property
    def norms(self) -> Float[ndarray, "l n"] | None:
        norms = getattr(self.acts, "norms", None)
        return norms[:, self.rows] if norms is not None and norms.ndim == 2 else norms

    def at(self, layer: int) -> Float[ndarray, "n d"]:
        return np.asarray(self.acts.at(layer)[self.rows])


def keep(acts: ActivationsLike, kept: Bool[ndarray, " n"]) -> ActivationsLike:
    """Return the items where ``kept`` is true; all of them are the activations themselves."""
    return acts if kept.all() else View(acts, np.flatnonzero(kept))


def aligned(acts: ActivationsLike, other: ActivationsLike, name: str) -> ActivationsLike:
    """Return ``other`` with the items of ``acts``, in their order, found by id.

    Raises:
        ConfigError: an item is missing, or two have one id.
        MismatchError: of another model, or without one of the layers.
    """
    acts.model.refuse_other(other.model, f"rendering {name!r}")
    wanted, found = (np.array(ids_of(one)) for one in (acts, other))
    if lacking := sorted(set(wanted) - set(found)):
        raise ConfigError(
            f"rendering {name!r} lacks {len(lacking)} of {len(wanted)} items, such as "
            f"{str(lacking[0])!r}; cache the same prompt set with another render"
        )
    if absent := [layer for layer in acts.layers if layer not in other.layers]:
        raise MismatchError(f"rendering {name!r} holds no layer {absent[0]}; cache all layers")
    order = np.argsort(found, kind="stable")
    return View(other, order[np.searchsorted(found[order], wanted)])
