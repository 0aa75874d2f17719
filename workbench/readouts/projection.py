"""Projection of a prompt set onto saved directions, frozen: the truth read-out of claims, say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.directions import Directions, open_directions
from workbench.library import Source, open_prompts
from workbench.registry import READOUTS
from workbench.types import Measurement, Read, Request, Subject


@READOUTS.register("projection")
class Projection:
    """Coordinate of the residual stream along unit directions, in raw residual-stream units.

    Directions and layers are applied as stored, never refitted or re-centred, so that a shift of
    a whole organism stays visible. Never compare raw projections across model families.

    Args:
        directions: a directions file, or the object.
        prompts: anything that ``open_prompts`` takes.
        layers: blocks to read; by default the one that the fit chose, else all it holds.
        condition: the column that becomes the condition.
        render: ``auto``, ``bare`` or ``chat``.
    """

    name = "projection"

    def __init__(
        self,
        directions: str | Path | Directions,
        prompts: Source = "claims",
        layers: Sequence[int] | None = None,
        condition: str = "world",
        render: str = "auto",
    ) -> None:
        self.directions = (
            directions if isinstance(directions, Directions) else open_directions(directions)
        )
        self.prompts = open_prompts(prompts)
        chosen = self.directions.info.get("layer")
        own = self.directions.layers if chosen is None else (int(chosen),)
        self.layers = tuple(layers) if layers is not None else own
        self.condition = condition
        self.render = render
        self.prompts.column(condition)

    def requests(self, subject: Subject) -> list[Request]:
        self.directions.model.refuse_other(subject.stamp, f"directions {self.directions.names}")
        read = Read(self.directions.site, self.layers, self.directions.position)
        rendered = [subject.renderer.render(i, render=self.render) for i in self.prompts.items]
        return [
            Request(
                item=item,
                condition=str(self.prompts.column(self.condition)[row]),
                ids=prompt.ids,
                spans=prompt.spans,
                reads=(read,),
                extra=self._columns(row),
            )
            for row, (item, prompt) in enumerate(zip(self.prompts.ids, rendered, strict=True))
        ]

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        rows = [self.directions.layers.index(layer) for layer in self.layers]
        raw = self.directions.vectors[:, rows]
        unit = raw / np.linalg.norm(raw, axis=-1, keepdims=True)
        return [
            Measurement(
                readout="projection",
                measure=name,
                item=request.item,
                condition=request.condition,
                value=float(unit[k, row] @ np.asarray(states[row], np.float32)),
                extra={**request.extra, "layer": layer},
            )
            for request, (states,) in zip(requests, answers, strict=True)
            for k, name in enumerate(self.directions.names)
            for row, layer in enumerate(self.layers)
        ]

    def _columns(self, row: int) -> dict[str, Any]:
        return {name: values[row].item() for name, values in self.prompts.columns.items()}
