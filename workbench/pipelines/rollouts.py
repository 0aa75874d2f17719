"""The verb rollout: chats of roles, traits or other prompts, answered and kept as transcripts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, model_validator

from workbench.chat import ChatModel, ChatRequest, ChatServer, ServerConfig
from workbench.config import parse
from workbench.pipelines.parts import model_inputs, weights_of
from workbench.pipelines.rollout_kinds import Kind, Speaker, kind_named
from workbench.pipelines.settings import ModelConfig
from workbench.pipelines.verb import Verb, Work
from workbench.prompts import PromptSet
from workbench.runs import Units
from workbench.transcripts import FILE, Transcripts, write_transcripts

if TYPE_CHECKING:
    from workbench.types import Subject


class RolloutConfig(ModelConfig):
    """Let a model, or a server, answer the chats of one kind."""

    model: str = ""
    """As everywhere; left out where a server answers."""
    server: ServerConfig | None = None
    """A server of the OpenAI protocol. What is special to it goes into ``extra``."""
    system_role: bool = True
    """Whether the model that a server asks has a system role; of a loaded one its template says
    so. Without one the instruction goes in front of the question."""
    kind: str = "roles"
    """roles, traits, prompts, or another of ``KINDS``."""
    take: dict[str, Any] = Field(default_factory=dict)
    """How many of what, by kind: {roles = 24, prompts = 2, questions = 4}."""
    draws: int = Field(default=1, ge=1)
    """Answers to each chat; more than one needs a temperature."""
    max_new_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=0.7, ge=0)
    seed: int = Field(default=0, ge=0)
    """With its id it seeds each chat's draw, so that others beside it change nothing."""
    unit: int = Field(default=64, ge=1)
    """Chats that are answered and kept together; a kill loses no more."""
    budget: int = Field(default=32_768, ge=1)
    """Tokens of a batch of a loaded model; it shrinks where memory runs out."""

    @model_validator(mode="after")
    def _one_speaker(self) -> RolloutConfig:
        if bool(self.model) == (self.server is not None):
            raise ValueError("give a model, or a server = {url, model}: one of the two answers")
        if self.draws > 1 and not self.temperature:
            raise ValueError(f"draws = {self.draws} at temperature 0 would all be the same")
        return self

    @cached_property
    def asked(self) -> tuple[Kind, Any]:
        """The kind, and its own settings."""
        kind = kind_named(self.kind)
        return kind, parse(kind.take, self.take, f"rollout, take of kind {self.kind!r}")


def verb() -> Verb:
    """Write rollouts."""
    return Verb(RolloutConfig, _inputs, _body, _preview, artefact=FILE)


def _inputs(config: RolloutConfig) -> list[Path]:
    kind, take = config.asked
    return [*model_inputs(config), *kind.inputs(take)]


