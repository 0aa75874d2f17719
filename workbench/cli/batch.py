"""Verbs that leave a run folder: train, cache, fit, apply, measure, sweep, and their studies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.app import app
from workbench.cli.options import (
    Device,
    Dtype,
    Options,
    batch,
    blocks,
    settings_of,
)
from workbench.cli.planned import print_plan, print_study
from workbench.cli.say import bar, emit, line, note, print_rows, print_summary, say_resumed
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.cluster import Workers
    from workbench.pipelines.report_effects import Effects
    from workbench.pipelines.study import StudyConfig, Unit
    from workbench.pipelines.verb import Done

MANY = 3
"""So many sweeps of a study are each printed."""


@app.command()
@batch
def run(
    study: Annotated[str, typer.Argument(help="A study file, or a shipped study's name.")],
    options: Options,
    workers: Annotated[
        str, typer.Option(help="Processes that share the branches of each stage.")
    ] = "1",
) -> None:
    """Chain the stages of a study. Finished ones are reused, interrupted ones resumed."""
    from workbench.cluster import parse_workers

    _study(study, options, parse_workers(workers))


@app.command()
@batch
def demo(options: Options, explorer: Annotated[bool, typer.Option()] = True) -> None:
    """Run the demo study, then open the explorer. The model is SmolLM2-135M-Instruct."""
    from workbench.cli.look import explore

    _study("demo", options)
    if explorer and not options.dry:
        explore(options.root)


@app.command()
@batch
def train(
    documents: Annotated[
        str, typer.Argument(help="A JSONL file of documents, or a .toml (of a whole fleet).")
    ],
    options: Options,
    model: Annotated[str | None, typer.Option(help="The base model.")] = None,
    name: Annotated[str | None, typer.Option(help="The organism's name.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Training budget in tokens.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of order, initial weights, dropout.")] = None,
    workers: Annotated[str, typer.Option(help="Processes that share a fleet's organisms.")] = "1",
) -> None:
    """Train a LoRA organism on documents.

    A .toml with a [fleet] table trains every condition, dose and seed that is listed there.
    """
    from workbench.cluster import parse_workers

    flags = {"model": model, "name": name, "tokens": tokens, "seed": seed}
    data = settings_of(documents, {"documents": documents}, flags, options)
    if "fleet" in data:
        _fleet(documents, data, parse_workers(workers), options)
        return
    if parse_workers(workers) != 1:
        raise ConfigError(f"workers = {workers} share a fleet; {documents} is one organism")
    launch("train", data, options)


@app.command()
@batch
def cache(
    model: Annotated[str, typer.Argument(help="The model, or a .toml.")],
    options: Options,
    prompts: Annotated[list[str] | None, typer.Argument(help="Item sets or files.")] = None,
    text: Annotated[str | None, typer.Option(help="The files' text column.")] = None,
    layers: Annotated[str | None, typer.Option(help="'all', or block indices: 3,14,15.")] = None,
    site: Annotated[
        str | None, typer.Option(help="resid_post (the default), resid_pre, attn_out, mlp_out.")
    ] = None,
    position: Annotated[str | None, typer.Option(help="last, mean:SPAN, offset:-2, ...")] = None,
    render: Annotated[str | None, typer.Option(help="bare, chat or auto.")] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Read activations of prompts into a store. The same command resumes an interrupted run."""
    named = [name if text is None else {"path": name, "text": text} for name in prompts or []]
    words = {"model": model, "prompts": named[0] if len(named) == 1 else named}
    flags = {"layers": blocks(layers), "site": site, "position": position, "render": render}
    flags |= {"dtype": dtype, "device": device}
    launch("cache", settings_of(model, words, flags, options), options)


