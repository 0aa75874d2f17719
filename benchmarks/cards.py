"""Two cards: a capture shared by two processes, and one model whose blocks lie on both.

`shares` times the short capture (W1) by one process on one card and by two on two, with
``shard="i/2"``, to memory and to one store; `split` compares a model that accelerate spread over
two cards with the same model on one: captures, edited answers, edited generation.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import accelerate
import numpy as np
import torch
from common import (
    Options,
    device_of,
    finish,
    keep,
    log,
    measured,
    open_subject,
    options_of,
    rounded,
    statements,
    token_rows,
    vector_gap,
    verdict,
)

import workbench as wb
from workbench.interventions import EditLog
from workbench.registry import EDITS
from workbench.types import Arm, LayerEdit, LogitsRead, Request, Subject

CARDS = 2
DOSE = 40.0
"""Of a unit vector; block outputs of the random model are a few hundred long."""


# --- a capture in shares --------------------------------------------------------------------------


def work_on(card: int, argv: Sequence[str], folder: str, barrier: Any, told: Any) -> None:
    """Run one process's part of every round, all at once; the first round is the first's alone."""
    options = options_of(__doc__ or "", ("shares", "split"), argv)
    if device_of(options) == "cuda":
        torch.cuda.set_device(card)
    subject = open_subject(options)
    prompts = statements(subject, options.count("shares", 1024))
    wb.capture(subject, prompts)  # every shape is compiled and every buffer there
    for name, where in (("memory", None), ("store", Path(folder))):
        for shares in (1, CARDS):
            for number in range(options.repeats):
                out = None if where is None else where / f"{shares}-{number}"
                barrier.wait()
                start = time.monotonic()
                if card < shares:
                    wb.capture(subject, prompts, out=out, shard=(card, shares))
                told.put((name, shares, number, start, time.monotonic()))


def run_shares(options: Options, argv: Sequence[str]) -> dict[str, Any]:
    """Time one process against two, and compare what they leave on disk."""
    context = multiprocessing.get_context("spawn")
    barrier, told = context.Barrier(CARDS), context.Queue()
    folder = tempfile.mkdtemp(prefix="workbench-cards-")
    workers = [
        context.Process(target=work_on, args=(card, argv, folder, barrier, told))
        for card in range(CARDS)
    ]
    for worker in workers:
        worker.start()
    rounds = 2 * 2 * options.repeats * CARDS
    times = [told.get(timeout=500) for _ in range(rounds)]
    for worker in workers:
        worker.join()
    row: dict[str, Any] = {}
    for name in ("memory", "store"):
        spent = {shares: _seconds(times, name, shares) for shares in (1, CARDS)}
        row[name] = {"one": rounded(spent[1]), "two": rounded(spent[CARDS])}
        row[name]["ratio"] = rounded(spent[1] / spent[CARDS])
    hashes = [
        json.loads((Path(folder) / f"{shares}-0" / "hashes.json").read_text())
        for shares in (1, CARDS)
    ]
    shards = [{k: v for k, v in found.items() if k.startswith("shards/")} for found in hashes]
    shutil.rmtree(folder)
    return {**row, "shards": len(shards[0]), "agrees": shards[0] == shards[1]}


def _seconds(times: Sequence[Any], name: str, shares: int) -> float:
    """From the first start to the last end, the median over rounds."""
    rounds: dict[int, list[tuple[float, float]]] = {}
    for kind, count, number, start, end in times:
        if (kind, count) == (name, shares):
            rounds.setdefault(number, []).append((start, end))
    return median(max(e for _, e in each) - min(s for s, _ in each) for each in rounds.values())


# --- one model on two cards -----------------------------------------------------------------------


def run_split(subject: Subject) -> dict[str, Any]:
    """Compare a model on one card with itself on two."""
    whole = look(subject)
    split_in_two(subject)
    homes = {str(next(block.parameters()).device) for block in subject.blocks.values()}
    split = look(subject)
    row: dict[str, Any] = {"blocks": subject.n_layers, "cards": sorted(homes)}
    for name in ("last", "mean"):
        row[name] = rounded(vector_gap(split[name], whole[name])[1])
    row["answers"] = rounded(float(np.abs(split["answers"] - whole["answers"]).max()))
    row["moved"] = rounded(float(np.abs(whole["answers"][1:] - whole["answers"][0]).max()))
    row["texts_equal"] = split["texts"] == whole["texts"]
    row |= {"seconds_one": whole["seconds"], "seconds_two": split["seconds"]}
    same = verdict(max(row["last"], row["mean"], row["answers"]), 0.02)
    return {**row, **same, "agrees": same["agrees"] and row["texts_equal"] and len(homes) == CARDS}


def split_in_two(subject: Subject) -> None:
    """Spread a llama-like model over two cards, its head on the second."""
    half = subject.n_layers // 2
    homes = {f"model.layers.{layer}": int(layer >= half) for layer in subject.blocks}
    homes |= {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.norm": 1, "lm_head": 1}
    accelerate.dispatch_model(subject.model, homes)


def look(subject: Subject) -> dict[str, Any]:
    """Capture, answer under edits on both halves, and generate under them."""
    prompts = statements(subject, 64)
    rows = token_rows(subject, 8, 64)
    requests = [Request(str(n), "c", ids, (LogitsRead(),)) for n, ids in enumerate(rows)]
    arms: list[Arm] = [(), *((edit,) for edit in edits_of(subject)), edits_of(subject)]
    runner = subject.runner
    assert runner is not None
    found: dict[str, Any] = {}
    start = time.monotonic()
    found["last"] = _values(lambda: wb.capture(subject, prompts))
    found["mean"] = _values(lambda: wb.capture(subject, prompts, position="mean"))
    answered = runner.answer(subject, requests, arms)
    found["answers"] = np.stack([[reads[0] for reads in arm] for arm in answered.values])
    with runner.intervene(subject, [arms[-1]]) as steered:
        assert isinstance(steered, EditLog)
        found["texts"] = runner.generate(subject, [str(t) for t in prompts.items[:4]])
    found["seconds"] = rounded(time.monotonic() - start)
    return found


def edits_of(subject: Subject) -> Arm:
    """Add a drawn unit vector at a block of either half."""
    rng = np.random.default_rng(0)
    made = []
    for layer in (subject.n_layers // 4, 3 * subject.n_layers // 4):
        v = rng.standard_normal(subject.width)
        unit = (v / np.linalg.norm(v)).astype(np.float32)
        made.append(LayerEdit(layer, "add", EDITS.create("add"), unit, DOSE, "all", {}))
    return tuple(made)


def _values(read: Callable[[], Any]) -> torch.Tensor:
    return torch.from_numpy(np.asarray(read().values, np.float32))


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    options = options_of(__doc__ or "", ("shares", "split"), given)
    if device_of(options) == "cuda" and torch.cuda.device_count() < CARDS:
        log(f"{torch.cuda.device_count()} CUDA devices found, {CARDS} needed")
        return 2
    found: dict[str, Any] = {}
    if "shares" in options.workloads:
        with measured("shares"):
            found["shares"] = run_shares(options, given)
        keep(options, found)
    subject = open_subject(replace(options, blocks=options.blocks or 16))
    if "split" in options.workloads:
        with measured("split"):
            found["split"] = run_split(subject)
    return finish(options, subject, found)


if __name__ == "__main__":
    sys.exit(main())
