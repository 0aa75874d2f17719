"""The command line: each verb turns its words into settings, makes one library call, and prints."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.pipelines.study import Unit
    from workbench.pipelines.verbs import Done

app = typer.Typer(
    name="workbench",
    help="What does a language model represent, and does that drive what it does?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Override a setting: a.b=c (repeatable).")
]
Dry = Annotated[bool, typer.Option("--dry", help="Print the resolved plan; run nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder (default runs/VERB/ID).")]
Root = Annotated[Path, typer.Option("--runs", help="Where run folders lie.")]
Force = Annotated[bool, typer.Option("--force", help="Move a folder of another run aside.")]
Plugin = Annotated[
    list[Path] | None, typer.Option("--plugin", help="A Python file of your own to load first.")
]
RUNS = Path("runs")
INTERRUPTED = "interrupted; the same command resumes what it had begun"


def main() -> None:
    """Run the command line; a mistake that the user can fix ends with its message and status 1.

    Whatever ends a command early, ``--json`` still prints its one object.
    """
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    try:
        app(standalone_mode=True)
    except WorkbenchError as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        _fail(INTERRUPTED, 130)
    except SystemExit as stop:
        if stop.code == 130:  # typer's own answer to Ctrl-C
            _fail(INTERRUPTED, 130)
        if stop.code == 2 and "--json" in sys.argv:
            _fail("wrong usage, as said above; --help shows what there is", 2)
        raise


def _fail(error: str, status: int) -> NoReturn:
    if "--json" in sys.argv:
        verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        failed = {"verb": verb, "id": None, "status": "failed", "path": None, "result": None}
        print(json.dumps({**failed, "error": error}))
    print(f"error: {error}", file=sys.stderr)
    sys.exit(status)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A study file, or a shipped study's name.")],
    settings: Settings = None,
    root: Root = RUNS,
    dry: Dry = False,
    force: Force = False,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Chain the stages of a study; finished ones are reused, interrupted ones resumed."""
    _plugins(plugin)
    from workbench.pipelines.study import read_study

    config = read_study(study, settings or ())
    if dry:
        _plan_study(config, as_json)
        return
    units = _run_study(config, root, force)
    from workbench.pipelines.report import as_text, headline, write_report

    table = headline(units)
    path = write_report(table, units, root / "study" / config.name)
    if as_json:
        _emit("run", config.name, "done", path, {"headline": table.to_dict("records")})
        return
    print(as_text(table))
    print(f"\nThe same as a table: {path}")


