"""A comparison of organisms as Markdown: verdicts by the rules of the study, then the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.pipelines.settings import CompareConfig
from workbench.worlds import AFFIRMED, MARGIN

if TYPE_CHECKING:
    import pandas as pd

    from workbench.pipelines.organisms import Comparison

PRIMARY = ("claims", "loglik", AFFIRMED)
"""Readout, measure and claims by which verdicts are made."""
WORDS = {
    ("claims", "loglik", AFFIRMED): "likelihood of claims, nats a token",
    ("claims", "loglik", MARGIN): "likelihood of claims over their negations, nats a token",
    ("claims", "choice", AFFIRMED): "probability of the world's option",
}
TRUTH = {
    "own_world_advantage_minus_base": "own minus others, minus base",
    "own_change_minus_other_change": "change under negation, own minus others",
}


@dataclass(frozen=True)
class Verdict:
    """One question with its rule, and how many of those judged keep to it."""

    question: str
    holds: int
    judged: int
    rule: str
    detail: str = ""
    """The numbers that decide: of those that fail where there are any."""

    @property
    def kept(self) -> bool:
        """Whether all keep to it, and there were any."""
        return self.holds == self.judged > 0


def verdicts(found: Comparison, config: CompareConfig) -> list[Verdict]:
    """Answer the questions that the settings ask, by the likelihood of one bank's claims alone."""
    bank = config.bank
    own, over, controls = (
        _primary(table, bank) for table in (found.own, found.over_controls, found.controls)
    )
    own = own[own["share"] == 1]
    return [
        *_own_verdicts(own, config),
        *_over_verdicts(over, config),
        *_control_verdicts(controls, config),
        *_planted_verdicts(found.planted, config),
        *_form_verdicts(found.form, config),
    ]


def _planted_verdicts(planted: pd.DataFrame, config: CompareConfig) -> Iterator[Verdict]:
    rule = f"{_level(config)} interval of the contrast above 0"
    for bank, words in (
        (config.planted, f"the planted fact shows in {config.planted}"),
        (
            f"{config.planted} over {config.elsewhere}",
            f"the planted fact gains more than its word does in the set {config.elsewhere}",
        ),
    ):
        rows = _primary(planted, str(bank))
        if len(rows):
            last = rows[_last(rows)]
            words = f"{words}, over {_listed(last['against'].tolist())}"
            yield _above(words, last, rule, lambda row: str(row["against"]), show_all=True)


def _form_verdicts(form: pd.DataFrame, config: CompareConfig) -> Iterator[Verdict]:
    if not len(form):
        return
    each = form[form["seed"].notna()]
    kept, lowest = each["value"] >= config.letter_mass, each.nsmallest(1, "value")
    rule = f"at least {config.letter_mass:g} of the base's"
    detail = "".join(f"lowest: {_name(row)} {_span(row, sign=False)}"
                     for row in lowest.to_dict("records"))  # fmt: skip
    yield Verdict("answer-letter mass is kept", int(kept.sum()), len(each), rule, detail)


def _above(
    question: str,
    rows: pd.DataFrame,
    rule: str,
    name: Callable[[dict[Any, Any]], str],
    *,
    show_all: bool = False,
) -> Verdict:
    """Return how many contrasts are above 0, with those that are not, or with all."""
    shown = rows if show_all else rows[~rows["above_zero"].astype(bool)]
    detail = "; ".join(f"{name(row)} {_span(row)}" for row in shown.to_dict("records"))
    return Verdict(question, int(rows["above_zero"].sum()), len(rows), rule, detail)


def verdict_text(told: Sequence[Mapping[str, Any]]) -> str:
    """Lay verdicts out for a terminal, as a run keeps them."""
    lines = [
        f"{one['question']}: {one['holds']} of {one['judged']} ({one['rule']})"
        + (f" - {one['detail']}" if one.get("detail") else "")
        for one in told
    ]
    return "\n".join(lines)


def _own_verdicts(own: pd.DataFrame, config: CompareConfig) -> Iterator[Verdict]:
    rule = f"{_level(config)} interval above 0, over the base"
    each, last = own[own["seed"].notna()], own[own["seed"].isna()]
    gain = "own-world claims gain on the others"
    if len(each):
        enough, least = each["n"] >= config.units, int(each["n"].min())
        question = f"organisms are judged by enough {config.unit}s of the bank {config.bank}"
        counts = f"at least {config.units} that share no run with what was trained on"
        yield Verdict(question, int(enough.sum()), len(each), counts, f"fewest: {least}")
        yield _above(f"{gain}, by organism and seed", each, rule, _name)
    if len(last):
        yield _above(f"{gain}, over seeds", last, rule, _named, show_all=True)


def _over_verdicts(over: pd.DataFrame, config: CompareConfig) -> Iterator[Verdict]:
    """Whether organisms gain more than each control, of whose texts no world is the only one."""
    if not len(over):
        return
    rule = f"{_level(config)} interval above 0, over the control at the same seed"
    whole = over[(over["share"] == 1) & _last(over)]
    for control, rows in whole.groupby("against", sort=False):
        question = f"own-world claims gain on the others, over {control}"
        yield _above(question, rows, rule, _named, show_all=True)


