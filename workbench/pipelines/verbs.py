"""The batch verbs: settings in, one library call, a run folder with its manifest out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, FiniteFloat

from workbench.config import Config, parse
from workbench.errors import unknown
from workbench.files import replacing
from workbench.library import locate, open_prompts, sources
from workbench.pipelines import previews
from workbench.runs import OpenRun, open_run, read_result, run_id
from workbench.types import Progress

if TYPE_CHECKING:
    from workbench.activations import Activations
    from workbench.directions import Directions, Recipe
    from workbench.types import Subject

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


class ModelConfig(Config):
    """Which model a verb loads."""

    model: str
    """Hub id, folder, organism name or run folder, or "smollm2"."""
    adapter: str | None = None
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    load: dict[str, Any] = Field(default_factory=dict)
    """Passed on to transformers."""

    def options(self) -> dict[str, Any]:
        """Return the keywords of ``load``."""
        named = {"adapter": self.adapter, "revision": self.revision}
        return {**named, "dtype": self.dtype, "device": self.device, **self.load}


class CacheConfig(ModelConfig):
    """Read activations of a prompt set into a store."""

    prompts: str | dict[str, Any] | list[Any]
    """An item set's name, a file, a table {path, text, where, columns}, or a list of these."""
    layers: str | list[int] = "all"
    site: str = "resid_post"
    position: str = "last"
    render: Literal["auto", "bare", "chat"] = "auto"
    add_generation_prompt: bool | None = None


class FitConfig(Config):
    """Fit directions on cached activations, with held-out evidence."""

    acts: str
    """A cache run, a store folder or a packed file."""
    recipe: str = "truth"
    """A shipped recipe's name or a TOML file."""
    method: str | None = None
    """This, the four columns below and the layer override the recipe's."""
    y: str | None = None
    groups: str | None = None
    polarity: str | None = None
    facts: str | None = None
    layer: int | None = Field(default=None, ge=0)
    """Fix the layer instead of choosing it."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Rows to fit on, such as {topic = ["animals", "calendar"]}."""
    check: list[str] = Field(default_factory=list)
    """Further stores on which the frozen directions are scored."""
    seed: int = Field(default=0, ge=0)


class MeasureConfig(ModelConfig):
    """Take readouts of a model."""

    readouts: list[str | dict[str, Any]] = Field(min_length=1)


class SweepConfig(ModelConfig):
    """Behaviour against the dose of an edit, with random-direction controls."""

    directions: str
    readouts: list[str | dict[str, Any]] = Field(min_length=1)
    doses: list[FiniteFloat] = Field(min_length=1)
    edit: str = "add"
    layers: list[int] | list[list[int]] | None = None
    """Blocks; by default the layer that the fit chose."""
    unit: Literal["raw", "norm"] = "raw"
    """Gaps are measured between subjects, so doses in gaps are for ``wb.sweep`` alone."""
    scope: str = "all"
    controls: int = Field(default=10, ge=0)
    floor: float | None = None
    ceiling: float | None = None
    seed: int = Field(default=0, ge=0)


Body = Callable[[Any, OpenRun, Progress | None], Mapping[str, Any]]


@dataclass(frozen=True)
class Verb:
    """Settings class, the inputs to hash, and the work."""

    config: type[Config]
    inputs: Callable[[Any], Sequence[Path]]
    body: Body
    preview: Callable[[Any], Mapping[str, Any]]
    """What a dry run can tell, and what it refuses, without loading a model."""


def carry_out(
    verb: str,
    data: Mapping[str, Any],
    *,
    out: Path | None = None,
    root: Path = RUNS,
    force: bool = False,
    shard: str | None = None,
    progress: Progress | None = None,
) -> Done:
    """Run one verb in its run folder: reuse a finished run, resume an interrupted one.

    Args:
        verb: train, cache, fit, measure or sweep.
        data: its settings.
        out: the run folder; by default ``root/<verb>/<run id>``.
        root: where run folders go.
        force: move a folder of another run aside.
        shard: ``i/n``, for ``cache``: this process does share i of n; others may do theirs at the
            same time, and the last one closes the run.
        progress: called with (units done, units in all).

    Raises:
        UnknownNameError: no such verb.
        ConfigError: settings that do not make sense.
    """
    entry, config, inputs = _resolve(verb, data)
    place = out if out is not None else _place(verb, config, root)
    dump = config.model_dump(mode="json")
    if shard is not None and verb != "cache":
        raise ValueError(f"shard = {shard!r} for {verb}; only cache is cut into shares")
    with open_run(verb, dump, out=place, root=root, inputs=inputs, force=force, part=shard) as run:
        if run.state == "done":
            return Done(verb, run.id, "reused", run.path, read_result(run.path))
        result = dict(entry.body(config, run, progress))
        complete = result.pop("complete", True)
        models = [str(result["model"])] if "model" in result else []
        run.finish(result, models=models, complete=complete)
    return Done(verb, run.id, "done" if complete else "part", run.path, result)


