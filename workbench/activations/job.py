"""What a capture is of: prompts rendered and checked, cut into shards, hashed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from workbench.activations.batches import Row, pad_right
from workbench.activations.layout import Manifest, Part
from workbench.activations.store import SHARD_ROWS, plan_shards
from workbench.engine.pool import Position, parse_position, token_mask
from workbench.errors import ConfigError
from workbench.models.families import refuse_long
from workbench.prompts import PromptSet
from workbench.types import Read, Subject

GROUP_BYTES = 384 << 20
"""Fewer items run together where their values would be larger than this in float32."""
GROUP_TOKENS = 1 << 14
"""So many short items run together as make so many tokens: two full batches."""
SHARD_BYTES = 96 << 20
"""Those that run together make several shards where their values are larger in float32.

When the last row has come each shard is hashed, and that goes side by side.
"""
LAST_TOKENS = 1 << 11
"""Of a capture in many shards the last items that run together make so many tokens.

When they have landed little is left to hash and to sync; and they take as long as it takes to write
those before them.
"""
LAST_SHARDS = 8
"""They make so many shards, which are closed side by side."""
KEPT_TOKENS = 1 << 24
"""Prompts of so many tokens are kept as rendered (64 MB); those after them are rendered again."""
Group: TypeAlias = tuple[tuple[int, int], ...]
"""Shards, one after another, whose rows run together: half-open ranges of items."""


@dataclass(frozen=True)
class Job:
    """Everything that the values depend on."""

    subject: Subject
    prompts: PromptSet
    reads: tuple[Read, ...]
    options: Mapping[str, Any]
    groups: tuple[Group, ...]
    budget: int
    tokens: int
    """Of all prompts, pads left out."""
    inputs: str
    """sha256 of prompts, columns and token ids."""
    columns: Mapping[str, np.ndarray]
    kept: Sequence[Row] = ()
    """The first prompts, rendered."""

    @property
    def shards(self) -> Group:
        """Every shard."""
        return tuple(shard for group in self.groups for shard in group)

    def part(self, first: int, stop: int, offsets: np.ndarray | None, budget: int | None) -> Part:
        """Return what is known of some prompts before they are run; see `Part`."""
        columns = {name: column[first:stop] for name, column in self.columns.items()}
        return Part(first, columns, offsets, budget)

    def rows(self, first: int, stop: int) -> list[Row]:
        """Return some prompts as rendered.

        Raises:
            ConfigError: one cannot be rendered; its id is named.
        """
        begun = max(first, min(stop, len(self.kept)))
        return [*self.kept[first:begun], *self._rendered(begun, stop)]

    def _rendered(self, first: int, stop: int) -> list[Row]:
        many = getattr(self.subject.renderer, "render_many", None)
        if many is None or first == stop:
            return [self._render(row) for row in range(first, stop)]
        given = {name: value for name, value in self.options.items() if value is not None}
        try:
            return [Row.of(one) for one in many(self.prompts.items[first:stop], **given)]
        except ConfigError:
            return [self._render(row) for row in range(first, stop)]  # says which it is

    def _render(self, row: int) -> Row:
        given = {name: value for name, value in self.options.items() if value is not None}
        try:
            return Row.of(self.subject.renderer.render(self.prompts.items[row], **given))
        except ConfigError as error:
            raise ConfigError(f"item {self.prompts.ids[row]!r}: {error}") from None

    def manifest(self, read: Read) -> Manifest:
        """Return the manifest of one read; its dtype is settled by the first values."""
        runner = self.subject.runner
        several = any(len(group) > 1 for group in self.groups)
        together = {"together": max(map(_items, self.groups))} if several else {}
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
                **together,
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
    tokens, kept = 0, list[Row]()
    for first, stop in plan_shards(len(prompts), SHARD_ROWS):
        rows = job.rows(first, stop)
        _check_spans(job, rows, first)
        for number, row in enumerate(rows, first):
            refuse_long(subject.model, len(row.ids), f"item {prompts.ids[number]!r}")
            digest.update(row.ids.astype(np.int64).tobytes() + b"|")
            tokens += len(row.ids)
        if tokens <= KEPT_TOKENS:
            kept += rows
    size = _largest(reads, subject.width, tokens / len(prompts))
    groups = _groups(size, tokens / len(prompts), len(prompts), shard_rows)
    return replace(job, groups=groups, tokens=tokens, inputs=digest.hexdigest(), kept=kept)


def _groups(size: float, tokens: float, n: int, shard_rows: int | None) -> tuple[Group, ...]:
    """Choose how many items run together: of so many bytes and tokens each."""
    if shard_rows:
        return plan_groups(n, shard_rows, shard_rows)
    together, most = _group_rows(size, tokens, n), max(1, int(SHARD_BYTES // size))
    last = int(LAST_TOKENS // tokens)
    small = together > most and 4 * last <= together and 8 * last <= n
    return plan_groups(n, together, most, last if small else 0)


def plan_groups(n: int, together: int, most: int, last: int = 0) -> tuple[Group, ...]:
    """Cut items into those that run together, and these into shards of about one size.

    Args:
        n: items in all.
        together: items that run together.
        most: items of a shard.
        last: so many run last, in small shards; the first group is smaller by as many, so that two
            processes have the same to do.
    """
    if last:
        begins = [0, *range(together - last, n - last, together), n - last]
        bounds = list(pairwise([*begins, n]))
    else:
        bounds = list(plan_shards(n, together))
    rows = -(-together // -(-together // most))
    sizes = [rows] * (len(bounds) - 1) + [-(-last // LAST_SHARDS) or rows]
    return tuple(
        tuple((start, min(start + size, stop)) for start in range(first, stop, size))
        for (first, stop), size in zip(bounds, sizes, strict=True)
    )


def _items(group: Group) -> int:
    return group[-1][1] - group[0][0]


def _columns(prompts: PromptSet) -> dict[str, np.ndarray]:
    """Item columns: id, the set's own, and the prompt itself as ``text`` (chats as JSON)."""
    texts = [item if isinstance(item, str) else json.dumps(item) for item in prompts.items]
    return {"id": np.array(prompts.ids), "text": np.array(texts), **prompts.columns}