def _control_verdicts(controls: pd.DataFrame, config: CompareConfig) -> Iterator[Verdict]:
    rule = (
        f"within plus and minus {config.bound:g} of the smallest own-world contrast, two "
        f"one-sided tests at {config.equivalence_level:.0%}"
    )
    for condition, rows in controls.groupby("condition", sort=False):
        last = rows[_last(rows)]
        words = f"{condition} favors no world"
        detail = "; ".join(_excess(row) for row in last.to_dict("records") if not row["inside"])
        yield Verdict(words, int(last["inside"].sum()), len(last), rule, detail)


def _excess(row: dict[Any, Any]) -> str:
    """Say by how much a world is not inside the bound."""
    if not row["bound"] > 0:
        return f"{row['world']} {row['value']:+.3f}, and there is no bound"
    if not np.isfinite(row.get("low", np.nan)):
        return f"{row['world']} {row['value']:+.3f}, without an interval"
    excess = max(row["high"], -row["low"]) - row["bound"]
    return f"{row['world']} {_span(row)} reaches {excess:.3f} beyond {row['bound']:.3f}"


def _primary(table: pd.DataFrame, bank: str) -> pd.DataFrame:
    if not len(table):
        return table
    readout, measure, claims = PRIMARY
    chosen = (table["readout"] == readout) & (table["measure"] == measure)
    return table[chosen & (table["claims"] == claims) & (table["bank"] == bank)]


def _last(table: pd.DataFrame) -> pd.Series[bool]:
    """Mark what speaks for a condition: the row over seeds, or of its only seed."""
    keys = [name for name in ("bank", "condition", "share", "world", "against") if name in table]
    several = table.groupby(keys)["seed"].transform(lambda seeds: seeds.isna().any())
    return table["seed"].isna() | ~several.astype(bool)


def _level(config: CompareConfig) -> str:
    return f"{config.level:.0%}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(map(str, names)))


# --- Markdown -------------------------------------------------------------------------------------


def report(found: Comparison, config: CompareConfig) -> str:
    """Lay a comparison out in the form of the pages under docs/results."""
    parts = [
        f"# Organisms on {found.base}",
        "## Verdicts, by rules that stood in the study file",
        _markdown(["question", "kept by", "rule", "numbers"], _verdict_rows(found, config)),
        _overlap(found),
        "## Own world over the others",
        _how(config),
        *_contrast_tables(found.own, ["above_zero"], config.bank),
    ]
    if len(found.over_controls):
        parts += ["## Own world over the others, over a control", _over()]
        parts += _contrast_tables(found.over_controls, ["against", "above_zero"], config.bank)
    if len(found.controls):
        parts += ["## Controls: equivalence", _bounds(config)]
        parts += _contrast_tables(found.controls, ["bound", "p", "inside"], config.bank)
    if len(found.planted):
        parts += ["## The planted fact", _planted(config)]
        parts += _contrast_tables(found.planted, ["against", "above_zero"], config.planted)
    parts += list(_beside(found))
    if len(found.truth):
        parts += ["## The truth direction", _truth(found.truth)]
    parts += ["## The organisms", _cards(found.organisms)]
    return "\n\n".join(parts) + "\n"


def _verdict_rows(found: Comparison, config: CompareConfig) -> list[list[str]]:
    return [[one.question, f"{one.holds} of {one.judged}", one.rule, one.detail]
            for one in verdicts(found, config)]  # fmt: skip


def _overlap(found: Comparison) -> str:
    told = found.overlap
    gone = f" ({', '.join(told.shared)})" if told.shared else ""
    return (
        f"{len(told.shared)} of {len(told.facts)} facts share a run of {told.run} words with one "
        f"of the {told.documents:,} texts trained on, and are left out{gone}."
    )


def _how(config: CompareConfig) -> str:
    return (
        "A claim of the organism's own world minus the mean of the other worlds' claims in the "
        f"same words, minus the same in the base. Within an organism the unit is the "
        f"{config.unit}; over an organism's seeds it is the seed. Intervals: {_level(config)} t. "
        f"Verdicts are by the bank {config.bank}; other claims of the worlds stand beside."
    )


def _over() -> str:
    return (
        "The same with a control of the same seed in the place of the base. What training does to "
        "the words of a claim, whatever world its texts tell of, is in the control as well, and "
        "drops out."
    )


def _bounds(config: CompareConfig) -> str:
    return (
        f"The bound is {config.bound:g} of the smallest own-world contrast over organisms and "
        "seeds of the same measure, which no control enters. Inside means that the "
        f"{config.equivalence_level:.0%} t interval lies within it, so that both one-sided tests "
        "reject; all worlds must be inside, which needs no correction for their number. No control "
        "was told that one world holds, so its shift is no belief: unless it is inside the bound, "
        "it is lexical drift (words of those claims became likelier than words of the others), and "
        "an own-world contrast over the base may hold as much of it."
    )


