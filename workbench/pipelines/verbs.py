"""The batch verbs: settings in, one library call, a run folder with its manifest out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.config import Config, parse
from workbench.errors import ConfigError, FormatError, unknown
from workbench.files import replacing
from workbench.library import open_prompts, sources
from workbench.pipelines import previews, sweeping
from workbench.pipelines.parts import model_inputs, readout_inputs, save_results, weights_of
from workbench.pipelines.settings import (
    ApplyConfig,
    CacheConfig,
    CompareConfig,
    ContrastConfig,
    FitConfig,
    GenerateConfig,
    JobsConfig,
    MeasureConfig,
    ProbeConfig,
    SweepConfig,
)
from workbench.runs import (
    OpenRun,
    discard_units,
    hash_path,
    open_run,
    read_result,
    read_run,
    run_id,
)
from workbench.types import Progress

if TYPE_CHECKING:
    from workbench.cluster import Workers

RUNS = Path("runs")
"""Where run folders go unless ``out`` says otherwise."""


@dataclass(frozen=True)
class Done:
    """What a verb leaves behind."""

    verb: str
    id: str
    status: str
    """done, reused, planned, or part: a share is done and others are not."""
    path: Path
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What the body of a verb gets beside its settings."""

    run: OpenRun
    progress: Progress | None = None
    workers: Workers = 1


Body = Callable[[Any, Work], Mapping[str, Any]]
"""Gives the run's summary; ``complete`` in it says whether other shares have nothing to do."""


@dataclass(frozen=True)
class Verb:
    """Settings class, the inputs to hash, and the work."""

    config: type[Config]
    inputs: Callable[[Any], Sequence[Path]]
    body: Body
    preview: Callable[[Any], Mapping[str, Any]]
    """What a dry run can tell, and what it refuses, without a forward."""
    shards: bool = True
    """Whether several processes may do shares of it."""
    workers: bool = False
    """Whether it has units for several workers of one process."""
    joint: bool = False
    """Whether processes that torchrun started do it together; the first one keeps the run."""
    planned: Callable[[Any], Sequence[Path]] | None = None
    """The inputs that are there, for a plan that does without the others; ``inputs`` if None."""


def carry_out(
    verb: str,
    data: Mapping[str, Any],
    *,
    out: Path | None = None,
    root: Path = RUNS,
    force: bool = False,
    shard: str | None = None,
    workers: Workers = 1,
    opened: Callable[[OpenRun], None] | None = None,
    progress: Progress | None = None,
) -> Done:
    """Run one verb in its run folder: reuse a finished run, resume an interrupted one.

    Args:
        verb: one of ``VERBS``.
        data: its settings.
        out: the run folder; by default ``root/<verb>/<run id>``.
        root: where run folders go.
        force: move a folder of another run aside.
        shard: ``i/n``: this process does share i of n; others may do theirs at the same time, and
            the one that finds all of them there closes the run.
        workers: processes, or ``"ray"``, for a fit of many jobs.
        opened: called with the run once its folder is open.
        progress: called with (units done, units in all).

    Raises:
        UnknownNameError: no such verb.
        ConfigError: settings that do not make sense, or a share of what is one piece of work.
    """
    entry, config, inputs = _resolve(verb, data)
    if shard is not None and not entry.shards:
        raise ConfigError(f"{verb} is one piece of work; leave shard = {shard!r} out")
    if workers != 1 and not entry.workers:
        raise ConfigError(f"workers = {workers!r} are for job files, fit JOBS.toml; leave them out")
    place = out if out is not None else _place(verb, config, root)
    if entry.joint and int(os.environ.get("RANK", "0")) > 0:
        assert place is not None, "what is done together has a place of its own"
        return _follow(verb, config, place)
    dump = config.model_dump(mode="json")
    with open_run(verb, dump, out=place, root=root, inputs=inputs, force=force, part=shard) as run:
        if opened is not None:
            opened(run)
        if entry.joint:
            _announce(config, run.state != "done")
        if run.state == "done":
            discard_units(run.path)
            return Done(verb, run.id, "reused", run.path, read_result(run.path))
        result = dict(entry.body(config, Work(run, progress, workers)))
        complete = result.pop("complete", True)
        models = result.pop("models", [result["model"]] if "model" in result else [])
        run.finish(result, models=models, complete=complete)
    if complete:
        discard_units(run.path)
    elif read_run(run.path).status == "done":  # others found everything there meanwhile
        complete, result = True, read_result(run.path)
    return Done(verb, run.id, "done" if complete else "part", run.path, result)


def plan(verb: str, data: Mapping[str, Any], *, out: Path | None = None, root: Path = RUNS) -> Done:
    """Return what ``carry_out`` would do, without doing it; refuse what it would refuse."""
    entry, config, inputs = _resolve(verb, data, planned=True)
    dump = config.model_dump(mode="json")
    name = run_id(verb, dump, inputs)
    place = out if out is not None else _place(verb, config, root) or root / verb / name
    told = {"config": dump, "inputs": [str(p) for p in inputs], **entry.preview(config)}
    return Done(verb, name, "planned", place, told)


def is_done(verb: str, data: Mapping[str, Any], *, root: Path = RUNS) -> bool:
    """Whether a finished run with these settings is there; its files are not looked at."""
    _, config, inputs = _resolve(verb, data)
    name = run_id(verb, config.model_dump(mode="json"), inputs)
    try:
        run = read_run(_place(verb, config, root) or root / verb / name)
    except FormatError:
        return False
    return run.id == name and run.status == "done"


