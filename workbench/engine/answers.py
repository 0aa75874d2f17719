"""What the forwards of a unit give, handed out as the answers of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from workbench.engine.candidates import Step, log_likelihoods, padded_tokens
from workbench.engine.prompts import Prompts
from workbench.engine.stages import TRUNK, Harvest
from workbench.types import CandidatesRead, LogitsRead, Read

Put = Callable[[int, int, int, Any], None]
"""Called with arm, request, read and value."""


class Answers:
    """Adds up what candidates' tokens give, and hands out what is complete.

    Args:
        n_arms: of the call.
        context_of: for each arm, whose states before the last token it shares.
        put: takes the answers.
    """

    def __init__(self, n_arms: int, context_of: Sequence[int], put: Put) -> None:
        self.n_arms, self.context_of, self.put = n_arms, context_of, put
        self._sums: dict[tuple[int, int], Float[np.ndarray, "a c"]] = {}

    def score(
        self,
        arms: Sequence[int],
        prompts: Prompts,
        logits: Float[Tensor, "p a v"],
        where: dict[tuple[int, int], int],
    ) -> None:
        """Add the factors of candidates whose nodes have logits here."""
        found = [
            (prompts.numbers[row], step, where[row, step.node])
            for row, tree in enumerate(prompts.trees)
            for step in tree.steps
            if (row, step.node) in where
        ]
        if not found:
            return
        places = torch.tensor([place for _, _, place in found], device=logits.device)
        tokens = padded_tokens([step for _, step, _ in found], logits.device)
        factors = log_likelihoods(logits, places, tokens).double().cpu().numpy()
        for (number, step, _), factor in zip(found, factors, strict=True):
            self._sum(prompts, number, step)[list(arms), step.candidate] += factor

    def _sum(self, prompts: Prompts, number: int, step: Step) -> Float[np.ndarray, "a c"]:
        key = (number, step.read)
        if key not in self._sums:
            read = prompts.requests[prompts.numbers.index(number)].reads[step.read]
            assert isinstance(read, CandidatesRead)
            self._sums[key] = np.zeros((self.n_arms, len(read.candidates)))
        return self._sums[key]

    def keep_logits(
        self, arms: Sequence[int], prompts: Prompts, logits: Float[Tensor, "p a v"]
    ) -> None:
        """Hand out next-token probabilities, fetched once for each choice of tokens."""
        wanted: dict[tuple[int, ...] | None, list[tuple[int, int, int]]] = {}
        for place, row in enumerate(prompts.heads):
            for slot, read in enumerate(prompts.requests[row].reads):
                if isinstance(read, LogitsRead):
                    wanted.setdefault(read.keep, []).append((place, prompts.numbers[row], slot))
        for keep, owners in wanted.items():
            chosen = torch.tensor([place for place, _, _ in owners], device=logits.device)
            logprobs = logits[chosen].float().log_softmax(-1)
            kept = (logprobs if keep is None else logprobs[..., list(keep)]).cpu().numpy()
            for (_, number, slot), values in zip(owners, kept, strict=True):
                for arm, value in zip(arms, values, strict=True):
                    self.put(arm, number, slot, value)

    def finish(self, prompts: Prompts, harvest: Harvest) -> None:
        """Hand out residual reads and sums over candidates."""
        for tap, own in enumerate(prompts.taps):
            for slot, row in enumerate(own.rows.tolist()):
                for place, read in enumerate(prompts.requests[row].reads):
                    if isinstance(read, Read) and read == own.read:
                        for arm, context in enumerate(self.context_of):
                            owners = (TRUNK, ("context", context), ("arm", arm))
                            value = harvest.value(tap, slot, owners)
                            self.put(arm, prompts.numbers[row], place, value)
        for number in prompts.numbers:
            for key in [key for key in self._sums if key[0] == number]:
                for arm, row in enumerate(self._sums.pop(key)):
                    self.put(arm, key[0], key[1], row.astype(np.float32))
