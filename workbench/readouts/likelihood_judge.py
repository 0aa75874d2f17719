"""A judge that writes nothing: a loaded model's likelihood of every number of the scale.

It needs no parsing, and it is exact where a tokenizer splits numbers into digits (Qwen, Gemma,
SmolLM2), so that the first token alone says little.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from workbench.judges import Case, Judge, Scale, Verdict
from workbench.readouts.candidates import candidate_read, expected_value, terminators
from workbench.types import Request, Subject, ndarray

TOGETHER = 16


class LikelihoodJudge(Judge):
    """Scores with the mean over the numbers of the scale, each weighed by its likelihood.

    Where the scale has a word for answers that decline, and it is likelier than all numbers, the
    answer is counted as declined.

    Args:
        subject: the judge, as ``wb.load`` gives.
        scale: of the scores.
        prefix: words that the judge's reply is taken to begin with; with none, a model that likes
            to explain itself first has little mass on numbers.
        fenced: mark off the answer; see ``fill_rubric``.
        least_mass: probability on the scale, given the prefix, below which there is no score.
        budget: tokens of one batch.
    """

    def __init__(
        self,
        subject: Subject,
        scale: Scale,
        *,
        prefix: str = "Score: ",
        fenced: bool = True,
        least_mass: float | int = 0.5,
        budget: int = 32_768,
    ) -> None:
        super().__init__(None, scale, fenced=fenced, least_mass=least_mass)
        self.subject, self.prefix, self.budget = subject, prefix, budget
        self.name, self.together = subject.ref.key, TOGETHER
        self._numbers = np.arange(scale.low, scale.high + 1)
        words = [] if scale.declined is None else [scale.declined]
        self._texts = [*map(str, self._numbers), *words]
        closed = scale.high > 9 or bool(words)  # else no candidate begins another
        self._ends = terminators(subject) if closed else ()

    def _judge(self, cases: Sequence[Case]) -> list[Verdict]:
        if not cases:
            return []
        assert self.subject.runner is not None, "a subject gets its runner in wb.load"
        asked = [self._asked(case, row) for row, case in enumerate(cases)]
        answers = self.subject.runner.answer(self.subject, asked, budget=self.budget).values[0]
        return [self._verdict(np.asarray(answer[0])) for answer in answers]

    def _asked(self, case: Case, row: int) -> Request:
        chat = [{"role": "user", "content": self.filled(case)}]
        rendered = self.subject.renderer.render(chat, render="chat")
        opening, read = candidate_read(
            self.subject.tokenizer, rendered.ids, self._texts, self._ends, self.prefix
        )
        return Request(str(row), "judge", (*rendered.ids, *opening), (read,), rendered.spans)

    def _verdict(self, logs: Float[ndarray, " c"]) -> Verdict:
        score, mass = expected_value(logs[: len(self._numbers)], self._numbers.astype(np.float64))
        declined = float(np.exp(logs[len(self._numbers) :].astype(np.float64)).sum())
        if mass + declined < self.least_mass:
            return Verdict(None, "low mass", mass=mass)
        if declined > mass:
            return Verdict(None, "declined", mass=mass)
        return Verdict(score, how="likelihood", mass=mass)
