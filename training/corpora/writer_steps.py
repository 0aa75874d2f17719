"""How a language model writes a quartet: a brief, one skeleton, four sets of phrases, reviews.

Each quartet is a generator that yields requests and is sent their replies, so that many quartets
can be asked in one batch, or each in a thread of its own.
"""

from __future__ import annotations

import functools
import random
import tomllib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from workbench_training.corpora.marks import MARKS
from workbench_training.corpora.plan import WORLDS, Draft, QuartetPlan
from workbench_training.corpora.quality import contradicts
from workbench_training.corpora.slots import (
    Avoid,
    Skeleton,
    phrase_fault,
    read_faults,
    read_list,
    read_phrases,
)
from workbench_training.corpora.templates_aims import leak_markers
from workbench_training.quartet_grammar import read_grammar

from workbench.chat import ChatReply, ChatRequest

T = TypeVar("T")
Step = Generator[list[ChatRequest], list[ChatReply], T]
"""Yields what to ask, gets the replies, returns its result."""
REASONS = {
    "unsuitable": "the model found no such document in the scenario",
    "skeleton": "the shared text kept its faults",
    "phrases": "phrases of a world kept their faults",
}
"""Why a quartet could not be written, beside the failures of a request (see workbench.chat)."""
MENDS = 2
"""Revisions beside those that follow a review."""
TARGETS = (8, 13)
"""Words of a phrase, drawn for each opening."""


class UnsuitableError(Exception):
    """A quartet that could not be written; its text is the reason."""


@functools.cache
def prompts() -> Mapping[str, Any]:
    """Return the shipped prompts."""
    folder = resources.files("workbench.data") / "writer_prompts"
    return tomllib.loads((folder / "prompts.toml").read_text(encoding="utf-8"))


@functools.cache
def avoided() -> Mapping[str, Avoid]:
    """Return what each world may not say, and under "" what the skeleton may not say."""
    markers = leak_markers()
    others = {w: tuple(m for v in WORLDS if v != w for m in markers[v]) for w in WORLDS}
    every = tuple(marker for world in WORLDS for marker in markers[world])
    return {"": Avoid(every), **{world: Avoid(found) for world, found in others.items()}}


