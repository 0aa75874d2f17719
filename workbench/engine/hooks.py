"""The default engine: plain torch hooks on the model's own forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from workbench.engine.capture import capture
from workbench.registry import ENGINES
from workbench.types import Batch, Read, Subject


@ENGINES.register("hooks")
@dataclass(frozen=True)
class HookRunner:
    """Captures, edits, answers and generates through forward hooks; holds no state."""

    name: ClassVar[str] = "hooks"

    def capture(
        self, subject: Subject, batch: Batch, reads: Sequence[Read]
    ) -> list[Tensor | list[Tensor]]:
        """See `capture.capture`."""
        return capture(subject, batch, reads)
