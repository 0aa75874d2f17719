"""Capture against its peers: the last token of short statements, and means over long answers.

W1 reads every block at the last token of bare statements, W1b one block at 77% depth, W2 the mean
over the answer's tokens of long chats at every block. All to host memory, through ``wb.capture``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from common import (
    TOLERANCE,
    Compared,
    Options,
    batches_of,
    chats,
    compare,
    compiled_blocks,
    finish,
    keep,
    measured,
    open_subject,
    options_of,
    rounded,
    statements,
    vector_gap,
    verdict,
    wrap_lens,
    wrap_nnsight,
)
from torch import Tensor

import workbench as wb
from workbench.activations import Activations
from workbench.prompts import PromptSet
from workbench.types import Batch, Subject

SHORT_ROWS, BUDGET = 128, 8192
DEPTH = 0.77


@dataclass(frozen=True)
class Work:
    """One workload: what is read from which prompts, and the batches that peers get."""

    subject: Subject
    prompts: PromptSet
    layers: tuple[int, ...]
    position: str
    right: list[tuple[list[int], Batch]]
    left: list[tuple[list[int], Batch]]

    @property
    def tokens(self) -> int:
        """Real tokens."""
        return sum(int(batch.attention_mask.sum()) for _, batch in self.right)

    @property
    def whole(self) -> bool:
        return len(self.layers) == self.subject.n_layers

    def ours(self) -> Activations:
        """Read through the public interface, rendering included."""
        found = wb.capture(self.subject, self.prompts, layers=self.layers, position=self.position)
        assert isinstance(found, Activations)
        return found

    def bare(self) -> Tensor:
        """Run the decoder and keep its last output: the floor, nothing is captured."""
        decoder = self.subject.model.get_decoder()
        return self._collected(
            self.right,
            lambda batch: self._pooled(batch, decoder(**_inputs(batch)).last_hidden_state)[None],
        )

    def hf(self) -> Tensor:
        """Ask transformers for every hidden state, as most people do; the head runs as well."""

        def run(batch: Batch) -> Tensor:
            output = self.subject.model(**_inputs(batch), output_hidden_states=True)
            states = [output.hidden_states[layer + 1] for layer in self.layers]
            return torch.stack([self._pooled(batch, state) for state in states])

        return self._collected(self.right, run)

    def nnsight(self, wrapped: Any) -> Tensor:
        """Trace with nnsight, ended after the deepest block that is read."""
        blocks = wrapped.model.layers

        def run(batch: Batch) -> Tensor:
            inputs = _inputs(batch)
            with wrapped.trace(inputs) as tracer:
                kept = [blocks[layer].output[:, -1] for layer in self.layers].save()
                tracer.stop()
            return torch.stack(list(kept))

        return self._collected(self.left, run)

    def lens(self, bridge: Any) -> Tensor:
        """Cache block outputs with TransformerLens, stopped where it can."""
        names = [f"blocks.{layer}.hook_out" for layer in self.layers]
        stop = None if self.whole else self.layers[-1] + 1

        def run(batch: Batch) -> Tensor:
            _, cache = bridge.run_with_cache(
                batch.input_ids,
                attention_mask=batch.attention_mask,
                names_filter=names,
                pos_slice=-1,
                stop_at_layer=stop,
                return_type=None,
                return_cache_object=False,
            )
            return torch.stack([cache[name].flatten(1) for name in names])

        return self._collected(self.left, run)

    def _collected(
        self, batches: Sequence[tuple[list[int], Batch]], run: Callable[[Batch], Tensor]
    ) -> Tensor:
        found: Tensor | None = None
        with torch.no_grad():
            for rows, batch in batches:
                values = run(batch).cpu()
                if found is None:
                    found = torch.empty(len(values), len(self.prompts), values.shape[-1])
                    found = found.to(values.dtype)
                found[:, rows] = values
        assert found is not None
        return found

    def _pooled(self, batch: Batch, h: Tensor) -> Tensor:
        """Take the last token of right-padded rows, or the mean over the answer."""
        if self.position == "last":
            last = batch.attention_mask.sum(1) - 1
            return h[torch.arange(len(h), device=h.device), last]
        mask = batch.spans["assistant"]
        weights = mask.float() / mask.sum(1, keepdim=True)
        return torch.einsum("btd,bt->bd", h.float(), weights)


def _inputs(batch: Batch) -> dict[str, Any]:
    return {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask,
        "position_ids": batch.position_ids,
        "use_cache": False,
    }


def make_work(
    subject: Subject, prompts: PromptSet, layers: Sequence[int], position: str, rows: int
) -> Work:
    """Render the prompts for the peers."""
    rendered = [subject.renderer.render(item) for item in prompts.items]
    cut = [
        batches_of(subject, rendered, rows=rows, budget=BUDGET, side=side)
        for side in ("right", "left")
    ]
    return Work(subject, prompts, tuple(layers), position, cut[0], cut[1])


def run_work(options: Options, work: Work, peers: Sequence[str], compiled: bool) -> dict[str, Any]:
    """Compare ours with the peers that were asked for, and check that the numbers agree."""
    runs: dict[str, Callable[[], Any]] = {"ours": work.ours}
    wanted = [peer for peer in peers if peer in options.peers]
    skipped = {peer: "not asked for" for peer in peers if peer not in wanted}
    fast = compile_and_run(work, options) if compiled else None
    for peer in wanted:
        if peer in ("bare", "hf"):
            runs[peer] = getattr(work, peer)
        else:
            runs[peer] = _wrapped(work, peer)
    found = compare(runs, options.repeats, skipped=skipped)
    row = report(work, found, peers, check(work, found))
    if fast is not None:
        row["compiled"] = report_compiled(work, fast, found)
    return row


def compile_and_run(work: Work, options: Options) -> Compared:
    """Run ours and the floor with compiled blocks, before any peer changes the model."""
    with compiled_blocks(work.subject):
        return compare({"ours": work.ours, "bare": work.bare}, options.repeats)


def report_compiled(work: Work, fast: Compared, eager: Compared) -> dict[str, Any]:
    """Return ours compiled against the floor compiled, and against every peer as it runs."""
    mine = fast.times["ours"].seconds
    gap = vector_gap(fast.outputs["ours"].values, eager.outputs["ours"].values)
    return {
        **{name: rounded(work.tokens / timing.seconds) for name, timing in fast.times.items()},
        "ratio_bare_compiled": fast.ratio("bare"),
        **{f"ratio_{name}": rounded(timing.seconds / mine) for name, timing in eager.times.items()},
        "agree_of_norm": {"eager": rounded(gap[1])},
        **verdict(gap[1], TOLERANCE[work.subject.ref.dtype]),
    }


def _wrapped(work: Work, peer: str) -> Callable[[], Tensor]:
    """Wrap the model when the peer first runs; that first run is not timed."""
    wrap = {"nnsight": wrap_nnsight, "lens": wrap_lens}[peer]

    def run() -> Tensor:
        values: Tensor = getattr(work, peer)(wrap(work.subject))
        return values

    return run


def check(work: Work, found: Compared) -> dict[str, tuple[float, float]]:
    """Compare values with every peer: block outputs, and through the final norm with bare."""
    ours: Activations = found.outputs["ours"]
    last = work.subject.n_layers - 1
    gaps: dict[str, tuple[float, float]] = {}
    for peer, values in found.outputs.items():
        if peer == "ours" or (peer == "bare" and work.position != "last"):
            continue
        pairs = [(0, last)] if peer == "bare" else list(enumerate(work.layers))
        worst = (0.0, 0.0)
        for row, layer in pairs:
            if layer not in work.layers:
                continue
            mine = torch.from_numpy(ours.at(layer))
            if layer == last and peer in ("bare", "hf"):
                if work.position != "last":
                    continue
                mine = _normed(work.subject, mine)
            gap = vector_gap(mine, values[row])
            worst = (max(worst[0], gap[0]), max(worst[1], gap[1]))
        gaps[peer] = worst
    return gaps


def _normed(subject: Subject, h: Tensor) -> Tensor:
    """Put raw outputs of the last block through the model's final norm."""
    model = subject.model
    with torch.no_grad():
        normed: Tensor = model.get_decoder().norm(h.to(model.device, model.dtype))
    return normed.cpu()


