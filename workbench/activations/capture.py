"""Activations of a prompt set: rendered, cut into shards and batches, read, kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.activations.acts import Activations
from workbench.activations.layout import STORED, Manifest, encode, make_block
from workbench.activations.sink import Background, Sink
from workbench.activations.store import SHARD_ROWS, plan_shards
from workbench.engine.pool import SITES, parse_position, token_mask
from workbench.errors import ConfigError, WorkbenchError
from workbench.files import format_bytes, free_bytes
from workbench.prompts import PromptSet
from workbench.types import Progress, Read, Rendered, Subject

SHARD_BYTES = 384 << 20
"""A shard holds fewer items where its values would be larger than this in float32."""
BUDGET = 8192
"""Tokens of one batch, pads included."""


def capture(
    subject: Subject,
    prompts: PromptSet,
    *,
    layers: str | Sequence[int] = "all",
    site: str = "resid_post",
    position: str = "last",
    reads: Sequence[Read | str] | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    render: str = "auto",
    add_generation_prompt: bool | None = None,
    dtype: str | None = None,
    shard_rows: int | None = None,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> Activations | dict[str, Activations]:
    """Read activations of every prompt, to memory or to a resumable store on disk.

    Every prompt is rendered and checked before the first forward. Batches are a function of a
    shard's content, so that an interrupted capture, resumed, leaves the same bytes.

    Args:
        subject: the model under study, with a runner.
        prompts: texts or chats; their columns are kept beside the values, and so is the text.
        layers: ``all``, or block indices.
        site: ``resid_post``.
        position: ``last``, ``all``, ``last:SPAN``, ``mean:SPAN``, ``mean:SPAN[50:]`` or
            ``offset:-2``.
        reads: several reads from one pass, as ``Read`` or ``position`` or ``site@position``; a
            ``Read`` without layers takes ``layers``.
        out: the store's folder, or with ``reads`` the folder that gets one store for each; None
            keeps the values in memory.
        resume: keep the finished shards of an interrupted capture.
        render: ``bare`` or ``chat``; ``auto`` is bare for texts and chat for chats.
        add_generation_prompt: end a chat with the assistant's header.
        dtype: store as ``bfloat16``, ``float16`` or ``float32``; by default what the read gives
            (the model's dtype for single tokens, float32 for means).
        shard_rows: items in a shard; by default 256, fewer where they are large.
        budget: tokens of one batch, pads included.
        progress: called with (items done, items in all).

    Returns:
        The activations; with ``reads``, one for each, keyed by ``site@position``.

    Raises:
        ConfigError: an unknown layer, site or position, an item whose span is empty, values that
            are not finite.
        MismatchError: ``out`` holds activations of other settings.
        WorkbenchError: no room on the disk, or a batch that does not fit the device.
    """
    if dtype is not None and dtype not in STORED:
        raise ConfigError(f"dtype {dtype!r}; stored dtypes: {', '.join(STORED)}")
    options = {"render": render, "add_generation_prompt": add_generation_prompt}
    wanted = _reads(subject, layers, site, position, reads)
    job = _prepare(subject, prompts, list(wanted.values()), options, shard_rows, budget)
    folders = _folders(out, list(wanted), several=reads is not None)
    sinks = [
        Sink.open(job.manifest(read), folder, resume=resume, dtype=dtype)
        for read, folder in zip(job.reads, folders, strict=True)
    ]
    _refuse_full_disk(job, sinks, dtype)
    _fill(job, sinks, dtype, progress)
    found = dict(zip(wanted, (sink.finish() for sink in sinks), strict=True))
    return found if reads is not None else next(iter(found.values()))


def read_name(read: Read) -> str:
    """Return ``site@position``, by which a read is known."""
    return f"{read.site}@{read.position}"


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
            ragged=_is_ragged(read),
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


def _reads(
    subject: Subject,
    layers: str | Sequence[int],
    site: str,
    position: str,
    reads: Sequence[Read | str] | None,
) -> dict[str, Read]:
    """Return the reads by name, checked against the model."""
    if reads is not None and not reads:
        raise ValueError("reads is empty; give at least one Read")
    default = _layers(subject, layers)
    listed = [Read(site, (), position)] if reads is None else [_as_read(read) for read in reads]
    named: dict[str, Read] = {}
    for read in listed:
        if read.site not in SITES:
            raise ConfigError(f"site {read.site!r}; known sites: {', '.join(SITES)}")
        parse_position(read.position)
        if read_name(read) in named:
            raise ConfigError(f"read {read_name(read)} is named twice; give it once, all layers")
        chosen = _layers(subject, read.layers) if read.layers else default
        named[read_name(read)] = replace(read, layers=chosen)
    return named


def _as_read(read: Read | str) -> Read:
    if isinstance(read, Read):
        return read
    site, at, position = read.rpartition("@")
    return Read(site if at else "resid_post", (), position)


def _layers(subject: Subject, layers: str | Sequence[int]) -> tuple[int, ...]:
    known = tuple(sorted(subject.blocks))
    if layers == "all":
        return known
    wrong = [layer for layer in layers if isinstance(layers, str) or layer not in known]
    if wrong or not layers:
        shown = layers if isinstance(layers, str) else list(layers)
        raise ConfigError(
            f"layers = {shown!r}; give 'all' or block indices of {subject.ref.key}: {known[0]} to "
            f"{known[-1]}, counted from the first block"
        )
    if len(set(layers)) < len(layers):
        raise ConfigError(f"layers = {list(layers)} names a layer twice; name each once")
    return tuple(int(layer) for layer in layers)


def _folders(out: str | Path | None, names: list[str], *, several: bool) -> list[Path | None]:
    if out is None:
        return [None] * len(names)
    if not several:
        return [Path(out)]
    slugs = [re.sub(r"[^\w@.+-]", "-", name) for name in names]
    assert len(set(slugs)) == len(slugs), "the position grammar has no two names with one slug"
    return [Path(out) / slug for slug in slugs]


# --- before the first forward --------------------------------------------------------------------


def _prepare(
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
    largest = max(len(read.layers) * (tokens if _is_ragged(read) else 1) for read in reads)
    return int(min(SHARD_ROWS, max(1, SHARD_BYTES // (largest * width * 4))))


def _is_ragged(read: Read) -> bool:
    return parse_position(read.position).kind == "all"


def _refuse_full_disk(job: Job, sinks: Sequence[Sink], dtype: str | None) -> None:
    """Compare what is still to be written with the free room, before hours of work."""
    for sink in sinks:
        if sink.folder is None:
            continue
        own = job.subject.ref.dtype if parse_position(sink.plan.position).kind != "mean" else ""
        itemsize = np.dtype(STORED.get(dtype or own, np.float32)).itemsize
        rows = job.tokens if sink.plan.ragged else len(job.prompts)
        lacking = sum(not sink.has(*shard) for shard in job.shards) / len(job.shards)
        needs = int(lacking * rows * len(sink.plan.layers) * sink.plan.width * itemsize)
        free = free_bytes(sink.folder)
        if needs > free:
            raise WorkbenchError(
                f"{sink.folder} needs about {format_bytes(needs)}, {format_bytes(free)} are free; "
                "free some space, name fewer layers, or give an out on another disk"
            )


# --- forwards ------------------------------------------------------------------------------------


def _fill(job: Job, sinks: Sequence[Sink], dtype: str | None, progress: Progress | None) -> None:
    """Read every shard that a sink lacks; values are written while the next shard is read."""
    with Background() as background:
        for first, stop in job.shards:
            lacking = [number for number, sink in enumerate(sinks) if not sink.has(first, stop)]
            if lacking:
                reads = [job.reads[number] for number in lacking]
                values = _read_shard(job, reads, first, stop, progress)
                for number, parts in zip(lacking, values, strict=True):
                    background.submit(partial(_keep, job, sinks[number], parts, first, stop, dtype))
            elif progress is not None:
                progress(stop, len(job.prompts))


def _read_shard(
    job: Job, reads: Sequence[Read], first: int, stop: int, progress: Progress | None
) -> list[list[Tensor]]:
    """Return for each read one CPU tensor an item: ``(l, d)``, or ``(l, t, d)`` where ragged."""
    rendered = [job.render(row) for row in range(first, stop)]
    found: list[list[Tensor]] = [[torch.empty(0)] * len(rendered) for _ in reads]
    done = first
    for rows in cut_batches([len(one.ids) for one in rendered], job.budget):
        answers = _forward(job.subject, [rendered[row] for row in rows], reads)
        for read_rows, answer in zip(found, answers, strict=True):
            for row, value in zip(rows, _by_row(answer), strict=True):
                read_rows[row] = value
        done += len(rows)
        if progress is not None:
            progress(done, len(job.prompts))
    return found


def cut_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield rows sorted by length, as many at once as fit ``budget`` tokens with their pads."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        if batch and (len(batch) + 1) * lengths[row] > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _forward(subject: Subject, rendered: Sequence[Rendered], reads: Sequence[Read]) -> list[Any]:
    """Run one batch. Padded right: real tokens never see a pad, and bfloat16 loses nothing."""
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    batch = subject.renderer.collate(rendered, "right")
    try:
        return list(subject.runner.capture(subject, batch, reads))
    except torch.OutOfMemoryError as error:
        rows, tokens = batch.input_ids.shape
        raise WorkbenchError(
            f"a batch of {rows} prompts of up to {tokens} tokens does not fit the device; "
            f"give a budget under {rows * tokens} tokens, or fewer layers"
        ) from error


def _by_row(answer: Tensor | list[Tensor]) -> list[Tensor]:
    """Bring one read's answer to the host, split by row."""
    if isinstance(answer, list):
        return [value.detach().to("cpu") for value in answer]
    return list(answer.detach().to("cpu").unbind(1))


def _keep(
    job: Job, sink: Sink, parts: list[Tensor], first: int, stop: int, dtype: str | None
) -> None:
    offsets = None
    if sink.plan.ragged:
        offsets = np.cumsum([0, *(part.shape[1] for part in parts)])
        values = torch.cat(parts, 1)
    else:
        values = torch.stack(parts, 1)
    stored, name = to_stored(values, dtype)
    columns = {name: column[first:stop] for name, column in job.columns.items()}
    sink.keep(make_block(first, stored, name, columns, sink.plan.layers, offsets))


def to_stored(values: Tensor, dtype: str | None = None) -> tuple[np.ndarray, str]:
    """Turn a tensor into stored bits and the name of their dtype; lossless unless ``dtype`` asks.

    Float64 becomes float32.
    """
    own = str(values.dtype).removeprefix("torch.")
    name = dtype or (own if own in STORED else "float32")
    if name != own:
        return encode(values.to(torch.float32).numpy(), name), name
    if own == "bfloat16":
        return values.contiguous().view(torch.int16).numpy().view(np.uint16), own
    return values.contiguous().numpy(), own