def _resolve(
    verb: str, data: Mapping[str, Any], *, planned: bool = False
) -> tuple[Verb, Config, list[Path]]:
    entry = verb_of(verb, data)
    config = parse(entry.config, data, verb)
    inputs = entry.planned if planned and entry.planned is not None else entry.inputs
    return entry, config, list(inputs(config))


def _place(verb: str, config: Config, root: Path) -> Path | None:
    """Organisms lie under their own name, so that they load by it."""
    return root / verb / str(getattr(config, "name")) if verb == "train" else None  # noqa: B009


def verb_of(name: str, data: Mapping[str, Any]) -> Verb:
    """Return a verb that a study may chain; one key of its settings can make another of it.

    Raises:
        UnknownNameError: no such verb.
    """
    if name not in VERBS:
        raise unknown("verb", name, VERBS)
    if name == "fit" and "job" in data:
        return _jobs_verb()
    if name == "train" and "objective" in data:
        return _prefer_verb()
    return VERBS[name]()


def _train_verb() -> Verb:
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


def _prefer_verb() -> Verb:
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


def _jobs_verb() -> Verb:
    from workbench.pipelines import job_file

    return Verb(JobsConfig, job_file.inputs_of, _fit_jobs, job_file.preview, workers=True)


def _train_inputs(config: Any) -> list[Path]:
    from workbench_training.lora import input_files

    return [*model_inputs(config), *input_files(config).values()]


def _train_inputs_there(config: Any) -> list[Path]:
    missing = previews.missing_for_training(config)
    return [] if missing else _train_inputs(config)


def _cache_inputs(config: CacheConfig) -> list[Path]:
    return [*model_inputs(config), *sources(config.prompts)]


def _fit_inputs(config: FitConfig) -> list[Path]:
    hash_path(config.acts)  # before slow imports: nothing there is the commonest mistake
    from workbench.pipelines.fitting import inputs_of

    return inputs_of(config)


def _measure_inputs(config: Any) -> list[Path]:
    return [*model_inputs(config), *readout_inputs(config.readouts)]


def _train(config: Any, work: Work) -> Mapping[str, Any]:
    from workbench_training.lora import train
    from workbench_training.organism_page import write_page

    told = train(config, work.run.path, progress=work.progress)
    write_page(work.run.path)
    return told


def _announce(config: Any, begins: bool) -> bool:
    """Say whether there is anything to train; learn it from the first process in the others."""
    from workbench_training.lora import announce

    return announce(config, begins)


def _follow(verb: str, config: Any, place: Path) -> Done:
    """Train together with the first process, which keeps the run."""
    from workbench_training.lora import train

    begins = _announce(config, False)
    told = train(config, place) if begins else {}
    return Done(verb, place.name, "done" if begins else "reused", place, told)


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


def _sweep(config: SweepConfig, work: Work) -> Mapping[str, Any]:
    return sweeping.run_sweep(config, work.run, work.progress)


def _generate(config: GenerateConfig, work: Work) -> Mapping[str, Any]:
    found: Mapping[str, Any] = sweeping.run_generate(config, work.run, work.progress)
    return found


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


def _compare_verb() -> Verb:
    from workbench.pipelines import organisms

    def body(config: CompareConfig, work: Work) -> Mapping[str, Any]:
        return organisms.run_compare(config, work.run, work.progress)

    return Verb(CompareConfig, organisms.inputs_of, body, organisms.preview, shards=False)


def _probe_verb() -> Verb:
    from workbench.pipelines import probing

    def body(config: ProbeConfig, work: Work) -> Mapping[str, Any]:
        return probing.run_probe(config, work.run, work.progress)

    return Verb(ProbeConfig, probing.inputs_of, body, probing.preview, shards=False)


def _corpus_verb() -> Verb:
    from workbench_training.corpora.settings import CorpusConfig

    from workbench.pipelines import corpora

    def body(config: CorpusConfig, work: Work) -> Mapping[str, Any]:
        return corpora.run_corpus(config, work.run, work.progress)

    return Verb(CorpusConfig, corpora.inputs_of, body, corpora.preview)


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


def save_frame(frame: Any, path: Path) -> None:
    """Write a plain table whole or not at all."""
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False)


VERBS: dict[str, Callable[[], Verb]] = {
    "corpus": _corpus_verb,
    "train": _train_verb,
    "cache": lambda: Verb(CacheConfig, _cache_inputs, _cache, previews.preview_cache),
    "fit": lambda: Verb(FitConfig, _fit_inputs, _fit, _preview_fit),
    "apply": lambda: Verb(ApplyConfig, _apply_inputs, _apply, _preview_apply, shards=False),
    "measure": lambda: Verb(MeasureConfig, _measure_inputs, _measure, previews.preview_measure),
    "contrast": lambda: Verb(
        ContrastConfig, _contrast_inputs, _contrast, _preview_contrast, shards=False
    ),
    "compare": _compare_verb,
    "sweep": lambda: Verb(SweepConfig, sweeping.sweep_inputs, _sweep, sweeping.preview_sweep),
    "generate": lambda: Verb(
        GenerateConfig, sweeping.generate_inputs, _generate, sweeping.preview_generate
    ),
    "probe": _probe_verb,
}
"""Made when asked for, so that a mistake in one verb does not wait for another's imports."""
