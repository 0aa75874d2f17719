"""``Transcripts``: conversations, who wrote them and how, and what judges made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from workbench.errors import ConfigError, MismatchError
from workbench.prompts import PromptSet
from workbench.types import ndarray

WRITTEN = ("", "cut short")
"""Reasons of answers that hold text of the generator: whole, or up to its limit."""
TAKEN = ("id", "messages", "reason", "generator", "sampling", "seed")
SCORE = "score/"
"""Begins the name of a column of scores in the file."""
JUDGE = "_judge"
"""Ends the name of a column that says who gave the scores of a capture's items."""
KINDS = "Uifb"
"""Kinds of columns: texts, integers, numbers, booleans."""

Chat = tuple[Mapping[str, str], ...]


@dataclass(frozen=True, eq=False)
class Scores:
    """What one judge gave."""

    judge: str
    values: Float[ndarray, " n"]
    """NaN where there is no score."""
    reasons: tuple[str, ...]
    """Why there is none; empty where there is one."""
    said: tuple[str, ...]
    """The judge's own words."""

    def __post_init__(self) -> None:
        lengths = {len(self.values), len(self.reasons), len(self.said)}
        lacking = [bool(reason) for reason in self.reasons]
        if len(lengths) > 1 or lacking != np.isnan(self.values).tolist():
            raise ValueError("a score stands where there is no reason, and only there")

    def take(self, rows: Sequence[int] | Int[ndarray, " m"]) -> Scores:
        """Keep the given rows, in that order."""
        reasons, said = ([part[row] for row in rows] for part in (self.reasons, self.said))
        return Scores(self.judge, self.values[np.asarray(rows, int)], tuple(reasons), tuple(said))


