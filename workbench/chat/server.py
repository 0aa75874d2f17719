"""A client of any server that speaks the OpenAI chat protocol: vLLM, llama.cpp, a vendor's API."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from workbench.chat import wire
from workbench.chat.replies import ChatReply, ChatRequest
from workbench.chat.store import ReplyStore
from workbench.config import Config
from workbench.errors import ConfigError, WorkbenchError

logger = logging.getLogger(__name__)

AGAIN = ("timeout", "rate limit", "server error", "nonsense", "unreachable")
"""Failures that another try may mend."""


class ServerConfig(Config):
    """Which server to ask, and how patiently."""

    url: str = Field(pattern=r"^https?://")
    """Up to the version, such as ``http://127.0.0.1:8000/v1``."""
    model: str
    """The model's name there."""
    key: str = "OPENAI_API_KEY"
    """The environment variable that holds the API key; a server without one needs none."""
    parallel: int = Field(default=8, ge=1)
    """Requests under way at the same time."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds to wait for one answer."""
    tries: int = Field(default=5, ge=1)
    """How often a request is sent before its failure counts."""
    wait: float = Field(default=1.0, ge=0)
    """Seconds before the second try; doubled for each further one, up to a minute."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Put into the body of every request, such as ``{top_p = 0.95}``; "" leaves a key out, which
    a server needs that wants ``max_completion_tokens`` in place of ``max_tokens``."""
    replies: Path | None = None
    """A file that keeps every reply, so that a run that stopped asks nothing twice."""

    @field_validator("extra")
    @classmethod
    def _has_json(cls, extra: dict[str, Any]) -> dict[str, Any]:
        """Refuse what no server could read."""
        try:
            json.dumps(extra, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{extra} has no JSON form ({error}); give texts and finite numbers"
            ) from None
        return extra


class ChatServer:
    """Answers requests from a server, and counts what became of them.

    Args:
        config: the server.
        sleep: waits for seconds; tests replace it.
    """

    def __init__(
        self, config: ServerConfig, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.config = config
        self.name = config.model
        self.together = config.parallel
        self.counts: Counter[str] = Counter()
        """``asked``, ``kept`` (answered from the file), ``read`` and ``written`` tokens, ``again:
        REASON`` for tries that failed, and ``REASON`` for requests that did."""
        self._store = None if config.replies is None else ReplyStore(config.replies)
        self._identity = json.dumps([config.model, config.extra], sort_keys=True)
        self._sleep = sleep
        self._turns = threading.BoundedSemaphore(config.parallel)
        self._lock = threading.Lock()
        self._resume = 0.0
        self._jitter = random.Random()
        self._post = wire.Sender(config.url, os.environ.get(config.key), config.timeout)

    def ask(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Answer each request, in order; several at a time, from any thread.

        Raises:
            ConfigError: the server refuses the key, or has no such model or address.
            WorkbenchError: it cannot be reached.
        """
        if len(requests) < 2:
            return [self._answer(request) for request in requests]
        workers = min(self.config.parallel, len(requests))
        pool = ThreadPoolExecutor(workers, thread_name_prefix="chat")
        try:
            return list(pool.map(self._answer, requests))
        finally:
            pool.shutdown(cancel_futures=True)

    def _answer(self, request: ChatRequest) -> ChatReply:
        key = request.key(self._identity)
        kept = None if self._store is None else self._store.find(key)
        if kept is not None:
            self._count(kept=1)
            return kept
        with self._turns:
            reply = self._insist(request)
        self._count(asked=1, read=reply.read, written=reply.written)
        if not reply.valid:
            self._count(**{reply.reason: 1})
            logger.debug("no usable reply (%s): %s", reply.reason, reply.detail)
        if self._store is not None and reply.reason not in AGAIN:
            self._store.keep(key, reply)
        return reply

    def _insist(self, request: ChatRequest) -> ChatReply:
        """Send a request until there is an answer or its tries are used up."""
        reply = ChatReply("")
        for number in range(self.config.tries):
            if number:
                self._count(**{f"again: {reply.reason}": 1})
            self._wait()
            sent = self._post(wire.body_of(request, self.config.model, self.config.extra))
            self._refuse(sent)
            reply = wire.reply_of(sent)
            if reply.reason not in AGAIN:
                return reply
            self._pause(number, sent.retry_after, everyone=reply.reason == "rate limit")
        if reply.reason == "unreachable":
            raise WorkbenchError(
                f"no server answers at {self.config.url} ({reply.detail}); start it, or give "
                "another url"
            )
        return reply

    def _refuse(self, sent: wire.Sent) -> None:
        """Stop at an answer that every other request would get too.

        Raises:
            ConfigError: the key, the address or the model's name is wrong.
        """
        if sent.status in (401, 403):
            raise ConfigError(
                f"{self.config.url} refuses the key in {self.config.key} (status {sent.status}: "
                f"{sent.detail}); set that variable to a key for this server"
            )
        if sent.status in (404, 405) or 300 <= sent.status < 400:
            raise ConfigError(
                f"{self.config.url} has no chat completions of model {self.config.model!r} (status "
                f"{sent.status}: {sent.detail}); check url (it usually ends in /v1) and model"
            )

    def _pause(self, number: int, told: float | None, *, everyone: bool) -> None:
        """Wait as long as the server asks, else longer each time; a rate limit holds up all."""
        if number + 1 == self.config.tries:
            return
        seconds = min(self.config.wait * 2**number, 60.0) * self._jitter.uniform(0.75, 1.25)
        seconds = seconds if told is None else max(told, 0.0)
        if everyone:
            with self._lock:
                self._resume = max(self._resume, time.monotonic() + seconds)
        else:
            self._sleep(seconds)

    def _wait(self) -> None:
        left = self._resume - time.monotonic()
        if left > 0:
            self._sleep(left)

    def _count(self, **numbers: int) -> None:
        with self._lock:
            self.counts.update(numbers)
