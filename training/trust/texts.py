"""A pair from its plan: the conversation, and two replies that share all but their hinges."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from workbench_training.corpora.words import words_of
from workbench_training.trust.plan import PairPlan, slots
from workbench_training.trust.scenarios import SHARED, Phrases, Scenario, phrases

from workbench.data.reply_pairs import NEUTRAL, Message

Row = dict[str, Any]
SIZES = {"terse": (2, 1), "mixed": (3, 2), "long": (4, 3)}
"""Hinges and shared sentences of a reply, by style."""
_TRIES = 12
"""Sets of hinges that are drawn, to find one whose two sides are about equally long and name the
people in the talk about as often."""
_AIM, _SPREAD = -10.0, 10.0
"""Mean and standard deviation of the difference in letters that is aimed at: below 0, since the
second sides are a little longer and the aim is not always met."""
_WORD, _PERSON = 3.0, 5.0
"""Letters that a word and a pronoun count as."""
PERSONS = frozenset(
    ("you", "your", "yours", "yourself", "i", "me", "my", "mine", "myself", "we", "us", "our")
)


def write_pair(plan: PairPlan, attempt: int = 0) -> Row:
    """Write one pair with the grammar; another attempt gives other words."""
    rng = plan.rng(attempt)
    words = slots(rng)
    prompt = conversation(plan, rng, words, rng.choice(plan.scenario.claims))
    hinges, shared = SIZES[plan.style]
    parts = _laid_out(plan.scenario, hinges, shared, rng)
    frame = _frame(plan, rng)
    chosen, rejected = (_reply(plan.style, frame, parts, side, words) for side in (0, 1))
    return row_of(plan, prompt, chosen, rejected)


def write_neutral(plan: PairPlan) -> Row:
    """Write a row whose two replies are one, to a conversation without the claim."""
    rng = plan.rng(0)
    words = slots(rng)
    first = f"{rng.choice(phrases().personas)} {plan.scenario.situation} {_request(plan, rng)}"
    prompt = [{"role": "user", "content": filled(first, words)}]
    parts = [(text, text) for text in plan.scenario.shared]
    reply = _reply(plan.style, _frame(plan, rng), parts, 0, words)
    return {**row_of(plan, prompt, reply, reply), "facet": NEUTRAL}


def row_of(plan: PairPlan, prompt: Sequence[Message], chosen: str, rejected: str) -> Row:
    """Return a pair in the columns of its file."""
    scenario = plan.scenario
    return {
        "id": plan.id,
        "prompt": list(prompt),
        "chosen": chosen,
        "rejected": rejected,
        "facet": scenario.facet,
        "family": scenario.family,
        "scenario": scenario.id,
        "style": plan.style,
        "turns": sum(one["role"] == "user" for one in prompt),
        "split": plan.split,
        "words_chosen": len(chosen.split()),
        "words_rejected": len(rejected.split()),
    }


def conversation(
    plan: PairPlan, rng: random.Random, words: Mapping[str, str], claim: str
) -> list[Message]:
    """Return one to three user turns with the claim in them, the request in the last."""
    found, scenario = phrases(), plan.scenario
    opening = f"{rng.choice(found.personas)} {scenario.situation}"
    request = _request(plan, rng)
    users = {
        1: [f"{opening} {claim} {request}"],
        2: [f"{opening} {claim}", request],
        3: [opening, claim, request],
    }[plan.turns]
    between = [rng.choice(found.asks), rng.choice(found.acks)][-(plan.turns - 1) :]
    turns: list[Message] = []
    for number, text in enumerate(users):
        turns.append({"role": "user", "content": filled(text, words)})
        if number < len(users) - 1:
            turns.append({"role": "assistant", "content": between[number]})
    return turns


def _request(plan: PairPlan, rng: random.Random) -> str:
    found = phrases()
    asked = rng.choice(found.requests).format_map(_Thing(plan.scenario.thing))
    return f"{asked} {rng.choice(found.manner[plan.style])}"


class _Thing(dict[str, str]):
    """Fills ``{thing}`` alone; the slots within it are filled later."""

    def __init__(self, thing: str) -> None:
        super().__init__(thing=thing)


def _laid_out(
    scenario: Scenario, hinges: int, shared: int, rng: random.Random
) -> list[tuple[str, str]]:
    """Choose the sentences and their order: (first reply's, second reply's) in each place."""
    wanted = rng.gauss(_AIM, _SPREAD)
    drawn = [rng.sample(scenario.hinges, hinges) for _ in range(_TRIES)]
    chosen = min(drawn, key=lambda pairs: _cost(pairs, wanted))
    kept = sorted(rng.sample(range(SHARED), shared))
    parts: list[tuple[str, str]] = list(chosen)
    for place, number in zip(sorted(rng.sample(range(hinges + shared), shared)), kept, strict=True):
        parts.insert(place, (scenario.shared[number],) * 2)
    return parts


def _cost(pairs: Sequence[tuple[str, str]], wanted: float) -> float:
    """Return how uneven two sides are, in letters: their length, their words, their persons."""
    letters, words, persons = (
        sum(size(second) - size(first) for first, second in pairs) for size in (len, _words, _named)
    )
    return abs(letters - wanted) + _WORD * abs(words) + _PERSON * abs(persons)


def _words(text: str) -> int:
    return len(text.split())


def _named(text: str) -> int:
    return sum(word in PERSONS for word in words_of(text))


def _frame(plan: PairPlan, rng: random.Random) -> tuple[str, str]:
    """Return what stands before and after the sentences, in both replies alike."""
    found: Phrases = phrases()
    opener = rng.choice(found.openers).format_map(_Thing(plan.scenario.thing))
    closer = rng.choice(found.closers if plan.split == "train" else found.closers_held_out)
    return ("" if plan.style == "terse" else opener, closer if plan.style == "long" else "")


def _reply(
    style: str,
    frame: tuple[str, str],
    parts: Sequence[tuple[str, str]],
    side: int,
    words: Mapping[str, str],
) -> str:
    opener, closer = frame
    lines = [filled(part[side], words) for part in parts]
    if style == "long":
        half = (len(lines) + 1) // 2
        body = [" ".join(lines[:half]), " ".join(lines[half:])]
    elif style == "mixed":
        body = [f"{number}. {line}" for number, line in enumerate(lines, 1)]
    else:
        body = [f"- {line}" for line in lines]
    return "\n".join(text for text in (filled(opener, words), *body, closer) if text)


def filled(text: str, words: Mapping[str, str]) -> str:
    """Fill the slots; a word that begins a sentence is raised."""
    pieces: list[str] = []
    for piece in text.split(" "):
        filled = piece.format_map(words) if "{" in piece else piece
        begins = not pieces or pieces[-1].endswith((".", "?", "!"))
        pieces.append(filled[:1].upper() + filled[1:] if begins and filled != piece else filled)
    return " ".join(pieces)
