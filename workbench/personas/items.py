"""A role and a trait as data: what a model is told, and what a judge is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

SLOT = re.compile(r"\{(question|answer|role|description|trait|antonym|model_name)\}")
MODEL_NAME = "{model_name}"


@dataclass(frozen=True)
class Role:
    """Someone or something that a model is told to be."""

    name: str
    """Lower case with underscores, such as ``ship_captain``; the default Assistant is "default"."""
    description: str
    """One sentence; empty where the files have none."""
    prompts: tuple[str, ...]
    """System prompts; "" means none is given, and ``{model_name}`` stands for the model's name."""
    rubric: str
    """What a judge of 0 to 3 is asked, with the slots ``{question}`` and ``{answer}``.

    Empty for the default, all of whose rollouts count. ``workbench.judges`` fills the slots.
    """


@dataclass(frozen=True)
class Trait:
    """A trait with paired instructions to show it (positive) and its opposite (negative)."""

    name: str
    """An adjective, in lower case with underscores."""
    antonym: str
    """Empty where the files name none."""
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    """``negative[i]`` is the counterpart of ``positive[i]``."""
    rubric: str
    """What a judge of 0 to 100 is asked, with the slots ``{question}`` and ``{answer}``."""
    description: str = ""
    """What one who has the trait does, as it follows "someone who"."""
    questions: tuple[str, ...] = ()
    """The questions that stand in the trait's own file, if any."""


def fill(template: str, values: Mapping[str, str]) -> str:
    """Fill the named slots in one pass, so that braces in a value are never read as slots."""
    return SLOT.sub(lambda slot: values.get(slot[1], slot[0]), template)


def spoken(name: str) -> str:
    """Return a name as it is said: ``ship_captain`` is "ship captain"."""
    return name.replace("_", " ")
