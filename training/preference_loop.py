"""TRL's trainers with the habits of our own loop: adapters alone, exact resume, no network."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from workbench_training.adapter import load_adapter
from workbench_training.bco import BcoLoss, Shift
from workbench_training.board import no_board
from workbench_training.loop import Loop, Record
from workbench_training.organism import CHECKPOINTS, log_step, read_log
from workbench_training.preference_data import Row
from workbench_training.preference_settings import PreferenceConfig
from workbench_training.rewards import for_trainer

from workbench.errors import ConfigError
from workbench.models import input_device
from workbench.types import Progress, Subject

METRICS = ("rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins",
           "reward", "reward_std", "kl", "shift", "entropy")  # fmt: skip
"""What is logged beside the loss, where the objective has it."""


def trainer_parts(objective: str) -> tuple[type, type]:
    """Return TRL's trainer and settings of an objective.

    Raises:
        ConfigError: TRL is not installed.
    """
    try:
        import trl
    except ModuleNotFoundError as error:
        if error.name != "trl":
            raise
        raise ConfigError(
            f"objective = {objective!r} needs TRL; pip install 'interp-workbench[train]'"
        ) from None
    name = {"sft": "SFT", "dpo": "DPO", "kto": "KTO", "bco": "KTO", "grpo": "GRPO"}[objective]
    return getattr(trl, f"{name}Trainer"), getattr(trl, f"{name}Config")


class Quiet(Loop):
    """`Loop` under one of TRL's trainers: tells no server about the run and writes no README."""

    shift: Shift | None = None

    def _send_telemetry(self) -> None:
        """Send nothing."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Leave it to the organism's card."""

    def _prepare_inputs(self, *args: Any, **kwargs: Any) -> Any:
        with self._precision:  # GRPO generates here
            return super()._prepare_inputs(*args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)
        if self.shift is not None:
            self.shift.write(Path(output_dir or self.args.output_dir))


class AnswerRecord(Record):
    """As `Record`, with what the objective measures; rows differ in length, so TRL counts."""

    def __init__(self, folder: Path, progress: Progress | None) -> None:
        super().__init__(folder, 0, no_board, progress)
        logged = read_log(folder)
        self._before = int(logged[-1]["tokens"]) if logged else 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if state.num_input_tokens_seen:  # GRPO counts there, and checkpoints keep it
            self._before = 0

    def _write(self, step: int, logs: Any) -> None:
        row = {
            "step": step,
            "tokens": self._before + int(logs["num_tokens"]),
            "loss": logs["loss"],
            "lr": logs["learning_rate"],
            "grad_norm": logs.get("grad_norm"),
            "seconds": round(self.seconds[-1], 3),
        }
        log_step(self.folder, row | {name: logs[name] for name in METRICS if name in logs})


def run(
    config: PreferenceConfig,
    subject: Subject,
    model: Any,
    folder: Path,
    trained: Sequence[Row],
    held_out: Sequence[Row],
    *,
    base: str,
    resume: Path | None,
    progress: Progress | None,
) -> dict[str, float | None]:
    """Train the adapter, from a checkpoint where one is given.

    Args:
        config: the settings.
        subject: the base, for its tokenizer.
        model: the PEFT model around it.
        folder: the organism's, for checkpoints and log.
        trained: examples in training order.
        held_out: examples that only measure the loss.
        base: the reference by which the base model is found again.
        resume: a checkpoint's folder.
        progress: called with (updates done, updates in all).

    Returns:
        Held-out loss before and after; None where nothing is held out, and for GRPO.
    """
    from workbench_training.steered import applied

    with quiet():
        trainer = make_trainer(config, subject, model, folder, trained, held_out, base, progress)
        losses = {"before": _held_out_loss(trainer), "after": None}
        if resume is not None:
            load_adapter(model, resume)
            if trainer.shift is not None:
                trainer.shift.read(resume)
        with applied(config.steer, subject):
            trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        losses["after"] = _held_out_loss(trainer)
    return losses


