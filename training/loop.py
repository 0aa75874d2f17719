"""The transformers training loop, with what an organism needs of it: adapters, log, resume."""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import SafetensorError
from transformers.trainer_callback import PrinterCallback
from workbench_training import processes
from workbench_training.adapter import (
    adapted_parts,
    adapter_weights,
    fused_experts,
    load_adapter,
    save_adapter,
)
from workbench_training.adapter_settings import AdapterConfig
from workbench_training.board import Board, no_board
from workbench_training.organism import CHECKPOINTS, WHOLE, log_step
from workbench_training.packing import Blocks
from workbench_training.settings import TrainConfig
from workbench_training.speed import half_precision, quickened

from workbench.errors import ConfigError, WorkbenchError
from workbench.files import explain_os_error
from workbench.models import input_device
from workbench.types import Progress

RANKS = 104_729
"""Between the seeds of two processes: each drops other inputs."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_WORDS = ("No space left", "File too large", "Disk quota", "inline_container", "iostream error")
"""What safetensors and torch say when a write fails for lack of room."""


class Loop(transformers.Trainer):
    """The stock loop but for four things.

    A bfloat16 base computes under autocast, so that float32 adapters cost bfloat16 products; no
    update is lost on a rate of 0; a checkpoint holds the adapter alone; and it gets a mark once it
    is whole, with what every process wrote.
    """

    lr_scheduler: Any

    def __init__(self, *, config: AdapterConfig, base: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config, self.base = config, base
        self._precision = half_precision(self.model, input_device(self.model))
        self.remove_callback(PrinterCallback)

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        with self._precision:
            return super().compute_loss(*args, **kwargs)

    def create_scheduler(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        if self.lr_scheduler is None:
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                self.optimizer, functools.partial(rate, self.config)
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        weights = adapter_weights(self.model)
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save_adapter(self.model, weights, folder, self.base)

    def _load_from_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Leave it: the adapter is read before the model is wrapped."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            place = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            (place / WHOLE).touch()


def rate(config: AdapterConfig, step: int) -> float:
    """Return the part of the peak learning rate at an update, counted from 0: above 0 at each."""
    warm = math.ceil(config.warmup * config.updates)
    if step < warm:
        return (step + 1) / (warm + 1)
    left = 1 - (step - warm) / max(config.updates - warm, 1)
    if config.schedule == "cosine":
        return (1 - math.cos(math.pi * left)) / 2
    return left if config.schedule == "linear" else 1.0


class Record(transformers.TrainerCallback):
    """Writes one log line an update, reports progress, and stops on a loss that is no number."""

    def __init__(self, folder: Path, tokens: int, board: Board, progress: Progress | None) -> None:
        self.folder, self.tokens, self.board, self.progress = folder, tokens, board, progress
        self.started = time.perf_counter()
        self.seconds: list[float] = []

    @property
    def speed(self) -> float:
        """Tokens a second, by the median update; the first one prepares much."""
        spans = np.diff([0.0, *self.seconds])
        return self.tokens / float(np.median(spans[1:] if len(spans) > 1 else spans))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        self.started = time.perf_counter()
        if self.progress is not None:
            self.progress(state.global_step, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        if not logs or "loss" not in logs:
            return
        if not math.isfinite(logs["loss"]):
            raise ConfigError(
                f"the loss is {logs['loss']} at update {state.global_step} (learning rate "
                f"{logs['learning_rate']:.2g}): training diverged or the base holds broken "
                "weights; lower learning_rate, or check the base's own loss"
            )
        self.seconds.append(time.perf_counter() - self.started)
        if state.is_world_process_zero:
            self._write(state.global_step, logs)
        if self.progress is not None:
            self.progress(state.global_step, state.max_steps)

    def _write(self, step: int, logs: Any) -> None:
        row = {
            "step": step,
            "tokens": step * self.tokens,
            "loss": logs["loss"],
            "lr": logs["learning_rate"],
            "grad_norm": logs.get("grad_norm"),
            "seconds": round(self.seconds[-1], 3),
        }
        log_step(self.folder, row)
        for name in ("loss", "lr", "grad_norm"):
            if row[name] is not None:
                self.board(name, row[name], step)


def run(
    config: TrainConfig,
    model: Any,
    blocks: Blocks,
    folder: Path,
    *,
    base: str,
    resume: Path | None,
    progress: Progress | None,
    board: Board = no_board,
    save: bool = True,
) -> dict[str, Any]:
    """Train the adapter on ``blocks`` in their order, from a checkpoint where one is given.

    Args:
        config: the settings.
        model: the PEFT model.
        blocks: the data.
        folder: the organism's, for checkpoints and log.
        base: the reference by which the base model is found again.
        resume: a checkpoint's folder.
        progress: called with (updates done, updates in all).
        board: gets every figure of the log too.
        save: whether there are checkpoints.

    Returns:
        How it went, for the card: what was adapted, speed, memory.
    """
    if resume is not None:
        load_adapter(model, resume)
    device = input_device(model)
    record = Record(folder, config.tokens_per_update, board, progress)
    first = transformers.default_data_collator(
        [blocks[number] for number in range(min(config.batch_size, len(blocks)))]
    )
    with _silent(), quickened(config, model, first) as pace:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        loop = Loop(
            config=config,
            base=base,
            model=model,
            args=_arguments(config, folder, device, save),
            train_dataset=blocks,
            data_collator=transformers.default_data_collator,
            callbacks=[record],
        )
        loop.train(resume_from_checkpoint=str(resume) if resume else None)
    return {
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "adapted": adapted_parts(model),
        "experts": fused_experts(model.get_base_model()),
        "tokens_per_second": round(record.speed, 1) if record.seconds else None,
        "peak_gib": _peak(device),
        "sharded": any(hasattr(p, "full_tensor") for p in model.parameters()),
        **asdict(pace),
    }


def _peak(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    return round(torch.cuda.max_memory_allocated(device) / 2**30, 2)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the library's notes to errors."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)


def _arguments(config: TrainConfig, folder: Path, device: torch.device, save: bool) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / CHECKPOINTS),
        max_steps=config.updates,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulation // processes.count(),
        learning_rate=config.learning_rate,
        train_sampling_strategy="sequential",
        save_strategy="steps" if save else "no",
        save_steps=config.save_every or math.ceil(config.updates / 3),
        save_total_limit=None if config.keep_checkpoints else 2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=device.type == "cuda",
        use_cpu=device.type == "cpu",
        seed=(config.seed + RANKS * processes.rank()) % 2**32,
        ddp_find_unused_parameters=False,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # else the Trainer splits batches over all GPUs
    return arguments


@contextlib.contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed every generator that PEFT and the loop draw from, and put each back afterwards."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        transformers.set_seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn what a full disk or a full device raises inside the loop into a next step."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            "a batch does not fit the device's memory; lower batch_size and raise accumulation "
            'by as much, or set recompute = "all"'
        ) from error
    except (OSError, RuntimeError, SafetensorError) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise explain_os_error(error, folder) from error
        if not any(words in str(error) for words in FULL_WORDS):
            raise
        raise WorkbenchError(
            f"{folder} cannot be written ({str(error).splitlines()[0]}); free some space and run "
            "the same command again, which goes on from the last checkpoint"
        ) from error