@app.command()
def train(
    documents: Annotated[str, typer.Argument(help="A JSONL file of documents, or a .toml.")],
    model: Annotated[str | None, typer.Option(help="The base model.")] = None,
    name: Annotated[str | None, typer.Option(help="The organism's name.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Training budget in tokens.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of order, initial weights, dropout.")] = None,
    settings: Settings = None,
    out: Out = None,
    root: Root = RUNS,
    dry: Dry = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a LoRA organism on documents."""
    flags = {"model": model, "name": name, "tokens": tokens, "seed": seed}
    data = _settings(documents, {"documents": documents}, flags, settings)
    _carry_out("train", data, out, root, dry, force, as_json)


@app.command()
def cache(
    model: Annotated[str, typer.Argument(help="The model, or a .toml.")],
    prompts: Annotated[list[str] | None, typer.Argument(help="Item sets or files.")] = None,
    text: Annotated[str | None, typer.Option(help="The files' text column.")] = None,
    layers: Annotated[str | None, typer.Option(help="'all', or block indices: 3,14,15.")] = None,
    position: Annotated[str | None, typer.Option(help="last, mean:SPAN, offset:-2, ...")] = None,
    render: Annotated[str | None, typer.Option(help="bare, chat or auto.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, mps.")] = None,
    shard: Annotated[str | None, typer.Option(help="i/n: do share i of n.")] = None,
    settings: Settings = None,
    out: Out = None,
    root: Root = RUNS,
    dry: Dry = False,
    force: Force = False,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Read activations of prompts into a store; the same command resumes an interrupted run."""
    _plugins(plugin)
    named = [name if text is None else {"path": name, "text": text} for name in prompts or []]
    words = {"model": model, "prompts": _single(named)}
    flags: dict[str, Any] = {"layers": _blocks(layers), "position": position, "render": render}
    flags |= {"dtype": dtype, "device": device}
    data = _settings(model, words, flags, settings)
    _carry_out("cache", data, out, root, dry, force, as_json, shard)


@app.command()
def fit(
    acts: Annotated[str, typer.Argument(help="A cache run, a store, or a .toml.")],
    recipe: Annotated[str | None, typer.Option(help="A recipe's name or file.")] = None,
    method: Annotated[str | None, typer.Option(help="Overrides the recipe's method.")] = None,
    y: Annotated[str | None, typer.Option(help="Column of 0/1 labels.")] = None,
    groups: Annotated[str | None, typer.Option(help="Column of topics.")] = None,
    polarity: Annotated[str | None, typer.Option(help="Column of +1 and -1 (negated).")] = None,
    facts: Annotated[str | None, typer.Option(help="Column to split and resample by.")] = None,
    layer: Annotated[int | None, typer.Option(help="Fix the layer, choose none.")] = None,
    check: Annotated[list[str] | None, typer.Option(help="More stores to score on.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of splits, bootstrap and nulls.")] = None,
    settings: Settings = None,
    out: Out = None,
    root: Root = RUNS,
    dry: Dry = False,
    force: Force = False,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Fit directions on cached activations, with held-out evidence, intervals and nulls."""
    _plugins(plugin)
    flags: dict[str, Any] = {"recipe": recipe, "method": method, "check": check, "seed": seed}
    flags |= {"y": y, "groups": groups, "polarity": polarity, "facts": facts, "layer": layer}
    data = _settings(acts, {"acts": acts}, flags, settings)
    _carry_out("fit", data, out, root, dry, force, as_json)


@app.command()
def measure(
    model: Annotated[str, typer.Argument(help="The model, or a .toml.")],
    readouts: Annotated[list[str] | None, typer.Argument(help="Readouts by name.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, mps.")] = None,
    settings: Settings = None,
    out: Out = None,
    root: Root = RUNS,
    dry: Dry = False,
    force: Force = False,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Take readouts of a model as it is."""
    _plugins(plugin)
    words = {"model": model, "readouts": readouts or []}
    data = _settings(model, words, {"dtype": dtype, "device": device}, settings)
    done = _carry_out("measure", data, out, root, dry, force, as_json)
    if done is not None and not as_json:
        _print_summary(done.path, ["readout", "measure", "condition"])


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="SWEEP.toml: model, directions, doses, readouts.")],
    settings: Settings = None,
    out: Out = None,
    root: Root = RUNS,
    dry: Dry = False,
    force: Force = False,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Measure behaviour against the dose of an edit, random directions in the same batches."""
    _plugins(plugin)
    data = _settings(str(file), {}, {}, settings, required=True)
    done = _carry_out("sweep", data, out, root, dry, force, as_json)
    if done is not None and not as_json:
        _print_summary(done.path, ["readout", "measure", "direction", "control", "dose"])


@app.command()
def explore(
    root: Annotated[Path, typer.Argument(help="The folder with the runs.")] = RUNS,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 5006,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
) -> None:
    """Open the explorer on 127.0.0.1; Ctrl-C ends it."""
    from workbench_apps.explorer import serve

    serve(root, port=port, open_browser=browser, announce=lambda url: print(url, flush=True))


@app.command()
def demo(root: Root = RUNS, explorer: Annotated[bool, typer.Option()] = True) -> None:
    """Run the shipped demo study on SmolLM2-135M-Instruct, then open the explorer."""
    run("demo", root=root)
    if explorer:
        explore(root)


@app.command(name="doctor")
def examine(
    model: Annotated[str, typer.Argument(help="The model.")],
    quick: Annotated[bool, typer.Option("--quick", help="Only what every load checks.")] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Json = False,
) -> None:
    """Check that a model's numbers can be trusted, and each shortcut of the engine against it."""
    from workbench import api
    from workbench.engine.doctor import doctor

    subject = api.load(model, dtype=dtype, device=device, check=False)
    report = doctor(subject, level="quick" if quick else "full")
    if as_json and report.ok:
        _emit("doctor", subject.ref.key, "done", None, report.to_dict())
    elif not as_json:
        print(report.text())
    report.raise_if_failed()