@app.command()
@batch
def fit(
    acts: Annotated[
        str,
        typer.Argument(
            help="A cache run, a store, or a .toml (of many jobs); with --model a file of pairs."
        ),
    ],
    options: Options,
    model: Annotated[
        str | None, typer.Option(help="Train on pairs of replies with this model.")
    ] = None,
    span: Annotated[
        str | None, typer.Option(help="With --model: user, last_user, user+tool, assistant.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="With --model: 'all', or block indices: 3,14,15.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="With --model: passes over the pairs.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe's name or file.")] = None,
    method: Annotated[str | None, typer.Option(help="Overrides the recipe's method.")] = None,
    y: Annotated[str | None, typer.Option(help="Column of 0/1 labels.")] = None,
    groups: Annotated[str | None, typer.Option(help="Column of topics.")] = None,
    polarity: Annotated[str | None, typer.Option(help="Column of +1 and -1 (negated).")] = None,
    facts: Annotated[str | None, typer.Option(help="Column to split and resample by.")] = None,
    pairs: Annotated[str | None, typer.Option(help="Column of matched items, for maps.")] = None,
    layer: Annotated[int | None, typer.Option(help="Fix the layer, choose none.")] = None,
    check: Annotated[list[str] | None, typer.Option(help="More stores to score on.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of splits, bootstrap and nulls.")] = None,
    workers: Annotated[
        str, typer.Option(help="Processes for the jobs of a file (one BLAS thread each), or ray.")
    ] = "1",
) -> None:
    """Fit directions on cached activations. Evidence is held out, with intervals and nulls.

    A .toml with [[job]] tables is a file of many fits: every combination of the lists in it.
    With --model a method is trained by the model's gradients on pairs of replies, a JSONL file of
    rows prompt, chosen, rejected.
    """
    from workbench.cluster import parse_workers, prepare

    number = parse_workers(workers)
    if number not in (1, "ray") and not options.dry:
        prepare("workbench.pipelines.jobs")  # beside what is imported here meanwhile
    flags: dict[str, Any] = {"recipe": recipe, "method": method, "check": check, "seed": seed}
    flags |= {"y": y, "groups": groups, "polarity": polarity, "facts": facts, "layer": layer}
    flags |= {"pairs": pairs, "model": model, "span": span, "layers": blocks(layers)}
    flags["epochs"] = epochs
    data = settings_of(acts, {"acts" if model is None else "pairs": acts}, flags, options)
    done = launch("fit", data, options, workers=number)
    if done is not None and done.status != "part" and not options.as_json:
        from workbench.pipelines.outcomes import fit_text

        if told := fit_text(done.path):
            line(told)


