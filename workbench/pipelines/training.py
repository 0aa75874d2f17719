"""The verb train: adapters on documents, or on answers where an objective is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.pipelines import previews
from workbench.pipelines.parts import model_inputs
from workbench.pipelines.verb import Done, Verb, Work


def train_verb() -> Verb:
    """Train an adapter on documents."""
    from workbench_training.lora import TrainConfig  # slow: only where something is trained

    return Verb(
        TrainConfig,
        _train_inputs,
        _train,
        previews.preview_train,
        shards=False,
        joint=True,
        planned=_train_inputs_there,
    )


def prefer_verb() -> Verb:
    """Train an adapter on answers."""
    from workbench_training.organism_page import write_page
    from workbench_training.preference import input_files, prefer
    from workbench_training.preference_settings import PreferenceConfig

    def inputs(config: PreferenceConfig) -> list[Path]:
        return [*model_inputs(config), *input_files(config).values()]

    def body(config: PreferenceConfig, work: Work) -> Mapping[str, Any]:
        told = prefer(config, work.run.path, progress=work.progress)
        write_page(work.run.path)
        return told

    return Verb(PreferenceConfig, inputs, body, previews.preview_prefer, shards=False)


def _train_inputs(config: Any) -> list[Path]:
    from workbench_training.lora import input_files

    return [*model_inputs(config), *input_files(config).values()]


def _train_inputs_there(config: Any) -> list[Path]:
    missing = previews.missing_for_training(config)
    return [] if missing else _train_inputs(config)


def _train(config: Any, work: Work) -> Mapping[str, Any]:
    from workbench_training.lora import train
    from workbench_training.organism_page import write_page

    told = train(config, work.run.path, progress=work.progress)
    write_page(work.run.path)
    return told


def announce_training(config: Any, begins: bool) -> bool:
    """Say whether there is anything to train; learn it from the first process in the others."""
    from workbench_training.lora import announce

    return announce(config, begins)


def follow(verb: str, config: Any, place: Path) -> Done:
    """Train together with the first process, which keeps the run."""
    from workbench_training.lora import train

    begins = announce_training(config, False)
    told = train(config, place) if begins else {}
    return Done(verb, place.name, "done" if begins else "reused", place, told)
