"""Stores of rollouts with the columns and scores of their transcripts, joined by id.

So a store is captured once, whoever judges its transcripts, and however often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from workbench.directions.rollouts import UNJUDGED
from workbench.directions.views import Wrapped
from workbench.errors import ConfigError, MismatchError
from workbench.types import ndarray

if TYPE_CHECKING:
    from workbench.activations import Activations
    from workbench.transcripts import Transcripts


@dataclass(frozen=True, eq=False)
class Labelled(Wrapped):
    """Activations of rollouts under the columns of their transcripts."""

    acts: Activations
    columns: Mapping[str, ndarray]

    def __len__(self) -> int:
        return len(self.acts)

    def at(self, layer: int) -> Float[ndarray, "n d"]:
        """Return one layer, float32."""
        return self.acts.at(layer)

    def take(self, rows: Sequence[int] | Int[ndarray, " m"] | Bool[ndarray, " n"]) -> Labelled:
        """Keep the given items (numbers or a mask)."""
        index = np.asarray(rows)
        columns = {name: values[index] for name, values in self.columns.items()}
        return replace(self, acts=self.acts.take(index), columns=columns)

    def column(self, name: str) -> ndarray:
        """Return one column.

        Raises:
            ConfigError: there is no such column.
        """
        if name not in self.columns:
            raise ConfigError(
                f"the transcripts have no column {name!r}; columns: {', '.join(self.columns)}"
            )
        return self.columns[name]


def labelled(acts: Activations, transcripts: Transcripts) -> Labelled:
    """Put the transcripts' columns and scores over a store's items.

    Raises:
        MismatchError: the store holds items that are not among the transcripts, or several
            tokens an item.
    """
    if acts.offsets is not None:
        raise MismatchError(
            f"position {acts.position!r} holds every token; capture one read a rollout, such as "
            "mean:assistant or last"
        )
    place = {name: row for row, name in enumerate(transcripts.ids)}
    ids = [str(name) for name in acts.column("id")]
    strange = [name for name in ids if name not in place]
    if strange:
        raise MismatchError(
            f"{len(strange)} of {len(ids)} items of the store are not among the "
            f"{len(transcripts)} transcripts (such as {strange[0]!r}); give the transcripts that "
            "the store was captured from"
        )
    rows = np.array([place[name] for name in ids], int)
    scores = {name: one.values[rows] for name, one in transcripts.scores.items()}
    words = np.array([len(transcripts.answer(row).split()) for row in rows.tolist()])
    columns = {name: values[rows] for name, values in transcripts.columns.items()}
    return Labelled(acts, {"id": np.array(ids), "words": words, **columns, **scores})


def judge_of(transcripts: Transcripts, measure: str = "score") -> str:
    """Return who gave a measure's scores; "none" where nobody did."""
    return transcripts.scores[measure].judge if measure in transcripts.scores else UNJUDGED