@app.command()
@batch
def measure(
    model: Annotated[str, typer.Argument(help="The model, or a .toml.")],
    options: Options,
    readouts: Annotated[list[str] | None, typer.Argument(help="Readouts by name.")] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Take readouts of a model as it is."""
    words = {"model": model, "readouts": readouts or []}
    data = settings_of(model, words, {"dtype": dtype, "device": device}, options)
    summed(launch("measure", data, options), options, "readout measure condition")


@app.command()
@batch
def apply(
    file: Annotated[Path, typer.Argument(help="APPLY.toml: directions, held_out, claims.")],
    options: Options,
) -> None:
    """Apply a frozen direction to other models' activations. What do they read as true?"""
    launch("apply", settings_of(str(file), {}, {}, options), options)


@app.command()
@batch
def compare(
    file: Annotated[Path, typer.Argument(help="COMPARE.toml: organisms, results, rules.")],
    options: Options,
) -> None:
    """Compare organisms with their base and controls. Claims, format, knowledge, equivalence."""
    done = launch("compare", settings_of(str(file), {}, {}, options), options)
    if done is not None and not options.as_json:
        from workbench.pipelines.report_organisms import verdict_text

        line(verdict_text(done.result["verdicts"]))


def _fleet(file: str, data: Mapping[str, Any], workers: Workers, options: Options) -> None:
    """Train the organisms of a fleet file, or print what each would take."""
    from workbench.pipelines.fleets import plan_fleet, read_fleet, run_fleet

    if options.out is not None:
        raise ConfigError("a fleet has a folder for each organism; leave --out away, use --runs")
    organisms, name = read_fleet(data, file), Path(file).stem
    options.told.id = name
    if options.dry:
        planned = plan_fleet(organisms, root=options.root)
        _tell_fleet("planned", name, None, planned, options)
        return
    with bar(name) as progress:
        fleet = run_fleet(
            organisms,
            name,
            root=options.root,
            force=options.force,
            shard=options.shard,
            workers=workers,
            progress=progress,
        )
    status = "done" if fleet.complete else "part"
    _tell_fleet(status, name, fleet.path, fleet.rows, options)


def _tell_fleet(
    status: str, name: str, path: Path | None, rows: list[dict[str, Any]], options: Options
) -> None:
    if options.as_json:
        emit("train", name, status, path, {"organisms": rows})
        return
    print_rows(rows)
    updates, tokens = (sum(row.get(key) or 0 for row in rows) for key in ("updates", "tokens"))
    line(f"{len(rows)} organisms, {updates:,} updates, {tokens:,} tokens: {status}")


def launch(
    verb: str,
    data: Mapping[str, Any],
    options: Options,
    *,
    tell: Callable[[Done], Any] | None = None,
    **more: Any,
) -> Done | None:
    """Carry a verb out, or plan it, and say so; ``tell`` gives what ``--json`` prints of it."""
    from workbench.pipelines.verbs import carry_out, plan

    if options.dry:
        shared = {"shard": options.shard, **more}
        shared |= {"root": options.root, "force": options.force}
        print_plan(plan(verb, data, out=options.out, **shared), options)
        return None
    with bar(verb) as progress:
        done = carry_out(
            verb,
            data,
            out=options.out,
            root=options.root,
            force=options.force,
            shard=options.shard,
            opened=options.told.opened,
            progress=progress,
            **more,
        )
    if options.as_json:
        told = done.result if tell is None or done.status == "part" else tell(done)
        emit(verb, done.id, done.status, done.path, told)
    else:
        line(f"{verb} {done.id} {done.status}: {done.path}")
    return done


def summed(done: Done | None, options: Options, by: str) -> None:
    """Print the averages of a run that has its results."""
    if done is not None and done.status != "part" and not options.as_json:
        print_summary(done.path, by.split())


def _study(study: str, options: Options, workers: Workers = 1) -> None:
    from workbench.pipelines.study import read_study

    config = read_study(study, options.settings or ())
    if options.dry:
        from workbench.pipelines.study_plan import plan_study

        planned = plan_study(config, root=options.root, force=options.force)
        print_study(config, planned, options)
        return
    options.told.id = config.name
    units = _run_study(config, options, workers)
    from workbench.pipelines.report import BRIEF, as_text, headline, write_report
    from workbench.pipelines.report_effects import study_effects, write_effects
    from workbench.pipelines.report_emotion_study import write_study_page

    found = dict(study_effects(units))
    table = headline(units, found)
    path = write_report(table, units, options.root / "study" / config.name)
    files = [path, *write_effects(found, path.parent)]
    page = write_study_page(units, found, path.parent)
    files += [] if page is None else [page]
    if options.as_json:
        told = {stage: effects.to_dict() for stage, effects in found.items()}
        judged = {unit.title: done.result for unit, done in units if done.verb == "compare"}
        result = {"headline": table.to_dict("records"), "effects": told, "comparisons": judged}
        emit("run", config.name, "done", path, result)
        return
    line(as_text(table, BRIEF))
    _tell_effects(found)
    for done in (done for _, done in units if done.verb == "compare"):
        from workbench.pipelines.report_organisms import verdict_text

        line(f"\n{verdict_text(done.result['verdicts'])}")
        files.append(done.path / "report.md")
    for done in (done for _, done in units if done.verb == "capping"):
        from workbench.pipelines.report_capping import REPORT, read_summary

        line(f"\n{read_summary(done.path)}")
        files.append(done.path / REPORT)
    line(f"\nThe same as tables: {', '.join(map(str, files))}")


def _tell_effects(found: Mapping[str, Effects]) -> None:
    """Print the tables of a study's sweeps; of many, where they are."""
    if len(found) > MANY:
        line(
            f"\n{len(found)} sweeps: their slopes, controls and doses stand in the tables below by "
            "stage; `workbench effects RUN` prints those of one"
        )
        return
    for stage, effects in found.items():
        line(f"\n{stage}: {effects.text()}")


def _run_study(config: StudyConfig, options: Options, workers: Workers) -> list[tuple[Unit, Done]]:
    from workbench.pipelines.study import run_study

    finished = []
    with ExitStack() as bars:
        stages = [stage["id"] for stage in config.stage]
        began = time.monotonic()

        def start(unit: Unit) -> Callable[[int, int], None]:
            nonlocal began
            began = time.monotonic()
            bars.close()
            note(f"[stage {stages.index(unit.stage) + 1} of {len(stages)}] {unit.title} ...")
            return bars.enter_context(bar(unit.title))

        done_units = run_study(
            config,
            root=options.root,
            force=options.force,
            workers=workers,
            start=start,
            opened=say_resumed,
        )
        for unit, done in done_units:
            bars.close()
            took = f" in {time.monotonic() - began:.0f} s" if done.status == "done" else ""
            note(f"{unit.title}: {done.status}{took}, {done.path}")
            finished.append((unit, done))
    return sorted(finished, key=lambda one: stages.index(one[0].stage))
