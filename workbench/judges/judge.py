"""Judges of roles, traits and coherence over any chat model, or over none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.chat.replies import ChatModel, ChatRequest
from workbench.judges.rubric import COHERENCE_RUBRIC, fill_rubric
from workbench.judges.verdict import COHERENCE, ROLE, TRAIT, Scale, Verdict, read_reply
from workbench.types import Progress

NONE = "none"
"""The name of no judge."""
ROUNDS = 8
"""How often the chat model's favorite number of requests is asked at once."""


@dataclass(frozen=True)
class Case:
    """One answer to be judged."""

    rubric: str
    question: str
    answer: str


class Judge:
    """Scores answers with a chat model; without one, no answer gets a score.

    Args:
        chat: a ``ChatServer``, a ``LocalChat``, or None.
        scale: of the scores.
        temperature: of the judge.
        max_tokens: that it may write.
        top: how many of the likeliest first tokens to ask for; with them a score is the mean over
            the probabilities of numbers.
        seed: of the judge's draws.
        fenced: mark off the answer; see ``fill_rubric``.
        least_mass: probability on numbers below which there is no expected score.
    """

    def __init__(
        self,
        chat: ChatModel | None,
        scale: Scale,
        *,
        temperature: float | int = 0.0,
        max_tokens: int = 10,
        top: int = 0,
        seed: int = 0,
        fenced: bool = True,
        least_mass: float | int = 0.5,
    ) -> None:
        self.chat, self.scale, self.fenced, self.least_mass = chat, scale, fenced, least_mass
        self.name = NONE if chat is None else chat.name
        self.together = 1 if chat is None else chat.together
        """How many answers at once are best judged."""
        self.counts: Counter[str] = Counter()
        """``scored``; by ``text``, ``expected`` or ``likelihood``; and each reason for no score."""
        self._settings: dict[str, Any] = {
            "temperature": float(temperature), "max_tokens": max_tokens, "top": top, "seed": seed,
        }  # fmt: skip

    def score(self, cases: Sequence[Case], *, progress: Progress | None = None) -> list[Verdict]:
        """Judge each answer, in order; blank answers are not asked about.

        Args:
            cases: may have a rubric each.
            progress: called with (judged, in all).

        Raises:
            ConfigError: a rubric without a place for the answer, or the server refuses.
            WorkbenchError: there is no server.
        """
        verdicts: list[Verdict] = []
        size = ROUNDS * self.together
        for start in range(0, len(cases), size):
            verdicts += self._round(cases[start : start + size])
            if progress is not None:
                progress(len(verdicts), len(cases))
        self.counts.update(verdict.reason or verdict.how for verdict in verdicts)
        self.counts["scored"] += sum(verdict.valid for verdict in verdicts)
        return verdicts

    def _round(self, cases: Sequence[Case]) -> list[Verdict]:
        found = [
            Verdict(None, "not judged" if case.answer.strip() else "no answer") for case in cases
        ]
        rows = [row for row, one in enumerate(found) if one.reason == "not judged"]
        for row, verdict in zip(rows, self._judge([cases[row] for row in rows]), strict=True):
            found[row] = verdict
        return found

    def _judge(self, cases: Sequence[Case]) -> list[Verdict]:
        """Judge answers that are not blank."""
        if self.chat is None:
            return [Verdict(None, "not judged")] * len(cases)
        replies = self.chat.ask([self._request(case) for case in cases])
        return [
            read_reply(reply, self.scale, graded=case.answer, least_mass=self.least_mass)
            for case, reply in zip(cases, replies, strict=True)
        ]

    def _request(self, case: Case) -> ChatRequest:
        return ChatRequest.of(self.filled(case), **self._settings)

    def filled(self, case: Case) -> str:
        """Return what is asked about one answer."""
        return fill_rubric(
            case.rubric, self.scale,
            question=case.question, answer=case.answer, fenced=self.fenced,
        )  # fmt: skip


def role_judge(chat: ChatModel | None, **settings: Any) -> Judge:
    """Return the judge of how far an answer plays its role, 0 to 3."""
    return Judge(chat, ROLE, **settings)


def trait_judge(chat: ChatModel | None, *, top: int = 20, **settings: Any) -> Judge:
    """Return the judge of how much of a trait an answer shows, 0 to 100.

    It asks for the probabilities of ``top`` first tokens and gives their mean where the judge
    writes a number as one token, as Chen et al. 2025 do; ``top=0`` reads the text alone.
    """
    return Judge(chat, TRAIT, top=top, **settings)


def coherence_judge(chat: ChatModel | None, *, top: int = 20, **settings: Any) -> Judge:
    """Return the judge of coherence, 0 to 100; ``COHERENCE_RUBRIC`` is a rubric for it."""
    return Judge(chat, COHERENCE, top=top, **settings)


def coherence_case(question: str, answer: str) -> Case:
    """Return the case that asks how coherent an answer is."""
    return Case(COHERENCE_RUBRIC, question, answer)
