"""The verb capping: a fleet of organisms under a cap along the Assistant Axis."""

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
def capping(
    file: Annotated[Path, typer.Argument(help="CAPPING.toml: model, organisms, axis, layers.")],
    options: Options,
) -> None:
    """Cap a fleet along an axis. Engagement, displacement and readouts, controls beside them."""
    done = launch("capping", settings_of(str(file), {}, {}, options), options)
    if done is not None and done.status != "part" and not options.as_json:
        from workbench.pipelines.report_capping import REPORT, read_summary

        line(read_summary(done.path))
        line(f"\nThe rest: {done.path / REPORT}")
