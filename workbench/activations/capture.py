"""Activations of a prompt set: rendered, cut into shards and batches, read, kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench.activations.acts import Activations
from workbench.activations.layout import STORED
from workbench.activations.sink import Sink
from workbench.errors import ConfigError, WorkbenchError
from workbench.files import format_bytes, free_bytes
from workbench.given import Blocks, blocks_of, several
from workbench.prompts import PromptSet
from workbench.runs import parse_part
from workbench.types import Progress, Read, Subject

if TYPE_CHECKING:
    from workbench.activations.job import Job

BUDGET = 8192
"""Tokens of one batch, pads included."""


def capture(
    subject: Subject,
    prompts: PromptSet,
    *,
    layers: Blocks = "all",
    site: str = "resid_post",
    position: str = "last",
    reads: Read | str | Sequence[Read | str] | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    render: str = "auto",
    add_generation_prompt: bool | None = None,
    dtype: str | None = None,
    shard_rows: int | None = None,
    budget: int = BUDGET,
    shard: str | tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Activations | dict[str, Activations]:
    """Read activations of every prompt, to memory or to a resumable store on disk.

    Every prompt is rendered and checked before the first forward. Batches are a function of the
    items that run together, so that an interrupted capture, resumed, leaves the same bytes.

    Args:
        subject: the model under study, with a runner.
        prompts: texts or chats; their columns are kept beside the values, and so is the text.
        layers: ``all``, block indices, or one of them.
        site: ``resid_post``, ``resid_pre``, ``attn_out`` or ``mlp_out``: see `engine.sites`.
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
        shard_rows: items in a shard, which are sorted into batches together. By default 256, more
            where they are short, fewer where their values are large; and where these make more
            than 96 MiB in float32, several shards hold them, and the last items run alone.
        budget: tokens of one batch, pads included; halved where a batch does not fit the device.
        shard: ``(i, n)`` or ``"i/n"``: do only the items that run together whose number leaves i
            when divided by n. Several processes fill one ``out`` side by side; the last one closes
            it.
        progress: called with (items done, items in all).

    Returns:
        The activations; with ``reads``, one for each, keyed by ``site@position``. Of a ``shard``
        they are its own items alone, until every other is there too (``.complete``).

    Raises:
        ConfigError: an unknown layer, site or position, an item whose span is empty, values that
            are not finite.
        MismatchError: ``out`` holds activations of other settings.
        WorkbenchError: no room on the disk, or a prompt that does not fit the device.
    """
    from workbench.activations.forwards import fill  # torch, for which readers of stores never wait
    from workbench.activations.job import prepare

    if dtype is not None and dtype not in STORED:
        raise ConfigError(f"dtype {dtype!r}; stored dtypes: {', '.join(STORED)}")
    options = {"render": render, "add_generation_prompt": add_generation_prompt}
    wanted = _reads(subject, layers, site, position, reads)
    index, parts = parse_part(shard) if shard is not None else (0, 1)
    job = prepare(subject, prompts, list(wanted.values()), options, shard_rows, budget)
    groups = job.groups[index::parts]
    own = [shard for group in groups for shard in group]
    folders = _folders(out, list(wanted), several=reads is not None)
    sinks = [
        Sink.open(job.manifest(read), folder, resume=resume, dtype=dtype)
        for read, folder in zip(job.reads, folders, strict=True)
    ]
    _refuse_full_disk(job, sinks, own, dtype)
    fill(job, sinks, groups, dtype, progress)
    found = dict(zip(wanted, (sink.finish(own) for sink in sinks), strict=True))
    return found if reads is not None else next(iter(found.values()))


def read_name(read: Read) -> str:
    """Return ``site@position``, by which a read is known."""
    return f"{read.site}@{read.position}"


def _reads(
    subject: Subject,
    layers: Blocks,
    site: str,
    position: str,
    reads: Read | str | Sequence[Read | str] | None,
) -> dict[str, Read]:
    """Return the reads by name, checked against the model."""
    from workbench.engine.pool import SITES, parse_position

    given = [] if reads is None else several(reads, Read)
    if reads is not None and not given:
        raise ValueError("reads is empty; give at least one Read")
    default = _layers(subject, layers)
    listed = [Read(site, (), position)] if reads is None else list(map(_as_read, given))
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
    if not isinstance(read, str):
        raise ConfigError(f'read {read!r}; give a wb.Read, or its name such as "mean:content"')
    site, at, position = read.rpartition("@")
    return Read(site if at else "resid_post", (), position)


def _layers(subject: Subject, layers: Blocks) -> tuple[int, ...]:
    known = tuple(sorted(subject.blocks))
    chosen = blocks_of(layers, known)
    if not chosen or not set(chosen) <= set(known):
        raise ConfigError(
            f"layers = {list(chosen)}; give 'all' or block indices of {subject.ref.key}: "
            f"{known[0]} to {known[-1]}, counted from the first block"
        )
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"layers = {list(chosen)} names a layer twice; name each once")
    return chosen


def _folders(out: str | Path | None, names: list[str], *, several: bool) -> list[Path | None]:
    if out is None:
        return [None] * len(names)
    if not several:
        return [Path(out)]
    slugs = [re.sub(r"[^\w@.+-]", "-", name) for name in names]
    assert len(set(slugs)) == len(slugs), "the position grammar has no two names with one slug"
    return [Path(out) / slug for slug in slugs]


def _refuse_full_disk(
    job: Job, sinks: Sequence[Sink], own: Sequence[tuple[int, int]], dtype: str | None
) -> None:
    """Compare what is still to be written with the free room, before hours of work."""
    from workbench.engine.pool import parse_position

    for sink in sinks:
        if sink.folder is None:
            continue
        given = job.subject.ref.dtype if parse_position(sink.plan.position).kind != "mean" else ""
        itemsize = np.dtype(STORED.get(dtype or given, np.float32)).itemsize
        rows = job.tokens if sink.plan.ragged else len(job.prompts)
        lacking = sum(not sink.has(*shard) for shard in own) / len(job.shards)
        needs = int(lacking * rows * len(sink.plan.layers) * sink.plan.width * itemsize)
        free = free_bytes(sink.folder)
        if needs > free:
            raise WorkbenchError(
                f"{sink.folder} needs about {format_bytes(needs)}, {format_bytes(free)} are free; "
                "free some space, name fewer layers, or give an out on another disk"
            )