def report(
    work: Work, found: Compared, peers: Sequence[str], agree: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    """Return the workload's part of the JSON: tokens a second, ratios, differences."""
    row: dict[str, Any] = {
        name: rounded(work.tokens / found.times[name].seconds) if name in found.times else None
        for name in ("ours", *peers)
    }
    for peer in peers:
        row[f"ratio_{peer}"] = found.ratio(peer)
    if not torch.cuda.is_available():
        row |= {f"cpu_ratio_{peer}": found.cpu_ratio(peer) for peer in peers}
    row["agree"] = rounded(max((gap[0] for gap in agree.values()), default=0.0))
    row["agree_of_norm"] = {peer: rounded(gap[1]) for peer, gap in agree.items()}
    limit = TOLERANCE[work.subject.ref.dtype]
    row |= verdict(max((gap[1] for gap in agree.values()), default=0.0), limit)
    row["items"], row["tokens"] = len(work.prompts), work.tokens
    if found.peak:
        row["peak_mib"] = {name: round(value / 2**20) for name, value in found.peak.items()}
    if found.reasons:
        row["reasons"] = found.reasons
    return row


def main(argv: Sequence[str] | None = None) -> int:
    options = options_of(__doc__ or "", ("W1", "W1b", "W2"), argv)
    subject = open_subject(options)
    every = range(subject.n_layers)
    found: dict[str, Any] = {}
    for name in options.workloads:
        with measured(name):
            if name != "W2":
                n = options.count(name, 128 if options.quick else 1024)
                prompts = statements(subject, n)
            if name == "W1":
                work = make_work(subject, prompts, every, "last", SHORT_ROWS)
                peers = ("bare", "hf", "nnsight", "lens")
            elif name == "W1b":
                layer = round(DEPTH * subject.n_layers)
                work = make_work(subject, prompts, [layer], "last", SHORT_ROWS)
                peers = ("bare", "nnsight", "lens")
            else:
                wrap_lens.cache_clear()
                long = chats(subject, options.count(name, 2 if options.quick else 16))
                work = make_work(subject, long, every, "mean:assistant", BUDGET)
                peers = ("bare", "hf")
            found[name] = run_work(options, work, peers, name in options.compile)
        keep(options, found)
    return finish(options, subject, found)


if __name__ == "__main__":
    sys.exit(main())
