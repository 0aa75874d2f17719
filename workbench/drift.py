"""Drift of a conversation along directions: where each token, and the mean of each turn, lies.

The coordinate is the projection on the unit direction, in residual-stream units, of the residual
stream at every token of the messages' contents (Lu et al. 2026 follow the Assistant Axis so).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from workbench.directions import Directions
from workbench.errors import ConfigError
from workbench.models.families import refuse_long
from workbench.stats import mean_interval, percentiles
from workbench.types import ActivationsLike, Read, Rendered, Subject, ndarray

ASSISTANT = "assistant"
TURN = ["conversation", "turn", "role", "layer", "direction"]
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class Span(NamedTuple):
    """The tokens of one message's content."""

    turn: int
    role: str
    first: int
    stop: int


def conversation_drift(
    subject: Subject,
    directions: Directions,
    messages: Sequence[Mapping[str, str]],
    *,
    layers: Sequence[int] | None = None,
    conversation: str = "0",
) -> pd.DataFrame:
    """Read one conversation once, and return where each token of it lies along each direction.

    Args:
        subject: the model that reads it; edits of an enclosing ``intervene`` act.
        directions: any, such as the Assistant Axis and traits.
        messages: the chat, of any length and with any turns.
        layers: block indices; by default all that ``directions`` hold.
        conversation: its name in the table.

    Returns:
        Rows conversation, turn (the message's number, from 0), role, token (its number within the
        turn), position (within the rendered chat), text (the pieces of a turn join to its text),
        layer, direction, value (residual units).

    Raises:
        MismatchError: directions of another model.
        ConfigError: a layer that they lack, messages that the template refuses, or more tokens
            than the model can place.
    """
    directions.model.refuse_other(subject.stamp, directions.label)
    chosen = tuple(directions.layers if layers is None else layers)
    lines = directions.select(chosen).unit_vectors()
    rendered = subject.renderer.render(tuple(messages), render="chat", add_generation_prompt=False)
    refuse_long(subject.model, len(rendered.ids), f"conversation {conversation!r}")
    spans = list(_spans(messages, rendered))
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    batch = subject.renderer.collate([rendered])
    reads = [Read(directions.site, chosen, "all")]
    ((states,),) = subject.runner.capture(subject, batch, reads)
    h = states.float().cpu().numpy()
    values = np.einsum("ltd,lkd->tlk", h, lines)
    return _table(conversation, subject, rendered, spans, values, chosen, directions.names)


