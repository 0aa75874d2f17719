"""A sweep answered by the engine, and by the ways that one would write by hand with plain hooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.types import Arm, CandidatesRead, LogitsRead, Request, Subject

BUDGET = 8192
"""Tokens of one plain forward: the engine's default too."""


@dataclass(frozen=True)
class Work:
    """One sweep: requests and arms for ours, rows of ids for the peers."""

    subject: Subject
    requests: list[Request]
    arms: list[Arm]
    work_ratio: float

    @property
    def ids(self) -> Tensor:
        """Prompts of one length, so that nothing is padded."""
        rows = [request.ids for request in self.requests]
        return torch.tensor(rows, device=self.subject.model.device)

    def ours(self) -> np.ndarray:
        """Answer through the public engine: arms x requests x values."""
        runner = self.subject.runner
        assert runner is not None
        answered = runner.answer(self.subject, self.requests, self.arms)
        return np.array([[request[0] for request in arm] for arm in answered.values])

    def plain(self) -> np.ndarray:
        """Run one full forward for each dose, the head at every position."""
        return self._plain({})

    def keep1(self) -> np.ndarray:
        """Run one full forward for each dose, the head at the last position alone."""
        return self._plain({"logits_to_keep": 1})

    def _plain(self, options: dict[str, Any]) -> np.ndarray:
        read = self.requests[0].reads[0]
        assert isinstance(read, LogitsRead)
        keep = list(read.keep or ())
        found = []
        with torch.no_grad():
            for arm in self.arms:
                rows = []
                for ids in cut(self.ids):
                    with hooked(self.subject, arm, ids.shape[1] - 1):
                        output = self.subject.model(ids, use_cache=False, **options)
                    logprobs = output.logits[:, -1].float().log_softmax(-1)
                    rows.append(logprobs[:, keep].cpu())
                found.append(torch.cat(rows))
        return torch.stack(found).numpy()

    def candidate(self) -> np.ndarray:
        """Run one forward for each candidate and dose, over prompt and candidate."""
        read = self._candidates()
        t = self.ids.shape[1]
        found = np.zeros((len(self.arms), len(self.requests), len(read.candidates)))
        with torch.no_grad():
            for number, arm in enumerate(self.arms):
                for place, tokens in enumerate(read.candidates):
                    given = torch.tensor(tokens, device=self.ids.device)
                    whole = torch.cat([self.ids, given.expand(len(self.ids), -1)], 1)
                    rows = []
                    for ids in cut(whole):
                        with hooked(self.subject, arm, t - 1):
                            logits = self.subject.model(
                                ids, use_cache=False, logits_to_keep=len(tokens) + 1
                            ).logits
                        rows.append(likelihood(logits, tokens, read.terminators).cpu())
                    found[number, :, place] = torch.cat(rows).numpy()
        return found

    def cached(self) -> np.ndarray:
        """Prefill each prompt once for each dose, and feed every candidate on that cache."""
        read = self._candidates()
        model = self.subject.model
        found: list[list[Tensor]] = []
        with torch.no_grad():
            for arm in self.arms:
                parts = []
                for ids in cut(self.ids):
                    with hooked(self.subject, arm, ids.shape[1] - 1):
                        first = model(ids, use_cache=True, logits_to_keep=1)
                    cache = first.past_key_values
                    values = []
                    for tokens in read.candidates:
                        given = torch.tensor(tokens, device=ids.device).expand(len(ids), -1)
                        with hooked(self.subject, arm, 0, decoding=True):
                            more = model(given, past_key_values=cache, use_cache=True)
                        logits = torch.cat([first.logits, more.logits], 1)
                        values.append(likelihood(logits, tokens, read.terminators))
                        cache.crop(-len(tokens))
                    parts.append(torch.stack(values, 1).cpu())
                found.append([torch.cat(parts)])
        return torch.stack([arm for (arm,) in found]).numpy()

    def _candidates(self) -> CandidatesRead:
        read = self.requests[0].reads[0]
        assert isinstance(read, CandidatesRead)
        return read


def cut(ids: Tensor) -> Sequence[Tensor]:
    """Cut rows into batches within the token budget."""
    return ids.split(max(1, BUDGET // ids.shape[1]))


def likelihood(logits: Tensor, tokens: Sequence[int], terminators: Sequence[int]) -> Tensor:
    """Sum the log-probabilities of a candidate's tokens and of any terminator after them."""
    logprobs = logits.float().log_softmax(-1)
    total = logprobs[:, -1, list(terminators)].logsumexp(-1)
    for place, token in enumerate(tokens):
        total = total + logprobs[:, place, token]
    return total


@contextmanager
def hooked(subject: Subject, arm: Arm, last: int, *, decoding: bool = False) -> Iterator[None]:
    """Edit block outputs with plain hooks, as one would write them by hand.

    Args:
        subject: the model under test.
        arm: edits of one dose.
        last: column of the final prompt token.
        decoding: every column is a new token.
    """
    handles = []
    for edit in arm:
        v = torch.from_numpy(edit.v).to(subject.model.device)
        first = 0 if decoding else (last if edit.scope == "last" else 1)

        def hook(
            _module: Any, _args: Any, h: Tensor, e: Any = edit, v: Any = v, f: int = first
        ) -> Tensor:
            start = 0 if h.shape[1] == 1 else f
            part = h[:, start:]
            if e.name == "add":
                part = (part.float() + e.dose * v).to(h.dtype)
            else:
                along = part.float() @ v
                moved = along.clamp(e.rows["floor"], e.rows["ceiling"]) - along
                part = (part.float() + moved[..., None] * v).to(h.dtype)
            return torch.cat([h[:, :start], part], 1)

        handles.append(subject.blocks[edit.layer].register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
