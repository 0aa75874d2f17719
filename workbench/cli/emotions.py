"""Verbs of emotion vectors: sift, emotions, profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.app import app
from workbench.cli.batch import launch
from workbench.cli.options import Device, Dtype, Options, batch, settings_of
from workbench.cli.say import line


@app.command()
@batch
def sift(
    model: Annotated[str, typer.Argument(help="The model that will read them, or a .toml.")],
    options: Options,
    transcripts: Annotated[
        str | None, typer.Argument(help="A rollout of stories or dialogues.")
    ] = None,
    min_tokens: Annotated[int | None, typer.Option(help="Tokens that a text must have.")] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Keep written stories that do not name their emotion. And dialogues; all long enough."""
    flags = {"transcripts": transcripts, "min_tokens": min_tokens}
    flags |= {"dtype": dtype, "device": device}
    done = launch("sift", settings_of(model, {"model": model}, flags, options), options)
    if done is not None and not options.as_json:
        counted = ", ".join(f"{n} {outcome}" for outcome, n in done.result["outcomes"].items())
        line(f"{done.result['n']} of {done.result['of']} texts: {counted}")


@app.command()
@batch
def emotions(
    file: Annotated[Path, typer.Argument(help="EMOTIONS.toml: stories, neutral, composite.")],
    options: Options,
) -> None:
    """Make emotion vectors, and check them on held-out stories. Also window and valence."""
    done = launch("emotions", settings_of(str(file), {}, {}, options), options)
    if done is not None and not options.as_json:
        from workbench.pipelines.report_emotion import vectors_text

        line(vectors_text(done.path, done.result))


@app.command()
@batch
def profiles(
    file: Annotated[Path, typer.Argument(help="PROFILES.toml: directions, acts, high, low.")],
    options: Options,
) -> None:
    """Read emotion vectors in organisms. Gaps on both halves of items, profiles of all."""
    done = launch("profiles", settings_of(str(file), {}, {}, options), options)
    if done is not None and not options.as_json:
        from workbench.pipelines.report_emotion import gaps_text

        line(gaps_text(done.path))
