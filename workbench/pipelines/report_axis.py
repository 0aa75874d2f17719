"""What a study says of the Assistant Axis: rollouts, axis, floors, organisms among personas.

One block is told, the one that the axis run chose beforehand; all stand in its tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.pipelines.report_truth import Row

if TYPE_CHECKING:
    import pandas as pd

    from workbench.pipelines.study import Unit
    from workbench.pipelines.verb import Done

RELEASED = 25.0
"""Percentile along role minus default of the released caps."""
SHOWN = 3
"""Roles, and traits, with the largest cosines."""


def axis_rows(units: Sequence[tuple[Unit, Done]]) -> Iterator[Row]:
    """Give the rows of every run of rollouts, of the axis and of cosines, in order."""
    for unit, done in units:
        for row in _told(unit, done):
            yield replace(row, stage=unit.stage)


def _told(unit: Unit, done: Done) -> Iterator[Row]:
    if done.verb == "rollout" and "answers" in done.result:
        yield _written(unit, done.result)
    elif done.verb == "axis":
        yield from _axis(done)
    elif done.verb == "cosines":
        yield from _cosines(done)


def _written(unit: Unit, result: Mapping[str, Any]) -> Row:
    """Tell how many answers there are, and what became of all."""
    told = ", ".join(f"{count:,} {reason}" for reason, count in result["answers"].items())
    n = int(result["n"])
    return Row(
        question=f"{unit.title}: share of chats with an answer",
        model=str(result["model"]), value=result["written"] / n, low=math.nan, high=math.nan,
        n=n, unit="chat", interval="none: a count", control=f"none; {told}",
    )  # fmt: skip


def _axis(done: Done) -> Iterator[Row]:
    result = done.result
    layer, judged = int(result["layer"]), judge_told(result)
    whole = _table(done.path / "pc1.parquet")
    row = _only(whole[whole["layer"] == layer])
    told = f"cosine of the axis with the roles' first component, block {layer}"
    chance = (
        f"each role in the Assistant's place: mean {row['control']:.2f}, 95% point "
        f"{row['control_high']:.2f}; the component has {row['explained']:.0%} of the variance; "
        f"lowest over blocks {whole['cosine'].min():.2f}, highest {whole['cosine'].max():.2f}"
    )
    yield _row(told, result, row, "cosine", f"{chance}; {judged}")
    floors = _table(done.path / "thresholds.parquet")
    floors = floors[(floors["layer"] == layer) & (floors["percentile"] == RELEASED)]
    if len(floors):
        row = _only(floors)
        place = "near it" if row["near"] else "not near it, so the cap would hold something else"
        control = (
            f"the default Assistant lies at {row['default']:.3g}, {abs(row['apart']):.2f} standard "
            f"deviations of the {row['rollouts']:,} rollouts away: {place}; {judged}"
        )
        told = f"floor of a cap at {RELEASED:g}% along role minus default, block {layer}"
        yield _row(told, result, row, "floor", control)


def _cosines(done: Done) -> Iterator[Row]:
    """Tell the largest cosine of each bank beside every band, and what else passes all bands."""
    table, largest = _at_layer(done), largest_cosines(done)
    shown = largest[largest["passes"] | ~largest["bank"].duplicated()]
    for row in shown.to_dict("records"):
        bank = table[table["bank"] == row["bank"]]
        own = bank[bank["second"] == row["second"]]
        bands = ", ".join(
            f"{null_told(str(name))} {band:.2f}"
            for name, band in zip(own["null"], own["band"], strict=True)
        )
        passed = bank.groupby("second")["beyond"].all()
        verdict = "passes all" if row["passes"] else "does not pass all"
        share = f"{int(passed.sum())} of {len(passed)} pass all"
        control = f"bands {bands}: {verdict}; {share}; {_who(done.result.get('judge'))}"
        told = f"cosine of {row['first']} with {row['bank']} {row['second']}, block {row['layer']}"
        found = _row(told, done.result, {str(k): v for k, v in row.items()}, "cosine", control)
        yield replace(found, planned=False)


def largest_cosines(done: Done) -> pd.DataFrame:
    """Return the largest cosines of each bank at the block that is told.

    Returns:
        Rows bank, first, second, layer, cosine, low, high, n, unit, interval, band (the widest),
        passes (all bands).
    """
    import pandas as pd

    parts = []
    for bank, part in _at_layer(done).groupby("bank", sort=False):
        every = part.groupby("second").agg(band=("band", "max"), passes=("beyond", "all"))
        rows = part.drop_duplicates("second").drop(columns="band")
        rows = rows.merge(every, on="second").assign(bank=bank)
        parts.append(rows.loc[rows["cosine"].abs().sort_values(ascending=False).index[:SHOWN]])
    return pd.concat(parts, ignore_index=True)[[
        "bank", "first", "second", "layer", "cosine", "low", "high", "n", "unit", "interval",
        "band", "passes",
    ]]  # fmt: skip


def null_told(name: str) -> str:
    """Return a null's name without what its band is the quantile of."""
    return name.replace("isotropic, closed", "closed").partition(",")[0]


def _at_layer(done: Done) -> pd.DataFrame:
    """Read the cosines of the direction over all seeds at the block that the axis run chose."""
    table = _table(done.path / "cosines.parquet")
    layers = sorted(table["layer"].unique())
    layer = done.result.get("layer")
    layer = layers[len(layers) // 2] if layer is None else layer
    own: pd.DataFrame = table[table["first"] == done.result["direction"]]
    at: pd.DataFrame = own[own["layer"] == layer]
    return at


def judge_told(result: Mapping[str, Any]) -> str:
    """Say who judged the rollouts of roles, and by which rule they counted."""
    return f"{_who(result['judges']['role'])}: {result['rule']}"


def _who(judge: str | None) -> str:
    return "nobody judged" if judge == "none" else f"judged by {judge or 'unstated'}"


def _row(
    question: str, result: Mapping[str, Any], row: Mapping[str, Any], value: str, control: str
) -> Row:
    model = result.get("model") or " ".join(result["between"])
    return Row(
        question=question, model=str(model), value=float(row[value]), low=float(row["low"]),
        high=float(row["high"]), n=int(row["n"]), unit=str(row["unit"]),
        interval=str(row["interval"]), control=control,
    )  # fmt: skip


def _table(path: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(path)


def _only(rows: pd.DataFrame) -> dict[str, Any]:
    (row,) = rows.to_dict("records")
    return {str(name): value for name, value in row.items()}
