"""The verb drift: conversations followed along directions, beside the band of a reference set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from workbench.errors import ConfigError
from workbench.library import open_prompts, sources
from workbench.pipelines.parts import model_inputs, weights_of
from workbench.pipelines.settings import ModelConfig
from workbench.pipelines.vectors import Vectors, open_vectors, vector_files
from workbench.pipelines.verb import Verb, Work, save_frame
from workbench.runs import Units

if TYPE_CHECKING:
    import pandas as pd

    from workbench.directions import Directions
    from workbench.prompts import PromptSet
    from workbench.types import Subject

FILE = "drift.parquet"
TOGETHER = 8
"""Conversations of one unit."""


class DriftConfig(ModelConfig):
    """Read conversations, and project every token of them."""

    directions: list[Vectors] = Field(min_length=1)
    """The Assistant Axis, traits, or any others."""
    conversations: str | dict[str, Any] | list[Any]
    """Chats: a file, an item set, transcripts, or a table {path, where, first}."""
    layers: list[int] = Field(min_length=1)
    """Blocks to read."""
    reference: str | None = None
    """Store of response means, such as those of default rollouts: the band for turns."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Rows of the reference, such as {role = "default"}."""
    role: str = "assistant"
    """Whose turns the trend is of."""
    draws: int = Field(default=2000, ge=100)
    level: float = Field(default=0.95, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


def verb() -> Verb:
    """Follow conversations along directions."""
    return Verb(DriftConfig, _inputs, _body, _preview, artefact=FILE)


def read_conversations(
    subject: Subject, directions: Directions, chats: PromptSet, config: DriftConfig, work: Work
) -> pd.DataFrame | None:
    """Do this process's share, conversation by conversation; return all tokens once they are there.

    Returns:
        The rows of ``conversation_drift``; None where other shares are not done.
    """
    import pandas as pd

    from workbench.drift import conversation_drift

    cuts = range(0, len(chats), TOGETHER)
    told = [chats.ids, chats.items, config.layers, directions.names, subject.fingerprint]
    vectors = sha256(directions.vectors.tobytes()).hexdigest()
    digest = sha256(json.dumps([*told, vectors]).encode()).hexdigest()
    units = Units(work.run, len(cuts), digest)
    own = units.own()
    for unit in units.lacking():
        rows = range(cuts[unit], min(cuts[unit] + TOGETHER, len(chats)))
        tables = [
            conversation_drift(
                subject, directions, chats.items[row],
                layers=config.layers, conversation=chats.ids[row],
            )
            for row in rows
        ]  # fmt: skip
        units.keep(unit, _packed(pd.concat(tables, ignore_index=True)))
        if work.progress is not None:
            work.progress(own.index(unit) + 1, len(own))
    with units.joining() as complete:
        if not complete:
            return None
        parts = [pd.DataFrame(units.load(unit)) for unit in range(units.number)]
    return pd.concat(parts, ignore_index=True)


def beside_reference(
    turns: pd.DataFrame, directions: Directions, config: DriftConfig
) -> pd.DataFrame:
    """Add where the reference's items lie, and whether a turn of the role lies outside.

    ``outside`` is missing for other turns than the role's, and without a reference.
    """
    from workbench.activations import open_activations
    from workbench.drift import reference_band

    if config.reference is None:
        return turns.assign(outside=None)
    acts = open_activations(config.reference)
    acts = acts.where(**config.where) if config.where else acts
    band = reference_band(directions.select(config.layers), acts, level=config.level)
    names = {name: f"reference_{name}" for name in ("mean", "low", "high", "n", "unit", "interval")}
    both = turns.merge(band.rename(columns=names), on=["layer", "direction"])
    outside = (both["value"] < both["reference_low"]) | (both["value"] > both["reference_high"])
    return both.assign(outside=outside.astype(object).where(both["role"] == config.role, None))


def _packed(table: pd.DataFrame) -> dict[str, Any]:
    kinds = {"turn": np.int64, "token": np.int64, "position": np.int64, "layer": np.int64,
             "value": np.float32}  # fmt: skip
    return {
        name: table[name].to_numpy(kinds[name]) if name in kinds else table[name].tolist()
        for name in table.columns
    }


def _chats(config: DriftConfig) -> PromptSet:
    chats = open_prompts(config.conversations)
    if not chats.is_chat:
        raise ConfigError(f"{chats.source} holds texts; give chats, with a key messages")
    return chats


def _inputs(config: DriftConfig) -> Sequence[Path]:
    store = [] if config.reference is None else [Path(config.reference)]
    files = [*vector_files(config.directions), *sources(config.conversations), *store]
    return [*model_inputs(config), *files]


def _body(config: DriftConfig, work: Work) -> Mapping[str, Any]:
    from workbench import api
    from workbench.drift import drift_trend, turn_means

    chats, directions = _chats(config), open_vectors(config.directions, config.layers)
    subject = api.load(config.model, **config.options())
    tokens = read_conversations(subject, directions, chats, config, work)
    if tokens is None:
        return {"complete": False}
    turns = beside_reference(turn_means(tokens), directions, config)
    trend = drift_trend(
        turns, role=config.role, draws=config.draws, level=config.level, seed=config.seed
    )
    for name, table in (("drift", tokens), ("turns", turns), ("trend", trend)):
        if len(table):
            save_frame(table, work.run.path / f"{name}.parquet")
    told = {"model": subject.ref.key, **weights_of(subject), "conversations": len(chats)}
    counted = turns["outside"].notna()
    if counted.any():
        told["outside"] = float(turns.loc[counted, "outside"].astype(bool).mean())
    return {**told, "turns": len(turns), "tokens": len(tokens)}


def _preview(config: DriftConfig) -> Mapping[str, Any]:
    chats, directions = _chats(config), open_vectors(config.directions, config.layers)
    return {"conversations": len(chats), "turns": sum(map(len, chats.items)),
            "directions": list(directions.names), "layers": config.layers}  # fmt: skip
