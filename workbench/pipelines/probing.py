"""The verb probe: settings in, a run folder with what frozen directions found out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.files import replacing, write_bytes
from workbench.library import sources
from workbench.pipelines.parts import model_inputs, paths_of, readout_inputs
from workbench.pipelines.settings import ProbeConfig
from workbench.pipelines.verb import Verb, Work
from workbench.plain import as_json
from workbench.results import FILE
from workbench.runs import OpenRun
from workbench.types import Progress

TABLE, TOLD = "probe.parquet", "probe.json"


def probe_verb() -> Verb:
    """Probe a checkpoint."""
    return Verb(ProbeConfig, inputs_of, _body, preview, shards=False, artefact=FILE)


def _body(config: ProbeConfig, work: Work) -> Mapping[str, Any]:
    return run_probe(config, work.run, work.progress)


def inputs_of(config: ProbeConfig) -> list[Path]:
    """Return the files and folders that decide what a probe finds."""
    from workbench.pipelines.probe import PROMPTS

    found = [*model_inputs(config), *paths_of([config.base]), *map(Path, config.directions)]
    if config.directions:
        found += sources(PROMPTS if config.prompts is None else config.prompts)
    return [*found, *readout_inputs(config.readouts), *_known(config.known)]


def _known(known: str | None) -> list[Path]:
    """Of a runs root the results tables count, not the adapters beside them."""
    if known is None:
        return []
    path = Path(known)
    if path.is_file() or not path.is_dir():
        return [path]
    own = path / FILE
    return [own] if own.is_file() else sorted(path.rglob(FILE))


def run_probe(config: ProbeConfig, run: OpenRun, progress: Progress | None) -> Mapping[str, Any]:
    """Probe, and write the single measurements, the table, and the whole as JSON."""
    from workbench.pipelines.probe import probe_model
    from workbench.results import write_results

    found = probe_model(
        config.model,
        directions=config.directions,
        prompts=config.prompts,
        readouts=config.readouts,
        known=config.known,
        base=config.base,
        condition=config.condition,
        check=config.check,
        seed=config.seed,
        progress=progress,
        **config.options(),
    )
    write_results(found.measurements, run.path / FILE, run=run.id)
    with replacing(run.path / TABLE) as temporary:
        found.table.to_parquet(temporary, index=False)
    told = found.to_dict()
    write_bytes(run.path / TOLD, as_json(told, indent=2).encode())
    return {"model": found.subject, "rows": len(found.table)}


def preview(config: ProbeConfig) -> Mapping[str, Any]:
    """Open the directions, the prompts and the known organisms; load no model.

    Raises:
        ConfigError: nothing to probe with.
    """
    from workbench.directions import open_directions
    from workbench.library import open_prompts
    from workbench.pipelines.probe import PROMPTS, read_known
    from workbench.readouts.ask import make_readout

    if not config.directions and not config.readouts:
        raise ConfigError("nothing to probe with; give directions or readouts")
    told: dict[str, Any] = {
        "directions": [name for file in config.directions for name in open_directions(file).names],
        "readouts": [make_readout(one).name for one in config.readouts],
    }
    if config.directions:
        told["items"] = len(open_prompts(PROMPTS if config.prompts is None else config.prompts))
    if config.known is not None:
        told["known"] = sorted(read_known(config.known)["subject"].unique())
    return told
