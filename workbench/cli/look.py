"""Verbs that look: what there is, what a file holds, whether it is whole, whether a model is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.app import app
from workbench.cli.options import RUNS, Json, Plugin, Root, load_plugins
from workbench.cli.say import emit, line, note, print_rows, print_runs
from workbench.errors import ConfigError


@app.command()
def explore(
    root: Annotated[Path, typer.Argument(help="The folder with the runs.")] = RUNS,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 5006,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
) -> None:
    """Open the explorer on 127.0.0.1; Ctrl-C ends it."""
    if not root.is_dir():
        if root != RUNS:
            raise ConfigError(f"no folder {str(root)!r}; give the folder that holds the runs")
        note(f"there is no folder {root} yet; `workbench demo` makes one, or give another")
    from workbench_apps.explorer import serve

    serve(root, port=port, open_browser=browser, announce=line)


@app.command(name="doctor")
def examine(
    model: Annotated[str, typer.Argument(help="The model.")],
    quick: Annotated[bool, typer.Option("--quick", help="Only what every load checks.")] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Json = False,
) -> None:
    """Check that a model's numbers can be trusted.

    Numbers in parentheses are the largest difference between two ways to one answer, in standard
    deviations of the logits, beside the limit; a shortcut of the engine that differs is off.
    """
    from workbench import api
    from workbench.engine.doctor import doctor

    subject = api.load(model, dtype=dtype, device=device, check=False)
    report = doctor(subject, level="quick" if quick else "full")
    if as_json and report.ok:
        emit("doctor", subject.ref.key, "done", None, report.to_dict())
    elif not as_json:
        line(report.text())
    report.raise_if_failed()


@app.command(name="list")
def list_kind(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="methods, edits, readouts, engines, writers, recipes, prompts, studies, corpora, "
            "organisms, runs"
        ),
    ] = None,
    root: Root = RUNS,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """List what there is of a kind."""
    load_plugins(plugin)
    from workbench.pipelines.catalogue import kinds_of, rows_of

    rows = [{"kind": name} for name in kinds_of(root)] if kind is None else rows_of(kind, root)
    if as_json:
        emit("list", kind or "kinds", "done", None, {"rows": rows})
        return
    if kind is None:
        line("workbench list KIND, with one of: " + ", ".join(row["kind"] for row in rows))
        return
    if kind in ("organisms", "corpora") and rows:
        print_rows(rows)
        return
    if kind == "runs":
        print_runs(rows, root)
        return
    for row in rows:
        line("  ".join(str(value) for value in row.values() if value not in (None, "")))


@app.command()
def show(
    thing: Annotated[
        list[str],
        typer.Argument(
            help="A path, or a kind and a name: method, edit, readout, engine, writer, recipe, "
            "study, prompts, organism."
        ),
    ],
    root: Root = RUNS,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Say what a run found, what a file holds, what a name means."""
    load_plugins(plugin)
    from workbench.pipelines.catalogue import describe

    found = describe(thing, root)
    if as_json:
        emit("show", " ".join(thing), "done", None, found)
        return
    for key, value in found.items():
        line(f"{key}: {value}" if "\n" not in str(value) else f"{key}:\n{value}")


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="A store, a run folder, a packed or vector file.")],
    as_json: Json = False,
) -> None:
    """Check every byte of a file against its own checksums."""
    from workbench.pipelines.catalogue import verify_path

    report = verify_path(path)
    if as_json:
        emit("verify", str(path), "done", path, report)
        return
    line(f"{path}: {', '.join(f'{key} {value}' for key, value in report.items())}")


@app.command()
def pack(
    path: Annotated[Path, typer.Argument(help="A store or a cache run.")],
    out: Annotated[Path, typer.Argument(help="The file to write.")],
) -> None:
    """Make one plain HDF5 file of a store."""
    from workbench.activations import pack as pack_store

    line(pack_store(path, out))
