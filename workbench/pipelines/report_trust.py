"""What a trust run says, as a page of tables and as rows of a study's headline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.files import write_bytes
from workbench.pipelines.report_truth import Row
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done
from workbench.runs import read_result

if TYPE_CHECKING:
    import pandas as pd

    from workbench.pipelines.trust import Judged

REPORT = "report.md"
OWN, ALL = "none", "all"
STATISTICS = {
    "slope": "slope of the margin (nats a token and dose)",
    "slope_minus_shuffled": "slope minus that of shuffled labels",
    "slope_minus_random": "slope minus the mean of random matrices",
    "steps": "share of dose steps that rise",
    "smallest_step": "the smallest step",
}


def write_report(found: Judged, folder: Path) -> None:
    """Write report.md."""
    write_bytes(folder / REPORT, as_page(found).encode())


def as_page(found: Judged) -> str:
    """Lay the tables out as Markdown: margins, accuracy, monotonicity, displacement, transfer."""
    from workbench.effects.scenarios import RULE

    own = found.margin[found.margin["control"] == OWN]
    first = own.iloc[0]
    parts = [
        f"# Trust steering of {', '.join(found.models)}",
        f"Margins are log-odds of the trusting reply over the distrusting one in nats a token, on "
        f"{int(own.loc[own['facet'] == ALL, 'n_items'].max())} held-out pairs. Intervals: "
        f"{first['interval']} (n = {first['n']} {first['unit']}s for all facets). {RULE} A dose "
        "counts in multiples of the matrix; 0 is no edit.",
        _scopes(found),
        _warned(found),
        "## Margin by dose",
        "At dose 0 the margin itself with its interval over scenarios; elsewhere the paired change "
        "from it.",
        _grid(_by_dose(found.margin, "mean", 3)),
        "## Held-out accuracy by dose",
        _grid(_by_dose(found.facets, "accuracy", 2)),
        "## Monotonicity",
        _grid(_monotone(found.monotone)),
    ]
    if len(found.displacement):
        parts += [
            "## Likelihood of each reply, change from dose 0 (nats a token)",
            "Where both fall, an edit pushes both replies down.",
            _grid(_displaced(found.displacement)),
        ]
    if len(found.transfer):
        name = str(found.transfer["interval"].iloc[0])
        told = f"Intervals: {name}, the frames of the game, and not over scenarios."
        parts += ["## Trust game, change from dose 0", told, _grid(_moved(found.transfer))]
    if len(found.blocks):
        parts += ["## Matrices", _grid(_matrices(found.blocks))]
    return "\n\n".join(part for part in parts if part) + "\n"


def margin_rows(units: Sequence[tuple[Unit, Done]]) -> Iterator[Row]:
    """Yield a headline's rows: what each trust run of a study found."""
    for unit, done in units:
        if done.verb == "trust":
            for row in run_rows(done.path, str(read_result(done.path)["model"])):
                yield replace(row, stage=unit.stage)


def run_rows(folder: Path, model: str) -> Iterator[Row]:
    """Yield each method's slope, with what stands beside it."""
    import pandas as pd

    table = pd.read_parquet(folder / "monotone.parquet")
    for method, rows in table[table["facet"] == ALL].groupby("method", sort=False):
        own = rows[(rows["control"] == OWN) & (rows["statistic"] == "slope")]
        slope, named = own.to_dict("records")[0], str(method).replace("_", " ")
        yield Row(
            question=f"slope of the trust margin, {named}, per multiple of the matrix",
            model=model,
            value=float(slope["value"]),
            low=float(slope["low"]),
            high=float(slope["high"]),
            n=int(slope["n"]),
            unit=str(slope["unit"]),
            interval=str(slope["interval"]),
            control=_control(rows),
        )


def _control(rows: pd.DataFrame) -> str:
    slopes = rows[rows["statistic"] == "slope"]
    random = slopes.loc[slopes["control"].str.startswith("random:"), "value"]
    told = []
    for row in slopes[slopes["control"] == "shuffled"].to_dict("records"):
        told.append(f"shuffled labels {row['value']:+.3f} {_span(row['low'], row['high'], '+.3f')}")
    if len(random):
        told.append(f"random {random.min():+.3f} to {random.max():+.3f} (n = {len(random)})")
    return "; ".join(told) or "no control was run"


def _scopes(found: Judged) -> str:
    """Say of each method where it acted; another place than it was trained on is told."""
    lines = []
    for method, (scope, trained) in found.scopes.items():
        other = f", though it was trained on `{trained}`" if trained not in ("", scope) else ""
        lines.append(f"- {method.replace('_', ' ')} acts on `{scope}`{other}")
    return "\n".join(lines)


def _warned(found: Judged) -> str:
    """Say where what was swept is not of scenarios of its own."""
    return "\n".join(
        f"**{seen} of {of} {kind} are of scenarios whose other pairs are trained on**: what they "
        "say may be too kind; write the corpus again, or give held-out rows other scenarios."
        for kind, (seen, of) in found.seen.items()
        if seen
    )


