"""``fit`` with a model: a method that is trained on pairs of replies, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench_training.pair_settings import PairFitConfig

from workbench.directions import LinearMap, save_directions, save_map
from workbench.library import locate
from workbench.pipelines.parts import model_inputs, weights_of
from workbench.pipelines.previews import find_model
from workbench.pipelines.settings import ModelConfig
from workbench.pipelines.verb import Verb, Work, save_frame


class FitTrainedConfig(ModelConfig, PairFitConfig):
    """Train directions, or a map, on pairs of replies to the same prompts."""


def trained_verb() -> Verb:
    """Train directions, or a map, by a model's own gradients."""
    return Verb(
        FitTrainedConfig,
        _inputs,
        _body,
        _preview,
        shards=False,
        artefact="directions.safetensors",
    )


def _inputs(config: FitTrainedConfig) -> list[Path]:
    return [*model_inputs(config), locate(config.pairs)]


def _body(config: FitTrainedConfig, work: Work) -> Mapping[str, Any]:
    import pandas as pd
    from workbench_training.pair_fit import make_method, train_on_pairs

    from workbench import api

    make_method(config)  # before the model: a wrong name costs no loading
    subject = api.load(config.model, **config.options())
    done = train_on_pairs(subject, config.pairs, config, work.run.path, work.progress)
    if isinstance(done.found, LinearMap):
        save_map(done.found, work.run.path / "map.safetensors")
    else:
        save_directions(done.found, work.run.path / "directions.safetensors")
    save_frame(pd.DataFrame(done.log), work.run.path / "log.parquet")
    done.state.discard()
    told = {"model": subject.ref.key, "method": config.method, "span": config.span}
    return {**told, **done.told, **weights_of(subject)}


def _preview(config: FitTrainedConfig) -> Mapping[str, Any]:
    """Count pairs and updates; a model on the hub is not asked for."""
    from workbench_training.pair_fit import make_method
    from workbench_training.pairs import count_rows

    find_model(config)
    make_method(config)
    trained, held_out, others = count_rows(config.pairs, config)
    updates = config.epochs * -(-trained // config.batch_size)
    told = {"pairs": trained, "held_out": held_out, "other_splits_left_out": others}
    return {**told, "updates": updates}
