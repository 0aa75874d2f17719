"""Rollouts that emotion vectors are made from: stories of emotions, neutral dialogues."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workbench.config import Config
from workbench.emotions import (
    choose,
    dialogue_requests,
    read_emotions,
    read_templates,
    read_topics,
    story_requests,
)
from workbench.pipelines.rollout_kinds import Kind, Speaker
from workbench.prompts import PromptSet


class TopicsConfig(Config):
    """Which topics, and where all of it is read."""

    topics: int | list[str] | None = None
    """So many, spread evenly over the areas, or these; by default all."""
    topics_file: str | None = None
    templates_file: str | None = None
    """TOML files laid out as those that ship; these by default."""

    @property
    def files(self) -> list[Path]:
        """Return what was named."""
        named = (self.topics_file, self.templates_file, getattr(self, "emotions_file", None))
        return [Path(name) for name in named if name is not None]


class StoriesConfig(TopicsConfig):
    """Stories of every emotion on every topic."""

    emotions: int | list[str] | None = None
    """So many, spread evenly over the list, or these; by default all."""
    stories: int = Field(default=1, ge=1)
    """Of each emotion on each topic; the requests take turns."""
    emotions_file: str | None = None


class DialoguesConfig(TopicsConfig):
    """Neutral dialogues on the same topics."""

    dialogues: int = Field(default=1, ge=1)
    """On each topic."""
    answered: bool = False
    """Ask questions whose answers make the dialogues, for models too small to write both sides."""


def story_prompts(take: StoriesConfig, speaker: Speaker) -> PromptSet:  # noqa: ARG001
    """Return the requests for stories.

    Raises:
        UnknownNameError: an emotion or topic that is not there.
        ConfigError: more of them than there are, or a file that is not as it should be.
    """
    return story_requests(
        choose(read_emotions(take.emotions_file), take.emotions, "emotions"),
        choose(read_topics(take.topics_file), take.topics, "topics"),
        stories=take.stories,
        templates=read_templates(take.templates_file),
    )


def dialogue_prompts(take: DialoguesConfig, speaker: Speaker) -> PromptSet:  # noqa: ARG001
    """Return the requests for dialogues; errors as for stories."""
    return dialogue_requests(
        choose(read_topics(take.topics_file), take.topics, "topics"),
        dialogues=take.dialogues,
        answered=take.answered,
        templates=read_templates(take.templates_file),
    )


STORIES = Kind(StoriesConfig, story_prompts, lambda take: take.files)
DIALOGUES = Kind(DialoguesConfig, dialogue_prompts, lambda take: take.files)
