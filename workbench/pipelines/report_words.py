"""What a reader is told of blocks, doses and fits, in the words of the docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

DOSES = {
    "raw": ("multiple of the stored vector", "multiples of the stored vector"),
    "norm": ("mean residual norm", "mean residual norms"),
    "gap": ("natural gap", "natural gaps"),
    "percentile": ("percentile of the calibration", "percentiles of the calibration"),
}
"""What one dose is, and what several are, by the unit of a sweep."""


def blocks(layers: object) -> str:
    """Write the blocks of a results table, such as "0,1,2,9", with their runs as "0-2,9"."""
    text = "" if layers is None or layers != layers else str(layers)
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        return text
    runs: list[list[int]] = []
    for layer in map(int, parts):
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def at_blocks(layers: object) -> str:
    """Say where: "block 9", "blocks 0-28"."""
    told = blocks(layers)
    return f"block {told}" if told.isdigit() else f"blocks {told}"


def with_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Write the runs of the blocks of a table that a person reads; its file keeps every block."""
    return table.assign(layers=table["layers"].map(blocks)) if "layers" in table else table


def one_dose(unit: object, edit: object) -> str:
    """Say what a dose of 1 is."""
    return _dose(unit, edit)[0]


def many_doses(unit: object, edit: object) -> str:
    """Say what doses are counted in."""
    return _dose(unit, edit)[1]


def _dose(unit: object, edit: object) -> tuple[str, str]:
    """Of edits other than ``add`` a raw dose is a share of the whole edit."""
    if unit == "raw" and edit != "add":
        named = str(edit).replace("_", " ")
        return f"whole edit ({named})", f"whole edits ({named})"
    return DOSES.get(str(unit), (f"{unit} dose", f"{unit} doses"))


@dataclass(frozen=True)
class Fitted:
    """What the items of a fit are called."""

    group: str = "topic"
    """What is left out of the fit to be checked."""
    unit: str = "fact"
    """What is split and resampled."""

    def unit_of(self, interval: str) -> str:
        """Return what was resampled, which are items where no column says which belong together."""
        return "item" if interval.endswith(("items", "1 item")) else self.unit

    def interval(self, name: str) -> str:
        """Return an interval's name with the unit's own: evidence tables once said fact of all."""
        return name.replace("facts", f"{self.unit}s")


UNKNOWN = Fitted("group", "unit")
"""Where fits of several recipes stand in one table, or a recipe of one's own is gone."""


def fitted_of(run: Path) -> Fitted:
    """Read from the settings of a run of fits what its items are called."""
    from workbench.errors import ConfigError
    from workbench.runs import read_run

    if not (run / "run.json").exists():
        return Fitted()
    config = read_run(run).config
    jobs = config.get("job") or [config]
    try:
        found = {_columns(job, recipe) for job in jobs for recipe in _listed(job.get("recipe"))}
    except ConfigError:
        return UNKNOWN
    return found.pop() if len(found) == 1 else UNKNOWN


def _columns(job: Mapping[str, Any], recipe: str) -> Fitted:
    from workbench.directions.recipe import read_recipe

    fit = read_recipe(recipe).fit
    return Fitted(job.get("groups") or fit.groups, job.get("facts") or fit.facts)


def _listed(value: Any) -> list[str]:
    return [value or "truth"] if not isinstance(value, list) else value
