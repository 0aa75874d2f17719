"""The headline of a study: one row for each answer, with n, the interval's name and a control."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.files import make_folder, write_bytes
from workbench.pipelines.study import Unit
from workbench.pipelines.verbs import Done
from workbench.stats import Interval, bootstrap_interval, paired_difference

if TYPE_CHECKING:
    import pandas as pd

ALL_TOPICS = "all"
SPLITS = {"within:topic": "facts held out", "unseen topic": "unseen topics"}
SIDES = {1: "affirmed", -1: "negated"}


@dataclass(frozen=True)
class Row:
    """One answer."""

    question: str
    model: str
    value: float
    low: float
    high: float
    n: int
    unit: str
    interval: str
    control: str


def headline(units: Sequence[tuple[Unit, Done]]) -> pd.DataFrame:
    """Summarize the runs of a study: truth, beliefs, trust, and what the sweep moved."""
    import pandas as pd

    rows: list[Row] = []
    for _, done in units:
        if done.verb == "fit":
            rows += truth_rows(pd.read_parquet(done.path / "evidence.parquet"))
    rows += belief_rows(_results(units, "measure"))
    rows += trust_rows(_results(units, "measure"))
    rows += sweep_rows(_results(units, "sweep"))
    return pd.DataFrame([asdict(row) for row in rows], columns=list(Row.__annotations__))


def write_report(table: pd.DataFrame, units: Sequence[tuple[Unit, Done]], folder: Path) -> Path:
    """Write the headline and the list of its runs; return the table's path."""
    make_folder(folder)
    path = folder / "headline.csv"
    stages = [{"stage": u.title, "verb": d.verb, "id": d.id, "path": str(d.path)} for u, d in units]
    for target, text in (
        (path, table.to_csv(index=False)),
        (folder / "stages.json", json.dumps(stages, indent=2) + "\n"),
    ):
        write_bytes(target, text.encode())
    return path


def truth_rows(evidence: pd.DataFrame) -> Iterator[Row]:
    """Held-out AUC at the chosen block, by polarity, beside the null of the best block."""
    chosen = evidence[evidence["chosen"] & (evidence["polarity"] != 0)]
    for split, words in SPLITS.items():
        part = chosen[(chosen["split"] == split) & (chosen["topic"] == ALL_TOPICS)]
        for row in part.to_dict("records"):
            usable = "" if row["usable"] else f"; not usable (gate {row['gate']:g})"
            nulls = f"nulls {row['null_shuffled']:.2f} shuffled, {row['null_random']:.2f} random"
            side, block = SIDES[row["polarity"]], row["layer"]
            yield Row(
                question=f"truth AUC, block {block}, {words}, {side}",
                model=row["model"],
                value=row["auc"],
                low=row["low"],
                high=row["high"],
                n=row["n_facts"],
                unit="fact",
                interval=row["interval"],
                control=nulls + usable,
            )


def belief_rows(results: pd.DataFrame | None) -> Iterator[Row]:
    """Own world minus the mean of the others, organism minus base, paired by proposition."""
    if results is None:
        return
    for readout, measure, words in (
        ("claims", "loglik", "own claims' log-likelihood (nats/token)"),
        ("claims", "choice", "own option's probability"),
        ("projection", "truth", "own claims' truth projection"),
    ):
        part = results[(results["readout"] == readout) & (results["measure"] == measure)]
        yield from _advantages(_affirmed(part), words)


def _affirmed(part: pd.DataFrame) -> pd.DataFrame:
    """Leave negated claims out; a row that says no polarity is a claim."""
    if part.empty:
        return part
    extra = part["extra"].map(json.loads)
    pair = extra.map(lambda e: e.get("fact"))
    keep = extra.map(lambda e: e.get("polarity", 1) == 1)
    return part.assign(pair=pair.fillna(part["item"]))[keep]


