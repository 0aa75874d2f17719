"""The headline of a study: one row for each answer, with n, the interval's name and a control."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.directions.own_world import own_world_table
from workbench.files import make_folder, write_bytes
from workbench.pipelines.report_axis import axis_rows
from workbench.pipelines.report_emotion import emotion_rows
from workbench.pipelines.report_many import Candidate, shortened
from workbench.pipelines.report_persona_vectors import persona_vector_rows
from workbench.pipelines.report_trust import margin_rows
from workbench.pipelines.report_truth import Row, frozen_rows, truth_rows
from workbench.pipelines.study import Unit
from workbench.pipelines.sweeping import GUARDS
from workbench.pipelines.verb import Done
from workbench.stats import Interval, bootstrap_interval

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

EVIDENCE = "evidence.parquet"

SHOWN = {
    "own_world_advantage_minus_base": "own minus others, minus base",
    "own_change_minus_other_change": "change under negation, own minus others",
}
"""Contrasts of a headline; a belief makes the first positive, the second negative."""
BELIEFS = {
    ("claims", "loglik"): "claims' log-likelihood (nats/token)",
    ("claims", "choice"): "option's probability",
}
DIFFERENCES = ("minus", "slope", "change")
"""Words of questions whose answers are differences, so that their sign is printed."""
TABLE = "slopes.csv, over guarded doses"
TRUST = {
    ("transfer", "person"): "dollars of 10 sent to a person",
    ("transfer", "ai_user"): "dollars of 10 sent to a user of AI assistants",
    ("expected_return", "person"): "dollars of 30 expected back from a person",
}


def headline(units: Sequence[tuple[Unit, Done]]) -> pd.DataFrame:
    """Summarize the runs of a study: truth, beliefs, trust, and what the sweep moved."""
    import pandas as pd

    rows: list[Row] = []
    fits = [(unit, done) for unit, done in units if (done.path / EVIDENCE).exists()]
    fits = [(unit, done) for unit, done in fits if done.verb == "fit"]
    for unit, done in fits:
        found = truth_rows(pd.read_parquet(done.path / EVIDENCE))
        label = f"{unit.title}: " if len(fits) > 1 else ""
        rows += [replace(row, question=label + row.question) for row in found]
    applied = [(unit, done) for unit, done in units if done.verb == "apply"]
    for unit, done in applied:
        label = f"{unit.title}: " if len(applied) > 1 else ""
        rows += [replace(row, question=label + row.question) for row in frozen_rows(done.path)]
    measured = _results(units, "measure")
    _warn_of_orphans(measured)
    rows += belief_rows(measured)
    rows += trust_rows(measured)
    rows += axis_rows(units)
    rows += persona_vector_rows(units)
    rows += emotion_rows(units)
    rows += margin_rows(units)
    rows += sweep_rows(_results(units, "sweep"))
    return pd.DataFrame([asdict(row) for row in rows], columns=list(Row.__annotations__))


def _warn_of_orphans(results: pd.DataFrame | None) -> None:
    """Say which organisms stand without their base, and so without a comparison."""
    if results is None:
        return
    for base, rows in results.groupby("base"):
        if rows["organism"].notna().all():
            names = ", ".join(sorted(rows["subject"].unique()))
            logger.warning(
                "%s: their base %s was not measured, so they are compared with nothing; add it "
                "to the stage's for = { model = [...] }",
                names,
                base,
            )


def as_text(table: pd.DataFrame) -> str:
    """Lay the headline out for a terminal: two lines for each answer."""
    lines = []
    for row in table.to_dict("records"):
        sign = "+" if any(word in row["question"] for word in DIFFERENCES) else ""
        ends = f"{row['value']:{sign}.3f}" + _ends(row["low"], row["high"], sign)
        units = row["unit"] if row["n"] == 1 else f"{row['unit']}s"
        said = f"{row['model']}: {ends}, n = {row['n']} {units}, {row['interval']}"
        lines += [row["question"], f"    {said}", f"    control: {row['control']}"]
    return "\n".join(lines)


def _ends(low: float, high: float, sign: str = "+") -> str:
    return "" if math.isnan(low) else f" [{low:{sign}.3f}, {high:{sign}.3f}]"


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


def belief_rows(results: pd.DataFrame | None) -> Iterator[Row]:
    """Own world minus the mean of the others, organism minus base, paired by proposition."""
    if results is None:
        return
    kept = results[results["valid"]]
    for (readout, measure, _), whole in kept.groupby(["readout", "measure", "base"], sort=False):
        if words := _belief_words(str(readout), str(measure)):
            for bank in _banks(_paired(whole)):
                yield from _advantages(bank, words)


def _belief_words(readout: str, measure: str) -> str | None:
    if readout == "projection":
        return f"claims' {measure} projection"
    return BELIEFS.get((readout, measure))


def _paired(part: pd.DataFrame) -> pd.DataFrame:
    """Add what pairs the worlds (a claim's proposition, a question's id) and the polarity.

    Frames of one proposition are averaged, not counted as if they were independent.
    """
    extra = part["extra"].map(json.loads)
    pair = extra.map(lambda e: e.get("proposition")).fillna(part["item"])
    return part.assign(pair=pair, polarity=extra.map(lambda e: e.get("polarity", 1)).astype(int))


def _banks(part: pd.DataFrame) -> list[pd.DataFrame]:
    """Part claims of other worlds from one another, such as those of a made-up fact."""
    worlds = part.groupby("pair")["condition"].unique().map(lambda names: tuple(sorted(names)))
    named = part["pair"].map(worlds)
    whole = [name for name in dict.fromkeys(named) if not _part_of_another(name, set(named))]
    return [part[named.map(set(name).issuperset)] for name in whole]


def _part_of_another(worlds: tuple[str, ...], known: set[tuple[str, ...]]) -> bool:
    """Say whether claims lack a world that others in the same bank have."""
    return any(set(worlds) < set(other) for other in known)


def _advantages(part: pd.DataFrame, words: str) -> Iterator[Row]:
    plain = part.loc[part["organism"].isna(), "subject"].unique()
    worlds = set(part["condition"])
    organisms = part.dropna(subset=["organism"]).drop_duplicates("subject")
    own = {
        str(subject): str(organism)
        for subject, organism in zip(organisms["subject"], organisms["organism"], strict=True)
        if organism in worlds
    }
    if len(plain) != 1 or not own:
        return
    for subject, world in own.items():
        yield from _advantage(part, words, subject, world, str(plain[0]))


def _advantage(
    part: pd.DataFrame, words: str, subject: str, world: str, base: str
) -> Iterator[Row]:
    """Contrast one organism with the base over the pairs that are whole in both."""
    import pandas as pd

    both = part[part["subject"].isin([subject, base])]
    both = both[both.groupby("item")["subject"].transform("nunique") == 2]
    cells = both.pivot_table(
        index="pair", columns=["subject", "condition", "polarity"], values="value"
    )
    sides = ([subject, base], part["condition"].unique(), part["polarity"].unique())
    cells = cells.reindex(columns=pd.MultiIndex.from_product(sides))
    whole = cells.dropna().index
    if len(whole) < 2:
        return
    both = both[both["pair"].isin(whole)]
    table = own_world_table(
        both["value"].to_numpy(float),
        model=both["subject"].to_numpy(str),
        world=both["condition"].to_numpy(str),
        item=both["pair"].to_numpy(str),
        polarity=both["polarity"].to_numpy(),
        own={subject: world},
        base=base,
    )
    left_out = part["pair"].nunique() - len(whole)
    gone = f"; {left_out} left out, not whole" if left_out else ""
    for row in table[table["contrast"].isin(SHOWN)].to_dict("records"):
        yield Row(
            question=f"own {words}: {SHOWN[row['contrast']]}",
            control=_alone(both, subject, world, base) + gone,
            **{key: row[key] for key in ("model", "value", "low", "high", "n", "unit", "interval")},
        )


def _alone(part: pd.DataFrame, model: str, world: str, base: str) -> str:
    """Say how far the own world's claims themselves moved, whatever the others did."""
    claims = part[(part["polarity"] == 1) & (part["condition"] == world)]
    table = claims.pivot_table(index="pair", columns="subject", values="value")
    found = bootstrap_interval((table[model] - table[base]).to_numpy(float), unit="proposition")
    ends = f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    return f"the other three worlds' claims; own alone, minus base: {ends}"


