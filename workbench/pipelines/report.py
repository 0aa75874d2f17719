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
from workbench.pipelines.report_effects import Effects, study_effects
from workbench.pipelines.report_emotion import emotion_rows
from workbench.pipelines.report_persona_vectors import persona_vector_rows
from workbench.pipelines.report_swept import swept_rows
from workbench.pipelines.report_trust import margin_rows
from workbench.pipelines.report_truth import Row, frozen_rows, truth_rows
from workbench.pipelines.report_words import fitted_of
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done
from workbench.stats import Interval, mean_interval

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

EVIDENCE, HEADLINE = "evidence.parquet", "headline.csv"
BRIEF = 10
"""Answers that a terminal shows of a study, or one of each stage where there are more stages."""

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
TRUST = {
    ("transfer", "person"): "dollars of 10 sent to a person",
    ("transfer", "ai_user"): "dollars of 10 sent to a user of AI assistants",
    ("expected_return", "person"): "dollars of 30 expected back from a person",
}


def headline(
    units: Sequence[tuple[Unit, Done]], effects: Mapping[str, Effects] | None = None
) -> pd.DataFrame:
    """Summarize the runs of a study: truth, beliefs, trust, and what its sweeps moved.

    Args:
        units: the runs.
        effects: what `study_effects` says of them, where that is at hand.
    """
    import pandas as pd

    rows = [*_fitted_rows(units), *_applied_rows(units)]
    measured = _results(units, "measure")
    _warn_of_orphans(measured)
    stages = ", ".join(dict.fromkeys(unit.stage for unit, done in units if done.verb == "measure"))
    found = (*belief_rows(measured), *trust_rows(measured))
    rows += [replace(row, stage=stages) for row in found]
    for told in (axis_rows, persona_vector_rows, emotion_rows, margin_rows):
        rows += told(units)
    rows += swept_rows(units, dict(study_effects(units)) if effects is None else effects)
    return pd.DataFrame([asdict(row) for row in rows], columns=list(Row.__annotations__))


def _fitted_rows(units: Sequence[tuple[Unit, Done]]) -> Iterator[Row]:
    import pandas as pd

    fits = [one for one in units if one[1].verb == "fit" and (one[1].path / EVIDENCE).exists()]
    for unit, done in fits:
        label = f"{unit.title}: " if len(fits) > 1 else ""
        for row in truth_rows(pd.read_parquet(done.path / EVIDENCE), fitted_of(done.path)):
            yield replace(row, question=label + row.question, stage=unit.stage)


def _applied_rows(units: Sequence[tuple[Unit, Done]]) -> Iterator[Row]:
    applied = [(unit, done) for unit, done in units if done.verb == "apply"]
    for unit, done in applied:
        label = f"{unit.title}: " if len(applied) > 1 else ""
        for row in frozen_rows(done.path):
            yield replace(row, question=label + row.question, stage=unit.stage)


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


def as_text(table: pd.DataFrame, most: int | None = None) -> str:
    """Lay the headline out for a terminal: three lines for each answer.

    Args:
        table: from `headline`.
        most: show so many answers, and say how many more there are. The study's design chooses
            them, never what they show: every stage gets one before another stage gets two; within
            a stage, what is told whatever it shows comes before what was picked by it, and each
            question comes once before it comes again, of another model or direction.
    """
    shown = table if most is None or len(table) <= most else table.loc[_chosen(table, most)]
    lines = []
    for row in shown.to_dict("records"):
        sign = "+" if any(word in row["question"] for word in DIFFERENCES) else ""
        ends = f"{row['value']:{sign}.3f}" + _ends(row["low"], row["high"], sign)
        units = row["unit"] if row["n"] == 1 else f"{row['unit']}s"
        said = f"{row['model']}: {ends}, n = {row['n']} {units}, {row['interval']}"
        if math.isnan(row["value"]):
            said = f"{row['model']}: no answer, {row['interval']}"
        lines += [row["question"], f"    {said}", f"    control: {row['control']}"]
    if left := len(table) - len(shown):
        rest = table.drop(shown.index)["stage"].value_counts(sort=False)
        told = ", ".join(f"{stage or 'the study'} {count}" for stage, count in rest.items())
        answers = f"{left} more answer{'s' if left > 1 else ''}"
        lines.append(
            f"{answers} in {HEADLINE}, by stage: {told}; shown is what comes first in each"
        )
    return "\n".join(lines)


def _chosen(table: pd.DataFrame, most: int) -> list[Any]:
    """Return the index of the answers that a short headline shows, in the table's order."""
    turn = table.groupby(["stage", "planned", _kind(table)], sort=False).cumcount()
    ranked = table.assign(unplanned=~table["planned"].astype(bool), turn=turn)
    ranked = ranked.sort_values(["unplanned", "turn"], kind="stable")
    place = ranked.groupby("stage", sort=False).cumcount().reindex(table.index)
    least = max(most, int((place == 0).sum()))
    kept = place.sort_values(kind="stable").index[:least]
    return [one for one in table.index if one in set(kept)]


def _kind(table: pd.DataFrame) -> pd.Series[str]:
    """Return what a question asks, whatever direction or block it asks it of."""
    return table["question"].str.replace(r" along [^,]*|, blocks? [\d,-]+", "", regex=True)


def _ends(low: float, high: float, sign: str = "+") -> str:
    return "" if math.isnan(low) else f" [{low:{sign}.3f}, {high:{sign}.3f}]"


def write_report(table: pd.DataFrame, units: Sequence[tuple[Unit, Done]], folder: Path) -> Path:
    """Write the headline and the list of its runs; return the table's path."""
    make_folder(folder)
    path = folder / HEADLINE
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
    found = mean_interval((table[model] - table[base]).to_numpy(float), unit="proposition")
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
    """Their mean, with an interval; one value has none, and says so."""
    return mean_interval(values.to_numpy(float), unit=unit)


def _row(question: str, model: str, found: Interval, control: str) -> Row:
    ends = (found.value, found.low, found.high)
    return Row(question, model, *ends, found.n, found.unit, found.name, control)


def _results(units: Sequence[tuple[Unit, Done]], verb: str) -> Any:
    """All results of a verb in one table, or None."""
    import pandas as pd

    from workbench.results import read_results

    frames = [read_results(d.path / "results.parquet") for _, d in units if d.verb == verb]
    return pd.concat(frames, ignore_index=True) if frames else None
