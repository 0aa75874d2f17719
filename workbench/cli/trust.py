"""The verb trust: steering matrices judged by what their sweeps did to held-out pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.app import app
from workbench.cli.batch import launch
from workbench.cli.options import Options, batch, settings_of
from workbench.cli.say import line


@app.command()
@batch
def trust(
    file: Annotated[Path, typer.Argument(help="TRUST.toml: sweeps, matrices, shuffled, pairs.")],
    options: Options,
) -> None:
    """Judge steering matrices. Margin by dose and facet, accuracy, monotonicity, blocks."""
    done = launch("trust", settings_of(str(file), {}, {}, options), options)
    if done is not None and not options.as_json:
        from workbench.pipelines.report_trust import REPORT

        line((done.path / REPORT).read_text(encoding="utf-8"))