@dataclass(frozen=True, eq=False)
class Transcripts:
    """Conversations in order, each with its origin; answers that failed stay, with a reason."""

    ids: tuple[str, ...]
    chats: tuple[Chat, ...]
    """Ends with the generator's turn, unless there is none."""
    reasons: tuple[str, ...]
    """Why the generator's turn is missing or cut; empty of whole ones."""
    generators: tuple[str, ...]
    """The model that wrote each, such as a ``ModelStamp.key``."""
    sampling: tuple[Mapping[str, Any], ...]
    """Temperature and the like, as JSON values."""
    seeds: Int[ndarray, " n"]
    columns: Mapping[str, ndarray] = field(default_factory=dict)
    """Texts, numbers or booleans: role, question, and whatever else a rollout is of."""
    scores: Mapping[str, Scores] = field(default_factory=dict)
    """By measure, such as ``score`` or ``coherence``."""

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def of(
        cls,
        prompts: PromptSet,
        answers: Sequence[str],
        *,
        generator: str,
        sampling: Mapping[str, Any],
        seeds: Sequence[int] | Int[ndarray, " n"],
        reasons: Sequence[str] | None = None,
    ) -> Transcripts:
        """Return prompts with one model's answers; the prompts' columns are kept.

        Args:
            prompts: chats, or texts that count as user turns.
            answers: one a prompt.
            generator: who wrote them.
            sampling: how.
            seeds: one a prompt.
            reasons: why an answer is missing or cut; by default all are whole. An answer with
                another reason than "cut short" is left out of its chat.
        """
        told = tuple([""] * len(answers) if reasons is None else reasons)
        chats = [
            ({"role": "user", "content": item},) if isinstance(item, str) else tuple(item)
            for item in prompts.items
        ]
        whole = [
            (*chat, {"role": "assistant", "content": answer}) if reason in WRITTEN else chat
            for chat, answer, reason in zip(chats, answers, told, strict=True)
        ]
        n = len(whole)
        return cls(
            prompts.ids, tuple(whole), told, (generator,) * n, (dict(sampling),) * n,
            np.asarray(seeds, np.int64), dict(prompts.columns),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        judged = ", ".join(f"{name} by {one.judge}" for name, one in self.scores.items())
        written = int(self.written.sum())
        return f"Transcripts({written} of {len(self)} written; {judged or 'not judged'})"

    @property
    def written(self) -> Bool[ndarray, " n"]:
        """Which end with a turn of the generator."""
        return np.array([reason in WRITTEN for reason in self.reasons], bool)

    @property
    def answers(self) -> tuple[str, ...]:
        """The generator's turn of each, empty where there is none."""
        return tuple(map(self.answer, range(len(self))))

    def answer(self, row: int) -> str:
        """Return the generator's turn of one, empty where there is none."""
        return self.chats[row][-1]["content"] if self.reasons[row] in WRITTEN else ""

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """Reasons counted: of the answers, and of each measure's scores; "" are those without."""
        scored = {name: Counter(one.reasons) for name, one in self.scores.items()}
        return {"answers": Counter(self.reasons), **scored}

    def take(self, rows: Sequence[int] | Int[ndarray, " m"]) -> Transcripts:
        """Keep the given rows, in that order."""
        index = np.asarray(rows, int)
        texts = {
            name: tuple(getattr(self, name)[row] for row in index)
            for name in ("ids", "chats", "reasons", "generators", "sampling")
        }
        return replace(
            self,
            **texts,
            seeds=self.seeds[index],
            columns={name: values[index] for name, values in self.columns.items()},
            scores={name: one.take(index) for name, one in self.scores.items()},
        )

    def with_scores(self, measure: str, scores: Scores) -> Transcripts:
        """Add what a judge gave, in place of an earlier judgment of that name."""
        return replace(self, scores={**self.scores, measure: scores})

    def prompts(self, *, answered: bool = True) -> PromptSet:
        """Return the written ones as chats for a capture, with columns, and scores as columns.

        The column ``score_judge`` names who gave ``score``, so that what is cached says so too.

        Args:
            answered: with the answer, for reads of the response; without it, for reads of the
                prompt (capture those with the generation prompt).

        Raises:
            ConfigError: nothing was written.
        """
        rows = np.flatnonzero(self.written)
        if not len(rows):
            reasons = ", ".join(f"{n} {reason}" for reason, n in self.counts["answers"].items())
            raise ConfigError(f"none of {len(self)} answers was written ({reasons}); sample again")
        kept = self.take(rows)
        scores: dict[str, ndarray] = {name: one.values for name, one in kept.scores.items()}
        for name, one in kept.scores.items():
            scores[f"{name}{JUDGE}"] = np.full(len(kept), one.judge)
        chats = kept.chats if answered else tuple(chat[:-1] for chat in kept.chats)
        return PromptSet(kept.ids, chats, {**kept.columns, **scores}, "transcripts")


def join_transcripts(parts: Sequence[Transcripts]) -> Transcripts:
    """Put parts one after another.

    Raises:
        MismatchError: they differ in columns, measures or judges.
        ValueError: none is given, or two hold one id.
    """
    if not parts:
        raise ValueError("no transcripts to join; give at least one part")
    first = parts[0]
    for part in parts[1:]:
        for name in ("columns", "scores"):
            mine, theirs = set(getattr(first, name)), set(getattr(part, name))
            if mine != theirs:
                odd = ", ".join(sorted(mine ^ theirs))
                raise MismatchError(f"parts of transcripts differ in {name} {odd}; make all alike")
        for name, one in first.scores.items():
            if part.scores[name].judge != one.judge:
                raise MismatchError(
                    f"{name} was judged by {one.judge} in one part and {part.scores[name].judge} "
                    "in another; scores of two judges do not mix, so judge all by one"
                )
    texts = {
        name: tuple(value for part in parts for value in getattr(part, name))
        for name in ("ids", "chats", "reasons", "generators", "sampling")
    }
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns
    }
    scores = {
        name: Scores(
            one.judge,
            np.concatenate([part.scores[name].values for part in parts]),
            tuple(reason for part in parts for reason in part.scores[name].reasons),
            tuple(said for part in parts for said in part.scores[name].said),
        )
        for name, one in first.scores.items()
    }
    seeds = np.concatenate([part.seeds for part in parts])
    return Transcripts(**texts, seeds=seeds, columns=columns, scores=scores)


def _check(made: Transcripts) -> None:
    """Refuse parts that do not fit together (a wrong call, or a file that was edited)."""
    n = len(made.ids)
    twice = [name for name, count in Counter(made.ids).items() if count > 1]
    if not n or twice:
        raise ValueError(f"ids of transcripts must differ, and be at least one: {twice[:3]}")
    lengths = {
        **{name: len(getattr(made, name)) for name in ("chats", "reasons", "generators")},
        **{"sampling": len(made.sampling), "seeds": len(made.seeds)},
        **{name: len(values) for name, values in made.columns.items()},
        **{name: len(one.values) for name, one in made.scores.items()},
    }
    wrong = {name: length for name, length in lengths.items() if length != n}
    if wrong:
        raise ValueError(f"{n} ids of transcripts, but {wrong}")
    for name, values in made.columns.items():
        if name in TAKEN or name in made.scores or name.startswith(SCORE):
            raise ValueError(f"a column may not be called {name!r}, which is taken")
        if values.dtype.kind not in KINDS:
            raise ValueError(f"column {name!r} holds {values.dtype}; texts or numbers expected")
    for name, chat, reason in zip(made.ids, made.chats, made.reasons, strict=True):
        last = chat[-1]["role"] if chat else "none"
        if (reason in WRITTEN) != (last == "assistant"):
            raise ValueError(
                f"transcript {name!r} ends with role {last!r} and has reason {reason!r}; the "
                "generator's turn stands where there is no reason, or it was cut short"
            )
