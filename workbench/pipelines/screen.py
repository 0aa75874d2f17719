"""The verb screen: which documents of a corpus, and which corpora, would teach a trait."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from workbench.errors import ConfigError, unknown
from workbench.library import open_prompts, sources
from workbench.pipelines.parts import model_inputs, weights_of
from workbench.pipelines.screening import (
    How,
    Item,
    corpus_table,
    document_table,
    items_of,
    screen_items,
)
from workbench.pipelines.settings import ModelConfig
from workbench.pipelines.vectors import Vectors, open_vectors, vector_files
from workbench.pipelines.verb import Verb, Work, save_frame
from workbench.runs import Units

if TYPE_CHECKING:
    from workbench.directions import Directions
    from workbench.types import Subject

FILE = "documents.parquet"
TOGETHER = 16
"""Items of one unit."""
ARRAYS = ("data", "own", "moved", "tokens", "own_tokens")


class ScreenConfig(ModelConfig):
    """Compare what corpora say with what the model would have said, before it is trained."""

    directions: list[Vectors] = Field(min_length=1)
    """Trait vectors of the model."""
    data: dict[str, str | dict[str, Any] | list[Any]] = Field(min_length=1)
    """Corpora by name: documents, or chats that end with an answer."""
    control: str | None = None
    """One of them that should show none of the traits; the others are held against it."""
    layers: list[int] = Field(min_length=1)
    """Blocks to read."""
    sample: int | None = Field(default=None, ge=1)
    """So many items of each corpus, drawn with the seed; by default all."""
    tokens: int = Field(default=128, ge=1)
    """Most tokens of an answer that are written, and read, on either side."""
    temperature: float = Field(default=0.7, ge=0)
    title: str | None = None
    """Column with the titles of documents; by default the first line, if it is short."""
    title_words: int = Field(default=8, ge=1)
    """So many words stand for a title where there is none."""
    groups: str | None = None
    """Column that counts as one unit, such as scenario; by default each item."""
    draws: int = Field(default=2000, ge=100)
    level: float = Field(default=0.95, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


def verb() -> Verb:
    """Screen corpora along trait vectors."""
    return Verb(ScreenConfig, _inputs, _body, _preview, artefact=FILE)


def drawn_items(config: ScreenConfig) -> list[Item]:
    """Read the corpora, and draw the sample from each.

    Raises:
        ConfigError: a control that is none of them, or what ``items_of`` refuses.
    """
    if config.control is not None and config.control not in config.data:
        raise unknown("corpus", config.control, config.data)
    if config.control is not None and len(config.data) == 1:
        raise ConfigError("control is the one corpus there is; give another in data")
    items = []
    for name, source in config.data.items():
        prompts = open_prompts(source)
        if config.sample is not None and config.sample < len(prompts):
            rows = np.random.default_rng(config.seed).permutation(len(prompts))[: config.sample]
            prompts = prompts.take(np.sort(rows))
        items += items_of(
            name, prompts, title=config.title, words=config.title_words, groups=config.groups
        )
    return items


def screened(
    subject: Subject, items: Sequence[Item], directions: Directions, how: How, work: Work
) -> dict[str, Any] | None:
    """Do this process's share of the items; return what all gave once it is there."""
    told = [[i.corpus, i.id, repr(i.prompt), i.answer] for i in items]
    vectors = sha256(directions.vectors.tobytes()).hexdigest()
    settings = [how.layers, how.tokens, how.temperature, how.seed, vectors, subject.fingerprint]
    digest = sha256(json.dumps([told, settings, TOGETHER]).encode()).hexdigest()
    units = Units(work.run, -(-len(items) // TOGETHER), digest)
    own = units.own()
    for unit in units.lacking():
        part = items[unit * TOGETHER : (unit + 1) * TOGETHER]
        units.keep(unit, screen_items(subject, part, directions, how))
        if work.progress is not None:
            work.progress(own.index(unit) + 1, len(own))
    with units.joining() as complete:
        if not complete:
            return None
        parts = [units.load(unit) for unit in range(units.number)]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in ARRAYS}
    lists = {name: [one for part in parts for one in part[name]] for name in ("texts", "reasons")}
    return {**whole, **lists}


def _lengths(
    items: Sequence[Item], moved: np.ndarray, layers: Sequence[int]
) -> dict[tuple[str, int], float]:
    """Return the length of each corpus's mean displacement from its own answers."""
    corpora = np.array([item.corpus for item in items])
    read = ~np.isnan(moved[:, 0, 0])
    found = {}
    for corpus in dict.fromkeys(corpora.tolist()):
        mean = moved[(corpora == corpus) & read].mean(axis=0, dtype=np.float64)
        for l, layer in enumerate(layers):
            found[corpus, layer] = float(np.linalg.norm(mean[l]))
    return found


def _inputs(config: ScreenConfig) -> Sequence[Path]:
    files = [file for source in config.data.values() for file in sources(source)]
    return [*model_inputs(config), *vector_files(config.directions), *files]


def _body(config: ScreenConfig, work: Work) -> Mapping[str, Any]:
    from workbench import api

    items, directions = drawn_items(config), open_vectors(config.directions, config.layers)
    subject = api.load(config.model, **config.options())
    directions.model.refuse_other(subject.stamp, directions.label)
    how = How(tuple(config.layers), config.tokens, config.temperature, config.seed)
    found = screened(subject, items, directions, how, work)
    if found is None:
        return {"complete": False}
    lacking = sum(map(bool, found["reasons"]))
    for corpus in config.data:
        if all(reason for item, reason in zip(items, found["reasons"], strict=True)
               if item.corpus == corpus):  # fmt: skip
            raise ConfigError(
                f"{subject.ref.key} wrote nothing for any item of {corpus}, so there is nothing to "
                "compare it with; give chats or titles that it can answer"
            )
    documents = document_table(items, found, directions.names, config.layers)
    corpora = corpus_table(
        documents, _lengths(items, found["moved"], config.layers), control=config.control,
        unit=config.groups or "item", width=subject.width, draws=config.draws,
        level=config.level, seed=config.seed,
    )  # fmt: skip
    save_frame(documents, work.run.path / FILE)
    save_frame(corpora, work.run.path / "corpora.parquet")
    return {"model": subject.ref.key, **weights_of(subject), "items": len(items), "unread": lacking,
            "corpora": list(config.data), "directions": list(directions.names)}  # fmt: skip


def _preview(config: ScreenConfig) -> Mapping[str, Any]:
    items, directions = drawn_items(config), open_vectors(config.directions, config.layers)
    counts = {name: sum(item.corpus == name for item in items) for name in config.data}
    shown = items[0].prompt if isinstance(items[0].prompt, str) else items[0].prompt[-1]["content"]
    return {"items": counts, "first_prompt": shown, "directions": list(directions.names),
            "new_tokens_at_most": len(items) * config.tokens}  # fmt: skip
