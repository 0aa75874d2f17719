"""Scores that a language model gives to answers, with every score that it did not give counted."""

from workbench.judges.judge import (
    Case,
    Judge,
    coherence_case,
    coherence_judge,
    role_judge,
    trait_judge,
)
from workbench.judges.rate import rate
from workbench.judges.rubric import COHERENCE_RUBRIC, fill_rubric
from workbench.judges.verdict import COHERENCE, REASONS, ROLE, TRAIT, Scale, Verdict, read_score

__all__ = [
    "COHERENCE",
    "COHERENCE_RUBRIC",
    "REASONS",
    "ROLE",
    "TRAIT",
    "Case",
    "Judge",
    "Scale",
    "Verdict",
    "coherence_case",
    "coherence_judge",
    "fill_rubric",
    "rate",
    "read_score",
    "role_judge",
    "trait_judge",
]
