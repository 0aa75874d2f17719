"""From emotions and topics to the chats in which a model is asked for stories and dialogues."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from workbench.emotions.items import Emotion, PromptFile, Topic, read_templates
from workbench.errors import ConfigError
from workbench.prompts import PromptSet

STORY, DIALOGUE, EXCHANGE = "story", "dialogue", "exchange"


def story_requests(
    emotions: Sequence[Emotion],
    topics: Sequence[Topic],
    *,
    stories: int = 1,
    templates: PromptFile | None = None,
) -> PromptSet:
    """Ask for ``stories`` stories of every emotion on every topic (Sofroniew et al. 2026).

    The templates take turns over a topic's stories, beginning where the topic's name says, alike
    for all emotions, so that a request does not depend on what else is asked. Columns are ``kind``,
    ``emotion``, ``topic``, ``area``, ``person`` and ``prompt`` (the template's number); an id joins
    emotion, topic and the story's number.
    """
    written = (templates or read_templates()).stories
    rows = []
    for emotion in emotions:
        for topic in topics:
            for draw in range(_some(stories, "stories")):
                turn = _turn(topic, draw, len(written))
                template = written[turn]
                told = {"event": topic.event, "feels": emotion.feels, "name": emotion.name}
                rows.append(
                    {
                        "id": f"{emotion.name}/{topic.name}/{draw}",
                        "messages": _asked(template.text, told),
                        "kind": STORY,
                        "emotion": emotion.name,
                        "topic": topic.name,
                        "area": topic.area,
                        "person": template.person,
                        "prompt": turn,
                    }
                )
    return PromptSet.from_records(rows, source="requests for stories")


def dialogue_requests(
    topics: Sequence[Topic],
    *,
    dialogues: int = 1,
    answered: bool = False,
    templates: PromptFile | None = None,
) -> PromptSet:
    """Ask for neutral dialogues between a person and an AI on every topic's plain subject.

    Columns as of stories, without ``emotion`` and ``person``.

    Args:
        topics: in order.
        dialogues: on each topic.
        answered: ask a question instead, whose answer makes the dialogue; for models too small to
            write both sides.
        templates: what to ask; what ships by default.

    Raises:
        ConfigError: no questions to be answered in the templates.
    """
    found = templates or read_templates()
    written = found.exchanges if answered else found.dialogues
    if not written:
        raise ConfigError("the templates have no [[exchanges]]; add some, or ask for dialogues")
    rows = [
        {
            "id": f"{EXCHANGE if answered else DIALOGUE}/{topic.name}/{draw}",
            "messages": _asked(
                written[_turn(topic, draw, len(written))].text, {"subject": topic.subject}
            ),
            "kind": EXCHANGE if answered else DIALOGUE,
            "topic": topic.name,
            "area": topic.area,
            "prompt": _turn(topic, draw, len(written)),
        }
        for topic in topics
        for draw in range(_some(dialogues, "dialogues"))
    ]
    return PromptSet.from_records(rows, source="requests for dialogues")


def _asked(text: str, told: dict[str, Any]) -> list[dict[str, str]]:
    return [{"role": "user", "content": text.strip().format(**told)}]


def _turn(topic: Topic, draw: int, count: int) -> int:
    return (zlib.crc32(topic.name.encode()) + draw) % count


def _some(count: int, what: str) -> int:
    if count < 1:
        raise ValueError(f"{what} = {count}; ask for at least one")
    return count