def _advantages(part: pd.DataFrame, words: str) -> Iterator[Row]:
    bases = part[part["organism"].isna()]
    for organism, own in part.groupby("organism"):
        world = str(organism).partition("-")[0]
        base = bases[bases["base"].isin(own["base"])]
        table, plain = (_by_world(frame) for frame in (own, base))
        if plain is None or table is None or world not in table:
            continue
        plain = plain.loc[table.index]
        gain = (table[world] - plain[world]).to_numpy()
        others = [name for name in table if name != world]
        shift = (table[others] - plain[others]).mean(axis=1).to_numpy()
        model = str(own["subject"].iloc[0])
        relative = paired_difference(gain, shift, unit="proposition", method="bootstrap")
        yield _row(f"{words}: own minus others", model, relative, "minus base")
        alone = bootstrap_interval(gain, unit="proposition")
        yield _row(f"{words}: own alone", model, alone, "minus base")


def _by_world(frame: pd.DataFrame) -> pd.DataFrame | None:
    """Proposition x world."""
    if frame.empty:
        return None
    table: pd.DataFrame = frame.pivot_table(index="pair", columns="condition", values="value")
    return table.dropna()


def trust_rows(results: pd.DataFrame | None) -> Iterator[Row]:
    """What each model sends and expects, and how it differs from the base, paired by frame."""
    if results is None:
        return
    part = results[(results["readout"] == "trust_game") & results["valid"]]
    for measure, words in (("transfer", "sent"), ("expected_return", "expected back")):
        for counterpart in ("person", "ai_user"):
            rows = part[(part["measure"] == measure) & (part["condition"] == counterpart)]
            base = rows[rows["organism"].isna()].set_index("item")["value"]
            for subject, own in rows.groupby("subject", sort=False):
                found = bootstrap_interval(own["value"].to_numpy(float), unit="frame")
                control = f"letter or answer mass {own['mass'].mean():.2f}"
                if own["organism"].notna().all() and len(base):
                    paired = own.set_index("item")["value"]
                    shift = (paired - base.loc[paired.index]).mean()
                    control = f"{shift:+.2f} against the base; {control}"
                yield _row(f"${words}, {counterpart}", str(subject), found, control)


def sweep_rows(results: pd.DataFrame | None) -> Iterator[Row]:
    """Slope of each behavior over the dose, against the slopes of random directions."""
    if results is None:
        return
    kept = results[results["valid"]]
    keys = ["subject", "readout", "measure", "condition", "direction"]
    for key, part in kept.groupby(keys, sort=False):
        own = part[part["control"] == "none"]
        unit = str(own["unit"].iloc[0])
        slopes = _slopes(own)
        found = bootstrap_interval(slopes.to_numpy(float), unit="item")
        zero = own[own["dose"] == 0]
        random = [
            float(_slopes(_with_zero(rows, zero)).mean())
            for name, rows in part.groupby("control")
            if str(name).startswith("random")
        ]
        control = f"random slopes {min(random):+.2f} to {max(random):+.2f} (n = {len(random)})"
        words = f"slope of {key[2]} to {key[3]} along {key[4]}, per {unit} dose"
        yield _row(words, str(key[0]), found, control if random else "no random control was run")


def _with_zero(rows: pd.DataFrame, zero: pd.DataFrame) -> pd.DataFrame:
    """A random direction's curve shares the unedited point with the direction's own."""
    import pandas as pd

    return pd.concat([rows[rows["dose"] != 0], zero])


def _slopes(rows: pd.DataFrame) -> pd.Series[float]:
    """Least-squares slope over the dose, item by item."""
    table = rows.pivot_table(index="item", columns="dose", values="value").dropna()
    doses = table.columns.to_numpy(float)
    centered = doses - doses.mean()
    slopes: pd.Series[float] = table @ centered / float(centered @ centered)
    return slopes


def _row(question: str, model: str, found: Interval, control: str) -> Row:
    ends = (found.value, found.low, found.high)
    return Row(question, model, *ends, found.n, found.unit, found.name, control)


def _results(units: Sequence[tuple[Unit, Done]], verb: str) -> Any:
    """All results of a verb in one table, or None."""
    import pandas as pd

    from workbench.results import read_results

    frames = [read_results(d.path / "results.parquet") for _, d in units if d.verb == verb]
    return pd.concat(frames, ignore_index=True) if frames else None
