"""What a batch verb is: its settings, the inputs to hash, and the work that fills a run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.config import Config
from workbench.files import replacing
from workbench.runs import OpenRun
from workbench.types import Progress

if TYPE_CHECKING:
    from workbench.cluster import Workers


@dataclass(frozen=True)
class Done:
    """What a verb leaves behind."""

    verb: str
    id: str
    status: str
    """done, reused, planned, or part: a share is done and others are not; of a plan also resumed:
    an earlier run left something to go on from."""
    path: Path
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What the body of a verb gets beside its settings."""

    run: OpenRun
    progress: Progress | None = None
    workers: Workers = 1


Body = Callable[[Any, Work], Mapping[str, Any]]
"""Gives the run's summary; ``complete`` in it says whether other shares have nothing to do."""


@dataclass(frozen=True)
class Verb:
    """Settings class, the inputs to hash, and the work."""

    config: type[Config]
    inputs: Callable[[Any], Sequence[Path]]
    body: Body
    preview: Callable[[Any], Mapping[str, Any]]
    """What a dry run can tell, and what it refuses, without a forward."""
    shards: bool = True
    """Whether several processes may do shares of it."""
    workers: bool = False
    """Whether it has units for several workers of one process."""
    joint: bool = False
    """Whether processes that torchrun started do it together; the first one keeps the run."""
    planned: Callable[[Any], Sequence[Path]] | None = None
    """The inputs that are there, for a plan that does without the others; ``inputs`` if None."""
    artefact: str = ""
    """The file of its folder that ``"@id"`` means in a study; the folder itself if empty."""
    outline: Callable[[Any], Mapping[str, Any]] | None = None
    """What a preview can tell and refuse without loading a model, where ``preview`` loads one."""
    parts: Callable[[Any], Sequence[str]] | None = None
    """The files of a corpus, which are branches of its stage in a study."""


def save_frame(frame: Any, path: Path) -> None:
    """Write a plain table whole or not at all."""
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False)
