"""What settings name, looked up without a model and without what earlier stages will leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from workbench.config import Config
from workbench.errors import ConfigError, UnknownNameError, WorkbenchError, unknown
from workbench.pipelines import settings
from workbench.registry import EDITS, METHODS, READOUTS, check_parameters

Ahead = Callable[[Any], bool]
"""Whether a setting refers to what is not there yet."""
Lookup = Callable[[], Any]
_FILES = ("documents", "dilute", "chat")
"""What an organism is trained on."""
Asked = dict[str, str]
"""What was found out about models so far: what is wrong with each, empty where nothing is."""


def unknown_names(config: Config, ahead: Ahead, asked: Asked) -> list[str]:
    """Return what is wrong with the names in a verb's settings.

    Looked up are models, prompt sets, documents, readouts with their parameters, methods with
    theirs, recipes, edits, scopes, controls, positions, sites and what rollouts take.

    Args:
        config: the settings.
        ahead: says what to leave alone, since it is not there yet.
        asked: models that were looked up; those that are not among them are added.
    """
    found = []
    for lookup in _lookups(config, ahead, asked):
        try:
            lookup()
        except WorkbenchError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def _lookups(config: Config, ahead: Ahead, asked: Asked) -> Iterator[Lookup]:
    from workbench_training.pair_fit import make_method
    from workbench_training.pair_settings import PairFitConfig

    from workbench.library import locate
    from workbench.pipelines.capping import CappingConfig
    from workbench.pipelines.rollouts import RolloutConfig

    yield from _opened(config, ahead, asked)
    for readout in getattr(config, "readouts", None) or ():
        yield partial(_readout, readout, ahead)
    if isinstance(config, settings.SteerConfig):
        yield partial(_steering, config)
    if isinstance(config, settings.SteerConfig | CappingConfig):
        yield partial(_controls, config)
    if isinstance(config, settings.CacheConfig):
        yield partial(_read, config)
    if isinstance(config, settings.JobsConfig):
        yield from (partial(_job, job) for job in config.job)
    elif isinstance(config, settings.FitConfig):
        yield partial(_fit, config)
    elif isinstance(config, settings.ApplyConfig):
        yield partial(_recipe, config.recipe)
    elif isinstance(config, RolloutConfig):
        yield lambda: config.asked
    elif isinstance(config, PairFitConfig):
        yield partial(make_method, config)
        if not ahead(config.pairs):
            yield partial(locate, config.pairs)


def _opened(config: Config, ahead: Ahead, asked: Asked) -> Iterator[Lookup]:
    """Yield how models and prompt sets are found."""
    from workbench.library import sources

    model, adapter = (getattr(config, name, None) for name in ("model", "adapter"))
    if model and not ahead([model, adapter]):
        yield partial(_model, model, adapter, asked)
    named = [getattr(config, name, None) for name in ("prompts", "conversations", *_FILES)]
    prompts = [*named, *getattr(config, "data", {}).values()]
    gap = getattr(config, "gap", None)
    if gap is not None:
        prompts.append(gap.prompts)
        models = [name for side in gap.sides for name in side]
        yield from (partial(_model, name, None, asked) for name in models if not ahead(name))
    for source in prompts:
        if isinstance(source, str | Mapping | list) and not ahead(source):  # else a count
            yield partial(sources, source)


def _model(model: str, adapter: str | None, asked: Asked) -> None:
    """Find a model, each once: where the hub does not answer, that takes its time."""
    from workbench.models.sources import find_source

    told = f"{model} {adapter}"
    if told not in asked:
        asked[told] = ""
        try:
            if model != "smollm2":  # fetched when it is needed
                find_source(model, adapter=adapter)
        except WorkbenchError as error:
            asked[told] = str(error)
    if asked[told]:
        raise UnknownNameError(asked[told])


def _readout(readout: str | Mapping[str, Any], ahead: Ahead) -> None:
    """Make a readout; of one that reads what is not there yet, look at its parameters alone."""
    from workbench.readouts.ask import make_readout

    if not ahead(readout):
        make_readout(readout)
        return
    assert isinstance(readout, Mapping), "a name alone refers to nothing"
    params = {key: value for key, value in readout.items() if key != "name"}
    if not isinstance(readout.get("name"), str):
        raise ConfigError(f"readout {params!r} has no name; write {{ name = ..., ... }}")
    name = readout["name"]
    check_parameters(f"readout {name!r}", READOUTS.factory(name), params)


def _steering(config: settings.SteerConfig) -> None:
    from workbench.interventions.scope import parse_scope

    EDITS.factory(config.edit)
    parse_scope(config.scope)


def _controls(config: Any) -> None:
    from workbench.sweeps.controls import Controls

    Controls.of(config.controls)


def _read(config: settings.CacheConfig) -> None:
    from workbench.engine.pool import SITES, parse_position

    parse_position(config.position)
    if config.site not in SITES:
        raise unknown("site", config.site, SITES)


def _fit(config: settings.FitConfig) -> None:
    from workbench.directions.fit import create
    from workbench.pipelines.fitting import gives_map, recipe_of

    fit = recipe_of(config).fit
    create(fit.method, fit.params, "map" if gives_map(config) else "direction")


def _job(job: settings.JobConfig) -> None:
    recipes = [job.recipe] if isinstance(job.recipe, str) else job.recipe
    for recipe in recipes:
        _recipe(recipe)
    methods = job.method if isinstance(job.method, list) else [job.method]
    for method in methods:
        name = method.get("name") if isinstance(method, Mapping) else method
        if name is not None:
            METHODS.factory(name)


def _recipe(name: str) -> None:
    from workbench.directions.recipe import read_recipe

    read_recipe(name)


def absent_columns(config: Config, columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what is wrong with the columns that a fit names.

    Args:
        config: the settings; of another verb than a fit nothing is said.
        columns: of stores that are not there yet, what their prompts have.
    """
    if not isinstance(config, settings.FitConfig) or config.acts not in columns:
        return []
    from workbench.pipelines.fitting import COLUMNS, gives_map, recipe_of

    fit, there = recipe_of(config).fit, columns[config.acts]
    own = [name for name in COLUMNS if getattr(config, name) is not None]
    named = own if gives_map(config) else ["y", *(fit.model_fields_set & set(COLUMNS))]
    wanted = {*(str(getattr(fit, name)) for name in named), *config.where}
    return [
        str(unknown("column of the prompts", name, there)) for name in sorted(wanted - {*there})
    ]