def _content(column: tuple[str, np.ndarray]) -> list[Any]:
    name, values = column
    return [name, values.dtype.kind, values.tolist()]


def _check_spans(job: Job, rows: Sequence[Row], first: int) -> None:
    """Refuse a prompt in which a read finds no token, with its id."""
    positions = [parse_position(read.position) for read in job.reads]
    doubtful = [position for position in positions if not position.always_there]
    if not doubtful:
        return
    try:
        _find_tokens(doubtful, rows)
    except ConfigError:
        for number, row in enumerate(rows, first):
            try:
                _find_tokens(doubtful, [row])
            except ConfigError as error:
                raise ConfigError(f"item {job.prompts.ids[number]!r}: {error}") from None
        raise


def _find_tokens(positions: Sequence[Position], rows: Sequence[Row]) -> None:
    batch = pad_right(rows)
    for position in positions:
        token_mask(position, batch.attention_mask.bool(), batch.spans)


def _largest(reads: Sequence[Read], width: int, tokens: float) -> float:
    """Return the bytes of an item in float32, for the read that gives most."""
    largest = max(len(read.layers) * (tokens if is_ragged(read) else 1) for read in reads)
    return 4.0 * width * largest


def _group_rows(size: float, tokens: float, n: int) -> int:
    """Return how many items run together: more where they are short, but two groups at least.

    Batches are cut from items sorted by length, so that short ones need many to fill a batch.
    """
    short = min(GROUP_TOKENS // tokens, -(-n // 2))
    return int(min(max(SHARD_ROWS, short), max(1, GROUP_BYTES // size)))


def is_ragged(read: Read) -> bool:
    """Whether an item has several vectors: its tokens."""
    return parse_position(read.position).kind == "all"
