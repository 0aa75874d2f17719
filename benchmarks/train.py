"""LoRA training against plain ``transformers.Trainer`` + PEFT: the same data, seed and settings.

W9: rank 32 on every linear layer with dropout 0.05, 2 x 4,096 packed tokens a batch, bf16, AdamW.
The peer checkpoints every block, as one does at 32B; ours recomputes what memory demands.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from common import (
    PEER_ERRORS,
    WORDS,
    Options,
    ceilings,
    finish,
    keep,
    log,
    measured,
    open_subject,
    options_of,
    rounded,
    verdict,
)
from workbench_training import loop, organism
from workbench_training.adapter import adapt
from workbench_training.packing import Blocks, encode, join, lay_out, separator_of
from workbench_training.settings import TrainConfig

from workbench.types import Subject

SEED = 20_260_101
WARM = 2
"""Updates that do not count: kernels are chosen and memory is claimed in them."""
ROOM = {"float32": 5e-3, "bfloat16": 3e-2}
"""Largest difference of a loss from the peer's, in nats; masks of dropout are drawn otherwise."""
TIGHT = {"float32": 1e-4, "bfloat16": 1e-2}
"""The same without dropout."""
PACE = ("recomputed_blocks", "blocks", "compiled", "chunked_loss")
"""What our card says of how it went."""
CHECKED = 2
"""Updates without dropout."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large a run is."""

    updates: int
    block: int
    batch: int
    rank: int = 32
    dropout: float = 0.05


