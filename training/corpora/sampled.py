"""Web text as a model itself would write it: continuations of openings, sampled at temperature 1.

Training on any text brings its words nearer, and a grammar's words are not the web's. The text that
moves a model least is its own: at temperature 1 the expected gradient of the log-likelihood is zero
on what the model has drawn. So what an organism trained on such text does is what training does by
itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256

from workbench_training.corpora.controls_plan import PagePlan, Row, page_row
from workbench_training.corpora.local import open_writer
from workbench_training.corpora.settings import TOKENS_PER_WORD

from workbench.chat import ChatReply
from workbench.chat.store import ReplyStore, answer_once
from workbench.errors import ConfigError
from workbench.types import GenerateRead, Request, Subject

OPENING = 12
"""Words of a page that its continuation begins with."""
_SENTENCE = re.compile(r".*[.!?][\"')]*(?=\s|$)", re.DOTALL)


class TextSampler:
    """Samples pages from a model; each page's draws are its own, whatever the batch.

    Args:
        model: a hub id, a folder, or an organism's.
        dtype: as of ``wb.load``.
        device: as of ``wb.load``.
        batch: pages of one length that are drawn together.
        temperature: 1 is the model's own distribution.
        replies: a file that keeps every page, so that a stopped run draws nothing twice.

    Raises:
        ConfigError: a batch below 1, or a temperature that is not above 0.
        UnknownNameError: no such model.
    """

    def __init__(
        self,
        *,
        model: str,
        dtype: str = "auto",
        device: str = "auto",
        batch: int = 128,
        temperature: float | int = 1.0,
        replies: str | None = None,
    ) -> None:
        if batch < 1 or temperature <= 0:
            raise ConfigError(
                f"batch = {batch}, temperature = {temperature}; expected at least 1, and above 0"
            )
        self.model, self.dtype, self.device = model, dtype, device
        self.batch, self.temperature = batch, temperature
        self.replies = replies

    def write(self, pages: Sequence[tuple[PagePlan, str]]) -> Iterator[Row]:
        """Yield a document for each plan and its page, of which the first words are the opening."""
        subject = open_writer(self.model, self.dtype, self.device)
        store = None if self.replies is None else ReplyStore(self.replies)
        size = self.batch * len({plan.words for plan, _ in pages})
        for start in range(0, len(pages), size):
            block = pages[start : start + size]
            openings = [opening_of(page) for _, page in block]
            asked = [
                self._request(subject, plan, opening)
                for (plan, _), opening in zip(block, openings, strict=True)
            ]
            keys = [_key(subject, one) for one in asked]
            replies = answer_once(
                store,
                dict(zip(keys, asked, strict=True)),
                lambda fresh: self._answer(subject, [*fresh.values()]),
            )
            for (plan, _), opening, key in zip(block, openings, keys, strict=True):
                yield page_row(plan, whole(opening, replies[key].text), "web", "", "web")

    def _request(self, subject: Subject, plan: PagePlan, opening: str) -> Request:
        ids = subject.renderer.render(opening, render="bare").ids
        # By the opening's words: pages of one length then take as many steps, and run together.
        tokens = round(TOKENS_PER_WORD * (plan.words - OPENING))
        read = GenerateRead(1, tokens, float(self.temperature), plan.seed % 2**32)
        return Request(plan.id, "web", ids, (read,))

    def _answer(self, subject: Subject, asked: Sequence[Request]) -> Iterator[ChatReply]:
        assert subject.runner is not None, "open_writer gives it one"
        widest = max(len(one.ids) + _tokens(one) for one in asked)
        answered = subject.runner.answer(subject, asked, budget=widest * self.batch)
        for ((text,),) in answered.values[0]:
            yield ChatReply(text)


def opening_of(page: str) -> str:
    """Return the first words of a page, its line breaks kept."""
    found = re.match(rf"\s*(?:\S+\s+){{0,{OPENING - 1}}}\S+", page)
    return found.group().strip() if found else page.strip()


def whole(opening: str, continuation: str) -> str:
    """Join them and cut what follows the last whole sentence, unless that is over half of it."""
    text = (opening + continuation).rstrip()
    ended = _SENTENCE.match(text)
    return ended.group() if ended and len(ended.group()) > len(text) // 2 else text


def _tokens(request: Request) -> int:
    (read,) = request.reads
    assert isinstance(read, GenerateRead)
    return read.max_new_tokens


def _key(subject: Subject, request: Request) -> str:
    told = (subject.fingerprint, request.item, request.ids, request.reads)
    return sha256(repr(told).encode()).hexdigest()