def plan(verb: str, data: Mapping[str, Any], *, out: Path | None = None, root: Path = RUNS) -> Done:
    """Return what ``carry_out`` would do, without doing it; refuse what it would refuse."""
    entry, config, inputs = _resolve(verb, data)
    dump = config.model_dump(mode="json")
    name = run_id(verb, dump, inputs)
    place = out if out is not None else _place(verb, config, root) or root / verb / name
    told = {"config": dump, "inputs": [str(p) for p in inputs], **entry.preview(config)}
    return Done(verb, name, "planned", place, told)


def _resolve(verb: str, data: Mapping[str, Any]) -> tuple[Verb, Config, list[Path]]:
    verbs = batch_verbs()
    if verb not in verbs:
        raise unknown("verb", verb, verbs)
    entry = verbs[verb]
    config = parse(entry.config, data, verb)
    return entry, config, list(entry.inputs(config))


def _place(verb: str, config: Config, root: Path) -> Path | None:
    """Organisms lie under their own name, so that they load by it."""
    return root / verb / str(getattr(config, "name")) if verb == "train" else None  # noqa: B009


def batch_verbs() -> dict[str, Verb]:
    """Return the verbs that a study may chain."""
    from workbench_training.lora import TrainConfig

    return {
        "train": Verb(TrainConfig, _train_inputs, _train, previews.preview_train),
        "cache": Verb(CacheConfig, _cache_inputs, _cache, previews.preview_cache),
        "fit": Verb(
            FitConfig, _fit_inputs, _fit, lambda c: previews.preview_fit(_acts(c), _recipe(c))
        ),
        "measure": Verb(MeasureConfig, _measure_inputs, _measure, previews.preview_measure),
        "sweep": Verb(SweepConfig, _sweep_inputs, _sweep, _preview_sweep),
    }


def _model_inputs(config: Any) -> list[Path]:
    """Return the folders whose content decides which model this is."""
    named = [config.model, getattr(config, "adapter", None)]
    return [Path(name) for name in named if name and Path(name).exists()]


def _train_inputs(config: Any) -> list[Path]:
    files = [locate(name) for name in (config.documents, config.chat) if name]
    return [*_model_inputs(config), *files]


def _cache_inputs(config: CacheConfig) -> list[Path]:
    return [*_model_inputs(config), *sources(config.prompts)]


def _sweep_inputs(config: SweepConfig) -> list[Path]:
    return [*_measure_inputs(config), Path(config.directions)]


def _fit_inputs(config: FitConfig) -> list[Path]:
    from workbench.directions.recipe import recipe_path

    return [Path(config.acts), recipe_path(config.recipe), *map(Path, config.check)]


def _measure_inputs(config: Any) -> list[Path]:
    return [*_model_inputs(config), *_readout_inputs(config.readouts)]


def _readout_inputs(readouts: Sequence[Any]) -> list[Path]:
    values = [v for readout in readouts if isinstance(readout, Mapping) for v in readout.values()]
    return [Path(value) for value in values if isinstance(value, str) and Path(value).exists()]


def _train(config: Any, run: OpenRun, progress: Progress | None) -> Mapping[str, Any]:
    from workbench_training.lora import train

    return train(config, run.path, progress=progress)


def _cache(config: CacheConfig, run: OpenRun, progress: Progress | None) -> Mapping[str, Any]:
    from workbench import api

    prompts = open_prompts(config.prompts)  # before the model: a wrong file costs no loading
    subject = api.load(config.model, **config.options())
    acts = api.capture(
        subject,
        prompts,
        layers=config.layers,
        site=config.site,
        position=config.position,
        out=run.path / "acts",
        render=config.render,
        add_generation_prompt=config.add_generation_prompt,
        shard=run.part,
        progress=progress,
    )
    assert not isinstance(acts, dict), "one read gives one set of activations"
    complete = run.part is None or acts.complete
    told = {"model": subject.ref.key, "n": len(acts), **_weights(subject)}
    return {**told, "complete": complete}


