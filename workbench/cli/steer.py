"""Verbs of steering and probing: sweep, contrast, generate, probe, and what doses did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.app import app
from workbench.cli.batch import launch
from workbench.cli.options import Device, Dtype, Json, Options, batch, blocks, settings_of
from workbench.cli.say import emit, line, print_table

if TYPE_CHECKING:
    from workbench.pipelines.verb import Done


@app.command()
@batch
def sweep(
    file: Annotated[Path, typer.Argument(help="SWEEP.toml: model, directions, doses, readouts.")],
    options: Options,
) -> None:
    """Measure behaviour against the dose of an edit. Random directions in the same batches."""
    done = launch("sweep", settings_of(str(file), {}, {}, options), options)
    if done is not None and done.status != "part" and not options.as_json:
        print_effects(done.path)


@app.command()
@batch
def contrast(
    acts: Annotated[str, typer.Argument(help="Activations of the model it points to, or a .toml.")],
    options: Options,
    other: Annotated[str | None, typer.Argument(help="Of the other, on the same items.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the direction.")] = None,
    groups: Annotated[str | None, typer.Option(help="Column that counts as one unit.")] = None,
) -> None:
    """Save the direction from one model to another. The mean difference over the same items."""
    words = {"acts": acts} if other is None else {"acts": acts, "other": other}
    data = settings_of(acts, words, {"name": name, "groups": groups}, options)
    launch("contrast", data, options)


@app.command()
@batch
def generate(
    model: Annotated[str, typer.Argument(help="The model, or a .toml.")],
    options: Options,
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt (repeatable).")] = None,
    prompts: Annotated[str | None, typer.Option(help="An item set or a file.")] = None,
    directions: Annotated[str | None, typer.Option(help="Steer along these.")] = None,
    layers: Annotated[str | None, typer.Option(help="One window of blocks: 3,14,15.")] = None,
    doses: Annotated[str | None, typer.Option(help="Such as -0.1,0.1; 0 is added.")] = None,
    unit: Annotated[str | None, typer.Option(help="norm (the default) or raw.")] = None,
    scope: Annotated[str | None, typer.Option(help="all, last, generated, ...")] = None,
    controls: Annotated[str | None, typer.Option(help="Such as 2 or random:2,sign.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Most new tokens of a reply.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    render: Annotated[
        str | None, typer.Option(help="chat (the default), bare (goes on with the text), auto.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of draws and random directions.")] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Write replies, side by side at every dose of a direction. Or without one."""
    flags: dict[str, Any] = {"texts": prompt, "prompts": prompts, "directions": directions}
    flags |= {"layers": blocks(layers), "doses": _numbers(doses), "unit": unit, "scope": scope}
    flags |= {"controls": _controls(controls), "max_new_tokens": tokens}
    flags |= {"temperature": temperature, "seed": seed, "dtype": dtype, "device": device}
    flags["render"] = render
    data = settings_of(model, {"model": model}, flags, options)
    done = launch("generate", data, options, tell=_texts)
    if done is not None and done.status != "part" and not options.as_json:
        _print_texts(done)


@app.command()
@batch
def probe(
    model: Annotated[str, typer.Argument(help="The checkpoint, or a .toml.")],
    options: Options,
    directions: Annotated[list[str] | None, typer.Option(help="Saved directions.")] = None,
    readout: Annotated[list[str] | None, typer.Option(help="A readout by name.")] = None,
    prompts: Annotated[str | None, typer.Option(help="What the directions read.")] = None,
    known: Annotated[
        str | None, typer.Option(help="Known organisms: a results table, or a folder of runs.")
    ] = None,
    base: Annotated[str | None, typer.Option(help="What the checkpoint was made from.")] = None,
    check: Annotated[bool | None, typer.Option(help="Ask the doctor first.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of random directions, bootstrap.")] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Probe what saved directions read in a checkpoint. Beside its base and known organisms."""
    flags: dict[str, Any] = {
        "directions": directions or None,
        "readouts": readout or None,
        "prompts": prompts,
    }
    flags |= {"known": known, "base": base, "check": check, "seed": seed}
    flags |= {"dtype": dtype, "device": device}
    data = settings_of(model, {"model": model}, flags, options)
    done = launch("probe", data, options, tell=_told)
    if done is not None and not options.as_json:
        _print_probe(done)


@app.command()
def effects(
    path: Annotated[Path, typer.Argument(help="A sweep's run folder, or its table.")],
    endpoint: Annotated[
        float | None, typer.Option(help="Dose of the sensitivity table (default: the largest).")
    ] = None,
    unit: Annotated[str, typer.Option(help="Column that is resampled.")] = "item",
    as_json: Json = False,
) -> None:
    """Say what a sweep's doses did. Slopes beside random directions, guards, verdicts."""
    if not as_json:
        print_effects(path, endpoint, unit)
        return
    from workbench.pipelines.report_effects import effects_of

    found = effects_of(path, endpoint=endpoint, unit=unit)
    emit("effects", str(path), "done", path, found.to_dict())


def print_effects(path: Path, endpoint: float | None = None, unit: str = "item") -> None:
    """Print slopes, verdicts and sensitivities of a sweep."""
    from workbench.pipelines.report_effects import effects_of

    line(effects_of(path, endpoint=endpoint, unit=unit).text())


def _numbers(words: str | None) -> list[float] | None:
    from workbench.errors import ConfigError

    if words is None:
        return None
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise ConfigError(f"--doses {words!r}: write numbers such as -0.1,0.1") from None


def _controls(words: str | None) -> list[int | str] | None:
    if words is None:
        return None
    return [int(word) if word.isdigit() else word for word in words.split(",")]


def _texts(done: Done) -> Mapping[str, Any]:
    """Return a run's replies as records beside its own result."""
    table = _side_by_side(done.path).reset_index()
    return {**done.result, "texts": table.to_dict("records")}


def _side_by_side(path: Path) -> Any:
    from workbench.effects import side_by_side
    from workbench.results import read_results

    return side_by_side(read_results(path))


def _print_texts(done: Done) -> None:
    for (_, item, draw), row in _side_by_side(done.path).iterrows():
        texts = row.drop("prompt", errors="ignore").dropna()
        line(f"\n{item}" + (f", draw {draw}" if draw else "") + f": {row.get('prompt', '')}")
        for arm, text in texts.items():
            line(f"  [{arm}] {text.strip()}")


def _told(done: Done) -> Any:
    from workbench.pipelines.probing import TOLD

    return json.loads((done.path / TOLD).read_text(encoding="utf-8"))


def _print_probe(done: Done) -> None:
    import pandas as pd

    from workbench.pipelines.probing import TABLE

    doctor = _told(done)["doctor"]
    if doctor is not None:
        line(f"doctor: {doctor['model']} is healthy, {doctor['level']} check")
    print_table(pd.read_parquet(done.path / TABLE))
