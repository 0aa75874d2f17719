"""What a capture is of: prompts rendered and checked, cut into shards, hashed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from workbench.activations.layout import Manifest
from workbench.activations.store import SHARD_ROWS, plan_shards
from workbench.engine.pool import parse_position, token_mask
from workbench.errors import ConfigError
from workbench.prompts import PromptSet
from workbench.types import Read, Rendered, Subject

SHARD_BYTES = 384 << 20
"""A shard holds fewer items where its values would be larger than this in float32."""


@dataclass(frozen=True)
class Job:
    """Everything that the values depend on."""

    subject: Subject
    prompts: PromptSet
    reads: tuple[Read, ...]
    options: Mapping[str, Any]
    shards: tuple[tuple[int, int], ...]
    budget: int
    tokens: int
    """Of all prompts, pads left out."""
    inputs: str
    """sha256 of prompts, columns and token ids."""
    columns: Mapping[str, np.ndarray]

    def render(self, row: int) -> Rendered:
        """Render one prompt.

        Raises:
            ConfigError: it cannot be rendered; its id is named.
        """
        given = {name: value for name, value in self.options.items() if value is not None}
        try:
            return self.subject.renderer.render(self.prompts.items[row], **given)
        except ConfigError as error:
            raise ConfigError(f"item {self.prompts.ids[row]!r}: {error}") from None

    def manifest(self, read: Read) -> Manifest:
        """Return the manifest of one read; its dtype is settled by the first values."""
        runner = self.subject.runner
        return Manifest(
            layers=read.layers,
            width=self.subject.width,
            site=read.site,
            position=read.position,
            dtype="float32",
            ragged=is_ragged(read),
            shards=self.shards,
            columns=tuple(self.columns),
            model=self.subject.stamp,
            config={
                **self.options,
                "inputs": self.inputs,
                "budget": self.budget,
                "engine": runner.name if runner is not None else None,
                "model_dtype": self.subject.ref.dtype,
            },
        )


def prepare(
    subject: Subject,
    prompts: PromptSet,
    reads: Sequence[Read],
    options: Mapping[str, Any],
    shard_rows: int | None,
    budget: int,
) -> Job:
    """Render every prompt once: spans are checked, tokens counted, the content hashed."""
    columns = _columns(prompts)
    job = Job(subject, prompts, tuple(reads), options, (), budget, 0, "", columns)
    digest = sha256(json.dumps([_content(column) for column in columns.items()]).encode())
    tokens = 0
    for first, stop in plan_shards(len(prompts), SHARD_ROWS):
        rendered = [job.render(row) for row in range(first, stop)]
        _check_spans(job, rendered, first)
        for one in rendered:
            digest.update(np.array(one.ids, np.int64).tobytes() + b"|")
            tokens += len(one.ids)
    rows = shard_rows or _shard_rows(reads, subject.width, tokens / len(prompts))
    shards = plan_shards(len(prompts), rows)
    return replace(job, shards=shards, tokens=tokens, inputs=digest.hexdigest())


def _columns(prompts: PromptSet) -> dict[str, np.ndarray]:
    """Item columns: id, the set's own, and the prompt itself as ``text`` (chats as JSON)."""
    texts = [item if isinstance(item, str) else json.dumps(item) for item in prompts.items]
    return {"id": np.array(prompts.ids), "text": np.array(texts), **prompts.columns}


def _content(column: tuple[str, np.ndarray]) -> list[Any]:
    name, values = column
    return [name, values.dtype.kind, values.tolist()]


def _check_spans(job: Job, rendered: Sequence[Rendered], first: int) -> None:
    """Refuse a prompt in which a read finds no token, with its id."""
    try:
        _find_tokens(job, rendered)
    except ConfigError:
        for row, one in enumerate(rendered, first):
            try:
                _find_tokens(job, [one])
            except ConfigError as error:
                raise ConfigError(f"item {job.prompts.ids[row]!r}: {error}") from None
        raise


def _find_tokens(job: Job, rendered: Sequence[Rendered]) -> None:
    batch = job.subject.renderer.collate(rendered, "right")
    for read in job.reads:
        token_mask(parse_position(read.position), batch.attention_mask.bool(), batch.spans)


def _shard_rows(reads: Sequence[Read], width: int, tokens: float) -> int:
    largest = max(len(read.layers) * (tokens if is_ragged(read) else 1) for read in reads)
    return int(min(SHARD_ROWS, max(1, SHARD_BYTES // (largest * width * 4))))


def is_ragged(read: Read) -> bool:
    """Whether an item has several vectors: its tokens."""
    return parse_position(read.position).kind == "all"