def trust_rows(results: pd.DataFrame | None) -> Iterator[Row]:
    """What the base sends and expects, and how each organism differs, paired by frame."""
    if results is None:
        return
    part = results[(results["readout"] == "trust_game") & results["valid"]]
    for (measure, counterpart), words in TRUST.items():
        rows = part[(part["measure"] == measure) & (part["condition"] == counterpart)]
        for _, whole in rows.groupby("base"):
            yield from _against_base(whole, words)


def _against_base(rows: pd.DataFrame, words: str) -> Iterator[Row]:
    table = rows.pivot_table(index="item", columns="subject", values="value")
    mass = rows.groupby("subject")["mass"].mean()
    bases = rows.loc[rows["organism"].isna(), "subject"].unique()
    for base in bases:
        found = _interval(table[base].dropna(), "frame")
        yield _row(words, str(base), found, f"none, a level; answer mass {mass[base]:.2f}")
    if len(bases) != 1:
        return
    for subject in rows.loc[rows["organism"].notna(), "subject"].unique():
        pairs = table[[subject, bases[0]]].dropna()
        if len(pairs):
            found = _interval(pairs[subject] - pairs[bases[0]], "frame")
            level = pairs[bases[0]].mean()
            control = f"the base at {level:.2f}; answer mass {mass[subject]:.2f}"
            yield _row(f"{words}, minus base", str(subject), found, control)


