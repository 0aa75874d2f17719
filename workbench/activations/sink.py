"""Where captured blocks go: memory or a store, written by another thread than the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from workbench.activations.acts import Activations, open_activations
from workbench.activations.layout import Block, Manifest
from workbench.activations.store import Store, existing_manifest, refuse_other
from workbench.errors import MismatchError


@dataclass
class Sink:
    """Takes the blocks of one read; the dtype is settled by the first block."""

    plan: Manifest
    """Its dtype is provisional until a block or an existing store settles it."""
    folder: Path | None
    blocks: list[Block] = field(default_factory=list)
    store: Store | None = None

    @classmethod
    def open(cls, plan: Manifest, folder: Path | None, *, resume: bool, dtype: str | None) -> Sink:
        """Find out whether ``folder`` may be continued, before any forward.

        Raises:
            MismatchError: it holds activations of other settings, or ``resume`` is off.
        """
        found = existing_manifest(folder) if folder is not None else None
        if folder is None or found is None:
            return cls(plan, folder)
        if not resume:
            raise MismatchError(
                f"{folder} holds activations already; resume=True continues them, another out "
                "keeps both, or delete the folder"
            )
        wanted = replace(plan, dtype=dtype or found.dtype)
        refuse_other(folder, found, wanted)
        return cls(wanted, folder, store=Store.create(folder, wanted))

    def has(self, first: int, stop: int) -> bool:
        """Whether these items are on disk already."""
        return self.store is not None and self.store.has(first, stop)

    def budget(self, first: int, stop: int) -> int | None:
        """Return the tokens of a batch where memory allowed fewer than planned for a shard."""
        return None if self.store is None else self.store.shard(first, stop).read_budget()

    def keep(self, block: Block) -> None:
        """Keep one block.

        Raises:
            MismatchError: its dtype is not that of the blocks before it.
            WorkbenchError: the disk is full or the place cannot be written.
        """
        if self.folder is None:
            self.plan = replace(self.plan, dtype=block.dtype)
            self.blocks.append(block)
            return
        if self.store is None:
            self.plan = replace(self.plan, dtype=block.dtype)
            self.store = Store.create(self.folder, self.plan)
        self.store.write(block)

    def finish(self, own: Iterable[tuple[int, int]]) -> Activations:
        """Close the store if every shard is there, and open it; else only the ``own`` shards."""
        if self.folder is None:
            return Activations(self.plan, self.blocks)
        if self.store is None:  # a part without a shard, and no other part has begun
            return Activations(self.plan, [], path=self.folder)
        if self.store.lacking():
            shards = [self.store.shard(*shard) for shard in own]
            return Activations(self.store.manifest, shards, path=self.folder)
        self.store.finish()
        return open_activations(self.folder)


class Background:
    """One thread that works behind the caller, at most one task late, so that memory stays flat."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "activations")
        self._last: Future[None] | None = None

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True)
        if error is None:
            self.settle()
        elif self._last is not None and (late := self._last.exception()) is not None:
            error.add_note(f"writing had failed too: {late}")

    def submit(self, task: Callable[[], None]) -> Future[None]:
        """Start ``task`` when the one before has ended; its error is raised here."""
        self.settle()
        self._last = self._pool.submit(task)
        return self._last

    def settle(self) -> None:
        """Wait for the task under way; its error is raised here."""
        last, self._last = self._last, None
        if last is not None:
            last.result()