def _preview(config: RolloutConfig) -> Mapping[str, Any]:
    """Count the chats and the most tokens that can be written."""
    name = _short(config.server.model if config.server else "model")
    prompts = _prompts(config, Speaker(name, config.system_role))
    columns = {
        name: len(np.unique(values))
        for name, values in prompts.columns.items()
        if name in ("role", "trait", "prompt", "question")
    }
    return {
        "chats": len(prompts),
        "most_tokens": len(prompts) * config.max_new_tokens,
        "units": -(-len(prompts) // config.unit),
        "different": columns,
    }


@dataclass(frozen=True)
class _Answering:
    """Who answers, under which name, and what the run says of it."""

    chat: ChatModel
    generator: str
    identity: str
    speaker: Speaker
    told: Mapping[str, Any]


def _body(config: RolloutConfig, work: Work) -> Mapping[str, Any]:
    who = _answering(config)
    prompts = _prompts(config, who.speaker)
    seeds = np.array([_seed(config.seed, name) for name in prompts.ids], np.int64)
    requests = [
        ChatRequest(_chat(item), config.max_new_tokens, config.temperature, int(seed))
        for item, seed in zip(prompts.items, seeds, strict=True)
    ]
    number = -(-len(requests) // config.unit)
    units = Units(work.run, number, _digest(who.identity, prompts.ids, requests, config.unit))
    own, lacking = units.own(), units.lacking()
    total = sum(len(_part(requests, unit, config.unit)) for unit in own)
    done = total - sum(len(_part(requests, unit, config.unit)) for unit in lacking)
    for unit in lacking:
        replies = who.chat.ask(_part(requests, unit, config.unit))
        tree = {key: [getattr(reply, key) for reply in replies] for key in ("text", "reason")}
        units.keep(unit, {**tree, "written": sum(reply.written for reply in replies)})
        done += len(replies)
        if work.progress is not None:
            work.progress(done, total)
    with units.joining() as complete:
        if not complete:
            return {"complete": False}
        found = [units.load(unit) for unit in range(number)]
    transcripts = Transcripts.of(
        prompts,
        [text for one in found for text in one["text"]],
        generator=who.generator,
        sampling=_sampling(config),
        seeds=seeds,
        reasons=[reason for one in found for reason in one["reason"]],
    )
    write_transcripts(transcripts, work.run.path / FILE)
    reasons = Counter(reason or "whole" for reason in transcripts.reasons)
    return {
        "model": who.generator,
        "n": len(transcripts),
        "written": int(transcripts.written.sum()),
        "answers": dict(reasons),
        "tokens": sum(one["written"] for one in found),
        **who.told,
    }


def _answering(config: RolloutConfig) -> _Answering:
    if config.server is not None:
        name = config.server.model
        identity = json.dumps([name, config.server.extra], sort_keys=True)
        speaker = Speaker(_short(name), config.system_role)
        return _Answering(ChatServer(config.server), name, identity, speaker, {})
    from workbench import api
    from workbench.chat.local import LocalChat

    subject = api.load(config.model, **config.options())
    chat = LocalChat(subject, budget=config.budget)
    name = subject.stamp.key
    return _Answering(chat, name, subject.fingerprint, _speaker(subject), weights_of(subject))


def _speaker(subject: Subject) -> Speaker:
    system = getattr(subject.renderer, "system_role", "native") == "native"
    return Speaker(_short(subject.ref.base), system)


def _short(name: str) -> str:
    """Return what a model is called: ``Qwen/Qwen3-32B`` is "Qwen3"."""
    return Path(name).name.partition("-")[0]


def _prompts(config: RolloutConfig, speaker: Speaker) -> PromptSet:
    """Return the chats, each as often as it is drawn, with the column ``draw``."""
    kind, take = config.asked
    prompts = kind.prompts(take, speaker)
    if config.draws == 1:
        return prompts
    rows = np.repeat(np.arange(len(prompts)), config.draws)
    draw = np.tile(np.arange(config.draws), len(prompts))
    columns = {name: values[rows] for name, values in prompts.columns.items()}
    if "pair" in columns:  # pairs are of one draw each
        pairs = zip(columns["pair"], draw, strict=True)
        columns["pair"] = np.array([f"{name}#{number}" for name, number in pairs])
    ids = tuple(f"{prompts.ids[row]}#{number}" for row, number in zip(rows, draw, strict=True))
    items = tuple(prompts.items[row] for row in rows)
    return PromptSet(ids, items, {**columns, "draw": draw}, prompts.source)


def _chat(item: Any) -> tuple[Mapping[str, str], ...]:
    return ({"role": "user", "content": item},) if isinstance(item, str) else tuple(item)


def _part(requests: Sequence[ChatRequest], unit: int, size: int) -> Sequence[ChatRequest]:
    return requests[unit * size : (unit + 1) * size]


def _seed(seed: int, name: str) -> int:
    """Return 31 bits that follow from the run's seed and the chat's id alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "big") >> 1


def _sampling(config: RolloutConfig) -> dict[str, Any]:
    extra = {} if config.server is None else dict(config.server.extra)
    told = {"temperature": config.temperature, "max_new_tokens": config.max_new_tokens}
    return {**told, **extra}


def _digest(identity: str, ids: Sequence[str], requests: Sequence[ChatRequest], unit: int) -> str:
    keys = [request.key(identity) for request in requests]
    return hashlib.sha256(json.dumps([list(ids), keys, unit]).encode()).hexdigest()