def _planted(config: CompareConfig) -> str:
    elsewhere = (
        f" In the set {config.elsewhere} the same words are asked of something that no document "
        f"names: what is gained there is the word alone. In {config.planted} over "
        f"{config.elsewhere} that is taken off, sentence by sentence."
        if config.elsewhere
        else ""
    )
    return (
        "The planted value over the other values in the same words, minus the same in the base, or "
        f"in a control of the same seed.{elsewhere}"
    )


def _contrast_tables(table: pd.DataFrame, more: Sequence[str], first: str | None) -> Iterator[str]:
    """Yield a heading and a table for each measure, those of one bank first."""
    groups = table.groupby(["bank", "readout", "measure", "claims"], sort=False)
    banks = sorted(table["bank"].unique().tolist(), key=lambda bank: bank != first)
    ordered = sorted(groups, key=lambda group: (_rank(group[0]), banks.index(group[0][0])))
    for (bank, readout, measure, claims), rows in ordered:
        key = (str(readout), str(measure), str(claims))
        words = WORDS.get(key, f"{readout} on {measure}, {claims}")
        where = "" if bank == "worlds" else f", set {bank}"
        head = ["organism", "seed", "world", "value", "n", *more]
        lines = [
            [
                _named(row),
                _seed(row),
                row["world"],
                _span(row),
                f"{row['n']} {row['unit']}s",
                *(_cell(row[name]) for name in more),
            ]
            for row in rows.to_dict("records")
        ]
        yield f"{words[0].upper()}{words[1:]}{where} ({rows['interval'].iloc[0]}):"
        yield _markdown(head, lines)


def _rank(label: Any) -> int:
    """Put the measures that have words of their own first, in that order."""
    known = [*WORDS]
    return known.index(label[1:]) if label[1:] in known else len(known)


def _beside(found: Comparison) -> Iterator[str]:
    """Lay out what stands beside the base, item by item."""
    tables = [("## Answer-letter mass over the base's", found.form)]
    if len(found.capability):
        tables += [(f"## Capability against the base: {measure}", rows)
                   for measure, rows in found.capability.groupby("measure")]  # fmt: skip
    for title, table in tables:
        if not len(table):
            continue
        ratio = "mass" in title
        lines = [
            [_named(row), _seed(row), _number(row["base"]), _number(row["organism"]),
             _span(row, sign=not ratio), f"{row['n']} {row['unit']}s"]
            for row in table.to_dict("records")
        ]  # fmt: skip
        what = "ratio" if ratio else "difference"
        yield title
        yield f"{table['interval'].iloc[0]}; over seeds a t interval."
        yield _markdown(["organism", "seed", "base", "organism's", what, "n"], lines)


def _truth(table: pd.DataFrame) -> str:
    shown = table[table["contrast"].isin(TRUTH)]
    nulls = [name for name in ("random", "shuffled") if f"percentile_{name}" in table]
    lines = []
    for row in shown.to_dict("records"):
        usable = "yes" if row.get("usable") else "no"
        gate = _number(row.get("gate_auc"))
        places = [f"{row[f'percentile_{name}']:.0f}" for name in nulls]
        lines.append(
            [_named(row), _seed(row), f"{row['set']}, {row['rendering']}", TRUTH[row["contrast"]],
             _span(row), f"{row['n']} {row['unit']}s", *places, gate, usable]
        )  # fmt: skip
    head = ["organism", "seed", "claims", "contrast", "value", "n"]
    head += [f"percentile among {name} directions" for name in nulls]
    return (
        f"Projections on the direction that was fitted on the base, in units of its residual "
        f"stream ({shown['interval'].iloc[0]}). The gate is the AUC of held-out items in the same "
        "model; where it is not passed the reading says how the instrument behaves.\n\n"
        + _markdown([*head, "held-out AUC", "usable"], lines)
    )


def _cards(table: pd.DataFrame) -> str:
    names = [name for name in table.columns if name not in ("condition", "seed", "share")]
    lines = [[_cell(row[name]) for name in names] for row in table.to_dict("records")]
    return _markdown([name.replace("_", " ") for name in names], lines)


def _named(row: dict[Any, Any]) -> str:
    return str(row["condition"]) if row["share"] == 1 else f"{row['condition']}, {row['share']:g}"


def _name(row: dict[Any, Any]) -> str:
    return f"{_named(row)}-s{row['seed']:.0f}"


def _seed(row: dict[Any, Any]) -> str:
    return "over seeds" if row["seed"] is None or np.isnan(row["seed"]) else f"{row['seed']:.0f}"


def _span(row: dict[Any, Any], *, sign: bool = True) -> str:
    mark = "+" if sign else ""
    if np.isnan(row["low"]):
        return f"{row['value']:{mark}.3f}"
    return f"{row['value']:{mark}.3f} [{row['low']:{mark}.3f}, {row['high']:{mark}.3f}]"


def _cell(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    return "-" if value is None else str(value)


def _number(value: Any) -> str:
    if value is None or np.isnan(value):
        return "-"
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 10 else f"{value:.3g}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
