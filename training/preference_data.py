"""Rows of preference data -> examples of one objective, checked, in training order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from workbench_training.preference_settings import COLUMNS, PreferenceConfig

from workbench.data.rows import read_text
from workbench.data.splits import TRAIN, checked_split
from workbench.errors import ConfigError, FormatError
from workbench.library import locate
from workbench.types import Subject

Row = dict[str, Any]
Message = dict[str, str]


def read_examples(
    config: PreferenceConfig, render: Literal["chat", "bare"]
) -> tuple[list[Row], list[Row]]:
    """Return the rows to train on and those held out, as the objective needs them.

    Args:
        config: the settings.
        render: whether texts become turns of a conversation.

    Raises:
        UnknownNameError: no such file or item set.
        FormatError: a line that is no JSON object.
        ConfigError: a row without the objective's columns, or with a split that is a slip; nothing
            to train on.
    """
    path = locate(config.data)
    trained: list[Row] = []
    held_out: list[Row] = []
    for number, row in enumerate(read_rows(path), 1):
        where = f"{path}, row {number}"
        split = checked_split(row.get("split", TRAIN), config.held_out, where)
        into = trained if split == TRAIN else held_out if split == config.held_out else None
        if into is not None:
            into += examples_of(config.objective, row, render, where)
    if not trained:
        raise ConfigError(f"data = {config.data!r} has no row of split {TRAIN!r} to train on")
    labels = {row["label"] for row in trained if "label" in row}
    if config.objective == "bco" and len(labels) < 2:
        raise ConfigError(
            f"data = {config.data!r} has labels of one kind alone; bco tells two apart, so give "
            "rows with label true and rows with label false"
        )
    return trained, held_out[: config.held_out_documents]


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the objects of a JSONL file.

    Raises:
        FormatError: a file that is not UTF-8, or a line that is no JSON object.
    """
    lines = read_text(path).split("\n")
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise FormatError(
                f"{path}, row {number} is not JSON ({error}); write one object a line"
            ) from None
        if not isinstance(row, dict):
            raise FormatError(f"{path}, row {number} is no JSON object; write one object a line")
        yield row


def examples_of(objective: str, row: Row, render: str, where: str) -> list[Row]:
    """Return the examples that one row gives: two for a pair where labels are wanted.

    Raises:
        ConfigError: a row without the objective's columns; it is called ``where``.
    """
    if objective == "grpo":
        kept = {key: value for key, value in row.items() if key not in ("id", "split")}
        return [{**kept, "prompt": _prompt(_get(row, "prompt", objective, where), render)}]
    if objective == "sft" and "messages" in row:
        turns = _messages(row["messages"], where)
        if turns[-1]["role"] != "assistant" or len(turns) < 2:
            raise ConfigError(f"{where}: messages end with an assistant's turn after another one")
        return [{"prompt": turns[:-1], "completion": turns[-1:]}]
    prompt = _prompt(_get(row, "prompt", objective, where), render)

    def answer(key: str) -> Any:
        return _answer(_get(row, key, objective, where), prompt, where)

    if objective == "dpo":
        return [{"prompt": prompt, "chosen": answer("chosen"), "rejected": answer("rejected")}]
    if objective == "sft":
        key = "completion" if "completion" in row else "chosen"
        return [{"prompt": prompt, "completion": answer(key)}]
    if "label" in row or "chosen" not in row:
        label = _get(row, "label", objective, where)
        if label not in (True, False):
            raise ConfigError(f"{where}: label = {label!r}; expected true or false (or 1 or 0)")
        return [{"prompt": prompt, "completion": answer("completion"), "label": bool(label)}]
    return [
        {"prompt": prompt, "completion": answer(key), "label": key == "chosen"}
        for key in ("chosen", "rejected")
    ]


def _get(row: Row, key: str, objective: str, where: str) -> Any:
    value = row.get(key)
    if value is None or value == "" or value == []:
        raise ConfigError(f"{where} has no {key!r}; rows for {objective} hold {COLUMNS[objective]}")
    return _messages(value, where) if isinstance(value, list) else value


def _messages(value: Any, where: str) -> list[Message]:
    good = isinstance(value, list) and value and all(
        isinstance(one, dict) and isinstance(one.get("role"), str)
        and isinstance(one.get("content"), str) for one in value
    )  # fmt: skip
    if not good:
        raise ConfigError(f"{where}: a conversation is a list of {{role, content}} of texts")
    return [{"role": one["role"], "content": one["content"]} for one in value]


def _prompt(value: Any, render: str) -> str | list[Message]:
    if isinstance(value, list) or render == "bare":
        return value  # type: ignore[no-any-return]
    return [{"role": "user", "content": str(value)}]


def _answer(value: Any, prompt: str | list[Message], where: str) -> str | list[Message]:
    """Give an answer the form of its prompt: a turn after turns, a text after a text."""
    if isinstance(prompt, list) and isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    if isinstance(prompt, str) and not isinstance(value, str):
        raise ConfigError(
            f"{where}: the prompt is a text and an answer is a conversation; give both alike"
        )
    return value  # type: ignore[no-any-return]


def refuse_long(examples: Sequence[Row], subject: Subject, config: PreferenceConfig) -> None:
    """Refuse rows that would have to be cut: what is learned from half an answer is another thing.

    Raises:
        ConfigError: a prompt with its answer (for GRPO: with what may be generated) is too long.
    """
    room = config.length - (config.max_new_tokens if config.objective == "grpo" else 0)
    for number, row in enumerate(examples, 1):
        for answer in _answers(row, config.objective):
            _refuse(number, _tokens(subject, row["prompt"], answer), room, config)


def _answers(example: Row, objective: str) -> list[Any]:
    if objective == "grpo":
        return [None]
    keys = ("chosen", "rejected") if objective == "dpo" else ("completion",)
    return [example[key] for key in keys]


def _refuse(number: int, tokens: int, room: int, config: PreferenceConfig) -> None:
    if tokens > room:
        raise ConfigError(
            f"example {number} of {config.data!r} has {tokens} tokens, and length = "
            f"{config.length} leaves room for {room}; raise length or shorten it"
        )


def _tokens(subject: Subject, prompt: Any, answer: Any) -> int:
    if isinstance(prompt, str):
        ids = subject.tokenizer(prompt + (answer or ""))["input_ids"]
        return len(ids) + (answer is not None)
    chat = [*prompt, *(answer or [])]
    rendered = subject.renderer.render(chat, add_generation_prompt=answer is None)
    return len(rendered.ids)


def in_order(examples: Sequence[Row], count: int, seed: int) -> list[Row]:
    """Return ``count`` examples, shuffled anew in every pass."""
    order: list[int] = []
    for turn in itertools.count():
        if len(order) >= count:
            break
        order += np.random.default_rng([seed, turn]).permutation(len(examples)).tolist()
    return [examples[row] for row in order[:count]]


def text_of(value: str | Sequence[Mapping[str, str]]) -> str:
    """Return a text, or the content of the last turn."""
    return value if isinstance(value, str) else value[-1]["content"]
