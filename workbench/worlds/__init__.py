"""Organisms judged by the claims of several worlds: contrasts, equivalence, what else changed."""

from workbench.worlds.beside import against, beyond
from workbench.worlds.contrasts import (
    AFFIRMED,
    MARGIN,
    How,
    Member,
    contrasts,
    control_rows,
    own_minus_others,
    own_world_rows,
    world_values,
)
from workbench.worlds.equivalence import Equivalence, equivalence

__all__ = [
    "AFFIRMED",
    "MARGIN",
    "Equivalence",
    "How",
    "Member",
    "against",
    "beyond",
    "contrasts",
    "control_rows",
    "equivalence",
    "own_minus_others",
    "own_world_rows",
    "world_values",
]
