"""The verbs sweep and generate: from settings to a design, its guards, its gap and its run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.config import parse
from workbench.errors import ConfigError
from workbench.files import write_bytes
from workbench.library import sources
from workbench.pipelines.parts import (
    listed,
    model_inputs,
    paths_of,
    readout_inputs,
    save_results,
)
from workbench.pipelines.settings import GapConfig, GenerateConfig, SweepConfig
from workbench.pipelines.verb import Verb, Work
from workbench.plain import as_json, number
from workbench.results import FILE
from workbench.runs import OpenRun
from workbench.types import Progress

if TYPE_CHECKING:
    from workbench.interventions import Gap
    from workbench.readouts.ask import ReadoutLike
    from workbench.sweeps import Design, Steering
    from workbench.types import Readout

GUARDS = ("perplexity", "repetition", "drift", "capability")
"""Readouts that say whether the model still works at a dose."""
BARE_GUARDS = ("perplexity", "capability")
"""Those of them whose prompts are plain texts."""
GAP = "gap.json"
SAME = ("doses", "edit", "unit", "scope", "controls", "seed", "per_layer", "side")


def sweep_verb() -> Verb:
    """Sweep doses of an edit."""
    return Verb(
        SweepConfig, sweep_inputs, _sweep, preview_sweep, artefact=FILE, outline=outline_sweep
    )


def generate_verb() -> Verb:
    """Write replies."""
    return Verb(
        GenerateConfig,
        generate_inputs,
        _generate,
        preview_generate,
        artefact=FILE,
        outline=outline_generate,
    )


def _sweep(config: SweepConfig, work: Work) -> Mapping[str, Any]:
    return run_sweep(config, work.run, work.progress)


def _generate(config: GenerateConfig, work: Work) -> Mapping[str, Any]:
    return run_generate(config, work.run, work.progress)


def sweep_inputs(config: SweepConfig) -> list[Path]:
    """Return the files and folders that decide what a sweep gives."""
    stores = [] if config.calibration is None else listed(config.calibration)
    named = [config.directions, *stores, *filter(None, (config.shuffled, config.match))]
    found = [*model_inputs(config), *readout_inputs(config.readouts), *map(Path, named)]
    if config.gap is not None:
        sides = [name for side in config.gap.sides for name in side]
        found += [*paths_of(sides), *sources(config.gap.prompts)]
    return found


def sweep_parts(config: SweepConfig) -> tuple[Steering, list[Readout], Design]:
    """Open what a sweep needs but models; the layer that the fit chose is the default."""
    from workbench.activations import open_activations
    from workbench.activations.together import open_together
    from workbench.directions import open_directions, open_map
    from workbench.readouts.ask import make_readout
    from workbench.sweeps import Baseline, Design

    opened = open_map if config.edit == "linear_map" else open_directions
    directions: Steering = opened(config.directions)
    layers = config.layers
    if layers is None and "layer" in directions.info:
        own = directions.info.get("window", [directions.info["layer"]])
        layers = [int(layer) for layer in own]
    design = Design(
        layers=layers,
        thresholds=config.numbers(),
        shuffled=None if config.shuffled is None else open_directions(config.shuffled),
        calibration=None if config.calibration is None else open_together(config.calibration),
        match=None if config.match is None else open_activations(config.match),
        baselines=[Baseline(one.name, one.system, one.shots) for one in config.baselines],
        **{name: getattr(config, name) for name in SAME},
    )
    return directions, [make_readout(one) for one in guarded_readouts(config)], design


def guarded_readouts(config: SweepConfig) -> list[ReadoutLike]:
    """Return what is asked for, and the guards that are not named there.

    Guards on bare texts are left out where the scope names a part of a chat, which texts lack.
    """
    from workbench.interventions.scope import parse_scope

    asked: list[ReadoutLike] = list(config.readouts)
    named = {one if isinstance(one, str) else one.get("name") for one in config.readouts}
    parts = set(parse_scope(config.scope).spans) - {"content"}
    left_out = {*named, *(BARE_GUARDS if parts else ())}
    return asked + [name for name in GUARDS if config.guards and name not in left_out]


def run_sweep(
    config: SweepConfig,
    run: OpenRun,
    progress: Progress | None,
    readouts: Sequence[Readout] | None = None,
) -> Mapping[str, Any]:
    """Sweep in a run folder; ``readouts`` stand in for those of the settings."""
    from workbench import api
    from workbench.sweeps import sweep_run

    directions, own, design = sweep_parts(config)
    told: dict[str, Any] = {"layers": design.layers}
    if config.gap is not None:
        gap, told["gap"] = measured_gap(config, config.gap, directions, design.layers, run.path)
        design = replace(design, gap=gap)
    subject = api.load_for_readouts(config.model, **config.options())
    frame = sweep_run(subject, directions, readouts or own, design, run, progress=progress)
    return {"complete": False} if frame is None else {**save_results(frame, subject, run), **told}


def measured_gap(
    config: SweepConfig, asked: GapConfig, directions: Steering, layers: Any, folder: Path
) -> tuple[Gap | None, dict[str, Any]]:
    """Return the natural gap along the sweep's window and what the run says of it.

    A gap under two standard errors counts for nothing: it is told, with ``clear = false``, and the
    doses in gaps stay empty. Kept in the folder, so that who resumes has the very same doses.

    Raises:
        ConfigError: a map, or several windows, or doses in gaps without a clear one.
    """
    from workbench.interventions import Gap

    file = folder / GAP
    if not file.exists():
        found = _gap(config, asked, directions, layers)
        write_bytes(file, as_json(found, indent=2).encode())
    told = json.loads(file.read_text(encoding="utf-8"))
    size, error = number(told.pop("value")), number(told.pop("standard_error"))
    gap = Gap(size, error, **told)
    clear = abs(gap.value) >= 2 * gap.standard_error > 0
    if config.unit == "gap" and not clear:
        raise ConfigError(
            f"the gap {gap.value:.4g} of {gap.first} over {gap.second} is under two standard "
            f"errors ({gap.standard_error:.4g}), so doses in gaps would mean nothing; use "
            'unit = "norm"'
        )
    return (gap if clear else None), {**asdict(gap), "clear": clear}


def _gap(config: SweepConfig, asked: GapConfig, directions: Steering, layers: Any) -> Gap:
    from workbench import api
    from workbench.directions import Directions
    from workbench.library import open_prompts

    if not isinstance(directions, Directions):
        raise ConfigError("a gap is along a direction, and a map is none; leave gap out")
    window = directions.layers if layers is None else layers
    if any(not isinstance(layer, int) for layer in window):
        raise ConfigError(f"layers = {layers!r}: a gap is along one window; sweep one at a time")
    options = {"dtype": config.dtype, "device": config.device}
    first, second = (
        [api.load_for_readouts(name, **options) for name in side] for side in asked.sides
    )
    prompts = open_prompts(asked.prompts)
    return api.gap(directions, first, second, prompts, layers=window, force=True)


def preview_sweep(config: SweepConfig) -> Mapping[str, Any]:
    """Plan the sweep: loads the model for its tokenizer and shape, and runs nothing."""
    from workbench import api
    from workbench.engine.preview import preview
    from workbench.sweeps import plan_sweep

    directions, readouts, design = sweep_parts(config)
    if config.unit == "gap":
        design = replace(design, unit="norm")  # the gap is not known yet; as many arms
    subject = api.load(config.model, check=False, **config.options())
    edited = str(preview(subject, config.scope, readouts[0].requests(subject), n=2))
    return {"plan": [*plan_sweep(subject, directions, readouts, design), edited]}


def outline_sweep(config: SweepConfig) -> Mapping[str, Any]:
    """Count arms, as far as no model need be loaded."""
    from workbench.pipelines.previews import find_model

    find_model(config)
    directions, readouts, _ = sweep_parts(config)
    return {
        "directions": len(directions.names),
        "doses": len({0.0, *map(float, config.doses)}),
        "controls": config.controls,
        "readouts": [readout.name for readout in readouts],
    }


# --- replies -------------------------------------------------------------------------------------


def generate_inputs(config: GenerateConfig) -> list[Path]:
    """Return the files and folders that decide what is written."""
    found = [*model_inputs(config), *map(Path, filter(None, [config.directions]))]
    return found + ([] if config.prompts is None else sources(config.prompts))


def reply_of(config: GenerateConfig) -> Readout:
    """Return the readout that asks for replies.

    Raises:
        ConfigError: neither texts nor prompts, or draws that would all be the same.
    """
    from workbench.library import open_prompts
    from workbench.prompts import PromptSet
    from workbench.readouts.reply import Reply

    if (config.prompts is None) == (not config.texts):
        raise ConfigError("generate takes texts (--prompt) or prompts (--prompts): give one")
    rows = [{"id": f"p{n}", "text": text} for n, text in enumerate(config.texts)]
    items = PromptSet.from_records(rows) if rows else open_prompts(config.prompts or "")
    written = ("n", "max_new_tokens", "temperature", "render")
    named = {name: getattr(config, name) for name in written}
    return Reply(items, seed=config.seed, **named)


def run_generate(
    config: GenerateConfig, run: OpenRun, progress: Progress | None
) -> Mapping[str, Any]:
    """Write replies: at every dose where there are directions, else of the model as it is."""
    readout = reply_of(config)
    if config.directions is not None:
        return run_sweep(steered(config), run, progress, [readout])
    from workbench import api
    from workbench.readouts.ask_units import ask_in_units
    from workbench.results import table

    refuse_doses(config)
    subject = api.load_for_readouts(config.model, **config.options())
    outcomes = ask_in_units(subject, [readout], [((),)], run, progress=progress)
    if outcomes is None:
        return {"complete": False}
    return save_results(table(outcomes[0][0].measurements, subject=subject), subject, run)


def steered(config: GenerateConfig) -> SweepConfig:
    """Return the sweep that writes a steered model's replies."""
    shared = set(SweepConfig.model_fields) & set(GenerateConfig.model_fields)
    own = config.model_dump(include=shared)
    return parse(SweepConfig, {**own, "readouts": ["reply"], "guards": False}, "generate")


def refuse_doses(config: GenerateConfig) -> None:
    """Refuse doses of nothing.

    Raises:
        ConfigError: doses or layers without directions.
    """
    if config.doses or config.layers:
        raise ConfigError("doses and layers are of directions; give directions too")


def preview_generate(config: GenerateConfig) -> Mapping[str, Any]:
    """Plan the replies."""
    return _replies(config, preview_sweep)


def outline_generate(config: GenerateConfig) -> Mapping[str, Any]:
    """Count the replies, as far as no model need be loaded."""
    return _replies(config, outline_sweep)


def _replies(
    config: GenerateConfig, plan: Callable[[SweepConfig], Mapping[str, Any]]
) -> Mapping[str, Any]:
    readout = reply_of(config)
    if config.directions is not None:
        return plan(steered(config))
    refuse_doses(config)
    assert hasattr(readout, "prompts")
    return {"prompts": len(readout.prompts)}