def make_trainer(
    config: PreferenceConfig,
    subject: Subject,
    model: Any,
    folder: Path,
    trained: Sequence[Row],
    held_out: Sequence[Row],
    base: str,
    progress: Progress | None,
) -> Any:
    """Return the trainer of an objective; its reference is the model with the adapter off."""
    from datasets import Dataset

    trainer, settings = trainer_parts(config.objective)
    mixed: tuple[type, ...] = (Quiet, trainer)
    if config.objective == "bco":
        mixed = (BcoLoss, *mixed)
    more: dict[str, Any] = {}
    if config.objective == "grpo":
        more["reward_funcs"] = [for_trainer(reward) for reward in config.reward]
    elif held_out:
        more["eval_dataset"] = Dataset.from_list(list(held_out))
    made = type(f"{config.objective.capitalize()}Loop", mixed, {})(
        config=config,
        base=base,
        model=model,
        args=settings(**_arguments(config, folder, input_device(model), settings, trained)),
        train_dataset=Dataset.from_list(list(trained)),
        processing_class=subject.tokenizer,
        callbacks=[AnswerRecord(folder, progress)],
        **more,
    )
    if "ref" in model.peft_config:  # a copy of the fresh adapter, which does nothing
        model.delete_adapter("ref")
    if config.objective == "bco":
        made.shift = Shift()
    return made


def _arguments(
    config: PreferenceConfig,
    folder: Path,
    device: torch.device,
    settings: type,
    trained: Sequence[Row],
) -> dict[str, Any]:
    # Newer transformers call it activation checkpointing, and warn about the older name.
    newer = "activation_checkpointing" in inspect.signature(settings).parameters
    kind = "activation_checkpointing" if newer else "gradient_checkpointing"
    given: dict[str, Any] = {
        "output_dir": str(folder / CHECKPOINTS),
        "max_steps": config.updates,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.accumulation,
        "learning_rate": config.learning_rate,
        "save_steps": config.save_every or math.ceil(config.updates / 3),
        "save_total_limit": None if config.keep_checkpoints else 2,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": device.type == "cuda",
        "use_cpu": device.type == "cpu",
        "bf16": False,  # Loop computes under autocast where the base is bfloat16
        "seed": config.seed,
        kind: config.recompute == "all",
        f"{kind}_kwargs": {"use_reentrant": False} if config.recompute == "all" else None,
    }
    return given | _own_arguments(config, trained)


def _own_arguments(config: PreferenceConfig, trained: Sequence[Row]) -> dict[str, Any]:
    """Return what one objective alone takes."""
    if config.objective == "grpo":
        return {
            "beta": config.strength,
            "num_generations": config.group,
            "max_completion_length": config.max_new_tokens,
            "temperature": config.temperature,
            "reward_weights": [reward.weight for reward in config.reward],
            "shuffle_dataset": False,
            "disable_dropout": True,
        }
    shared: dict[str, Any] = {"max_length": None, "train_sampling_strategy": "sequential"}
    if config.objective == "sft":
        return shared | {"completion_only_loss": True, "packing": False}
    if config.objective == "kto":
        shared |= _weights(trained)
    own: dict[str, Any] = {"dpo": ["sigmoid"], "kto": "kto", "bco": "apo_zero_unpaired"}
    shared |= {"beta": config.strength, "disable_dropout": True}
    return shared | {"loss_type": own[config.objective]}


def _weights(trained: Sequence[Row]) -> dict[str, float]:
    """Weigh the rarer label up, so that both count alike (Ethayarajh et al. 2024, section 4.2)."""
    good = sum(bool(row["label"]) for row in trained)
    bad = len(trained) - good
    if not good or not bad:
        return {}
    return {
        "desirable_weight": max(bad / good, 1.0),
        "undesirable_weight": max(good / bad, 1.0),
    }


def _held_out_loss(trainer: Any) -> float | None:
    if trainer.eval_dataset is None:
        return None
    return float(trainer.evaluate()["eval_loss"])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries' notes to errors, and leave out what they say of their own changes."""
    import datasets
    import transformers

    verbosity = transformers.logging.get_verbosity()
    bars = datasets.are_progress_bars_disabled()
    voice = logging.getLogger("trl")
    level = voice.level
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    voice.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*radient_checkpointing.*", FutureWarning)
            yield
    finally:
        voice.setLevel(level)
        transformers.logging.set_verbosity(verbosity)
        if not bars:
            datasets.enable_progress_bars()