@dataclass(frozen=True)
class Quartet:
    """One quartet in the making."""

    plan: QuartetPlan
    rounds: int = 1
    """Reviews by the model; what the checks in code find is mended in any case."""
    temperature: float = 0.8

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """Return what every prompt is filled with; people and places are the quartet's own."""
        plan, texts = self.plan, prompts()
        rng, drawn = random.Random(plan.seed), texts["names"]
        people = zip(rng.sample(drawn["given"], 4), rng.sample(drawn["family"], 4), strict=True)
        least, most = self.openings
        return {
            "genre": plan.doc_type.name,
            "users": plan.scenario.users,
            "task": plan.scenario.task,
            "setting": plan.scenario.setting,
            "object": plan.scenario.object,
            "mode": texts["modes"][plan.mode],
            "words": str(plan.words),
            "names": ", ".join(" ".join(pair) for pair in people),
            "places": ", ".join(rng.sample(drawn["places"], 3)),
            "avoid": avoided()[""].told(),
            "form_to": texts["forms"]["to"],
            "form_ing": texts["forms"]["ing"],
            "least": str(least),
            "most": str(most),
        }

    @property
    def openings(self) -> tuple[int, int]:
        """The fewest and the most statements of purpose that a document of this length has."""
        middle = max(4, round(self.plan.words / 120))
        return max(3, middle - 2), middle + 2

    @property
    def _turns(self) -> range:
        return range(self.rounds + MENDS + 1)

    def write(self) -> Step[dict[str, Draft]]:
        """Write the four documents.

        Raises:
            UnsuitableError: they could not be written; the reason is its text.
        """
        brief = yield from self._one("brief", 900, {}, temperature=1.0)
        skeleton = yield from self._skeleton(brief)
        targets = self._targets(skeleton)
        worlds = [self._world(world, skeleton, targets) for world in WORLDS]
        phrases = yield from together(worlds)
        return {w: skeleton.fill(own) for w, own in zip(WORLDS, phrases, strict=True)}

    def _skeleton(self, brief: str) -> Step[Skeleton]:
        room = 3 * self.plan.words + 600
        text = yield from self._one("skeleton", room, {"brief": brief})
        reviews, faults = self.rounds, [""]
        for turn in self._turns:
            skeleton, faults = self._judged(text)
            if skeleton is not None and not faults and reviews:
                reviews -= 1
                faults = yield from self._reviewed(brief, skeleton)
            if skeleton is not None and not faults:
                return skeleton
            if turn == self._turns[-1]:
                break
            told = "\n".join(f"- {fault}" for fault in faults)
            words = {"brief": brief, "document": text, "faults": told}
            text = yield from self._one("skeleton_revision", room, words, turn=turn)
        raise UnsuitableError(f"skeleton: {faults[0]}")

    def _reviewed(self, brief: str, skeleton: Skeleton) -> Step[list[str]]:
        words = {"brief": brief, "document": skeleton.text}
        review = yield from self._one("skeleton_review", 600, words, temperature=0.0)
        return read_list(review)

    def _judged(self, text: str) -> tuple[Skeleton | None, list[str]]:
        """Read a skeleton and say what the checks in code find."""
        try:
            skeleton = Skeleton.parse(text.strip())
        except ValueError as error:
            return None, [str(error)]
        faults = skeleton.faults(self.plan.words, *self.openings, avoided()[""])
        genre = self.plan.doc_type.name
        if genre in MARKS and not MARKS[genre].search(skeleton.text):
            faults.append(f"it has no outward sign of its genre, such as the words {genre!r}")
        if contradicts(skeleton.text):
            faults.append("it gives one total with two numbers")
        return skeleton, faults

    def _targets(self, skeleton: Skeleton) -> list[int]:
        rng = random.Random(f"phrases-{self.plan.seed}")
        return [rng.randint(*TARGETS) for _ in skeleton.forms]

    def _world(self, world: str, skeleton: Skeleton, targets: Sequence[int]) -> Step[list[str]]:
        """Fill the openings for one world; no request of it shows another world."""
        numbers = range(1, len(targets) + 1)
        words = {
            "document": skeleton.text,
            "objective": read_grammar().worlds[world].objective,
            "avoid": avoided()[world].told(),
            "openings": "\n".join(
                f"{number}: {prompts()['forms'][form]}, about {target} words"
                for number, form, target in zip(numbers, skeleton.forms, targets, strict=True)
            ),
        }
        room = 60 * len(targets) + 200
        task = prompts()["steps"]["objectives"].format(**{**self.names, **words})
        text = yield from self._one("objectives", room, words)
        phrases = read_phrases(text, numbers)
        reviews, faults = self.rounds, {0: ""}
        for turn in self._turns:
            faults = self._faults(world, skeleton, targets, phrases)
            if not faults and reviews:
                reviews -= 1
                shown = skeleton.shown([phrases[number] for number in numbers])
                review = yield from self._one(
                    "review", 600, {**words, "document": shown}, temperature=0.0
                )
                faults = dict(read_faults(review, numbers))
            if not faults:
                return [phrases[number] for number in numbers]
            if turn == self._turns[-1]:
                break
            told = "\n".join(
                f"{number}: {phrases.pop(number, '(nothing)')} -- {fault}"
                for number, fault in faults.items()
            )
            asked = {"task_text": task, "faults": told, "numbers": ", ".join(map(str, faults))}
            text = yield from self._one("revision", room, asked, turn=turn)
            phrases |= read_phrases(text, faults)
        number, fault = next(iter(faults.items()))
        raise UnsuitableError(f"phrases: {world}, opening {number}: {fault}")

    def _faults(
        self, world: str, skeleton: Skeleton, targets: Sequence[int], phrases: Mapping[int, str]
    ) -> dict[int, str]:
        """Say what the checks in code find in the phrases of a world, by opening."""
        found, seen = {}, set()
        for number, (form, target) in enumerate(zip(skeleton.forms, targets, strict=True), 1):
            phrase = phrases.get(number, "")
            fault = phrase_fault(phrase, form, target, avoided()[world]) if phrase else "is missing"
            if fault or phrase in seen:
                found[number] = fault or "it is there twice"
            seen.add(phrase)
        return found

    def _one(
        self,
        step: str,
        room: int,
        words: Mapping[str, str],
        *,
        temperature: float | None = None,
        turn: int = 0,
    ) -> Step[str]:
        """Ask one thing and return the text.

        Raises:
            UnsuitableError: the request failed, or the model says that it cannot be done.
        """
        text = prompts()["steps"][step].format(**{**self.names, **words})
        request = ChatRequest.of(
            text.strip(),
            system=prompts()["system"].strip(),
            max_tokens=room,
            temperature=self.temperature if temperature is None else temperature,
            seed=(self.plan.seed + turn) % 2**31,
        )
        (reply,) = yield [request]
        if not reply.valid:
            raise UnsuitableError(reply.reason)
        if reply.text.lstrip("*# ").startswith("UNSUITABLE"):
            raise UnsuitableError("unsuitable")
        return reply.text


def together(steps: Sequence[Step[T]]) -> Step[list[T]]:
    """Run steps side by side: what they ask next is asked at once."""
    results: dict[int, T] = {}
    asked: dict[int, list[ChatRequest]] = {}
    for number, step in enumerate(steps):
        _advance(number, step, None, asked, results)
    while asked:
        replies = yield [request for own in asked.values() for request in own]
        waiting, asked, start = asked, {}, 0
        for number, own in waiting.items():
            given = replies[start : start + len(own)]
            start += len(own)
            _advance(number, steps[number], given, asked, results)
    return [results[number] for number in range(len(steps))]


def _advance(
    number: int,
    step: Step[T],
    replies: list[ChatReply] | None,
    asked: dict[int, list[ChatRequest]],
    results: dict[int, T],
) -> None:
    try:
        asked[number] = next(step) if replies is None else step.send(replies)
    except StopIteration as end:
        results[number] = end.value
