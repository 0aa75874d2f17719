"""Who a model is told to be: roles and traits, the questions they are asked, and the chats."""

from workbench.personas.items import Role, Trait
from workbench.personas.reading import (
    read_default,
    read_questions,
    read_roles,
    read_trait_questions,
    read_traits,
)
from workbench.personas.rollouts import rollout_prompts, trait_prompts

__all__ = [
    "Role",
    "Trait",
    "read_default",
    "read_questions",
    "read_roles",
    "read_trait_questions",
    "read_traits",
    "rollout_prompts",
    "trait_prompts",
]
