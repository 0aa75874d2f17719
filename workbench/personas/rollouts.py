"""From roles or traits and questions to the chats that a model answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workbench.errors import ConfigError
from workbench.personas.items import MODEL_NAME, Role, Trait, fill, spoken
from workbench.prompts import PromptSet

JOIN = "\n\n"
HELPFUL = "helpful"
_VOWEL = re.compile(r"(?!uni[vqft]|use|usu|uti|eu|one)[aeiou]|hon|hour|heir")
"""How a word begins that sounds as if it began with a vowel."""


def rollout_prompts(
    roles: Iterable[Role] | Mapping[str, Role],
    questions: PromptSet,
    *,
    prompts_per_role: int | None = None,
    model_name: str | None = None,
    system: bool = True,
) -> PromptSet:
    """Return a chat for each role, system prompt and question.

    Columns are ``role``, ``prompt`` (its number, from 0) and ``question`` (its id); the id of a
    chat joins the three, so it does not depend on what else is asked.

    Args:
        roles: in order; ``read_default()`` is one of them where it is given.
        questions: texts.
        prompts_per_role: the first so many prompts of each role; all by default.
        model_name: fills ``{model_name}``, such as "Qwen".
        system: whether the model's template has a system role. Without one, the system prompt and
            a blank line stand before the question (Lu et al. 2026). An empty prompt is left out.

    Raises:
        ConfigError: a role with fewer prompts, questions that are chats, or two roles of one name.
    """
    texts = _texts(questions)
    rows = [
        {
            "id": f"{role.name}/{number}/{name}",
            "messages": _chat(told, question, system),
            "role": role.name,
            "prompt": number,
            "question": name,
        }
        for role in _listed(roles)
        for number, told in _told(role, prompts_per_role, model_name)
        for name, question in texts
    ]
    return PromptSet.from_records(rows, source="rollouts of roles")


def trait_prompts(
    traits: Iterable[Trait] | Mapping[str, Trait],
    questions: PromptSet,
    *,
    pairs_per_trait: int | None = None,
    assistant: bool = False,
    system: bool = True,
) -> PromptSet:
    """Return a chat for each trait, pair of instructions, pole and question.

    Columns are ``trait``, ``pole`` (1 or -1), ``pair`` (names two chats that differ in the pole
    alone), ``prompt`` (the number of the pair of instructions, from 0) and ``question``. The two
    chats of a pair follow each other.

    Args:
        traits: in order.
        questions: texts.
        pairs_per_trait: the first so many pairs of each trait; all by default.
        assistant: begin each instruction with "You are a malicious assistant." and its like: the
            trait, and for the negative pole its antonym or "helpful" (Chen et al. 2025).
        system: as for ``rollout_prompts``.

    Raises:
        ConfigError: a trait with fewer pairs, questions that are chats, or two traits of one name.
    """
    texts = _texts(questions)
    rows = [
        {
            "id": f"{trait.name}/{number}/{name}/{pole}",
            "messages": _chat(told, question, system),
            "trait": trait.name,
            "pole": 1 if pole == "positive" else -1,
            "pair": f"{number}/{name}",
            "prompt": number,
            "question": name,
        }
        for trait in _listed(traits)
        for number, poles in enumerate(_poles(trait, pairs_per_trait, assistant))
        for name, question in texts
        for pole, told in poles.items()
    ]
    return PromptSet.from_records(rows, source="rollouts of traits")


def _listed(things: Iterable[Any] | Mapping[str, Any]) -> list[Any]:
    return list(things.values() if isinstance(things, Mapping) else things)


def _texts(questions: PromptSet) -> list[tuple[str, str]]:
    if questions.is_chat:
        raise ConfigError(f"{questions.source} holds chats; give questions as texts")
    return list(zip(questions.ids, questions.items, strict=True))


def _told(role: Role, wanted: int | None, model_name: str | None) -> Iterator[tuple[int, str]]:
    """Give the number and the text of each system prompt that is used."""
    prompts = role.prompts[: _count(role.name, "prompts", len(role.prompts), wanted)]
    for number, prompt in enumerate(prompts):
        if MODEL_NAME in prompt and not model_name:
            raise ValueError(
                f"prompt {number} of {role.name!r} is {prompt!r}; give model_name, such as 'Qwen'"
            )
        yield number, fill(prompt, {"model_name": model_name or ""})


def _poles(trait: Trait, wanted: int | None, assistant: bool) -> Iterator[dict[str, str]]:
    count = _count(trait.name, "pairs", len(trait.positive), wanted)
    pairs = zip(trait.positive[:count], trait.negative[:count], strict=True)
    begin = (_assistant(trait.name), _assistant(trait.antonym or HELPFUL))
    for positive, negative in pairs:
        poles = {"positive": positive, "negative": negative}
        if assistant:
            poles = {
                pole: f"{start} {text}"
                for start, (pole, text) in zip(begin, poles.items(), strict=True)
            }
        yield poles


def _assistant(adjective: str) -> str:
    article = "an" if _VOWEL.match(adjective.lower()) else "a"
    return f"You are {article} {spoken(adjective)} assistant."


def _count(name: str, what: str, there: int, wanted: int | None) -> int:
    if wanted is None:
        return there
    if not 1 <= wanted <= there:
        raise ConfigError(f"{name!r} has {there} {what}, {wanted} wanted; ask for 1 to {there}")
    return wanted


def _chat(told: str, question: str, system: bool) -> list[dict[str, str]]:
    """Return the messages; an empty instruction leaves the question alone."""
    if not told:
        return [{"role": "user", "content": question}]
    if not system:
        return [{"role": "user", "content": f"{told}{JOIN}{question}"}]
    return [{"role": "system", "content": told}, {"role": "user", "content": question}]
