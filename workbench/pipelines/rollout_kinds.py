"""What a model is asked in rollouts, by kind: roles, traits, or prompts of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from workbench.config import Config
from workbench.errors import ConfigError, unknown
from workbench.library import open_prompts, sources
from workbench.personas import (
    read_default,
    read_questions,
    read_roles,
    read_trait_questions,
    read_traits,
    rollout_prompts,
    trait_prompts,
)
from workbench.personas.items import Trait
from workbench.prompts import PromptSet

T = TypeVar("T")


@dataclass(frozen=True)
class Speaker:
    """Who answers, as far as the chats depend on it."""

    name: str
    """What the model is called, such as "Qwen"."""
    system: bool = True
    """Whether its template has a system role."""


@dataclass(frozen=True)
class Kind:
    """One kind of rollouts."""

    take: type[Config]
    """Settings: how many of what."""
    prompts: Callable[[Any, Speaker], PromptSet]
    """From the settings and who answers to chats, or texts that count as user turns."""
    inputs: Callable[[Any], Sequence[Path]]
    """Files and folders that the settings name."""


KINDS = {
    "roles": "rollout_kinds:ROLES",
    "traits": "rollout_kinds:TRAITS",
    "prompts": "rollout_kinds:PROMPTS",
    "stories": "emotion_kinds:STORIES",
    "dialogues": "emotion_kinds:DIALOGUES",
}
"""Module of this package and the ``Kind`` in it, imported when asked for."""


def kind_named(name: str) -> Kind:
    """Return a kind of rollouts.

    Raises:
        UnknownNameError: there is no such kind.
    """
    if name not in KINDS:
        raise unknown("kind of rollouts", name, KINDS)
    module, _, attribute = KINDS[name].partition(":")
    found: Kind = getattr(import_module(f"workbench.pipelines.{module}"), attribute)
    return found


class QuestionsConfig(Config):
    """Which questions are asked, and where all of it is read."""

    folder: str | None = None
    """Roles or traits laid out as those that ship, or a checkout of the assistant-axis project."""
    asked: str | None = None
    """A file of questions, or a folder that holds some; by default what ships."""
    questions: int | None = Field(default=None, ge=1)
    """So many, spread evenly over the list; by default all."""

    @property
    def files(self) -> list[Path]:
        """Return what was named."""
        return [Path(name) for name in (self.folder, self.asked) if name is not None]


class RolesConfig(QuestionsConfig):
    """Roles, each with its system prompts and the same questions."""

    roles: int | list[str] | None = None
    """So many, spread evenly over the list, or these; by default all."""
    prompts: int | None = Field(default=None, ge=1)
    """The first so many system prompts of each role; by default all."""
    default: bool = True
    """Ask the default Assistant too, with all its prompts."""
    model_name: str | None = None
    """Fills ``{model_name}``; by default the model's name up to its first hyphen."""


class TraitsConfig(QuestionsConfig):
    """Traits, each with pairs of instructions for and against it."""

    traits: int | list[str] | None = None
    """So many, spread evenly over the list, or these; by default all."""
    pairs: int | None = Field(default=None, ge=1)
    """The first so many pairs of instructions of each trait; by default all."""
    source: Literal["shared", "own"] = "shared"
    """The questions that roles are asked too (Lu et al. 2026), or the trait's own where it has
    some and the general ones where not (Chen et al. 2025)."""
    part: Literal["extraction", "evaluation"] = "extraction"
    """Of the trait's own questions that ship."""
    assistant: bool = False
    """Begin instructions with "You are a malicious assistant." and the like (Chen et al. 2025)."""


class PromptsConfig(Config):
    """Any prompts, such as those of other rollouts without their answers."""

    prompts: str | dict[str, Any] | list[Any]
    """As for ``cache``; ``{path = "@rollouts", answered = false}`` asks the same again."""


def role_prompts(take: RolesConfig, speaker: Speaker) -> PromptSet:
    """Return the chats of roles, the default Assistant's first.

    Raises:
        UnknownNameError: a role that is not there.
        ConfigError: more roles, prompts or questions than there are.
    """
    questions = _spread_questions(read_questions(take.asked or take.folder), take.questions)
    told: dict[str, Any] = {
        "model_name": take.model_name or speaker.name,
        "system": speaker.system,
    }
    roles = _chosen("role", read_roles(take.folder), take.roles)
    chats = [rollout_prompts(roles, questions, prompts_per_role=take.prompts, **told)]
    if take.default:
        chats.insert(0, rollout_prompts([read_default(take.folder)], questions, **told))
    return open_prompts(chats)


def pole_prompts(take: TraitsConfig, speaker: Speaker) -> PromptSet:
    """Return the chats of traits, the two of a pair one after the other.

    Raises:
        UnknownNameError: a trait that is not there.
        ConfigError: more traits, pairs or questions than there are.
    """
    traits = _chosen("trait", read_traits(take.folder), take.traits)
    told: dict[str, Any] = {
        "pairs_per_trait": take.pairs,
        "assistant": take.assistant,
        "system": speaker.system,
    }
    if take.source == "shared":
        questions = _spread_questions(read_questions(take.asked or take.folder), take.questions)
        return trait_prompts(traits, questions, **told)
    return open_prompts(
        [
            trait_prompts(
                [trait], _spread_questions(_own(trait, take.part), take.questions), **told
            )
            for trait in traits.values()
        ]
    )


def _own(trait: Trait, part: str) -> PromptSet:
    """Return the questions of a trait's own file, else those that ship for it."""
    if not trait.questions:
        return read_trait_questions(trait.name, part)
    rows = [{"id": f"q{n}", "text": text} for n, text in enumerate(trait.questions)]
    return PromptSet.from_records(rows, source=f"questions of {trait.name}")


def _chosen(what: str, known: Mapping[str, T], wanted: int | list[str] | None) -> dict[str, T]:
    if wanted is None:
        return dict(known)
    if isinstance(wanted, int):
        names = list(known)
        return {names[row]: known[names[row]] for row in _spread(what, len(names), wanted)}
    for name in wanted:
        if name not in known:
            raise unknown(what, name, known)
    return {name: known[name] for name in wanted}


def _spread_questions(questions: PromptSet, wanted: int | None) -> PromptSet:
    if wanted is None:
        return questions
    return questions.take(_spread("question", len(questions), wanted))


def _spread(what: str, there: int, wanted: int) -> list[int]:
    """Return evenly spread places, so that a few are not all of one kind."""
    if not 1 <= wanted <= there:
        raise ConfigError(f"{wanted} {what}s wanted of {there}; ask for 1 to {there}")
    return [int(place) for place in (np.arange(wanted) + 0.5) * there / wanted]


def own_prompts(take: PromptsConfig, speaker: Speaker) -> PromptSet:  # noqa: ARG001
    """Return the prompts as they are.

    Raises:
        ConfigError: a chat that is answered already.
    """
    found = open_prompts(take.prompts)
    last = [item if isinstance(item, str) else item[-1]["role"] for item in found.items]
    if found.is_chat and (strange := [role for role in last if role != "user"]):
        raise ConfigError(
            f"{found.source}: {len(strange)} chats end with role {strange[0]!r}, so there is "
            "nothing to answer; of transcripts, take {path = ..., answered = false}"
        )
    return found


ROLES = Kind(RolesConfig, role_prompts, lambda take: take.files)
TRAITS = Kind(TraitsConfig, pole_prompts, lambda take: take.files)
PROMPTS = Kind(PromptsConfig, own_prompts, lambda take: sources(take.prompts))
