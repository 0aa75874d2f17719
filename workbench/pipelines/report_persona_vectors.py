"""What a study says of persona vectors: whether they are there, what they foretell, what moved.

Where a run holds several blocks, the middle one of them is told; all stand in its tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.pipelines.report_many import Candidate, shortened
from workbench.pipelines.report_truth import Row
from workbench.stats import mean_interval

if TYPE_CHECKING:
    import pandas as pd

    from workbench.pipelines.study import Unit
    from workbench.pipelines.verb import Done

Result = Mapping[str, Any]
"""What a run says of itself."""


def persona_vector_rows(units: Sequence[tuple[Unit, Done]]) -> Iterator[Row]:
    """Give the rows of every run of persona vectors, in the order of the study."""
    counts = Counter(done.verb for _, done in units)
    for unit, done in units:
        label = f"{unit.title}: " if counts[done.verb] > 1 else ""
        for name, rows in TABLES.get(done.verb, {}).items():
            if (done.path / name).exists():
                for row in rows(done.result, _middle(done.path / name)):
                    yield replace(row, question=label + row.question, stage=unit.stage)


def _middle(path: Path) -> pd.DataFrame:
    """Read a table at the middle one of its blocks."""
    import pandas as pd

    table = pd.read_parquet(path)
    layers = sorted(table["layer"].unique())
    middle: pd.DataFrame = table[table["layer"] == layers[len(layers) // 2]]
    return middle


def _vectors(result: Result, checks: pd.DataFrame) -> Iterator[Row]:
    """Tell how alike the vectors of two halves of the rollouts are, over traits."""
    for read, part in checks.groupby("read", sort=False):
        halves = part["halves"].dropna().to_numpy(float)
        if not len(halves):
            continue
        beyond = int((part["length"] > part["null"]).sum())
        control = (
            f"{beyond} of {len(part)} are longer than 95% of the vectors of swapped poles; "
            f"judge: {part['judge'].iloc[0]}; {result['rule']}"
        )
        question = f"cosine of trait vectors from two halves of their pairs, {read}, {_at(part)}"
        yield _over_traits(question, str(result["model"]), halves, control)


def _monitored(result: Result, table: pd.DataFrame) -> Iterator[Row]:
    """Tell the correlation before the answer, mean over traits."""
    for within, part in table.groupby("within", sort=False):
        target = "score of the answer" if part["target"].iloc[0] == "score" else "pole"
        inner = f"within each {within!s}" if within else "over all prompts"
        question = f"correlation of the last prompt token with the {target}, {inner}, {_at(part)}"
        control = (
            f"random directions {part['random'].mean():.2f} (95%), other traits "
            f"{part['others'].mean():.2f}; questions {part['questions'].iloc[0]}; "
            f"judge: {part['judge'].iloc[0]}"
        )
        yield _over_traits(
            question, str(result["model"]), part["correlation"].to_numpy(float), control
        )


def _shifted(_: Result, table: pd.DataFrame) -> Iterator[Row]:
    """Tell how far each organism was moved: the mean over its seeds where there are several."""
    means = table[table["length"].isna()]
    single = table[~table["organism"].isin(means["organism"]) & table["length"].notna()]
    models: dict[str, list[Candidate]] = {}
    for row in [*means.to_dict("records"), *single.to_dict("records")]:
        own = table[(table["organism"] == row["organism"]) & table["length"].notna()]
        own = own[own["direction"] == row["direction"]]
        bands = float(own["random"].mean()), float(own["covariance"].mean())
        told = f"random {bands[0]:.2f}, covariance-matched {bands[1]:.2f}"
        question = f"change along {row['direction']} by finetuning, last prompt token, {_at(table)}"
        said = _row(question, row["model"], row["shift"], row, f"95% of |change|: {told}")
        size = abs(said.value)
        models.setdefault(said.model, []).append(Candidate(said, size, size > max(bands)))
    for many in models.values():
        yield from shortened(many, "beyond both bands", "shift.parquet")


def _screened(result: Result, table: pd.DataFrame) -> Iterator[Row]:
    """Tell what each corpus has more of than the control, or else than the model's own answers."""
    over = table[table["against"] != "own answers"]
    table = over if len(over) else table
    corpora: dict[str, list[Candidate]] = {}
    for row in table.to_dict("records"):
        question = f"{row['corpus']} minus {row['against']} along {row['direction']}, {_at(table)}"
        control = f"random direction {row['random']:.2f} (95%)"
        if row["against"] != "own answers":
            ends = f"[{row['above_low']:.2f}, {row['above_high']:.2f}]"
            control = f"its documents rank above with probability {row['above']:.2f} {ends}"
        said = _row(question, str(result["model"]), row["difference"], row, control)
        beyond = said.low > 0 or said.high < 0
        corpora.setdefault(row["corpus"], []).append(Candidate(said, abs(said.value), beyond))
    for many in corpora.values():
        yield from shortened(many, "with an interval without zero", "corpora.parquet")


def _followed(result: Result, table: pd.DataFrame) -> Iterator[Row]:
    """Tell the drift along conversations."""
    for row in table.to_dict("records"):
        question = f"slope along {row['direction']} per assistant turn, {_at(table)}"
        outside = result.get("outside")
        told = "" if outside is None else f"; {outside:.0%} of turns outside the reference"
        control = f"turns in random order {row['band']:.2f} (95%){told}"
        yield _row(question, str(result["model"]), row["slope"], row, control)


def _left(result: Result, table: pd.DataFrame) -> Iterator[Row]:
    """Tell how much of a direction is left without others."""
    found = []
    for row in table[table["n_removed"] > 0].to_dict("records"):
        question = f"share of {row['direction']} left without {row['removed']}, {_at(table)}"
        control = f"a random direction keeps {row['random']:.3f}"
        named = {"low": nan, "high": nan, "n": 1, "unit": "direction", "interval": "none: exact"}
        said = _row(question, str(result["model"]), row["retained"], named, control)
        less = said.value < float(row["random"])
        found.append(Candidate(said, 1 - said.value, less))
    yield from shortened(found, "less than a random direction", "retained.parquet", "least")


TABLES: dict[str, dict[str, Callable[[Result, Any], Iterator[Row]]]] = {
    "personas": {"checks.parquet": _vectors},
    "monitor": {"monitor.parquet": _monitored},
    "shift": {"shift.parquet": _shifted},
    "screen": {"corpora.parquet": _screened},
    "drift": {"trend.parquet": _followed},
    "combine": {"retained.parquet": _left},
}
"""The table of each verb that is told, and how."""


def _at(table: pd.DataFrame) -> str:
    return f"block {int(table['layer'].iloc[0])}"


def _over_traits(
    question: str, model: str, values: np.ndarray[Any, np.dtype[np.float64]], control: str
) -> Row:
    found = mean_interval(values, unit="trait")
    ends = (found.value, found.low, found.high)
    return Row(question, model, *ends, found.n, found.unit, found.name, control)


def _row(question: str, model: str, value: float, told: dict[Any, Any], control: str) -> Row:
    ends = (float(value), float(told["low"]), float(told["high"]))
    return Row(question, model, *ends, int(told["n"]), told["unit"], told["interval"], control)
