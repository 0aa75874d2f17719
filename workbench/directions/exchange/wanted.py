"""What a caller asks of a foreign file, and the checks that every format shares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.directions.container import Directions
from workbench.errors import FormatError, MismatchError
from workbench.types import ModelStamp, ndarray

UNSTATED = "unstated"
"""The position of directions whose file does not say where they were read."""


@dataclass(frozen=True)
class Wanted:
    """What the caller knows or expects; a foreign file seldom says what it means."""

    path: Path
    model: ModelStamp
    name: str | None = None
    kind: str | None = None
    edit: str | None = None
    site: str | None = None
    position: str | None = None
    layers: tuple[int, ...] | None = None
    features: tuple[int, ...] | None = None
    hook: str | None = None

    def refuse_other(self, key: str, found: Any, *, said: str = "says") -> None:
        """Check ``edit``, ``site``, ``position`` or ``kind`` against what the file says.

        Raises:
            MismatchError: the caller expects another.
        """
        expected = getattr(self, key)
        if expected is not None and expected != found:
            raise MismatchError(
                f"{self.path}: {key} is {expected!r} in the call, but the file {said} {found!r}; "
                f"import it with {key}={found!r}, or take another file"
            )

    def refuse_width(self, what: str, width: int) -> None:
        """Check the width of a vector.

        Raises:
            MismatchError: the model has another.
        """
        if width != self.model.width:
            raise MismatchError(
                f"{self.path}: {what} has width {width}, but {self.model.key} has width "
                f"{self.model.width}; take a file that was made with this model"
            )

    def build(
        self,
        names: Sequence[str],
        layers: Sequence[int],
        vectors: Float[ndarray, "k l d"],
        *,
        format: str,
        edit: str = "add",
        site: str = "resid_post",
        position: str | None = None,
        kind: str = "difference",
        info: Mapping[str, Any] | None = None,
        norms: Float[ndarray, " l"] | None = None,
    ) -> Directions:
        """Make directions that say where they came from; keep the layers that were asked for.

        Raises:
            MismatchError: the caller expects another operation, site, position or kind.
            FormatError: layers that the model does not have, or numbers that are not finite.
            ConfigError: a layer was asked for that the file does not hold.
        """
        self.refuse_other("edit", edit)
        self.refuse_other("site", site)
        self.refuse_other("kind", kind)
        if position is not None:
            self.refuse_other("position", position)
        self.refuse_width("a vector", vectors.shape[-1])
        try:
            found = Directions(
                names=tuple(names),
                layers=tuple(layers),
                vectors=vectors,
                model=self.model,
                norms=norms,
                kind=kind,
                site=site,
                position=position or self.position or UNSTATED,
                info={**(info or {}), **self.origin(format), "edit": edit},
            )
        except ValueError as error:
            raise FormatError(f"{self.path}: {error}; ask for a file of {self.model.key}") from None
        return found if self.layers is None else found.select(self.layers)

    def origin(self, format: str) -> dict[str, str]:
        """Return what ``info`` keeps of the file."""
        return {"format": format, "file": self.path.name, "file_sha256": file_sha256(self.path)}


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, or over names and hashes of the ``.pt`` files of a folder."""
    if path.is_dir():
        parts = [f"{one.name} {file_sha256(one)}\n" for one in sorted(path.glob("*.pt"))]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def float32(values: Any) -> ndarray:
    """Return a tensor of any float type as a float32 array; exact up to float32."""
    import torch

    if isinstance(values, torch.Tensor):
        values = values.detach().to(torch.float32).numpy()
    return np.ascontiguousarray(values, np.float32)
