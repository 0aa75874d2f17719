"""Projection of a prompt set onto saved directions, frozen: the truth read-out of claims, say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from workbench.directions import Directions, open_directions
from workbench.errors import ConfigError
from workbench.given import Blocks, blocks_of
from workbench.library import Source, open_prompts
from workbench.registry import READOUTS
from workbench.types import Measurement, Read, Request, Subject, ndarray

RENDERINGS = ("auto", "bare", "chat")


@READOUTS.register("projection")
class Projection:
    """Coordinate of the residual stream along unit directions, in raw residual-stream units.

    Directions and layers are applied as stored, never refitted or re-centred, so that a shift of
    a whole organism stays visible. Never compare raw projections across model families. The measure
    is the direction's name; where several layers are read, ``name@layer``, so that nothing averages
    over layers.

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
        layers: Blocks | None = None,
        condition: str = "world",
        render: str = "auto",
    ) -> None:
        self.directions = (
            directions if isinstance(directions, Directions) else open_directions(directions)
        )
        self.prompts = open_prompts(prompts)
        chosen = self.directions.info.get("layer")
        own = (int(chosen),) if chosen in self.directions.layers else self.directions.layers
        self.layers = own if layers is None else blocks_of(layers, self.directions.layers)
        self.units = _units(self.directions, self.layers)
        self.condition = condition
        if render not in RENDERINGS:
            raise ConfigError(f"render = {render!r}; give {', '.join(RENDERINGS)}")
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
        return [
            Measurement(
                readout="projection",
                measure=name if len(self.layers) == 1 else f"{name}@{layer}",
                item=request.item,
                condition=request.condition,
                value=float(self.units[k, row] @ np.asarray(states[row], np.float32)),
                extra={**request.extra, "layer": layer},
            )
            for request, (states,) in zip(requests, answers, strict=True)
            for k, name in enumerate(self.directions.names)
            for row, layer in enumerate(self.layers)
        ]

    def _columns(self, row: int) -> dict[str, Any]:
        return {name: values[row].item() for name, values in self.prompts.columns.items()}


def _units(directions: Directions, layers: Sequence[int]) -> Float[ndarray, "k l d"]:
    if directions.position == "all":
        raise ConfigError(
            f"{directions.label} was fitted on all tokens, and a projection needs one place a "
            "prompt; fit it at a position such as last or mean:content"
        )
    if not layers:
        raise ConfigError("layers is empty; name at least one block")
    raw = directions.vectors[:, directions.rows(layers)]
    length = np.linalg.norm(raw, axis=-1, keepdims=True)
    if not length.all():
        raise ConfigError(
            f"{directions.label} is zero at one of the layers {list(layers)}, so it points "
            "nowhere; choose other layers or fit it again"
        )
    return np.asarray(raw / length)
