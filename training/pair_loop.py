"""The loop that trains an edit on pairs of replies; the model is frozen, every draw is seeded."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from workbench_training.pair_method import BOTH, Known, Loss, Marks, PairMethod, Run
from workbench_training.pair_settings import PairFitConfig
from workbench_training.pair_state import Reference, State
from workbench_training.pairs import Pair, Reply
from workbench_training.recompute import Recomputing, Step, fit_to_memory, recomputing
from workbench_training.reply_scores import Row, Scorer, Sheet, lay_out, row_length, share_prompt

from workbench.engine.blocks import hidden_of, watching, with_hidden
from workbench.errors import ConfigError
from workbench.types import Progress, Subject, ndarray

logger = logging.getLogger(__name__)

BUDGET = {"cuda": 16_384}
"""Padded tokens of a forward, by kind of device."""
SMALLER = 2_048
ORDER, DRAW = 1, 2
"""Tell apart what is drawn from one seed."""


@dataclass
class PairLoop:
    """One training run, in the parts that the fit puts together.

    Args:
        subject: the model, held still by `frozen`.
        method: what is trained.
        config: the settings.
        layers: blocks that are edited.
        pairs: to train on.
        held_out: that will only be measured.
    """

    subject: Subject
    method: PairMethod
    config: PairFitConfig
    layers: tuple[int, ...]
    pairs: Sequence[Pair]
    held_out: Sequence[Pair] = ()
    scorer: Scorer = field(init=False)
    joined: bool = field(init=False)
    """Whether both replies of a pair go in one row, the prompt once."""
    parameters: dict[str, Tensor] = field(init=False)
    optimizer: torch.optim.AdamW = field(init=False)
    _marks: Marks | None = field(init=False, default=None)
    _parts: Mapping[str, Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.scorer = Scorer(self.subject)
        rows = [(pair.chosen, pair.rejected) for pair in (*self.pairs, *self.held_out)]
        self.joined = self.scorer.joins(max(rows, key=row_length))
        start = self.method.start(len(self.layers), self.subject.width, self.config.seed)
        self.parameters = {
            name: value.to(self.scorer.device).requires_grad_() for name, value in start.items()
        }
        self.optimizer = torch.optim.AdamW(
            list(self.parameters.values()),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
        )

    @property
    def updates(self) -> int:
        return self.config.epochs * self.updates_per_epoch

    @property
    def updates_per_epoch(self) -> int:
        return math.ceil(len(self.pairs) / self.config.batch_size)

    @property
    def budget(self) -> int:
        return self.config.budget or BUDGET.get(self.scorer.device.type, SMALLER)

    def train(
        self, reference: Reference, state: State, progress: Progress | None = None
    ) -> list[dict[str, Any]]:
        """Do every update that a checkpoint does not have yet; return their log.

        Raises:
            ConfigError: a loss that is no number, or a batch that does not fit the device.
        """
        step, rows = state.restore(self.parameters, self.optimizer), []
        logger.info("training %s from update %d of %d", self.method, step, self.updates)
        if progress is not None:
            progress(step, self.updates)
        with self._applied(), self._recomputing():
            while step < self.updates:
                began = time.perf_counter()
                row = self._update(step, reference)
                step += 1
                row["seconds"] = round(time.perf_counter() - began, 4)
                rows.append(row)
                state.log(row)
                state.keep(step, self.parameters, self.optimizer, last=step == self.updates)
                if progress is not None:
                    progress(step, self.updates)
        return rows

    def _update(self, step: int, reference: Reference) -> dict[str, Any]:
        numbers = self.numbers_of(step)
        runs = self.method.runs(np.random.default_rng([self.config.seed, DRAW, step]))
        self.optimizer.zero_grad()
        told: dict[str, Tensor] = {}
        tokens = 0
        for part in self._cut(numbers, runs):
            found = self.loss_of(part, runs, reference)
            torch.autograd.backward(found.losses.sum() / len(numbers))
            for name, values in {"loss": found.losses, **found.told}.items():
                told[name] = told.get(name, 0) + values.detach().sum()
            tokens += sum(len(run_of(self.pairs[n], run).ids) for n in part for run in runs)
        means = {name: float(total) / len(numbers) for name, total in told.items()}
        rate = self.config.learning_rate * rate_at(self.config, step, self.updates)
        grad = torch.stack([p.grad.norm() for p in self.parameters.values() if p.grad is not None])
        self._refuse_nan(step, means["loss"], float(grad.norm()), rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        with torch.no_grad():
            self.method.settle(self.parameters, rate)
            sizes = self.method.sizes(self.parameters)
        self._refuse_blown_up(step, float(sizes.max()), rate)
        return {
            "step": step + 1,
            "epoch": step // self.updates_per_epoch,
            "pairs": len(numbers),
            "tokens": tokens,
            "strength": runs[0].strength,
            **means,
            "rate": rate,
            "grad_norm": float(grad.norm()),
            "size": float(sizes.mean()),
            "size_max": float(sizes.max()),
        }

    def numbers_of(self, step: int) -> list[int]:
        """Return the pairs of an update; every epoch sees each once, in an order of its own."""
        epoch, place = divmod(step, self.updates_per_epoch)
        order = np.random.default_rng([self.config.seed, ORDER, epoch]).permutation(len(self.pairs))
        first = place * self.config.batch_size
        return [int(number) for number in order[first : first + self.config.batch_size]]

    def loss_of(self, numbers: Sequence[int], runs: Sequence[Run], reference: Reference) -> Loss:
        """Run some pairs in all ways of an update, in one forward, and return their losses."""
        pairs = [self.pairs[number] for number in numbers]
        logprobs = self.logprobs_of(pairs, runs)
        known = Known(
            reference=torch.from_numpy(reference.logprobs[:, list(numbers)]).to(logprobs.device),
            sizes=torch.tensor(
                [[float(p.chosen.size) for p in pairs], [float(p.rejected.size) for p in pairs]],
                device=logprobs.device,
            ),
        )
        return self.method.loss(runs, logprobs, known)

    def logprobs_of(self, pairs: Sequence[Pair], runs: Sequence[Run]) -> Float[Tensor, "r b"]:
        """Return the log-probability of each pair's reply under each run, edits acting."""
        sheet, order, groups = self._sheet(pairs, runs)

        def spread(values: Sequence[float]) -> Tensor:
            return sheet.marked * torch.tensor(values, device=sheet.marked.device)[:, None]

        self._marks = Marks(
            spread([0.0 if run.null else run.strength for run in groups]),
            spread([float(run.null) for run in groups]),
            any(run.null for run in runs),
        )
        self._parts = self.method.parts(self.parameters)
        found = self.scorer(sheet)
        return found[torch.tensor(order, device=found.device)].view(len(runs), len(pairs))

    def _sheet(
        self, pairs: Sequence[Pair], runs: Sequence[Run]
    ) -> tuple[Sheet, list[int], list[Run]]:
        """Lay pairs out; return where each run's replies stand among all, and each row's run."""
        rows: list[Row] = []
        groups: list[Run] = []
        place: dict[tuple[int, int], int] = {}
        for members in grouped(runs, self.joined):
            for number, pair in enumerate(pairs):
                whole = tuple(run_of(pair, runs[member]) for member in members)
                found = [whole] if share_prompt(whole) else [(reply,) for reply in whole]
                rows += found
                groups += [runs[members[0]]] * len(found)
                place |= {(member, number): len(place) + n for n, member in enumerate(members)}
        order = [place[run, number] for run in range(len(runs)) for number in range(len(pairs))]
        return lay_out(rows, self.scorer.pad, self.scorer.device), order, groups

    @contextlib.contextmanager
    def _applied(self) -> Iterator[None]:
        """Let the edit act in every forward, and where a backward pass runs blocks again."""
        with watching(self.subject, self.layers, self._see):
            yield

    def _see(self, layer: int, output: Any) -> Any:
        h, row = hidden_of(output), self.layers.index(layer)
        assert self._marks is not None, "marks are set before each forward"
        part = {name: value[row].to(h.device) for name, value in self._parts.items()}
        marks = Marks(
            self._marks.strength.to(h.device), self._marks.null.to(h.device), self._marks.nulls
        )
        with torch.autocast(h.device.type, enabled=False):
            edited = self.method.edited(h.float(), part, marks)
        return with_hidden(output, edited.to(h.dtype))

    @contextlib.contextmanager
    def _recomputing(self) -> Iterator[None]:
        wanted = self.config.recompute
        with recomputing(self.subject.model, 0) as state:
            if isinstance(wanted, int):
                state.count = min(wanted, len(state))
            elif wanted == "all":
                state.count = len(state)
            elif wanted == "auto" and self.scorer.device.type == "cuda":
                self._fit_to_memory(state)
            yield

    def _fit_to_memory(self, state: Recomputing) -> None:
        """Try the largest forward of all."""
        rng = np.random.default_rng([self.config.seed, DRAW])
        runs = max((self.method.runs(rng) for _ in range(16)), key=len)
        longest = sorted(range(len(self.pairs)), key=lambda n: -self.pairs[n].length)
        part = max(
            self._cut(longest[: self.config.batch_size], runs),
            key=lambda numbers: len(numbers) * max(self.pairs[n].length for n in numbers),
        )
        blank = Reference(np.zeros((2, len(self.pairs)), np.float32), np.zeros(0, np.float32))

        def forward() -> Tensor:
            return self.loss_of(part, runs, blank).losses.sum()

        parameters: Any = list(self.parameters.values())
        fit_to_memory(state, Step(forward, parameters), self.scorer.device)

    def _cut(self, numbers: Sequence[int], runs: Sequence[Run]) -> Iterator[list[int]]:
        """Cut an update's pairs into forwards."""
        pairs = [self.pairs[number] for number in numbers]
        for part in self._parts_of(pairs, runs):
            yield [numbers[place] for place in part]

    def _parts_of(self, pairs: Sequence[Pair], runs: Sequence[Run]) -> Iterator[list[int]]:
        groups = grouped(runs, self.joined)

        def length(pair: Pair) -> int:
            return max(row_length(tuple(run_of(pair, runs[m]) for m in group)) for group in groups)

        return cut([length(pair) for pair in pairs], len(groups), self.budget)

    def measure(self, pairs: Sequence[Pair], strength: float) -> Float[ndarray, "2 n"]:
        """Return the log-probabilities of both replies with the edit at a strength, in nats."""
        runs = [Run(run.reply, strength) for run in BOTH]
        found = np.zeros((2, len(pairs)), np.float32)
        with torch.no_grad(), self._applied():
            for part in self._parts_of(pairs, runs):
                logprobs = self.logprobs_of([pairs[n] for n in part], runs)
                found[:, part] = logprobs.cpu().numpy()
        return found

    def shift(self, pairs: Sequence[Pair]) -> Float[ndarray, "l d"]:
        """Return the mean displacement of edited tokens at full strength, block by block."""
        sums = torch.zeros(len(self.layers), self.subject.width, dtype=torch.float64)
        count = 0.0

        def see(layer: int, output: Any) -> Any:
            edited = self._see(layer, output)
            moved = hidden_of(edited).float() - hidden_of(output).float()
            sums[self.layers.index(layer)] += moved.sum((0, 1)).double().cpu()
            return edited

        with torch.no_grad(), watching(self.subject, self.layers, see):
            for part in self._parts_of(pairs, BOTH[:1]):
                self.logprobs_of([pairs[n] for n in part], BOTH[:1])
                assert self._marks is not None
                count += float(self._marks.strength.sum())
        return np.asarray((sums / count).float().numpy())

    def observe(self, pairs: Sequence[Pair]) -> Reference:
        """Measure the unedited model: log-probabilities of replies, and norms on edited tokens."""
        sums = torch.zeros(len(self.layers), dtype=torch.float64)
        count = 0.0
        marked: Tensor | None = None

        def see(layer: int, output: Any) -> None:
            assert marked is not None
            h = hidden_of(output)
            lengths = h.float().norm(dim=-1) * marked.to(h.device)
            sums[self.layers.index(layer)] += lengths.sum().double().cpu()

        found = np.zeros((2, len(pairs)), np.float32)
        with torch.no_grad(), watching(self.subject, self.layers, see):
            for part in self._parts_of(pairs, BOTH):
                sheet, order, _ = self._sheet([pairs[n] for n in part], BOTH)
                marked = sheet.marked
                count += float(marked.sum())
                logprobs = self.scorer(sheet).cpu().numpy()
                found[:, part] = logprobs[order].reshape(2, len(part))
        return Reference(found, (sums / count).float().numpy())

    def _refuse_nan(self, step: int, loss: float, grad: float, rate: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(grad)):
            raise ConfigError(
                f"the loss is {loss} and its gradient {grad} at update {step + 1} (rate "
                f"{rate:.2g}): training diverged or the model holds broken weights; lower "
                "learning_rate, or check the model's own loss"
            )

    def _refuse_blown_up(self, step: int, size: float, rate: float) -> None:
        if not math.isfinite(size):
            raise ConfigError(
                f"a block's edit has length {size} after update {step + 1} (rate {rate:.2g}): "
                "training diverged; lower learning_rate"
            )