def _by_dose(table: pd.DataFrame, value: str, digits: int) -> list[list[str]]:
    """Return one line a method, control and facet; random matrices as their range."""
    doses = sorted(table["dose"].unique())
    heads = [f"{dose:+g}" if dose else "0" for dose in doses]
    lines = [["method", "control", "facet", *heads, "n"]]
    kind = table["control"].str.partition(":")[0]
    for (method, control, facet), rows in table.groupby(
        [table["method"], kind, table["facet"]], sort=False
    ):
        if control == "random" and facet != ALL:
            continue
        cells = [_at(rows[rows["dose"] == dose], value, digits) for dose in doses]
        named = [str(method).replace("_", " "), str(control), str(facet)]
        lines.append([*named, *cells, _units(rows)])
    return lines


def _at(rows: pd.DataFrame, value: str, digits: int) -> str:
    if rows.empty:
        return ""
    if len(rows) > 1:
        sign, column = ("+", "change") if value == "mean" else ("", value)
        low, high = rows[column].min(), rows[column].max()
        return f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}"
    row = rows.iloc[0]
    form = f".{digits}f"
    if value == "mean" and row["dose"]:
        moved = _span(row["change_low"], row["change_high"], f"+{form}")
        return f"{row['change']:+{form}} {moved}"
    return f"{row[value]:{form}} {_span(row['low'], row['high'], form)}"


def _span(low: float, high: float, form: str) -> str:
    return "(no interval)" if low != low else f"[{low:{form}}, {high:{form}}]"


def _units(rows: pd.DataFrame) -> str:
    """Return how many units stand behind a line, the fewest and the most of its numbers."""
    low, high = int(rows["n"].min()), int(rows["n"].max())
    return f"{low if low == high else f'{low} to {high}'} {rows['unit'].iloc[0]}s"


def _monotone(table: pd.DataFrame) -> list[list[str]]:
    lines = [["method", "control", "facet", "statistic", "value", "p", "n"]]
    kept = table[~table["control"].str.startswith("random:")]
    for row in kept[kept["statistic"].isin(list(STATISTICS))].to_dict("records"):
        if row["facet"] != ALL and row["statistic"] not in ("slope", "steps"):
            continue
        ends = f"{row['value']:.3f} {_span(row['low'], row['high'], '.3f')}"
        method = str(row["method"]).replace("_", " ")
        told = [ends, _p(row["p"], row["test"]), f"{row['n']} {row['unit']}s"]
        lines.append([method, row["control"], row["facet"], STATISTICS[row["statistic"]], *told])
    return lines


def _p(value: float, test: str) -> str:
    """Write a p; where there is none, ``test`` says why."""
    if value != value:
        return test
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _displaced(table: pd.DataFrame) -> list[list[str]]:
    kept = table[(table["control"] == OWN) & table["facet"].isin([ALL, "neutral"])]
    doses = sorted(kept["dose"].unique())
    lines = [["method", "reply", *(f"{dose:+g}" for dose in doses), "n"]]
    for (method, facet, side), rows in kept.groupby(["method", "facet", "side"], sort=False):
        name = "neutral" if facet == "neutral" else str(side)
        cells = [_at(rows[rows["dose"] == dose], "change", 3) for dose in doses]
        lines.append([str(method).replace("_", " "), name, *cells, _units(rows)])
    return lines


def _moved(table: pd.DataFrame) -> list[list[str]]:
    kept = table[table["control"].isin([OWN, "shuffled"]) & (table["dose"] != 0)]
    lines = [[
        "method", "control", "measure", "to", "dose", "change", "random reach to", "mass", "n",
    ]]  # fmt: skip
    for row in kept.to_dict("records"):
        ends = f"{row['change']:+.2f} {_span(row['low'], row['high'], '+.2f')}"
        names = [str(row[key]).replace("_", " ") for key in ("method", "control", "measure")]
        lines.append([
            *names, str(row["condition"]), f"{row['dose']:+g}", ends, f"{row['band']:.2f}",
            f"{row['mass']:.2f}", f"{row['n']} {row['unit']}s",
        ])  # fmt: skip
    return lines


def _matrices(table: pd.DataFrame) -> list[list[str]]:
    lines = [[
        "method", "control", "blocks", "largest norm", "at block", "largest share of the norm",
        "mean cosine with the block below", "mean cosine with the baseline",
    ]]  # fmt: skip
    for (method, control), rows in table.groupby(["method", "control"], sort=False):
        top = rows.iloc[int(rows["norm"].argmax())]
        lines.append([
            str(method).replace("_", " "), str(control), str(len(rows)), f"{top['norm']:.3g}",
            str(int(top["layer"])), f"{rows['share'].max():.3g}",
            f"{rows['cosine_below'].mean():.2f}", f"{rows['cosine_other'].mean():.2f}",
        ])  # fmt: skip
    return lines


def _grid(lines: Sequence[Sequence[Any]]) -> str:
    head, *rest = lines
    rows = [list(head), ["---"] * len(head), *map(list, rest)]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
