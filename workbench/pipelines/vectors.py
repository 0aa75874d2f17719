"""Directions that settings name: files or run folders, of each all names or some, as one bank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from workbench.config import Config
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.directions import Directions

FILE = "directions.safetensors"


class SomeVectors(Config):
    """Some directions of a file."""

    path: str
    names: list[str] = Field(min_length=1)


Vectors = str | SomeVectors
"""A directions file, or the folder of the run that made it; or a table {path, names}."""


def vector_files(sources: Sequence[Vectors]) -> list[Path]:
    """Return the files behind the sources, for provenance."""
    return [_file(source) for source in sources]


def open_vectors(sources: Sequence[Vectors], layers: Sequence[int] | None = None) -> Directions:
    """Open every source and return all their directions at common layers, to project on.

    Kinds and positions may differ, since a unit vector is all that is used; centers are left out.

    Args:
        sources: at least one.
        layers: block indices; by default those that all hold.

    Raises:
        MismatchError: directions of two models or sites, or no layer in common.
        ConfigError: a layer that a source lacks, or two directions of one name.
    """
    from workbench.directions.algebra import refuse_other_space
    from workbench.directions.rows import layers_in_common

    parts = [_open(source) for source in sources]
    for part in parts[1:]:
        refuse_other_space(parts[0], part)
    chosen = layers_in_common(layers, *(part.layers for part in parts))
    names = [name for part in parts for name in part.names]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(
            f"{twice[0]!r} stands in two of {', '.join(map(str, vector_files(sources)))}; take "
            "other names from one of them: {path = ..., names = [...]}"
        )
    return replace(
        parts[0],
        names=tuple(names),
        layers=chosen,
        vectors=np.concatenate([part.select(chosen).vectors for part in parts]),
        norms=reduce(_agreeing, [part.select(chosen) for part in parts]).norms,
        center=None,
        kind="difference",
        info={"made_by": "stack", "parts": [str(part.info.get("made_by", "")) for part in parts]},
    )


def _file(source: Vectors) -> Path:
    path = Path(source if isinstance(source, str) else source.path)
    return path / FILE if path.is_dir() else path


def _open(source: Vectors) -> Directions:
    from workbench.directions import open_directions

    found = open_directions(_file(source))
    return found if isinstance(source, str) else found[source.names]


def _agreeing(first: Directions, second: Directions) -> Directions:
    """Keep the norms of a fit set where both give the same."""
    norms = (first.norms, second.norms)
    same = all(n is not None for n in norms) and np.allclose(*norms, rtol=1e-3)  # type: ignore[arg-type]
    return first if same else replace(first, norms=None)
