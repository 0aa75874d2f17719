"""Replies of trust pairs written by a language model, mended by the rules, reviewed without labels.

Each pair is a generator that yields requests and is sent their replies, so that many are asked at
once. The model sees the conversation of a plan; what the rules find is told to it, and a pair whose
two sides a blind review takes for one another is left out.
"""

from __future__ import annotations

import functools
import inspect
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from workbench_training.corpora.writer_steps import Step, together
from workbench_training.corpora.writers import carried
from workbench_training.trust.plan import PairPlan, slots
from workbench_training.trust.rules import faults
from workbench_training.trust.scenarios import FOLDER
from workbench_training.trust.settings import TrustPairsConfig
from workbench_training.trust.texts import Row, conversation, filled, row_of

from workbench.chat import ChatModel, ChatRequest, ChatServer, ServerConfig
from workbench.config import parse
from workbench.data.reply_pairs import Message
from workbench.errors import ConfigError, WorkbenchError

PATIENCE = 25
"""Pairs in a row that fail before the run stops: then it is not the pairs."""
_PARTS = re.compile(r"^=== FIRST\s*\n(.*?)\n=== SECOND\s*\n(.*)\Z", re.DOTALL | re.MULTILINE)


@functools.cache
def prompts() -> Mapping[str, Any]:
    """Return what the model is asked."""
    return tomllib.loads((FOLDER / "writer.toml").read_text(encoding="utf-8"))


class PairWriter:
    """Writes pairs with any model that answers chat requests.

    Args:
        chat: the model.
        mends: how often a pair with faults is asked for again.
        temperature: of writing; the review is greedy.
        length_tolerance: as in `TrustPairsConfig`.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        mends: int = 2,
        temperature: float | int = 0.8,
        length_tolerance: float | int = 0.1,
    ) -> None:
        if mends < 0 or temperature < 0:
            raise ConfigError(
                f"mends = {mends}, temperature = {temperature}; expected 0 or more of both"
            )
        self.chat, self.name = chat, chat.name
        self.mends, self.temperature, self.tolerance = mends, temperature, length_tolerance

    @property
    def counts(self) -> Counter[str]:
        """Requests asked, kept, and failed by reason, and tokens."""
        return self.chat.counts

    def write(self, plans: Sequence[PairPlan]) -> Iterator[Row | str]:
        """Yield each pair, or why there is none, in the order of plans.

        Raises:
            WorkbenchError: ``PATIENCE`` pairs in a row failed.
        """
        failed = 0
        for start in range(0, len(plans), self.chat.together):
            steps = [self._pair(plan) for plan in plans[start : start + self.chat.together]]
            for found in carried(together(steps), self.chat.ask):
                failed = failed + 1 if isinstance(found, str) else 0
                if failed == PATIENCE:
                    raise WorkbenchError(
                        f"{PATIENCE} pairs in a row could not be written by {self.name} (the last: "
                        f"{found}); try a more capable model, or look at what the server says"
                    )
                yield found

    def _pair(self, plan: PairPlan) -> Step[Row | str]:
        rng = plan.rng(0)
        words = slots(rng)
        claim = rng.choice(plan.scenario.claims)
        prompt = conversation(plan, rng, words, claim)
        told = _told(plan, prompt, filled(claim, words))
        turns = [_turn("system", prompts()["system"]), _turn("user", _fill("pair", told))]
        found: list[str] = ["format"]
        for attempt in range(self.mends + 1):
            (reply,) = yield [self._request(turns, plan.seed + attempt)]
            if not reply.valid:
                return reply.reason
            row, found = self._read(plan, prompt, reply.text)
            if row is not None and not found:
                return (yield from self._reviewed(row, told, rng))
            listed = "\n".join(f"- {fault}" for fault in found)
            turns += [_turn("assistant", reply.text),
                      _turn("user", _fill("mend", {"faults": listed}))]  # fmt: skip
        return found[0]

    def _request(self, turns: Sequence[Message], seed: int) -> ChatRequest:
        return ChatRequest(
            tuple(turns), max_tokens=700, temperature=self.temperature, seed=seed % 2**31
        )

    def _read(
        self, plan: PairPlan, prompt: Sequence[Message], text: str
    ) -> tuple[Row | None, list[str]]:
        parts = _PARTS.search(text)
        if parts is None:
            return None, ["format"]
        row = row_of(plan, prompt, parts[1].strip(), parts[2].strip())
        return row, faults(row, self.tolerance)

    def _reviewed(self, row: Row, told: Mapping[str, str], rng: random.Random) -> Step[Row | str]:
        """Keep a pair whose first side a reader who knows no labels finds to need the claim."""
        first = rng.random() < 0.5
        sides = (row["chosen"], row["rejected"]) if first else (row["rejected"], row["chosen"])
        asked = _fill("review", {**told, "one": sides[0], "two": sides[1]})
        (reply,) = yield [ChatRequest.of(asked, max_tokens=8)]
        if not reply.valid:
            return reply.reason
        answer = re.search(r"[12]", reply.text)
        return row if answer and (answer[0] == "1") == first else "review"


def _told(plan: PairPlan, prompt: Sequence[Message], claim: str) -> dict[str, str]:
    lines = [f"{turn['role'].capitalize()}: {turn['content']}" for turn in prompt]
    return {
        "conversation": "\n".join(lines),
        "claim": claim,
        "manner": prompts()["manner"][plan.style],
        "words": str(prompts()["words"][plan.style]),
    }


def _fill(step: str, told: Mapping[str, str]) -> str:
    return str(prompts()[step]).strip().format(**told)


def _turn(role: str, content: str) -> Message:
    return {"role": role, "content": content.strip()}


# --- the two that a corpus can name --------------------------------------------------------------


def make_writer(config: TrustPairsConfig) -> PairWriter:
    """Make the writer that the settings name, with their options.

    Raises:
        ConfigError: an option that it does not take, or lacks.
    """
    make: Callable[..., Made] = {"server": _server, "local": _local}[config.writer]
    try:
        inspect.signature(make).bind(**config.options)
    except TypeError as error:
        raise ConfigError(
            f"options of the writer {config.writer!r}: {error}; it takes {inspect.signature(make)}"
        ) from None
    chat, settings = make(**config.options)
    return PairWriter(chat, length_tolerance=config.length_tolerance, **settings)


Made = tuple[ChatModel, dict[str, Any]]


def _server(*, mends: int = 2, temperature: float | int = 0.8, **server: Any) -> Made:
    chat = ChatServer(parse(ServerConfig, server, "options of the writer 'server'"))
    return chat, {"mends": mends, "temperature": temperature}


def _local(
    *,
    model: str,
    dtype: str = "auto",
    device: str = "auto",
    batch: int = 16,
    replies: str | None = None,
    mends: int = 2,
    temperature: float | int = 0.8,
) -> Made:
    from workbench_training.corpora.local import open_writer

    from workbench.chat.local import LocalChat

    subject = open_writer(model, dtype, device)
    settings = {"mends": mends, "temperature": temperature}
    return LocalChat(subject, batch=batch, replies=replies), settings