def run_of(pair: Pair, run: Run) -> Reply:
    """Return the conversation of a pair that a run reads."""
    return pair.chosen if run.reply == "chosen" else pair.rejected


def grouped(runs: Sequence[Run], joined: bool) -> list[list[int]]:
    """Return which runs share a row: those that edit alike, where rows are joined."""
    if not joined:
        return [[number] for number in range(len(runs))]
    found: dict[tuple[float, bool], list[int]] = {}
    for number, run in enumerate(runs):
        found.setdefault((run.strength, run.null), []).append(number)
    return list(found.values())


def cut(lengths: Sequence[int], rows: int, budget: int) -> Iterator[list[int]]:
    """Cut pairs of so many rows each into forwards of a budget, those of like length together."""
    part: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: (lengths[n], n)):
        if part and (len(part) + 1) * rows * lengths[number] > budget:
            yield part
            part = []
        part.append(number)
    if part:
        yield part


def rate_at(config: PairFitConfig, step: int, updates: int) -> float:
    """Return the part of the peak rate at an update, counted from 0: a rise, then a cosine."""
    warm = math.ceil(config.warmup * updates)
    if step < warm:
        return (step + 1) / (warm + 1)
    gone = (step - warm) / max(updates - warm - 1, 1)
    return config.floor + (1 - config.floor) * (1 + math.cos(math.pi * gone)) / 2
