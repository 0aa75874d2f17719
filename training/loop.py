"""The transformers training loop, with what an organism needs of it: adapters, log, resume."""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import random
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers.pytorch_utils import Conv1D
from transformers.trainer_callback import PrinterCallback
from workbench_training.organism import CHECKPOINTS, WHOLE, log_step
from workbench_training.packing import Blocks
from workbench_training.settings import TrainConfig
from workbench_training.speed import Pace, half_precision, quickened

from workbench.errors import ConfigError, WorkbenchError
from workbench.files import explain_os_error
from workbench.models import input_device
from workbench.types import Progress, Subject

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_WORDS = ("No space left", "File too large", "Disk quota", "inline_container", "iostream error")
"""What safetensors and torch say when a write fails for lack of room."""


def adapt(config: TrainConfig, subject: Subject) -> Any:
    """Put a fresh LoRA on the model; its weights are float32 whatever the base is kept in.

    Raises:
        ConfigError: targets that the model lacks, or an output layer tied to the embedding.
    """
    model, targets = subject.model, config.targets
    if isinstance(targets, list):
        _refuse_tied_head(model, targets)
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            # PEFT reads a property that newer transformers renamed.
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
            adapted = peft.get_peft_model(model, settings)
    except ValueError as error:
        names = {n.rpartition(".")[2] for n, m in model.named_modules() if _is_linear(m)}
        raise ConfigError(
            f"targets = {targets!r} does not fit this model ({str(error).splitlines()[0]}); "
            f'give "all-linear" or names among {", ".join(sorted(names))}'
        ) from error
    adapted.config.use_cache = False  # a cache would switch document masks off
    return adapted


def _is_linear(module: Any) -> bool:
    return isinstance(module, (torch.nn.Linear, Conv1D))


def _refuse_tied_head(model: Any, targets: list[str]) -> None:
    head = model.get_output_embeddings()
    name = next((n for n, module in model.named_modules() if module is head), None)
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    if tied and name is not None and name.rpartition(".")[2] in targets:
        raise ConfigError(
            f"targets names {name!r}, whose weights are also the input embedding in this model: "
            "an adapter there changes one of the two alone; leave it out"
        )


def save_adapter(model: Any, folder: Path, base: str) -> None:
    """Write the two files that make up an adapter.

    Args:
        model: the PEFT model.
        folder: an existing folder.
        base: the reference by which the base model is found again.
    """
    # Not save_pretrained: that asks a hub for the base's vocabulary, and writes a README.
    weights = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    plain = {name: weight.detach().contiguous().cpu() for name, weight in weights.items()}
    save_file(plain, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = peft.LoraConfig(**model.peft_config["default"].to_dict())
    settings.base_model_name_or_path, settings.inference_mode = base, True
    if isinstance(settings.target_modules, set):
        settings.target_modules = sorted(settings.target_modules)
    settings.save_pretrained(str(folder))


class Loop(transformers.Trainer):
    """The stock loop but for four things.

    A bfloat16 base computes under autocast, so that float32 adapters cost bfloat16 products; no
    update is lost on a rate of 0; a checkpoint holds the adapter alone; and it gets a mark once it
    is whole.
    """

    lr_scheduler: Any

    def __init__(self, *, config: TrainConfig, base: str, **kwargs: Any) -> None:
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

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save_adapter(self.model, folder, self.base)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            place = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            (place / WHOLE).touch()


def rate(config: TrainConfig, step: int) -> float:
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

    def __init__(self, folder: Path, tokens: int, progress: Progress | None) -> None:
        self.folder, self.tokens, self.progress = folder, tokens, progress
        self.started = time.perf_counter()

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
        if state.is_world_process_zero:
            row = {
                "step": state.global_step,
                "tokens": state.global_step * self.tokens,
                "loss": logs["loss"],
                "lr": logs["learning_rate"],
                "grad_norm": logs.get("grad_norm"),
                "seconds": round(time.perf_counter() - self.started, 3),
            }
            log_step(self.folder, row)
        if self.progress is not None:
            self.progress(state.global_step, state.max_steps)


def run(
    config: TrainConfig,
    model: Any,
    blocks: Blocks,
    folder: Path,
    *,
    base: str,
    resume: Path | None,
    progress: Progress | None,
    save: bool = True,
) -> Pace:
    """Train the adapter on ``blocks`` in their order, from a checkpoint where one is given.

    Args:
        config: the settings.
        model: the PEFT model.
        blocks: the data.
        folder: the organism's, for checkpoints and log.
        base: the reference by which the base model is found again.
        resume: a checkpoint's folder.
        progress: called with (updates done, updates in all).
        save: whether there are checkpoints.
    """
    first = transformers.default_data_collator(
        [blocks[number] for number in range(min(config.batch_size, len(blocks)))]
    )
    with _silent(), quickened(config, model, first) as pace:
        loop = Loop(
            config=config,
            base=base,
            model=model,
            args=_arguments(config, folder, input_device(model), save),
            train_dataset=blocks,
            data_collator=transformers.default_data_collator,
            callbacks=[
                Record(folder, blocks.block * config.batch_size * config.accumulation, progress)
            ],
        )
        loop.train(resume_from_checkpoint=str(resume) if resume else None)
    return pace


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
        gradient_accumulation_steps=config.accumulation,
        learning_rate=config.learning_rate,
        train_sampling_strategy="sequential",
        save_strategy="steps" if save else "no",
        save_steps=config.save_every or math.ceil(config.updates / 3),
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=device.type == "cuda",
        use_cpu=device.type == "cpu",
        seed=config.seed,
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
