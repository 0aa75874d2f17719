"""What the model's process does for the emotions page: read texts along every emotion vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from workbench_apps.live import loaded

from workbench.errors import ConfigError

SINK = 1
"""Tokens at the start of a row that no mean holds, as in ``mean:content``: where a tokenizer puts a
token of its own first, that one, and all of the text counts."""


def read_texts(
    *, model: tuple[str, str | None], vectors: str, texts: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Read each text bare, as the stories were read, at every layer.

    Args:
        model: reference and base (None of a whole model).
        vectors: path of the emotion vectors' file.
        texts: what to read.

    Yields:
        ``{"note": ...}`` before something slow, then for each text ``{"text": its number, "first":
        its first token's place in the row, "pieces": what each token adds, "values": float32 (t, k,
        l)}``: coordinates along the unit vectors, in residual units.

    Raises:
        WorkbenchError: the model cannot be loaded or does not fit the vectors, an empty text, or
            one of which nothing is left for a mean.
    """
    from workbench.directions import open_directions
    from workbench.drift import pieces
    from workbench.types import Read

    directions = open_directions(vectors)
    yield {"note": "loading the model"}
    subject = loaded(*model)
    directions.model.refuse_other(subject.stamp, directions.label)
    units = directions.unit_vectors()
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    for number, text in enumerate(texts):
        yield {"note": f"reading text {number + 1} of {len(texts)}"}
        rendered = subject.renderer.render(text, render="bare")
        first, stop = rendered.spans["content"][0]
        if stop <= SINK:
            raise ConfigError(
                f"text {number + 1}, {text!r}, is the row's first token alone, which no mean "
                "holds; type a few words"
            )
        wanted = [Read(directions.site, tuple(directions.layers), "all")]
        ((states,),) = subject.runner.capture(subject, subject.renderer.collate([rendered]), wanted)
        h = states[:, first:stop].float().cpu().numpy()
        values = np.einsum("ltd,lkd->tkl", h, units).astype(np.float32)
        told = pieces(subject.tokenizer, rendered.ids[first:stop])
        yield {"text": number, "first": first, "pieces": told, "values": values}