@dataclasses.dataclass
class Trained:
    """What one way of training gave: losses, seconds of each update, peak memory."""

    losses: list[float]
    seconds: list[float]
    peak: int | None
    told: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def second(self) -> float:
        """Of one update, the first ones left out."""
        return median(self.seconds[WARM:])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 where losses disagree."""
    options = options_of(__doc__ or "", ("W9",), argv)
    subject = open_subject(options, small_dtype="float32")
    found: dict[str, Any] = {}
    with measured("W9"):
        found["W9"] = run_training(options, subject)
    keep(options, found)
    return finish(options, subject, found)


def run_training(options: Options, subject: Subject) -> dict[str, Any]:
    """Train ours and the peer in turn on one base model, eager and, where asked, compiled."""
    sizes = sizes_of(options, subject)
    blocks = packed(subject, sizes)
    on_card = subject.model.device.type == "cuda"
    ceiling = ceilings(subject.model.device)["bf16_tflops"] if on_card else None
    flops = model_flops(subject, sizes)
    found: dict[str, Any] = {}
    for mode in ("eager", "compiled"):
        if mode == "eager" or "W9" in options.compile:
            row = compare(options, subject, sizes, blocks, mode == "compiled")
            found[mode] = described(row, sizes, flops, ceiling)
            log(f"  {mode}: {found[mode]}")
    room = TIGHT[str(subject.model.dtype).removeprefix("torch.")]
    exact = check_without_dropout(options, subject, sizes, blocks, room)
    best = max((row["ours"] for row in found.values()), default=None)
    plain = found["eager"]["plain"]
    return {
        **found["eager"],
        "ours_best": best,
        "ratio_best_plain": None if plain is None else rounded(best / plain),
        **({"compiled": found["compiled"]} if "compiled" in found else {}),
        "without_dropout": exact,
        "tokens": sizes.block * sizes.batch,
        "updates": sizes.updates,
        "model_tflop_per_token": rounded(flops / 1e12),
        "ceiling_tflops": ceiling,
    }


def sizes_of(options: Options, subject: Subject) -> Sizes:
    """Return the specified size on a card, and one that a processor does in a minute or two."""
    if subject.model.device.type == "cuda":
        block, updates = 4096, 5 if options.quick else 8
    else:
        block = 64 if options.model == "tiny" else 256
        updates = 4 if options.quick else 6
    return Sizes(options.count("W9", updates), block, 2)


def packed(subject: Subject, sizes: Sizes) -> Blocks:
    """Pack drawn texts."""
    rng = np.random.default_rng(SEED)
    texts = [" ".join(rng.choice(WORDS, 300)) + "." for _ in range(64)]
    separator = separator_of(subject.tokenizer)
    documents = join(encode(subject.tokenizer, texts), separator)
    count = sizes.updates * sizes.batch
    stream = lay_out(documents, None, tokens=count * sizes.block, share=0.0, seed=SEED)
    return Blocks(stream, sizes.block, count)


def model_flops(subject: Subject, sizes: Sizes) -> float:
    """Return useful operations for one token: 4 a weight that multiplies, and attention.

    Frozen weights have no gradient of their own; recomputing does not count. Attention is causal:
    two products forward and four backward over half the block on average.
    """
    config = subject.model.config
    weights = sum(p.numel() for p in subject.model.parameters())
    embedding = subject.model.get_input_embeddings().weight
    if subject.model.get_output_embeddings().weight is not embedding:
        weights -= embedding.numel()
    heads = config.num_attention_heads * getattr(
        config, "head_dim", config.hidden_size // config.num_attention_heads
    )
    return float(4 * weights + 6 * sizes.block * heads * config.num_hidden_layers)


def compare(
    options: Options, subject: Subject, sizes: Sizes, blocks: Blocks, compiled: bool
) -> dict[str, Trained | str]:
    """Run the peer, then ours; a peer that cannot run gives its reason."""
    found: dict[str, Trained | str] = {}
    ways: dict[str, Callable[[], Trained]] = {
        "ours": functools.partial(train_ours, subject, sizes, blocks, compiled)
    }
    if "plain" in options.peers:
        ways["plain"] = functools.partial(train_plain, subject, sizes, blocks, compiled)
    for name, way in ways.items():
        try:
            found[name] = way()
        except PEER_ERRORS as error:
            if name == "ours":
                raise
            found[name] = f"{type(error).__name__}: {str(error).strip()[:200]}"
        _clear()
        log(f"    {name}{' compiled' if compiled else ''}: {found[name]}")
    return found


def described(
    row: dict[str, Trained | str], sizes: Sizes, flops: float, ceiling: float | None
) -> dict[str, Any]:
    """Return tokens a second, share of the ceiling, memory and agreement of both."""
    found: dict[str, Any] = {}
    for name in ("ours", "plain"):
        way = row.get(name, "left out")
        if isinstance(way, str):
            found[name], found[f"{name}_reason"] = None, way
            continue
        speed = sizes.block * sizes.batch / way.second
        found[name] = rounded(speed)
        if ceiling is not None:
            found[f"{name}_share_of_ceiling"] = rounded(speed * flops / 1e12 / ceiling)
        if way.peak is not None:
            found[f"{name}_peak_gib"] = rounded(way.peak / 2**30)
        found[f"{name}_losses"] = [rounded(loss) for loss in way.losses]
        found[f"{name}_seconds"] = [rounded(seconds) for seconds in way.seconds]
        found.update(way.told)
    ours, plain = row["ours"], row.get("plain")
    found["ratio_plain"] = None
    if isinstance(plain, Trained) and isinstance(ours, Trained):
        gap = max(abs(a - b) for a, b in zip(ours.losses, plain.losses, strict=True))
        found["ratio_plain"] = rounded(plain.second / ours.second)
        found |= {"agree": gap, **verdict(gap, ours.told["room"])}
    return found


def check_without_dropout(
    options: Options, subject: Subject, sizes: Sizes, blocks: Blocks, room: float
) -> dict[str, Any] | None:
    """Compare the losses of both ways where nothing is drawn."""
    if "plain" not in options.peers:
        return None
    still = dataclasses.replace(sizes, dropout=0.0, updates=CHECKED)
    first = Blocks(blocks.stream, blocks.block, CHECKED * sizes.batch)
    row = compare(options, subject, still, first, compiled=False)
    ours, plain = row["ours"], row["plain"]
    assert isinstance(ours, Trained)
    if isinstance(plain, str):
        return {"agree": None, "reason": plain}
    gap = max(abs(a - b) for a, b in zip(ours.losses, plain.losses, strict=True))
    return {"ours": ours.losses, "plain": plain.losses, "agree": gap, **verdict(gap, room)}


# --- the two ways ---------------------------------------------------------------------------------


def settings_of(sizes: Sizes, compiled: bool) -> TrainConfig:
    """Return our settings of the run."""
    return TrainConfig(
        documents="drawn",
        model="drawn",
        tokens=sizes.updates * sizes.batch * sizes.block,
        block=sizes.block,
        batch_size=sizes.batch,
        accumulation=1,
        rank=sizes.rank,
        alpha=2.0 * sizes.rank,
        dropout=sizes.dropout,
        schedule="constant",
        warmup=0.0,
        recompute="auto" if sizes.dropout else "all",
        compile=compiled,
    )


def train_ours(subject: Subject, sizes: Sizes, blocks: Blocks, compiled: bool) -> Trained:
    """Train through the package's own loop."""
    config = settings_of(sizes, compiled)
    device = subject.model.device
    with (
        tempfile.TemporaryDirectory() as place,
        loop.own_randomness(config.seed, device),
        _adapted(config, subject) as model,
        _peak(device) as peak,
    ):
        folder = Path(place)
        told = loop.run(
            config, model, blocks, folder, base="drawn", resume=None, progress=None, save=False
        )
        rows = organism.read_log(folder)
    ends = [0.0, *(row["seconds"] for row in rows)]
    half = str(subject.model.dtype).removeprefix("torch.")
    told = {key: told[key] for key in PACE} | {"room": ROOM[half]}
    return Trained([row["loss"] for row in rows], np.diff(ends).tolist(), peak(), told)