def turn_means(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over each turn's tokens; the chat's first token, a sink, is left out.

    Args:
        tokens: of ``conversation_drift``, of one conversation or several.

    Returns:
        Rows conversation, turn, role, layer, direction, value, n (tokens).
    """
    kept = tokens[tokens["position"] > 0].astype({"value": float})
    found = kept.groupby(TURN, sort=False)["value"].agg(value="mean", n="size")
    return found.reset_index()


def reference_band(
    directions: Directions, acts: ActivationsLike, *, level: float = 0.95
) -> pd.DataFrame:
    """Return where the middle ``level`` of a reference set's items lies along each direction.

    Args:
        directions: at layers that ``acts`` hold.
        acts: response means, such as those of default rollouts; compare turns with them.
        level: share of the items inside.

    Returns:
        Rows layer, direction, mean, low, high, n, unit, interval.

    Raises:
        MismatchError: another model or site, or a layer that is missing.
        ConfigError: fewer than two items.
    """
    coordinates = directions.project(acts)
    n = coordinates.shape[-1]
    if n < 2:
        raise ConfigError(f"a band of {n} items; give a reference of two or more")
    rows = []
    for k, name in enumerate(directions.names):
        for l, layer in enumerate(directions.layers):
            low, high = percentiles(coordinates[k, l].astype(np.float64), level)
            mean = float(coordinates[k, l].mean(dtype=np.float64))
            band = {"mean": mean, "low": low, "high": high, "n": n, "unit": "item"}
            told = f"middle {level:.0%} of reference items"
            rows.append({"layer": layer, "direction": name, **band, "interval": told})
    return pd.DataFrame(rows)


def drift_trend(
    turns: pd.DataFrame,
    *,
    role: str = ASSISTANT,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how fast conversations move: the slope of the turn means over the turns of a role.

    The slope of each conversation is least squares over its turns, numbered 0, 1, 2 among those
    of the role; the mean over conversations stands beside what the same turns give in random order.

    Args:
        turns: of ``turn_means``.
        role: whose turns.
        draws: of the bootstrap over conversations, and of the orders.
        level: of the interval and the band.
        seed: of both.

    Returns:
        Rows direction, layer, slope (residual units a turn), low, high, n, unit, interval, turns
        (mean number), band: the ``level`` quantile of |mean slope| under random orders. No row
        where no conversation has two such turns.
    """
    own = turns[turns["role"] == role]
    rows = []
    for (name, layer), part in own.groupby(["direction", "layer"], sort=False):
        series = [one["value"].to_numpy(float) for _, one in part.groupby("conversation")]
        series = [one for one in series if len(one) > 1]
        if series:
            rows.append({"direction": name, "layer": layer, **_trend(series, draws, level, seed)})
    return pd.DataFrame(rows)


def _trend(
    series: Sequence[Float[ndarray, " m"]], draws: int, level: float, seed: int
) -> dict[str, Any]:
    slopes = np.array([float(_slope(one[None])[0]) for one in series])
    found = mean_interval(slopes, unit="conversation", draws=draws, level=level, seed=seed)
    rng = np.random.default_rng(seed)
    orders = [_slope(rng.permuted(np.tile(one, (draws, 1)), axis=1)) for one in series]
    band = float(np.quantile(np.abs(np.mean(orders, axis=0)), level))
    told = {"n": found.n, "unit": found.unit, "interval": found.name}
    turns = float(np.mean([len(one) for one in series]))
    return {"slope": found.value, "low": found.low, "high": found.high, **told, "turns": turns,
            "band": band}  # fmt: skip


def _slope(values: Float[ndarray, "b m"]) -> Float[ndarray, " b"]:
    """Return the least-squares slope of each row over 0, 1, 2, ..."""
    steps = np.arange(values.shape[1]) - (values.shape[1] - 1) / 2
    return np.asarray(values @ steps / (steps @ steps))


# --- tokens ---------------------------------------------------------------------------------------


def _spans(messages: Sequence[Mapping[str, str]], rendered: Rendered) -> Iterator[Span]:
    """Give the tokens of each message; a role's ranges stand in the order of its messages."""
    ranges = {role: iter(found) for role, found in rendered.spans.items()}
    for turn, message in enumerate(messages):
        if message["content"]:
            yield Span(turn, message["role"], *next(ranges[message["role"]]))


def _table(
    conversation: str,
    subject: Subject,
    rendered: Rendered,
    spans: Sequence[Span],
    values: Float[ndarray, "t l k"],
    layers: Sequence[int],
    names: Sequence[str],
) -> pd.DataFrame:
    places: Int[ndarray, " m"] = np.concatenate([np.arange(s.first, s.stop) for s in spans])
    counts = [span.stop - span.first for span in spans]
    texts = [p for s in spans for p in pieces(subject.tokenizer, rendered.ids[s.first : s.stop])]
    cells = len(layers) * len(names)
    columns = {
        "turn": np.repeat([span.turn for span in spans], counts),
        "role": np.repeat([span.role for span in spans], counts),
        "token": np.concatenate([np.arange(count) for count in counts]),
        "position": places,
        "text": np.array(texts, object),
    }
    return pd.DataFrame(
        {
            "conversation": conversation,
            **{name: np.repeat(column, cells) for name, column in columns.items()},
            "layer": np.tile(np.repeat(layers, len(names)), len(places)),
            "direction": np.tile(np.array(names, object), len(places) * len(layers)),
            "value": values[places].reshape(-1).astype(np.float32),
        }
    )


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return what each token adds to the text; a character of several tokens is the last one's."""

    def read(first: int, stop: int) -> str:
        told = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(tokenizer.decode(ids[first:stop], **told))

    found: list[str] = []
    before, begun = 0, 0  # of the last whole piece, and of the one that is being read
    for stop in range(1, len(ids) + 1):
        text = read(before, stop)
        if text.endswith(INCOMPLETE) and stop < len(ids):
            found.append("")
            continue
        found.append(text[len(read(before, begun)) :])
        before, begun = begun, stop
    return found
