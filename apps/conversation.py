"""A pasted conversation: lines that begin with who speaks, or JSON messages, as a chat."""

from __future__ import annotations

import json
import re

from workbench.errors import ConfigError

Messages = list[dict[str, str]]
ROLES = ("system", "user", "assistant")
MOST_CHARACTERS = 20_000
_WHO = {"human": "user", "you": "user", "ai": "assistant", "model": "assistant", "bot": "assistant"}
_HEAD = re.compile(r"\s*\**(?P<who>[A-Za-z]+)\**\s*:\**\s?(?P<said>.*)")
HOW = 'Begin each turn with "User:", "Assistant:" or "System:", or paste a JSON list of messages.'


def read_conversation(text: str, *, answered: bool = True) -> Messages:
    """Return the messages of a pasted text.

    A turn goes on over lines until another speaker begins. Speakers may be called human, you, AI,
    model or bot as well; a line that begins with another word and a colon is text.

    Args:
        text: what was pasted.
        answered: whether a turn of the assistant is needed.

    Raises:
        ConfigError: nothing was pasted, it is too long, text stands before the first speaker, a
            turn is empty, nobody answers, or JSON of another form.
    """
    if not text.strip():
        raise ConfigError(f"nothing was pasted. {HOW}")
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"{len(text):,} characters were pasted; at most {MOST_CHARACTERS:,} are read at once, "
            "so paste a part"
        )
    messages = _from_json(text) if text.lstrip().startswith(("[", "{")) else _from_lines(text)
    for number, message in enumerate(messages, 1):
        if not message["content"]:
            raise ConfigError(f"turn {number} ({message['role']}) is empty; give it words")
    if answered and not any(message["role"] == "assistant" for message in messages):
        raise ConfigError(f"no turn is the assistant's, so there is nothing to follow. {HOW}")
    return messages


def _from_lines(text: str) -> Messages:
    found: Messages = []
    for number, line in enumerate(text.strip().splitlines(), 1):
        match = _HEAD.fullmatch(line)
        who = match["who"].lower() if match else ""
        role = _WHO.get(who, who)
        if match and role in ROLES:
            found.append({"role": role, "content": match["said"]})
        elif found:
            found[-1]["content"] += f"\n{line}"
        else:
            raise ConfigError(f"line {number} is nobody's: {line[:60]!r}. {HOW}")
    return [{**message, "content": message["content"].strip()} for message in found]


def _from_json(text: str) -> Messages:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"it begins like JSON and is none ({error}). {HOW}") from None
    listed = given.get("messages") if isinstance(given, dict) else given
    if not isinstance(listed, list):
        listed = [None]
    whole = all(
        isinstance(one, dict) and one.get("role") in ROLES and isinstance(one.get("content"), str)
        for one in listed
    )
    if not whole:
        raise ConfigError(
            f"expected a list of {{role, content}} with roles {', '.join(ROLES)}, or an object "
            "with such a list as messages"
        )
    return [{"role": one["role"], "content": one["content"].strip()} for one in listed]