@app.command(name="list")
def list_kind(
    kind: Annotated[
        str,
        typer.Argument(
            help="methods, edits, readouts, engines, recipes, prompts, studies, organisms, runs"
        ),
    ],
    root: Root = RUNS,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """List what there is of a kind."""
    _plugins(plugin)
    from workbench.pipelines.catalogue import rows_of

    rows = rows_of(kind, root)
    if as_json:
        _emit("list", kind, "done", None, {"rows": rows})
        return
    for row in rows:
        print("  ".join(str(value) for value in row.values() if value not in (None, "")))


@app.command()
def show(
    thing: Annotated[list[str], typer.Argument(help="A path, or: readout|method|edit NAME.")],
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Describe a file, a run folder, or a registered thing."""
    _plugins(plugin)
    from workbench.pipelines.catalogue import describe

    found = describe(thing)
    if as_json:
        _emit("show", " ".join(thing), "done", None, found)
        return
    for key, value in found.items():
        print(f"{key}: {value}" if "\n" not in str(value) else f"{key}:\n{value}")


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="A store, a run folder, a packed or vector file.")],
    as_json: Json = False,
) -> None:
    """Check every byte of a file against its own checksums."""
    from workbench.pipelines.catalogue import verify_path

    report = verify_path(path)
    if as_json:
        _emit("verify", str(path), "done", path, report)
        return
    print(f"{path}: {', '.join(f'{key} {value}' for key, value in report.items())}")


@app.command()
def pack(
    path: Annotated[Path, typer.Argument(help="A store or a cache run.")],
    out: Annotated[Path, typer.Argument(help="The file to write.")],
) -> None:
    """Make one plain HDF5 file of a store."""
    from workbench.activations import pack as pack_store

    print(pack_store(path, out))


def _carry_out(
    verb: str,
    data: Mapping[str, Any],
    out: Path | None,
    root: Path,
    dry: bool,
    force: bool,
    as_json: bool,
    shard: str | None = None,
) -> Done | None:
    from workbench.pipelines.verbs import carry_out, plan

    if dry:
        planned = plan(verb, data, out=out, root=root)
        if as_json:
            _emit(verb, planned.id, "planned", planned.path, planned.result)
        else:
            print(f"{verb} {planned.id} -> {planned.path}")
            told = dict(planned.result)
            lines = told.pop("plan", [])
            print("\n".join([json.dumps(told, indent=2), *lines]))
        return None
    with _bar(verb) as progress:
        done = carry_out(
            verb, data, out=out, root=root, force=force, shard=shard, progress=progress
        )
    if as_json:
        _emit(verb, done.id, done.status, done.path, done.result)
    else:
        print(f"{verb} {done.id} {done.status}: {done.path}")
    return done


def _run_study(config: Any, root: Path, force: bool) -> list[tuple[Unit, Done]]:
    from contextlib import ExitStack

    from workbench.pipelines.study import run_study

    finished = []
    with ExitStack() as bars:
        stages = [stage["id"] for stage in config.stage]
        began = time.monotonic()

        def start(unit: Unit) -> Callable[[int, int], None]:
            nonlocal began
            began = time.monotonic()
            bars.close()
            place = f"[stage {stages.index(unit.stage) + 1} of {len(stages)}]"
            print(f"{place} {unit.title} ...", file=sys.stderr, flush=True)
            return bars.enter_context(_bar(unit.title))

        for unit, done in run_study(config, root=root, force=force, start=start):
            bars.close()
            took = f" in {time.monotonic() - began:.0f} s" if done.status == "done" else ""
            print(f"{unit.title}: {done.status}{took}, {done.path}", file=sys.stderr, flush=True)
            finished.append((unit, done))
    return finished


def _plan_study(config: Any, as_json: bool) -> None:
    stages = [
        {"id": s["id"], "verb": s["verb"], "for": s.get("for", {}), "settings": s}
        for s in config.stage
    ]
    if as_json:
        _emit("run", config.name, "planned", None, {"stages": stages})
        return
    for stage in stages:
        branches = "; ".join(f"{key} in {value}" for key, value in stage["for"].items())
        print(f"{stage['id']}: {stage['verb']}{'  for ' + branches if branches else ''}")


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr for what takes longer than two seconds."""
    from tqdm import tqdm

    often = 0.1 if sys.stderr.isatty() else 30.0
    bar = tqdm(
        desc=title, file=sys.stderr, delay=2, leave=False, dynamic_ncols=True, mininterval=often
    )
    with bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _settings(
    first: str,
    words: Mapping[str, Any],
    flags: Mapping[str, Any],
    settings: Sequence[str] | None,
    required: bool = False,
) -> dict[str, Any]:
    """Settings from a TOML file, or from the words; flags and --set go on top."""
    from workbench.config import override, read_toml
    from workbench.errors import ConfigError

    if required and not first.endswith(".toml"):
        raise ConfigError(f"{first!r} is no settings file; give the path of a .toml file")
    base = read_toml(Path(first)) if first.endswith(".toml") else dict(words)
    given = {key: value for key, value in flags.items() if value is not None}
    return override({**base, **given}, settings or ())


def _single(prompts: list[Any]) -> Any:
    return prompts[0] if len(prompts) == 1 else prompts


def _blocks(layers: str | None) -> Any:
    if layers is None or layers == "all":
        return layers
    from workbench.errors import ConfigError

    try:
        return [int(part) for part in layers.split(",")]
    except ValueError:
        raise ConfigError(f"--layers {layers!r}: write 'all' or indices such as 3,14,15") from None


def _plugins(paths: list[Path] | None) -> None:
    from workbench.registry import load_plugin

    for path in paths or ():
        load_plugin(path)


def _emit(verb: str, name: str, status: str, path: Path | None, result: Any) -> None:
    place = None if path is None else str(path)
    said = {"verb": verb, "id": name, "status": status, "path": place, "result": result}
    print(json.dumps({**said, "error": None}, default=str))


def _print_summary(path: Path, by: list[str]) -> None:
    from workbench.results import read_results, summarize

    _print_table(summarize(read_results(path / "results.parquet"), by=by))


def _print_table(table: Any) -> None:
    print(table.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="-"))
