"""The verb that writes documents: corpus."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from workbench.cli.app import app
from workbench.cli.batch import launch
from workbench.cli.options import Options, batch, settings_of
from workbench.cli.say import line


@app.command()
@batch
def corpus(
    options: Options,
    kind: Annotated[
        str,
        typer.Argument(help="quartets, trust_pairs, a control such as intent or web, or a .toml."),
    ] = "quartets",
    quartets: Annotated[int | None, typer.Option(help="Quartets to plan (13,440).")] = None,
    pairs: Annotated[int | None, typer.Option(help="Trust pairs (2,000).")] = None,
    documents: Annotated[int | None, typer.Option(help="Documents of a control.")] = None,
    scenarios: Annotated[int | None, typer.Option(help="Use the first so many.")] = None,
    writer: Annotated[str | None, typer.Option(help="templates, server, local, ...")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every draw.")] = None,
    workers: Annotated[
        str | None, typer.Option(help="Processes that write (one a processor), or ray.")
    ] = None,
) -> None:
    """Write matched quartets or a control as JSONL, and check them. Leaves tables and a card."""
    from workbench.cluster import parse_workers

    flags: dict[str, Any] = {"quartets": quartets, "documents": documents, "scenarios": scenarios}
    flags |= {"pairs": pairs, "writer": writer, "seed": seed}
    flags["workers"] = None if workers is None else parse_workers(workers)
    done = launch("corpus", settings_of(kind, {"kind": kind}, flags, options), options)
    if done is None or options.as_json or done.status == "part":
        return
    for name, file in done.result["files"].items():
        told = ", ".join(f"{value:,} {key}" for key, value in file.items())
        line(f"{name}: {told.replace('tokens_estimated', 'tokens (words / 0.75)')}")
    line(f"card: {done.path / 'CARD.md'}, one sample: {done.path / 'sample.md'}")
