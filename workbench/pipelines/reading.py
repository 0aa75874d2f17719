"""The verbs that read a model as it is: cache and measure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.library import open_prompts, sources
from workbench.pipelines import previews
from workbench.pipelines.parts import model_inputs, readout_inputs, save_results, weights_of
from workbench.pipelines.settings import CacheConfig, MeasureConfig
from workbench.pipelines.verb import Verb, Work


def cache_verb() -> Verb:
    """Read activations into a store."""
    return Verb(CacheConfig, _cache_inputs, _cache, previews.preview_cache)


def measure_verb() -> Verb:
    """Take readouts."""
    return Verb(
        MeasureConfig,
        _measure_inputs,
        _measure,
        previews.preview_measure,
        artefact="results.parquet",
    )


def _cache_inputs(config: CacheConfig) -> list[Path]:
    return [*model_inputs(config), *sources(config.prompts)]


def _measure_inputs(config: Any) -> list[Path]:
    return [*model_inputs(config), *readout_inputs(config.readouts)]


def _cache(config: CacheConfig, work: Work) -> Mapping[str, Any]:
    from workbench import api

    prompts = open_prompts(config.prompts)  # before the model: a wrong file costs no loading
    subject = api.load(config.model, **config.options())
    acts = api.capture(
        subject,
        prompts,
        layers=config.layers,
        site=config.site,
        position=config.position,
        out=work.run.path / "acts",
        render=config.render,
        add_generation_prompt=config.add_generation_prompt,
        shard=work.run.part,
        progress=work.progress,
    )
    assert not isinstance(acts, dict), "one read gives one set of activations"
    complete = work.run.part is None or acts.complete
    told = {"model": subject.ref.key, "n": len(acts), **weights_of(subject)}
    return {**told, "complete": complete}


def _measure(config: MeasureConfig, work: Work) -> Mapping[str, Any]:
    from workbench import api
    from workbench.readouts.ask import make_readout
    from workbench.readouts.ask_units import ask_in_units
    from workbench.results import table

    readouts = [make_readout(readout) for readout in config.readouts]
    subject = api.load_for_readouts(config.model, **config.options())
    outcomes = ask_in_units(subject, readouts, [((),)], work.run, progress=work.progress)
    if outcomes is None:
        return {"complete": False}
    ((outcome,),) = outcomes
    return save_results(table(outcome.measurements, subject=subject), subject, work.run)
