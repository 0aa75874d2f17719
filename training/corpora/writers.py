"""Quartets written by a language model: many in the making at once, none half-written.

`server` and `local` beside this file are the two that a corpus can name.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from workbench_training.corpora.plan import Draft, QuartetPlan
from workbench_training.corpora.writer_steps import Quartet, Step, T, UnsuitableError, together

from workbench.chat import ChatModel, ChatReply, ChatRequest
from workbench.errors import ConfigError, WorkbenchError

logger = logging.getLogger(__name__)

PATIENCE = 25
"""Quartets in a row that fail before the run stops: then it is not the quartets."""
Drafts = dict[str, Draft]


class ModelWriter:
    """Writes quartets with any model that answers chat requests.

    Args:
        chat: the model.
        rounds: reviews of the skeleton and of each world's phrases, by the model itself.
        temperature: of everything but reviews.
        threads: write each quartet in a thread of its own, for a server; else many step by step
            together, for batches.

    Raises:
        ConfigError: rounds or temperature below 0.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        rounds: int = 1,
        temperature: float = 0.8,
        threads: bool = False,
    ) -> None:
        if rounds < 0 or temperature < 0:
            raise ConfigError(
                f"rounds = {rounds}, temperature = {temperature}; expected 0 or more of both"
            )
        self.chat, self.name = chat, chat.name
        self.rounds, self.temperature, self.threads = rounds, temperature, threads
        self.unsuitable: dict[str, str] = {}
        """Why in a word or two, by the id of each plan that could not be written."""
        self._in_a_row = 0

    @property
    def counts(self) -> Counter[str]:
        """Requests asked, kept, and failed by reason, and tokens; see `ChatServer.counts`."""
        return self.chat.counts

    def write(self, plan: QuartetPlan) -> Drafts | None:
        """Return one draft for each world, or None where the plan is unsuitable."""
        (drafts,) = self.write_many([plan])
        return drafts

    def write_many(self, plans: Sequence[QuartetPlan]) -> Iterator[Drafts | None]:
        """Yield what `write` would return, in the order of plans, many in the making at once.

        Raises:
            WorkbenchError: `PATIENCE` quartets in a row failed, or the server cannot be used.
        """
        written = self._in_threads(plans) if self.threads else self._in_step(plans)
        for plan, (drafts, reason) in zip(plans, written, strict=True):
            self._note(plan, reason)
            yield drafts

    def _in_threads(self, plans: Sequence[QuartetPlan]) -> Iterator[tuple[Drafts | None, str]]:
        pool = ThreadPoolExecutor(self.chat.together, thread_name_prefix="quartet")
        try:
            yield from pool.map(lambda plan: carried(self._outcome(plan), self.chat.ask), plans)
        finally:
            pool.shutdown(cancel_futures=True)

    def _in_step(self, plans: Sequence[QuartetPlan]) -> Iterator[tuple[Drafts | None, str]]:
        for start in range(0, len(plans), self.chat.together):
            steps = [self._outcome(plan) for plan in plans[start : start + self.chat.together]]
            yield from carried(together(steps), self.chat.ask)

    def _outcome(self, plan: QuartetPlan) -> Step[tuple[Drafts | None, str]]:
        try:
            drafts = yield from Quartet(plan, self.rounds, self.temperature).write()
        except UnsuitableError as error:
            return None, str(error)
        return drafts, ""

    def _note(self, plan: QuartetPlan, reason: str) -> None:
        self._in_a_row = self._in_a_row + 1 if reason else 0
        if not reason:
            return
        self.unsuitable[plan.id] = reason.partition(":")[0]
        logger.info("quartet %s could not be written (%s)", plan.id, reason)
        if self._in_a_row == PATIENCE:
            last = [self.unsuitable[key] for key in list(self.unsuitable)[-PATIENCE:]]
            common, count = Counter(last).most_common(1)[0]
            raise WorkbenchError(
                f"{PATIENCE} quartets in a row could not be written by {self.name} ({common}: "
                f"{count} of them; the last: {reason}); try a more capable model, or look at what "
                "the server says"
            )


def carried(step: Step[T], ask: Callable[[Sequence[ChatRequest]], list[ChatReply]]) -> T:
    """Run a step to its end."""
    replies: Any = None
    while True:
        try:
            requests = step.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result
        replies = ask(requests)
