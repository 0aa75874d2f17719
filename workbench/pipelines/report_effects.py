"""What a sweep's doses did, as tables: slopes with verdicts, controls, prompts, doses, guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.effects import GUARDS, How, judge, sensitivity
from workbench.files import write_bytes
from workbench.pipelines.report_words import with_runs
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done
from workbench.results import read_results
from workbench.runs import read_result

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("slopes", "controls", "prompts", "doses", "sensitivity")
WHO = ("direction", "edit", "layers", "dose_unit")
WHAT = ("readout", "measure", "condition")


@dataclass(frozen=True)
class Effects:
    """The tables of one sweep."""

    slopes: pd.DataFrame
    controls: pd.DataFrame
    prompts: pd.DataFrame
    """What prompting baselines change."""
    doses: pd.DataFrame
    """Realised shift and guards at each dose of the directions themselves."""
    sensitivity: pd.DataFrame
    """Empty where no dose was swept with both signs."""
    endpoint: float | None

    def text(self) -> str:
        """Lay the tables out for a terminal; what all rows share stands above them once."""
        found = self.slopes
        told = [
            ", ".join(dict.fromkeys(map(str, found[name]))) for name in ("interval", "band_name")
        ]
        parts = [
            f"slopes over guarded doses ({told[0]}; band: {told[1]})",
            _lines(found, [*WHO, *WHAT, "slope", "low", "high", "n", "unit", "band", "monotone",
                           "share_of_gap", "verdict"]),
            "\ndoses, with what the guards saw",
            _lines(self.doses, list(self.doses.columns)),
        ]  # fmt: skip
        more = ["n", "unit", "low", "high"]
        if len(self.controls):
            columns = ["direction", "control", *WHAT, "slope", *more]
            parts += ["\ncontrols: the same slopes", _lines(self.controls, columns)]
        if len(self.prompts):
            columns = ["direction", "control", *WHAT, "change", *more, "guarded"]
            parts += ["\nprompts that ask for the same", _lines(self.prompts, columns)]
        if len(self.sensitivity):
            parts += [f"\nlargest change at doses -{self.endpoint:g} and {self.endpoint:g}",
                      _lines(self.sensitivity, list(self.sensitivity.columns))]  # fmt: skip
        return "\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints; NaN is null."""
        tables = {name: getattr(self, name) for name in TABLES}
        plain = {k: t.astype(object).where(t.notna(), None) for k, t in tables.items()}
        return {k: t.to_dict("records") for k, t in plain.items()} | {"endpoint": self.endpoint}


def effects_of(
    results: str | Path | pd.DataFrame,
    *,
    measured: pd.DataFrame | None = None,
    gap: Mapping[str, Any] | None = None,
    endpoint: float | None = None,
    unit: str = "item",
) -> Effects:
    """Judge a sweep.

    Args:
        results: a run folder, its table's file, or the table.
        measured: what the two sides of the natural gap do by themselves, for the share of the
            organisms' own gap that a dose closes.
        gap: the sweep's natural gap, as its run tells it.
        endpoint: dose of the sensitivity table; by default the largest swept with both signs.
        unit: the column that is resampled where there are no training seeds.

    Raises:
        ConfigError: no rows with a dose, or no such unit or endpoint.
        FormatError: no results there.
    """
    frame = read_results(results) if isinstance(results, str | Path) else results
    judged = judge(frame, gaps=_gaps(measured, gap), how=How(unit=unit))
    found = judged.changes
    if endpoint is None:
        endpoint = _largest(found)
    return Effects(
        slopes=judged.slopes,
        controls=judged.controls,
        prompts=found[found["control"].str.startswith("prompt:")].reset_index(drop=True),
        doses=_doses(found),
        sensitivity=_sensitivity(found, endpoint),
        endpoint=endpoint,
    )


def study_effects(units: Sequence[tuple[Unit, Done]]) -> Iterator[tuple[str, Effects]]:
    """Judge every sweep among the runs of a study, the measured organisms at hand."""
    import pandas as pd

    own = [read_results(done.path) for _, done in units if done.verb == "measure"]
    measured = pd.concat(own, ignore_index=True) if own else None
    for unit, done in units:
        if done.verb == "sweep":
            gap = read_result(done.path).get("gap")
            yield unit.title, effects_of(done.path, measured=measured, gap=gap)


def write_effects(found: Mapping[str, Effects], folder: Path) -> list[Path]:
    """Write one CSV for each kind of table, the sweeps below one another, by stage."""
    import pandas as pd

    paths = []
    for name in TABLES:
        frames = [getattr(one, name).assign(stage=stage) for stage, one in found.items()]
        kept = [frame for frame in frames if len(frame)]
        if kept:
            table = pd.concat(kept, ignore_index=True)
            table.insert(0, "stage", table.pop("stage"))
            paths.append(folder / f"{name}.csv")
            write_bytes(paths[-1], table.to_csv(index=False).encode())
    return paths


def _largest(found: pd.DataFrame) -> float | None:
    doses = set(found.loc[found["control"] == "none", "dose"].dropna())
    both = [float(dose) for dose in doses if dose > 0 and -dose in doses]
    return max(both, default=None)


def _sensitivity(found: pd.DataFrame, endpoint: float | None) -> pd.DataFrame:
    """Return the table with one column a readout, named readout.measure.condition."""
    import pandas as pd

    if endpoint is None:
        return pd.DataFrame()
    table = sensitivity(found, endpoint)
    table.columns = pd.Index([".".join(map(str, column)) for column in table.columns])
    return table.reset_index()


def _doses(found: pd.DataFrame) -> pd.DataFrame:
    """Return one row a direction and dose: shift, the guards' means, whether all were kept."""
    own = found[(found["control"] == "none") & found["dose"].notna()]
    keys = [*WHO, "dose"]
    table = own.groupby(keys, sort=False)[["realised", "realised_gap", "guarded"]].first()
    table["mass"] = own.groupby(keys, sort=False)["mass"].min()
    for guard in GUARDS:
        rows = own[(own["readout"] == guard.readout) & (own["measure"] == guard.measure)]
        if len(rows):
            table[guard.measure] = rows.groupby(keys, sort=False)["value"].mean()
    return table.reset_index().sort_values(keys, ignore_index=True)


def _gaps(
    measured: pd.DataFrame | None, gap: Mapping[str, Any] | None
) -> dict[tuple[str, str, str], float]:
    """Return how far the two sides of the gap lie apart on each readout, first minus second."""
    if measured is None or gap is None or not gap["clear"]:
        return {}
    kept = measured[measured["valid"].astype(bool)]
    sides = [kept[kept["subject"].isin(gap[side].split(", "))] for side in ("first", "second")]
    first, second = (side.groupby(list(WHAT))["value"].mean() for side in sides)
    apart = (first - second).dropna()
    keys = zip(*(map(str, apart.index.get_level_values(name)) for name in WHAT), strict=True)
    return dict(zip(keys, map(float, apart), strict=True))


def _lines(table: pd.DataFrame, columns: Sequence[str]) -> str:
    """Lay out columns, without those in which every row says the same of the intervention."""
    table = with_runs(table)
    shown = [c for c in columns if c not in WHO[1:] or table[c].nunique() > 1]
    if "unit" in shown and table["unit"].nunique() == 1:
        shown.remove("unit")
        table = table.rename(columns={"n": f"n {table['unit'].iloc[0]}s"})
        shown = [f"n {table['unit'].iloc[0]}s" if c == "n" else c for c in shown]
    return str(table[shown].to_string(index=False, float_format=_number, na_rep="-"))


def _number(value: float) -> str:
    return f"{value:.3g}"
