"""What the model's process does for a page: read a conversation, answer with and without a cap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from workbench.directions import Directions
    from workbench.types import Subject

MOST_MODELS = 2
"""Models kept loaded: an organism beside its base."""
UNCAPPED, CAPPED = "uncapped", "capped"
Message = Mapping[str, str]
_models: dict[tuple[str, str | None], Subject] = {}


def drift(
    *, models: Mapping[str, tuple[str, str | None]], axis: str, messages: Sequence[Message]
) -> Iterator[dict[str, Any]]:
    """Read one conversation with each model.

    Args:
        models: reference and base (None of a whole model) by the name that the page shows.
        axis: path of the direction's file; all its layers are read.
        messages: the chat.

    Yields:
        ``{"note": ...}`` before something slow, then ``{"model": name, "tokens": table}``, the rows
        of ``workbench.drift.conversation_drift``.

    Raises:
        WorkbenchError: a model cannot be loaded, does not fit the axis, or refuses the chat.
    """
    from workbench.directions import open_directions
    from workbench.drift import conversation_drift

    direction = open_directions(axis)
    for name, (ref, base) in models.items():
        if (ref, base) not in _models:
            yield {"note": f"loading {name}"}
        subject = loaded(ref, base)
        yield {"note": f"{name} reads the conversation"}
        tokens = conversation_drift(subject, direction, messages)
        yield {"model": name, "tokens": tokens}


def capped(
    *, model: tuple[str, str | None], axis: str, floors: Mapping[int, float], monitor: int,
    messages: Sequence[Message], max_new_tokens: int, temperature: float, seed: int,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Answer one chat with and without a cap from the same random numbers, then read both.

    Args:
        model: reference and base.
        axis: path of the direction's file.
        floors: residual units along the unit axis, by block.
        monitor: block at which projections are told.
        messages: the chat to answer.
        max_new_tokens: at most so many.
        temperature: 0 takes the likeliest token.
        seed: of both arms.

    Yields:
        ``{"note": ...}``; ``{"arm": ..., "text": ...}`` as text comes; then for each arm
        ``{"arm": ..., "tokens": table}`` of `engagement`.

    Raises:
        WorkbenchError: as `drift`.
    """
    import workbench as wb
    from workbench.directions import open_directions

    direction = open_directions(axis)
    if model not in _models:
        yield {"note": "loading the model"}
    subject = loaded(*model)
    layers = sorted(floors)
    cap = wb.Intervention.cap(direction, layers=layers, floor=dict(floors))
    arms = {UNCAPPED: (), CAPPED: (cap,)}
    yield {"note": "both replies are being written"}
    replies = dict.fromkeys(arms, "")
    pieces = wb.stream(
        subject, [list(messages)], arms, render="chat",
        max_new_tokens=max_new_tokens, temperature=temperature, seed=seed,
    )  # fmt: skip
    for piece in pieces:
        replies[piece.arm] += piece.text
        yield {"arm": piece.arm, "text": piece.text}
    yield {"note": "both replies are being read"}
    for arm, reply in replies.items():
        if reply.strip():
            answered = [*messages, {"role": "assistant", "content": reply}]
            tokens = engagement(subject, direction, floors, answered, monitor, arm == CAPPED)
            yield {"arm": arm, "tokens": tokens}


def engagement(
    subject: Subject,
    direction: Directions,
    floors: Mapping[int, float],
    messages: Sequence[Message],
    monitor: int,
    acting: bool,
) -> pd.DataFrame:
    """Say, token by token of the last message, at how many blocks the state lies below the floor.

    Where the cap acts, a block's state is read with the cap on at the blocks before it alone, so
    that what is counted is what the cap found there and not what it left. The projection at
    ``monitor`` is read without the cap either way: read with it, it would be the floor.

    Args:
        subject: the model that wrote the message.
        direction: the axis.
        floors: residual units along the unit axis, by block.
        messages: a chat that ends with the assistant's message.
        monitor: block of the projections.
        acting: whether the message was written under the cap.

    Returns:
        Rows text, place, below (how many of the blocks), blocks, value (residual units at
        ``monitor``). ``place`` is "prompt" in the first row, the position that the first token was
        drawn from, and "generated" elsewhere.

    Raises:
        WorkbenchError: the model does not fit the direction.
    """
    import workbench as wb
    from workbench.drift import pieces

    direction.model.refuse_other(subject.stamp, direction.label)
    rendered = subject.renderer.render(tuple(messages), render="chat", add_generation_prompt=False)
    first, stop = rendered.spans["assistant"][-1]
    places = slice(first - 1, stop)
    layers = sorted(floors)

    def read(at: Sequence[int]) -> dict[int, np.ndarray]:
        """Return the coordinate of each place, by block."""
        assert subject.runner is not None, "a subject gets its runner in wb.load"
        batch = subject.renderer.collate([rendered])
        wanted = [wb.Read(direction.site, tuple(at), "all")]
        ((states,),) = subject.runner.capture(subject, batch, wanted)
        lines = direction.select(at).unit_vectors()[:, 0]
        h = states[:, places].float().cpu().numpy()
        return dict(zip(at, np.einsum("ltd,ld->lt", h, lines), strict=True))

    plain = read(sorted({*layers, monitor}))
    found = {layer: plain[layer] for layer in layers}
    for number in range(1, len(layers) if acting else 0):
        before = {at: floors[at] for at in layers[:number]}
        cap = wb.Intervention.cap(direction, layers=list(before), floor=before)
        with wb.intervene(subject, [cap]):
            found |= read([layers[number]])
    below = np.sum([found[layer] < floors[layer] for layer in layers], axis=0)
    texts = ["", *pieces(subject.tokenizer, rendered.ids[first:stop])]
    told = {"below": below, "blocks": len(layers), "value": plain[monitor]}
    return pd.DataFrame(
        {"text": texts, "place": ["prompt"] + ["generated"] * (stop - first), **told}
    )


def loaded(ref: str, base: str | None) -> Subject:
    """Return a model, loaded once while it is among the last ones used."""
    from workbench.api import load_for_readouts

    key = (ref, base)
    subject = _models.pop(key, None)
    if subject is None:
        while len(_models) >= MOST_MODELS:
            _models.pop(next(iter(_models)))
        subject = load_for_readouts(ref) if base is None else load_for_readouts(ref, base=base)
    _models[key] = subject
    return subject
