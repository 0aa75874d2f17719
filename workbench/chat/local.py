"""A loaded model that answers chat requests, in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.chat.replies import ChatReply, ChatRequest, without_thoughts
from workbench.chat.store import ReplyStore, answer_once
from workbench.types import GenerateRead, LogitsRead, Request, Subject


class LocalChat:
    """Answers requests with a loaded model; each request's draws are its own, whatever the batch.

    Args:
        subject: as ``wb.load`` gives.
        batch: requests that are worth asking at once.
        replies: a file that keeps every reply, as for a server.
        budget: tokens of one batch; it shrinks where memory runs out.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        batch: int = 16,
        replies: str | Path | None = None,
        budget: int = 32_768,
    ) -> None:
        self.subject, self.together, self.budget = subject, batch, budget
        self.name = subject.ref.key
        self.counts: Counter[str] = Counter()
        """As of a server."""
        self._store = None if replies is None else ReplyStore(replies)

    def ask(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Answer each request, in order.

        Raises:
            ConfigError: the model has no chat template, or it refuses a request's roles.
        """
        keys = [request.key(self.subject.fingerprint) for request in requests]
        before = self.counts["asked"]
        replies = answer_once(self._store, dict(zip(keys, requests, strict=True)), self._answer)
        self.counts.update(kept=len(keys) - (self.counts["asked"] - before))
        return [replies[key] for key in keys]

    def _answer(self, wanted: dict[str, ChatRequest]) -> Iterator[ChatReply]:
        assert self.subject.runner is not None, "a subject gets its runner in wb.load"
        asked = [self._request(key, request) for key, request in wanted.items()]
        answers = self.subject.runner.answer(self.subject, asked, budget=self.budget).values[0]
        for request, one, answer in zip(wanted.values(), asked, answers, strict=True):
            reply = self._reply(request, one, answer)
            self.counts.update(asked=1, read=reply.read, written=reply.written)
            self.counts.update([reply.reason] if reply.reason else [])
            yield reply

    def _request(self, key: str, request: ChatRequest) -> Request:
        chat = [dict(message) for message in request.messages]
        rendered = self.subject.renderer.render(chat, render="chat")
        write = GenerateRead(1, request.max_tokens, request.temperature, request.seed)
        reads = (write, LogitsRead()) if request.top else (write,)
        return Request(key, "chat", rendered.ids, reads, rendered.spans)

    def _reply(self, request: ChatRequest, asked: Request, answer: Sequence[Any]) -> ChatReply:
        (text,) = answer[0]
        written = len(self.subject.tokenizer(text, add_special_tokens=False)["input_ids"])
        text = without_thoughts(text)
        reason = "cut short" if written >= request.max_tokens else "" if text else "empty"
        top = self._top(answer[1], request.top) if request.top else {}
        return ChatReply(text, reason, "", top, len(asked.ids), written)

    def _top(self, logs: np.ndarray, count: int) -> dict[str, float]:
        """Tell the likeliest tokens by their text; tokens of one text count together."""
        found: dict[str, float] = {}
        for row in np.argsort(logs)[::-1][:count]:
            text = self.subject.tokenizer.decode([int(row)])
            found[text] = float(np.logaddexp(found.get(text, -np.inf), logs[row]))
        return found
