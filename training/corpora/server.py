"""The writer over a server that speaks the OpenAI protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench_training.corpora.registry import WRITERS
from workbench_training.corpora.writers import ModelWriter

from workbench.chat import ChatServer, ServerConfig
from workbench.config import parse


@WRITERS.register("server")
def server_writer(
    *,
    url: str,
    model: str,
    key: str = "OPENAI_API_KEY",
    parallel: int = 8,
    timeout: float | int = 120.0,
    tries: int = 5,
    extra: Mapping[str, Any] | None = None,
    replies: str | None = None,
    rounds: int = 1,
    temperature: float | int = 0.8,
) -> ModelWriter:
    """Return a writer over a server.

    Args:
        url: up to the version, such as ``http://127.0.0.1:8000/v1``.
        model: its name there.
        key: the environment variable that holds the API key.
        parallel: quartets and requests under way at once.
        timeout: seconds for one answer.
        tries: how often a request is sent.
        extra: put into the body of every request.
        replies: a file that keeps every reply, so that a stopped run asks nothing twice.
        rounds: reviews by the model.
        temperature: of everything but reviews.

    Raises:
        ConfigError: settings that make no sense.
    """
    settings = {
        "url": url, "model": model, "key": key, "parallel": parallel, "timeout": timeout,
        "tries": tries, "extra": dict(extra or {}), "replies": replies,
    }  # fmt: skip
    chat = ChatServer(parse(ServerConfig, settings, "options of the writer 'server'"))
    return ModelWriter(chat, rounds=rounds, temperature=temperature, threads=True)
