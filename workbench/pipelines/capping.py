"""The verb capping: a fleet of organisms under an Assistant Axis cap, measured beside controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.errors import ConfigError
from workbench.files import write_bytes
from workbench.library import sources
from workbench.pipelines.parts import join_results, listed, model_inputs, paths_of, readout_inputs
from workbench.pipelines.settings import Controls, ModelConfig
from workbench.pipelines.verb import Verb, Work, save_frame
from workbench.runs import Units

if TYPE_CHECKING:
    import pandas as pd

    from workbench.pipelines.capped_fleet import Parts, Piece

TABLES = ("thresholds", "engagement", "displacement", "behaviour", "texts")
CONTROLS: Controls = ["random:3", "layers:1", "noop"]
SAME = {"edit": "cap", "unit": "percentile", "scope": "all"}
"""What a sweep's rows must say to be of a cap as it is here."""


class CappingConfig(ModelConfig):
    """A cap along an axis over a fleet: the model is the reference, and stands among them."""

    organisms: list[str] = Field(min_length=1)
    """Trained organisms of this model."""
    axis: str
    """The Assistant Axis, toward the Assistant; one name."""
    calibration: str | list[str]
    """Stores of all rollouts, whatever their score: thresholds are percentiles of their states."""
    match: str | None = None
    """A store of what the cap acts on, token by token; the sweeps' own. Random and moved caps then
    engage exactly as often on its states, else at the same percentile of the calibration."""
    default: str | None = None
    """The mean of the default rollouts, near which a floor should lie."""
    layers: list[int] = Field(min_length=1)
    """Blocks that are capped together."""
    monitor: int | None = Field(default=None, ge=0)
    """Block at which displacement is read; by default the middle one."""
    percentile: float = Field(default=25.0, gt=0, lt=100)
    along: Literal["opposite", "direction"] = "opposite"
    """The released caps are the 25th percentile along role minus default, opposite to the axis."""
    prompts: str | dict[str, Any] | list[Any] = "guard_prompts"
    """What all are asked: texts as a user, or chats."""
    max_new_tokens: int = Field(default=40, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    unit: int = Field(default=16, ge=1)
    """Prompts of one unit of work."""
    budget: int = Field(default=8192, ge=1)
    """Tokens of one forward, pads and caps counted."""
    controls: Controls = Field(default_factory=lambda: CONTROLS)
    """Caps that replies are also written under: random:N, layers:N, noop."""
    readouts: list[str | dict[str, Any]] = Field(default_factory=list)
    """Engagement is counted on their prompts too; those of the sweeps."""
    readout_prompts: int = Field(default=64, ge=1)
    """At most so many prompts of each, evenly spread."""
    results: list[str] = Field(default_factory=list)
    """Sweeps of this cap: unit percentile, scope all, one for each model of the fleet."""
    contrasts: list[tuple[str, str]] = Field(default_factory=list)
    """Pairs of conditions whose gap is followed, such as ["P", "A"]."""
    least: float = Field(default=0.15, gt=0, lt=1)
    """The gate: under this share of positions a cap is uninformative."""
    seed: int = Field(default=0, ge=0)

    @property
    def dose(self) -> float:
        """Percent of the calibration that lies under the floor, as a sweep says it."""
        return 100 - self.percentile if self.along == "opposite" else self.percentile

    @property
    def members(self) -> list[str]:
        """The reference, then the organisms."""
        return [self.model, *self.organisms]


def verb() -> Verb:
    """Return the verb."""
    return Verb(CappingConfig, inputs, run_capping, preview)


def inputs(config: CappingConfig) -> list[Path]:
    """Return the files and folders that decide what is found."""
    stores = [*listed(config.calibration), *filter(None, [config.default, config.match])]
    files = [config.axis, *stores, *config.results]
    named = [*model_inputs(config), *paths_of(config.organisms), *readout_inputs(config.readouts)]
    return [*named, *map(Path, files), *sources(config.prompts)]


def preview(config: CappingConfig) -> Mapping[str, Any]:
    """Say what would be run, and refuse what cannot be; no model is loaded."""
    from workbench.pipelines.capped_fleet import Parts, pieces_of
    from workbench.readouts.ask import make_readout

    parts = Parts.of(config)
    results = read_sweeps(config, parts.axis.names[0])
    return {
        "members": config.members,
        "layers": config.layers,
        "monitor": parts.monitor,
        "dose": config.dose,
        "prompts": len(parts.prompts),
        "readouts": [make_readout(one).name for one in config.readouts],
        "units": len(pieces_of(config, parts)),
        "measurements": 0 if results is None else len(results),
    }


def run_capping(config: CappingConfig, work: Work) -> Mapping[str, Any]:
    """Do this process's units, and where all are done write tables, replies and the report."""
    from workbench.pipelines.capped_fleet import Fleet, Parts, digest_of, pieces_of

    parts = Parts.of(config)
    results = read_sweeps(config, parts.axis.names[0])  # mistakes cost no loading
    pieces = pieces_of(config, parts)
    units = Units(work.run, len(pieces), digest_of(config, parts))
    fleet = Fleet(config, parts, pieces, units)
    total = len(units.own())
    for number in sorted(units.lacking(), key=lambda unit: pieces[unit].member):
        fleet.do(number)
        if work.progress is not None:
            work.progress(total - len(units.lacking()), total)
    with units.joining() as complete:
        found = [units.load(number) for number in range(len(pieces))] if complete else None
    if found is None:
        return {"complete": False}
    return _conclude(config, parts, results, list(zip(pieces, found, strict=True)), work)


def read_sweeps(config: CappingConfig, direction: str) -> pd.DataFrame | None:
    """Join the sweeps' results; None where there are none.

    Raises:
        ConfigError: a sweep of another cap, or a contrast without its results.
    """
    from workbench.effects.capped import check_results

    if not config.results:
        if config.contrasts:
            raise ConfigError("contrasts are of readouts, so they need the results of sweeps")
        return None
    found = join_results(config.results)
    layers = ",".join(map(str, config.layers))
    wanted = {**SAME, "direction": direction, "layers": layers}
    for name, value in wanted.items():
        others = sorted(set(found[name].dropna().astype(str)) - {value})
        if others:
            raise ConfigError(
                f'results with {name} = {others[0]!r}; this cap has {value!r}: sweep edit = "cap", '
                f'unit = "percentile", layers = {config.layers}, doses = [{config.dose:g}]'
            )
    check_results(found, config.dose, config.contrasts)
    return found


def _conclude(
    config: CappingConfig,
    parts: Parts,
    results: pd.DataFrame | None,
    units: Sequence[tuple[Piece, Mapping[str, Any]]],
    work: Work,
) -> Mapping[str, Any]:
    """Write the tables and the report, and return what the run says of itself."""
    from workbench.effects.capped import behaviour
    from workbench.effects.curves import How
    from workbench.effects.displacement import displacement
    from workbench.effects.engagement import engagement
    from workbench.pipelines import capped_tables
    from workbench.pipelines.report_capping import REPORT, report

    how = How(seed=config.seed)
    engaged = engagement(capped_tables.counted(config, units), least=config.least, how=how)
    axis = parts.axis.at(parts.monitor)[0]
    placed = capped_tables.placed(config, units)
    tables = {
        "thresholds": capped_tables.floors(config, parts),
        "engagement": engaged,
        "displacement": displacement(
            placed, axis, placed[0].member.subject, parts.monitor, how=how
        ),
        "texts": capped_tables.texts(config, parts, units),
    }
    if results is not None:
        tables["behaviour"] = behaviour(
            results, config.dose, contrasts=config.contrasts, engaged=engaged,
            least=config.least, how=how,
        )  # fmt: skip
    for name in TABLES:
        if name in tables:
            save_frame(tables[name], work.run.path / f"{name}.parquet")
    write_bytes(work.run.path / REPORT, report(tables, config).encode())
    subjects = list(dict.fromkeys(one.member.subject for one in placed))
    told = {name: len(table) for name, table in tables.items()}
    return {"models": subjects, "monitor": parts.monitor, "dose": config.dose, "rows": told}
