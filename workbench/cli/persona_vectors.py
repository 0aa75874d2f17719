"""Verbs of persona vectors: personas, monitor, drift, shift, screen, combine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.app import app
from workbench.cli.batch import launch
from workbench.cli.options import Device, Dtype, Options, batch, blocks, settings_of
from workbench.cli.say import line, print_table

if TYPE_CHECKING:
    import pandas as pd

    from workbench.pipelines.verb import Done

Several = Annotated[list[str] | None, typer.Option(help="A file of directions (repeatable).")]
Layers = Annotated[str | None, typer.Option(help="Block indices: 14,15.")]
MOST = 40
"""Rows of a table that are printed."""


@app.command()
@batch
def personas(
    file: Annotated[Path, typer.Argument(help="PERSONAS.toml: transcripts, acts, rule.")],
    options: Options,
) -> None:
    """Make trait vectors of judged rollouts. Three variants, checked against chance."""
    done = launch("personas", settings_of(str(file), {}, {}, options), options)
    _show(done, options, "counts.parquet")


@app.command()
@batch
def monitor(
    file: Annotated[Path, typer.Argument(help="MONITOR.toml: directions, acts, transcripts.")],
    options: Options,
) -> None:
    """Correlate projections before an answer with its score."""
    done = launch("monitor", settings_of(str(file), {}, {}, options), options)
    _show(done, options, "monitor.parquet")


@app.command()
@batch
def drift(
    model: Annotated[str, typer.Argument(help="The model that reads, or a .toml.")],
    options: Options,
    conversations: Annotated[str | None, typer.Argument(help="Chats or transcripts.")] = None,
    directions: Several = None,
    layers: Layers = None,
    reference: Annotated[
        str | None, typer.Option(help="Store of response means, the band for turns.")
    ] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Follow conversations along directions, by turn and by token."""
    words: dict[str, Any] = {"model": model}
    flags = {"conversations": conversations, "directions": directions or None}
    flags |= {"layers": blocks(layers), "reference": reference, "dtype": dtype, "device": device}
    done = launch("drift", settings_of(model, words, flags, options), options)
    _show(done, options, "turns.parquet")
    _show(done, options, "trend.parquet")


@app.command()
@batch
def shift(
    file: Annotated[Path, typer.Argument(help="SHIFT.toml: directions, base, tuned.")],
    options: Options,
) -> None:
    """Measure how far finetuning moved organisms. Along trait vectors and the axis."""
    done = launch("shift", settings_of(str(file), {}, {}, options), options)
    _show(done, options, "shift.parquet")


@app.command()
@batch
def screen(
    model: Annotated[str, typer.Argument(help="The model to be trained, or a .toml.")],
    options: Options,
    data: Annotated[list[str] | None, typer.Argument(help="Corpora: documents or chats.")] = None,
    directions: Several = None,
    layers: Layers = None,
    control: Annotated[str | None, typer.Option(help="The corpus without the trait.")] = None,
    sample: Annotated[int | None, typer.Option(help="Items of each corpus.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Most tokens of an answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the sample and the answers.")] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Screen corpora before training. What do they have more of than the model's own answers?"""
    corpora = {_corpus(path): path for path in data or []} or None
    flags: dict[str, Any] = {"data": corpora, "directions": directions or None}
    flags |= {"layers": blocks(layers), "sample": sample, "tokens": tokens, "seed": seed}
    flags |= {"control": control and _corpus(control), "dtype": dtype, "device": device}
    done = launch("screen", settings_of(model, {"model": model}, flags, options), options)
    _show(done, options, "corpora.parquet")


@app.command()
@batch
def combine(
    directions: Annotated[str, typer.Argument(help="A file of directions, or a .toml.")],
    options: Options,
    weights: Annotated[
        str | None, typer.Option(help="Such as malicious=1,candid=-1; else each by itself.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Directions to project out (repeatable).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the mean.")] = None,
    layers: Layers = None,
) -> None:
    """Combine directions into one, and project others out. Says how much is left."""
    flags = {"weights": _weights(weights), "without": without or None, "name": name}
    flags["layers"] = blocks(layers)
    data = settings_of(directions, {"directions": directions}, flags, options)
    _show(launch("combine", data, options), options, "retained.parquet")


def _corpus(path: str) -> str:
    """Name a corpus by its file, or the folder of a file that all corpora have."""
    file = Path(path)
    return file.parent.name if file.stem == "documents" else file.stem


def _weights(words: str | None) -> dict[str, float] | None:
    from workbench.errors import ConfigError

    if words is None:
        return None
    try:
        pairs = [part.rsplit("=", 1) for part in words.split(",")]
        return {name.strip(): float(number) for name, number in pairs}
    except ValueError:
        raise ConfigError(f"--weights {words!r}: write names and numbers, a=1,b=-1") from None


def _show(done: Done | None, options: Options, name: str) -> None:
    """Print a table of a run that is done."""
    if done is None or done.status == "part" or options.as_json:
        return
    file = done.path / name
    if file.exists():
        _print(_read(file), file)


def _read(file: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(file)


def _print(table: pd.DataFrame, file: Path) -> None:
    """Print the first rows, without what is the same in all of them."""
    alike = [name for name in table.columns if table[name].nunique(dropna=False) == 1]
    if len(table) > 1:
        told = "; ".join(f"{name}: {table[name].iloc[0]}" for name in alike)
        table = table.drop(columns=alike)
        line(f"\n{file.stem}, {told}" if told else f"\n{file.stem}")
    print_table(table.head(MOST))
    if len(table) > MOST:
        line(f"... {len(table) - MOST} more rows in {file}")
