"""Several stores read as one, one after another: all rollouts, whatever they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float

from workbench.activations.acts import open_activations
from workbench.config import refuse_twice
from workbench.errors import MismatchError
from workbench.types import ActivationsLike, ModelStamp, ndarray


@dataclass(frozen=True, eq=False)
class Together:
    """Stores of one kind of model, site and pooled position; of the columns, those of all."""

    parts: tuple[ActivationsLike, ...]

    def __post_init__(self) -> None:
        first = self.parts[0]
        for part in self.parts[1:]:
            first.model.refuse_other(part.model, f"store {first!r}")
        reads = {(part.site, part.position) for part in self.parts}
        if len(reads) > 1 or first.position == "all":
            told = "; ".join(f"{site} at {position}" for site, position in sorted(reads))
            raise MismatchError(
                f"{len(self.parts)} stores of {told}; stores that are read as one hold one vector "
                "an item, read at the same site and position"
            )

    @property
    def layers(self) -> tuple[int, ...]:
        """Those that all hold."""
        shared = set.intersection(*(set(part.layers) for part in self.parts))
        return tuple(sorted(shared))

    @cached_property
    def columns(self) -> Mapping[str, ndarray]:
        names = set.intersection(*(set(part.columns) for part in self.parts))
        return {
            name: np.concatenate([part.columns[name] for part in self.parts])
            for name in self.parts[0].columns
            if name in names
        }

    @property
    def site(self) -> str:
        return self.parts[0].site

    @property
    def position(self) -> str:
        return self.parts[0].position

    @property
    def model(self) -> ModelStamp:
        return self.parts[0].model

    def at(self, layer: int) -> Float[ndarray, "n d"]:
        """Return one layer of all items."""
        return np.concatenate([part.at(layer) for part in self.parts])


def open_together(paths: str | Path | Sequence[str | Path]) -> ActivationsLike:
    """Open one store, or several as one.

    Raises:
        FormatError: no store there, or a damaged one.
        MismatchError: stores of other models, sites or positions.
        ConfigError: a store that stands twice.
    """
    if isinstance(paths, str | Path):
        return open_activations(paths)
    refuse_twice(list(paths), "stores that are read as one")
    opened = tuple(open_activations(path) for path in paths)
    return opened[0] if len(opened) == 1 else Together(opened)