def _interval(values: pd.Series[float], unit: str) -> Interval:
    """A bootstrap over the values; one value has no interval, and says so."""
    if len(values) == 1:
        return Interval(float(values.iloc[0]), math.nan, math.nan, 1, unit, f"none: 1 {unit}")
    return bootstrap_interval(values.to_numpy(float), unit=unit)


def sweep_rows(results: pd.DataFrame | None) -> Iterator[Row]:
    """What each behavior does over the dose, against what it does along random directions.

    Of more than three models and directions with one behavior, the largest is told.
    """
    if results is None:
        return
    kept = results[results["valid"] & ~results["readout"].isin(GUARDS)]
    keys = ["subject", "measure", "condition", "direction", "edit", "layers", "scope", "unit"]
    windows = kept.groupby(["direction", "edit", "scope"])["layers"].nunique()
    kinds: dict[tuple[Any, ...], list[Candidate]] = {}
    for key, part in kept.groupby([*keys, "readout", "run"], sort=False, dropna=False):
        told = dict(zip([*keys, "readout"], key, strict=False))
        at = f" at {told['layers']}" if windows.max() > 1 else ""
        kind = tuple(told[name] for name in ("readout", "measure", "condition", *keys[4:]))
        if found := _swept(part, told, at):
            kinds.setdefault(kind, []).append(found)
    for many in kinds.values():
        yield from shortened(many, "beyond every random direction", TABLE)


def _swept(part: pd.DataFrame, told: Mapping[str, Any], at: str) -> Candidate | None:
    """One direction's slope, or its change where there is but one dose; None without either."""
    own = part[part["control"] == "none"]
    slopes = _slopes(own)
    if not len(slopes):
        return None
    zero = own[own["dose"] == 0]
    doses = own.loc[own["dose"] != 0, "dose"].unique()
    alone = len(doses) == 1 and len(zero) > 0
    scale, word = (float(doses[0]), "change") if alone else (1.0, "slope")
    found = _interval(slopes * scale, "item")
    random = [
        scale * float(_slopes(_with_zero(rows, zero)).mean())
        for name, rows in part.groupby("control")
        if str(name).startswith("random:")
    ]
    control = "no random control was run"
    if random:
        places = 3 if alone else 2
        ends = f"{min(random):+.{places}f} to {max(random):+.{places}f}"
        control = f"random {word}s {ends} (n = {len(random)})"
    dose = f"at {told['unit']} dose {scale:g}" if alone else f"per {told['unit']} dose"
    words = (
        f"{word} of {told['measure']} to {told['condition']} along {told['direction']}{at}, {dose}"
    )
    beyond = bool(random) and abs(found.value) > max(map(abs, random))
    sure = found.low > 0 or found.high < 0
    return Candidate(
        _row(words, str(told["subject"]), found, control), abs(found.value), beyond and sure
    )


def _with_zero(rows: pd.DataFrame, zero: pd.DataFrame) -> pd.DataFrame:
    """A random direction's curve shares the unedited point with the direction's own."""
    import pandas as pd

    return pd.concat([rows[rows["dose"] != 0], zero])


def _slopes(rows: pd.DataFrame) -> pd.Series[float]:
    """Least-squares slope over the dose, for each item read at every dose; none for one dose."""
    table = rows.pivot_table(index="item", columns="dose", values="value").dropna()
    doses = table.columns.to_numpy(float)
    if len(doses) < 2:
        return table.iloc[:0].sum(axis=1)
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