def _fit(config: FitConfig, run: OpenRun, progress: Progress | None) -> Mapping[str, Any]:
    from workbench.activations import open_activations
    from workbench.directions import fit_truth, save_directions

    acts = _acts(config)
    checks = {_set_name(path): open_activations(path) for path in config.check}
    directions, evidence = fit_truth(
        acts, _recipe(config), checks=checks, seed=config.seed, progress=progress
    )
    save_directions(directions, run.path / "directions.safetensors")
    _save_frame(evidence, run.path / "evidence.parquet")
    return {"model": acts.model.key, "layer": directions.info["layer"], "rows": len(evidence)}


def _acts(config: FitConfig) -> Activations:
    from workbench.activations import open_activations

    acts = open_activations(config.acts)
    return acts.where(**config.where) if config.where else acts


def _recipe(config: FitConfig) -> Recipe:
    """Read the recipe and put the settings' own method, columns and layer in its place."""
    from workbench.directions.recipe import FitPart, LayersPart, read_recipe

    recipe = read_recipe(config.recipe)
    names = ("method", "y", "groups", "polarity", "facts")
    own = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    fit = FitPart.model_validate({**recipe.fit.model_dump(exclude_unset=True), **own})
    recipe = recipe.model_copy(update={"fit": fit})
    if config.layer is None:
        return recipe
    return recipe.model_copy(update={"layers": LayersPart(candidates=[config.layer])})


def _set_name(path: str) -> str:
    """Name a store by the run folder that it lies in."""
    own = Path(path)
    return own.parent.name if own.name == "acts" else own.stem


def _measure(config: MeasureConfig, run: OpenRun, progress: Progress | None) -> Mapping[str, Any]:
    from workbench import api
    from workbench.readouts.ask import make_readout
    from workbench.results import write_results

    readouts = [make_readout(readout) for readout in config.readouts]
    subject = api.load_for_readouts(config.model, **config.options())
    frame = api.measure(subject, readouts, progress=progress)
    write_results(frame, run.path / "results.parquet", run=run.id)
    return {"model": subject.ref.key, "rows": len(frame), **_weights(subject)}


def _sweep(config: SweepConfig, run: OpenRun, progress: Progress | None) -> Mapping[str, Any]:
    from workbench import api
    from workbench.results import write_results
    from workbench.sweeps import sweep

    directions, settings = sweep_settings(config)
    subject = api.load_for_readouts(config.model, **config.options())
    frame = sweep(subject, directions, progress=progress, **settings)
    write_results(frame, run.path / "results.parquet", run=run.id)
    told = {"model": subject.ref.key, "rows": len(frame), "layers": settings["layers"]}
    return {**told, **_weights(subject)}


def sweep_settings(config: SweepConfig) -> tuple[Directions, dict[str, Any]]:
    """Open what a sweep needs but the model; the layer that the fit chose is the default."""
    from workbench.directions import open_directions
    from workbench.readouts.ask import make_readout

    directions = open_directions(config.directions)
    layers = config.layers
    if layers is None and "layer" in directions.info:
        layers = [int(directions.info["layer"])]
    limits = {"floor": config.floor, "ceiling": config.ceiling}
    same = ("doses", "edit", "unit", "scope", "controls", "seed")
    return directions, {
        "readouts": [make_readout(readout) for readout in config.readouts],
        "layers": layers,
        **{name: getattr(config, name) for name in same},
        **{name: value for name, value in limits.items() if value is not None},
    }


def _preview_sweep(config: SweepConfig) -> Mapping[str, Any]:
    """Plan the sweep: loads the model for its tokenizer and shape, and runs nothing."""
    from workbench import api
    from workbench.sweeps import plan_sweep

    directions, settings = sweep_settings(config)
    subject = api.load(config.model, check=False, **config.options())
    return {"plan": plan_sweep(subject, directions, **settings)}


def _weights(subject: Subject) -> dict[str, Any]:
    """Say in which precision, and from what, the weights came."""
    return {"dtype": subject.ref.dtype, "quantization": subject.ref.quantization}


def _save_frame(frame: Any, path: Path) -> None:
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False)
