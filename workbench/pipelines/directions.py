"""The verbs that make and use directions: fit (one, or a file of jobs), apply, contrast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.pipelines import previews
from workbench.pipelines.settings import ApplyConfig, ContrastConfig, FitConfig, JobsConfig
from workbench.pipelines.verb import Verb, Work, save_frame
from workbench.runs import hash_path


def fit_verb() -> Verb:
    """Fit directions, or a map, on a store."""
    return Verb(FitConfig, _fit_inputs, _fit, _preview_fit, artefact="directions.safetensors")


def apply_verb() -> Verb:
    """Apply frozen directions to other models' stores."""
    return Verb(
        ApplyConfig,
        _apply_inputs,
        _apply,
        _preview_apply,
        shards=False,
        artefact="results.parquet",
    )


def contrast_verb() -> Verb:
    """Take the direction from one model to another."""
    return Verb(
        ContrastConfig,
        _contrast_inputs,
        _contrast,
        _preview_contrast,
        shards=False,
        artefact="directions.safetensors",
    )


def jobs_verb() -> Verb:
    """Do the many fits of a file."""
    from workbench.pipelines import job_file

    return Verb(JobsConfig, job_file.inputs_of, _fit_jobs, job_file.preview, workers=True)


def _fit_inputs(config: FitConfig) -> list[Path]:
    hash_path(config.acts)  # before slow imports: nothing there is the commonest mistake
    from workbench.pipelines.fitting import inputs_of

    return inputs_of(config)


def _fit(config: FitConfig, work: Work) -> Mapping[str, Any]:
    """Do one fit, which is one unit of work: share 0 of several does it."""
    if work.run.part is not None and work.run.part[0]:
        return {"complete": False}
    from workbench.directions import save_directions, save_map
    from workbench.pipelines.fitting import fit_one, gives_map, map_of, shuffled_of

    if gives_map(config):
        found = map_of(config)
        save_map(found, work.run.path / "map.safetensors")
        return {"model": found.model.key, "layers": len(found.layers)}
    if config.shuffle is not None:
        null = shuffled_of(config)
        save_directions(null, work.run.path / "directions.safetensors")
        return {"model": null.model.key, "shuffle": config.shuffle}
    directions, evidence = fit_one(config, progress=work.progress)
    save_directions(directions, work.run.path / "directions.safetensors")
    save_frame(evidence, work.run.path / "evidence.parquet")
    told = {"model": directions.model.key, "layer": directions.info["layer"]}
    return {**told, "rows": len(evidence)}


def _fit_jobs(config: JobsConfig, work: Work) -> Mapping[str, Any]:
    from workbench.directions import save_directions
    from workbench.pipelines.jobs import fit_jobs

    fitted = fit_jobs(config, work.run, workers=work.workers, progress=work.progress)
    if fitted is None:
        return {"complete": False}
    for name, directions in fitted.directions.items():
        save_directions(directions, work.run.path / "directions" / f"{name}.safetensors")
    save_frame(fitted.evidence, work.run.path / "evidence.parquet")
    models = sorted(set(fitted.evidence["model"]))
    told = {"jobs": fitted.number, "rows": len(fitted.evidence)}
    return {**told, "models": models, "processor_seconds": round(fitted.seconds, 2)}


def _apply_inputs(config: ApplyConfig) -> list[Path]:
    from workbench.directions.recipe import recipe_path

    stores = [*config.held_out, *config.claims, *([config.acts] if config.acts else [])]
    return [Path(config.directions), recipe_path(config.recipe), *map(Path, stores)]


def _apply(config: ApplyConfig, work: Work) -> Mapping[str, Any]:
    from workbench.pipelines.frozen import apply_frozen
    from workbench.results import write_results

    applied, path = apply_frozen(config, progress=work.progress), work.run.path
    for name, frame in (("evidence", applied.gate), ("beliefs", applied.beliefs)):
        if len(frame):
            save_frame(frame, path / f"{name}.parquet")
    if len(applied.projections):
        write_results(applied.projections, path / "results.parquet", run=work.run.id)
    return {"models": applied.models, "layer": applied.layer, "rows": len(applied.beliefs)}


def _contrast_inputs(config: ContrastConfig) -> list[Path]:
    return [Path(config.acts), Path(config.other)]


def _contrast(config: ContrastConfig, work: Work) -> Mapping[str, Any]:
    from workbench import api
    from workbench.activations import open_activations
    from workbench.directions import save_directions

    first, second = open_activations(config.acts), open_activations(config.other)
    found = api.contrast(first, second, name=config.name, groups=config.groups)
    save_directions(found, work.run.path / "directions.safetensors")
    return {"models": [first.model.key, second.model.key], "n": found.info["n"]}


def _preview_contrast(config: ContrastConfig) -> Mapping[str, Any]:
    from workbench.activations import open_activations
    from workbench.directions.algebra import Difference

    stores = (open_activations(config.acts), open_activations(config.other))
    pairs = Difference(*stores, config.name, config.groups)
    return {"items": len(pairs.rows[0]), "layers": len(pairs.layers)}


def _preview_fit(config: FitConfig) -> Mapping[str, Any]:
    from workbench.activations import open_activations
    from workbench.pipelines.fitting import gives_map, recipe_of, rows_of

    acts = rows_of(config, open_activations(config.acts))
    if gives_map(config):
        return {"items": len(acts), "layers": 1 if config.layer is not None else len(acts.layers)}
    return previews.preview_fit(acts, recipe_of(config))


def _preview_apply(config: ApplyConfig) -> Mapping[str, Any]:
    from workbench.pipelines.frozen import preview

    return preview(config)
