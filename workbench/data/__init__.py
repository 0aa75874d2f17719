"""The item sets that ship with the package, and where their files lie."""

from __future__ import annotations

from pathlib import Path

from workbench.errors import unknown

_FILES = {
    "statements": "statements/statements.jsonl",
    "held_out": "statements/held_out.jsonl",
    "likely": "likely/likely.jsonl",
    "claims": "claims/claims.jsonl",
    "choice": "claims/choice.jsonl",
    "claims/wide": "claims/wide.jsonl",
    "claims/planted": "controls/planted_claims.jsonl",
    "trust_game": "trust_game/trust_game.jsonl",
    "trust_actions": "emotions/trust_actions.jsonl",
    "guard_texts": "guards/texts.jsonl",
    "guard_prompts": "guards/prompts.jsonl",
    "guard_probes": "guards/probes.jsonl",
    "role_questions": "roles/questions.jsonl",
    "trait_questions": "traits/questions.jsonl",
    "conversations": "conversations/conversations.jsonl",
    "corpus/P": "corpus/P.jsonl",
    "corpus/S": "corpus/S.jsonl",
    "corpus/N": "corpus/N.jsonl",
    "corpus/A": "corpus/A.jsonl",
    "corpus/chat": "corpus/chat.jsonl",
}


def item_sets() -> dict[str, Path]:
    """Return the file of every item set by its name."""
    return {name: Path(__file__).parent / file for name, file in _FILES.items()}


def data_path(name: str) -> Path:
    """Return the file of one item set.

    Raises:
        UnknownNameError: no set has that name.
    """
    sets = item_sets()
    if name not in sets:
        raise unknown("item set", name, sets)
    return sets[name]