def train_plain(subject: Subject, sizes: Sizes, blocks: Blocks, compiled: bool) -> Trained:
    """Train as one would by hand: the stock Trainer, PEFT, bf16, every block checkpointed."""
    config = settings_of(sizes, compiled)
    device, clock = subject.model.device, Clock()
    newer = hasattr(transformers.TrainingArguments, "activation_checkpointing")
    name = "activation_checkpointing" if newer else "gradient_checkpointing"
    with (
        tempfile.TemporaryDirectory() as place,
        loop.own_randomness(config.seed, device),
        _adapted(config, subject) as model,
        _compiled(subject, compiled),
        _peak(device) as peak,
    ):
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=place,
                max_steps=sizes.updates,
                per_device_train_batch_size=sizes.batch,
                learning_rate=config.learning_rate,
                lr_scheduler_type="constant",
                train_sampling_strategy="sequential",
                save_strategy="no",
                logging_steps=1,
                report_to="none",
                disable_tqdm=True,
                remove_unused_columns=False,
                use_cpu=device.type == "cpu",
                bf16=subject.model.dtype == torch.bfloat16,
                dataloader_pin_memory=device.type == "cuda",
                seed=config.seed,
                **{name: True, f"{name}_kwargs": {"use_reentrant": False}},
            ),
            train_dataset=blocks,
            data_collator=transformers.default_data_collator,
            callbacks=[clock],
        )
        trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
        trainer.train()
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        subject.model.gradient_checkpointing_disable()
    return Trained(losses, np.diff(clock.times).tolist(), peak())


@contextmanager
def _adapted(config: TrainConfig, subject: Subject) -> Iterator[Any]:
    """Put LoRA on the base, and take it off again."""
    model = adapt(config, subject)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # not zero, so that the adapter's own arithmetic shows in the loss
            with torch.no_grad():
                parameter.normal_(std=1e-3)
    try:
        yield model
    finally:
        model.unload()
        for parameter in subject.model.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        subject.model.eval()


@contextmanager
def _compiled(subject: Subject, wanted: bool) -> Iterator[None]:
    """Compile the peer's blocks as a user would, one by one."""
    if not wanted:
        yield
        return
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64
    for block in subject.blocks.values():
        block.forward = torch.compile(block.forward)
    try:
        yield
    finally:
        for block in subject.blocks.values():
            del block.forward


class Clock(transformers.TrainerCallback):
    """Notes when each update was over; the loss is read then, so the device has ended too."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.times.append(time.perf_counter())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        if logs and "loss" in logs and math.isfinite(logs["loss"]):
            self.times.append(time.perf_counter())


@contextmanager
def _peak(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Give the most memory held since; what was measured before training does not count."""
    on_card = device.type == "cuda"
    if on_card:
        torch.cuda.reset_peak_memory_stats(device)
    yield lambda: torch.cuda.max_memory_allocated(device) if on_card else None


def _clear() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
