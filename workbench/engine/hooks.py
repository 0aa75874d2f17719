"""The default engine: plain torch hooks on the model's own forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from workbench.engine.answer import answer, plan_for
from workbench.engine.apply import intervene
from workbench.engine.capture import capture
from workbench.engine.generate import generate
from workbench.engine.plan import SHORTCUTS, Plan
from workbench.engine.stream import Piece, stream
from workbench.interventions import EditLog, Intervention
from workbench.registry import ENGINES
from workbench.types import Answered, Arm, Batch, Progress, Read, Request, Subject


@ENGINES.register("hooks")
@dataclass(frozen=True)
class HookRunner:
    """Captures, edits, answers and generates through forward hooks; holds no state."""

    name: ClassVar[str] = "hooks"
    shortcuts: frozenset[str] = SHORTCUTS
    """Which ways to save work `answer` may use; numbers are the same without them."""

    def answer(
        self,
        subject: Subject,
        requests: Sequence[Request],
        arms: Sequence[Arm] = ((),),
        *,
        budget: int = 8192,
        progress: Progress | None = None,
    ) -> Answered:
        """See `answer.answer`."""
        return answer(
            subject, requests, arms, budget=budget, progress=progress, shortcuts=self.shortcuts
        )

    def plan(
        self,
        subject: Subject,
        requests: Sequence[Request],
        arms: Sequence[Arm] = ((),),
        *,
        budget: int = 8192,
    ) -> Plan:
        """See `answer.plan_for`."""
        return plan_for(subject, requests, arms, budget=budget, shortcuts=self.shortcuts)

    def capture(
        self, subject: Subject, batch: Batch, reads: Sequence[Read]
    ) -> list[Tensor | list[Tensor]]:
        """See `capture.capture`."""
        return capture(subject, batch, reads)

    def generate(self, subject: Subject, prompts: Sequence[Any], **options: Any) -> list[str]:
        """See `generate.generate`."""
        return generate(subject, prompts, **options)

    def stream(self, subject: Subject, prompts: Sequence[Any], **options: Any) -> Iterator[Piece]:
        """See `stream.stream`."""
        return stream(subject, prompts, **options)

    def intervene(
        self, subject: Subject, arms: Sequence[Arm] | Sequence[Intervention], **options: Any
    ) -> AbstractContextManager[EditLog]:
        """See `apply.intervene`."""
        return intervene(subject, arms, **options)
