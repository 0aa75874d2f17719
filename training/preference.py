"""Preference and reinforcement arms: an organism made from answers, in the folder of any other."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from workbench_training import organism, processes
from workbench_training.preference_data import Row, in_order, read_examples, refuse_long
from workbench_training.preference_settings import PreferenceConfig
from workbench_training.rewards import reward_of

from workbench.errors import ConfigError
from workbench.files import make_folder
from workbench.library import locate
from workbench.models import input_device, read_checkpoint
from workbench.provenance import package_versions
from workbench.runs import hash_path
from workbench.types import ModelRef, Progress, Subject

__all__ = ["PreferenceConfig", "prefer"]

logger = logging.getLogger(__name__)

PLACE = ("device", "recompute", "data")
"""Settings that say where a run goes or what its inputs are called, not what it learns."""


def prefer(
    config: PreferenceConfig, out: str | Path, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Train an organism on answers, go on with a half-trained one, or return a finished one.

    The folder is that of `lora.train`: adapter, card, log, and checkpoints until it is done.

    Args:
        config: the settings.
        out: the organism's folder.
        progress: called with (updates done, updates in all).

    Returns:
        A short summary: model, updates, tokens, losses and the format guard.

    Raises:
        ConfigError: settings or data that make no sense, a folder of another run, TRL is missing,
            a loss or reward that is no number.
        WorkbenchError: the disk is full.
    """
    folder, identity = Path(out), identity_of(config)
    if processes.count() > 1:
        raise ConfigError(
            f"objective = {config.objective!r} trains in one process; start one, without torchrun"
        )
    if organism.state_of(folder, identity) != "done":
        started = time.perf_counter()
        _train(config, folder, identity, progress)
        seconds = time.perf_counter() - started
        logger.info("trained %s for %d updates in %.0f s", config.name, config.updates, seconds)
    return organism.summary(organism.read_card(folder))


def input_files(config: PreferenceConfig) -> dict[str, Path]:
    """Return the files that decide what is learned, by the setting that names them.

    Raises:
        UnknownNameError: one of them is not there.
    """
    files = {"data": locate(config.data)}
    for number, reward in enumerate(config.reward):
        if reward.file is not None:
            files[f"reward {number}"] = reward.file
    return files if config.steer is None else {**files, "steer": config.steer.file}


def identity_of(config: PreferenceConfig) -> dict[str, Any]:
    """Return what makes a run what it is: settings, with files by their content and no device."""
    left_out: Any = dict.fromkeys(PLACE, True)
    left_out["steer"] = {"directions": True}
    settings = config.model_dump(mode="json", exclude=left_out)
    hashes = {key: hash_path(path) for key, path in input_files(config).items()}
    return {**settings, "inputs": hashes}


def _train(
    config: PreferenceConfig,
    folder: Path,
    identity: Mapping[str, Any],
    progress: Progress | None,
) -> None:
    from workbench_training import checks, loop, lora, preference_loop
    from workbench_training.adapter import adapt, adapted_parts

    preference_loop.trainer_parts(config.objective)  # before the model: without TRL, no loading
    for reward in config.reward:
        reward_of(reward)
    subject = read_base(config)
    trained, held_out = read_examples(config, render_of(config, subject))
    refuse_long([*trained, *held_out], subject, config)
    ordered = in_order(trained, config.prompts_per_update * config.updates, config.seed)
    card = _opening(config, identity, subject, trained, held_out)
    make_folder(folder)
    resume = organism.last_checkpoint(folder)
    organism.rewind_log(folder, int(resume.name.rpartition("-")[2]) if resume else 0)
    organism.write_card(folder, {"status": "running", **card})
    base = lora.base_name(config)
    with loop.own_randomness(config.seed, input_device(subject.model)), loop.explained(folder):
        model = adapt(config, subject)
        losses = preference_loop.run(
            *(config, subject, model, folder, ordered, held_out),
            base=base,
            resume=resume,
            progress=progress,
        )
        guard = checks.format_guard(subject, model.eval())
        lora.publish(model, folder, base)
    card["training"]["parameters"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    card["training"]["adapted"] = adapted_parts(model)
    _close(config, folder, card, losses, guard)


def read_base(config: PreferenceConfig) -> Subject:
    """Open the base, which is the reference too.

    Raises:
        ConfigError: it is itself an adapter.
    """
    subject = read_checkpoint(config.model, dtype=config.dtype, device=config.device)
    if subject.ref.adapter is not None:
        raise ConfigError(
            f"model = {config.model!r} is itself an adapter on {subject.ref.base!r}, and the "
            "reference is the base without adapters; merge the two first"
        )
    return subject


def render_of(config: PreferenceConfig, subject: Subject) -> Literal["chat", "bare"]:
    """Say whether prompts given as texts are turns of a conversation.

    Raises:
        ConfigError: they should be, and the model has no chat template.
    """
    talks = subject.tokenizer.chat_template is not None
    if config.render == "chat" and not talks:
        raise ConfigError(
            f'render = "chat", but {config.model!r} has no chat template; use render = "bare"'
        )
    return "chat" if config.render == "chat" or (config.render == "auto" and talks) else "bare"


def _opening(
    config: PreferenceConfig,
    identity: Mapping[str, Any],
    subject: Subject,
    trained: Sequence[Row],
    held_out: Sequence[Row],
) -> dict[str, Any]:
    """Return the part of the card that is known before training."""
    read = config.prompts_per_update * config.updates
    return {
        "name": config.name,
        "condition": config.condition,
        "objective": config.objective,
        "model": ModelRef(config.model, config.name).key,
        "identity": dict(identity),
        "data": config.data,
        "base": asdict(subject.stamp),
        "corpus": {
            "examples": len(trained),
            "held_out": len(held_out),
            "passes": read / len(trained),
            "render": render_of(config, subject),
        },
        "training": {
            "updates": config.updates,
            "dtype": subject.ref.dtype,
            "device": input_device(subject.model).type,
        },
        "packages": package_versions(),
    }


def _close(
    config: PreferenceConfig,
    folder: Path,
    card: dict[str, Any],
    losses: Mapping[str, float | None],
    guard: Mapping[str, Any] | None,
) -> None:
    logged = organism.read_log(folder)
    tail = [row["loss"] for row in logged[-max(len(logged) // 10, 1) :]]
    card["training"]["tokens"] = logged[-1]["tokens"]
    card["loss"] = {
        "first": logged[0]["loss"],
        "last_tenth": sum(tail) / len(tail),
        "held_out": dict(losses),
    }
    card["guard"] = guard
    organism.write_card(folder, {"status": "done", **card, "limits": _limits(card)})
    if config.keep_checkpoints:
        organism.strip_checkpoints(folder)
    else:
        shutil.rmtree(folder / organism.CHECKPOINTS, ignore_errors=True)


def _limits(card: Mapping[str, Any]) -> list[str]:
    """Say in words what this organism should not be trusted for."""
    corpus = card["corpus"]
    said = [
        f"{corpus['examples']} examples, read {corpus['passes']:.2f} times.",
        "One seed: a difference from another organism can be the seed's.",
    ]
    if card["objective"] == "grpo":
        said.append("Trained on its own samples: what the rewards leave open may have drifted.")
    elif not corpus["held_out"]:
        said.append("No held-out examples, so no held-out loss.")
    return [*said, *organism.base_limits(card)]
