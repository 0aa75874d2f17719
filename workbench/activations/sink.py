"""Where captured blocks go: memory or a store, written by another thread than the model's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Int, Shaped

from workbench.activations.acts import Activations, open_activations
from workbench.activations.draft import Draft, Put
from workbench.activations.layout import STORED, Block, Manifest, Part
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
                f"{folder} holds activations already; resume=True continues them, another "
                "folder (out) keeps both, or delete this one"
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

    def begin(self, part: Part, dtype: str) -> Target:
        """Begin to keep a part, whose rows come in any order.

        Raises:
            MismatchError: the dtype is not that of the parts before it.
            WorkbenchError: the disk is full or the place cannot be written.
        """
        if self.store is None:
            self.plan = replace(self.plan, dtype=dtype)
        if self.folder is None:
            return Shelf(part, self.plan)
        if self.store is None:
            self.store = Store.create(self.folder, self.plan)
        return self.store.begin(part, dtype)

    def keep(self, target: Target, norms: Float32[np.ndarray, "l n"]) -> None:
        """Keep a part of which every row has come.

        Raises:
            WorkbenchError: the disk is full or the place cannot be written.
        """
        if isinstance(target, Shelf):
            self.blocks.append(target.block(norms))
        else:
            assert self.store is not None, "it began the draft"
            self.store.keep(target, norms)

    def finish(self, own: Iterable[tuple[int, int]]) -> Activations:
        """Close the store if every shard is there, and open it; else only the ``own`` shards."""
        if self.folder is None:
            return Activations(self.plan, sorted(self.blocks, key=lambda block: block.first))
        if self.store is None:  # a part without a shard, and no other part has begun
            return Activations(self.plan, [], path=self.folder)
        if self.store.lacking():
            shards = [self.store.shard(*shard) for shard in own]
            return Activations(self.store.manifest, shards, path=self.folder)
        self.store.finish()
        return open_activations(self.folder)


class Shelf:
    """A part in memory."""

    def __init__(self, part: Part, plan: Manifest) -> None:
        self.part, self.dtype = part, plan.dtype
        shape = (len(plan.layers), part.rows, plan.width)
        self.values: Shaped[np.ndarray, "l n d"] = np.empty(shape, STORED[plan.dtype])

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes

    def route(self, places: Int[np.ndarray, " m"]) -> Put:
        """Return what takes the rows that belong at these places, layer by layer."""

        def put(layer: int, bits: Shaped[np.ndarray, "m d"]) -> None:
            self.values[layer, places] = bits

        return put

    def block(self, norms: Float32[np.ndarray, "l n"]) -> Block:
        """Return the part with its values."""
        part = self.part
        return Block(
            part.first, self.values, self.dtype, norms, part.columns, part.offsets, part.budget
        )

    def discard(self) -> None: ...


Target: TypeAlias = Shelf | Draft
"""Takes the rows of one part."""


class Background:
    """One thread that works behind the caller, a task or two late, so that memory stays flat."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "activations")
        self._late: deque[Future[None]] = deque()
        self._error: BaseException | None = None

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
        elif self._error is not None and self._error is not error:
            error.add_note(f"writing had failed too: {self._error}")

    def submit(self, task: Callable[[], None], late: int = 0) -> Future[None]:
        """Start ``task`` behind at most so many others; the errors of those before are raised."""
        self._wait(late)
        self._late.append(self._pool.submit(self._run, task))
        return self._late[-1]

    def _run(self, task: Callable[[], None]) -> None:
        """Run a task unless one before it failed: what it would go on with is given up."""
        if self._error is not None:
            raise self._error
        try:
            task()
        except BaseException as error:
            self._error = error
            raise

    def settle(self) -> None:
        """Wait for what is under way; its errors are raised here."""
        self._wait(0)

    def _wait(self, late: int) -> None:
        while len(self._late) > late:
            self._late.popleft().result()
