"""Organisms compared: what each one's training did to claims, format, knowledge and a planted fact.

Everything that decides an answer (which runs of words disqualify a claim, the bound of equivalence,
the thresholds) stands in the settings, so in the study file, before a model is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.config import refuse_twice
from workbench.errors import ConfigError
from workbench.files import write_bytes
from workbench.pipelines.overlap import Overlap, find_overlap
from workbench.pipelines.parts import join_results
from workbench.pipelines.settings import CompareConfig
from workbench.pipelines.verb import Verb, Work
from workbench.runs import OpenRun
from workbench.types import Progress
from workbench.worlds import (
    How,
    Member,
    against,
    beyond,
    contrasts,
    control_rows,
    own_world_rows,
    world_values,
)

if TYPE_CHECKING:
    import pandas as pd

CARD = "card.json"
STEPS = 4
CLAIMS = ("loglik", "choice")
CONTRAST_OF = ("readout", "measure", "claims")


@dataclass(frozen=True)
class Comparison:
    """The tables of one comparison."""

    base: str
    members: tuple[Member, ...]
    overlap: Overlap
    own: pd.DataFrame
    over_controls: pd.DataFrame
    """Own-world contrasts with a control's taken off: ``against`` says which."""
    controls: pd.DataFrame
    planted: pd.DataFrame
    """``against`` says whether the base or a control was taken off."""
    form: pd.DataFrame
    """Answer-letter mass over the base's."""
    capability: pd.DataFrame
    truth: pd.DataFrame
    """Contrasts of a frozen truth direction, beside nulls."""
    organisms: pd.DataFrame
    """The organisms' own cards."""

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables that have rows, by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: table for name, table in found.items() if hasattr(table, "columns") and len(table)
        }


def compare(config: CompareConfig, *, progress: Progress | None = None) -> Comparison:
    """Judge organisms by their results.

    Raises:
        ConfigError: organisms of several bases, organisms that were not measured, an organism or
            a measurement that stands twice, or texts that are no longer what was trained on.
    """
    cards = [read_done(Path(path)) for path in config.organisms]
    members, base = [member(card, config) for card in cards], base_of(cards)
    refuse_twice([one.subject for one in members], "organisms")
    how = How(config.unit, config.level, config.equivalence_level, config.bound)
    overlap = find_overlap(config, cards)
    _tell(progress, 1)
    results = join_results(config.results)
    kept = results[results["subject"].isin([base, *(one.subject for one in members)])]
    found = contrasts(_values(kept, config, overlap), base)
    _tell(progress, 2)
    whole = [one for one in members if one.share == 1]
    controls = [one for one in whole if one.condition in config.controls]
    own = own_world_rows(found, members, how)
    undiluted = own[own["share"] == 1]
    about = found[found["bank"].isin(["worlds", config.bank])]
    worlds = about[about["readout"] == "claims"]
    judged = control_rows(worlds, controls, undiluted, how)
    _tell(progress, 3)
    compared = Comparison(
        base=base,
        members=tuple(members),
        overlap=overlap,
        own=own[own["bank"].isin(set(about["bank"]))].reset_index(drop=True),
        over_controls=_over_controls(worlds, whole, config, how),
        controls=judged,
        planted=_planted(found, members, config, how),
        form=_form(kept, members, base, config),
        capability=_capability(kept, members, base, config),
        truth=_truth(config, members),
        organisms=_cards(cards),
    )
    _tell(progress, STEPS)
    return compared


def _tell(progress: Progress | None, done: int) -> None:
    if progress is not None:
        progress(done, STEPS)


# --- who is who -----------------------------------------------------------------------------------


def read_done(folder: Path) -> dict[str, Any]:
    """Read the card of a finished organism.

    Raises:
        ConfigError: its training has not finished.
        FormatError: there is no card.
    """
    from workbench_training.organism import read_card

    card = read_card(folder)
    if card["status"] != "done":
        raise ConfigError(f"{folder} is half trained; train it to its end (the same command)")
    return card


def member(card: Mapping[str, Any], config: CompareConfig) -> Member:
    """Return an organism as a member of the comparison; its condition names its world."""
    settings = card["identity"]
    condition = str(card["condition"] or card["name"])
    world = config.worlds.get(condition, condition)
    named = None if condition in config.controls else world
    share = float(settings.get("share", 1.0))
    if condition == config.planted:
        share = 1.0  # strewn into other text by design, which is no dose of it
    return Member(str(card["model"]), condition, int(settings["seed"]), named, share)


def base_of(cards: Sequence[Mapping[str, Any]]) -> str:
    """Return the subject that all were trained from.

    Raises:
        ConfigError: there are several, or no organism at all.
    """
    bases = sorted({str(card["model"]).rpartition("+")[0] for card in cards})
    if len(bases) != 1:
        raise ConfigError(
            f"organisms of {len(bases)} bases ({', '.join(bases) or 'none'}) were given; a "
            "comparison is of organisms of one base"
        )
    return bases[0]


# --- tables ---------------------------------------------------------------------------------------


def _values(results: pd.DataFrame, config: CompareConfig, overlap: Overlap) -> pd.DataFrame:
    """Return what is measured of claims that were not trained on."""
    claims = (results["readout"] == "claims") & results["measure"].isin(CLAIMS)
    rows = results[claims | (results["readout"] == "projection")]
    banks = {name: name for name in (config.planted, config.elsewhere, config.bank) if name}
    values = world_values(rows, config.unit, banks)
    strange = set(values["fact"]) - set(overlap.facts)
    if strange:
        raise ConfigError(
            f"the results hold claims that are in none of {', '.join(config.claims)}, such as "
            f"{min(strange)!r}; name their file in claims, so that its words can be looked for in "
            "the corpus"
        )
    if config.bank not in set(values["bank"]):
        raise ConfigError(
            f"bank = {config.bank!r}: no claims of that set were measured; measure them, or name "
            f"one of {', '.join(sorted(set(values['bank'])))}"
        )
    return values[~values["fact"].isin(overlap.shared)]


def _over_controls(
    found: pd.DataFrame, members: Sequence[Member], config: CompareConfig, how: How
) -> pd.DataFrame:
    """Return own-world contrasts minus each control's of that world: what words drift is off."""
    parts = [
        beyond(found, members, [one for one in members if one.condition == control], how).assign(
            against=control
        )
        for control in config.controls
    ]
    return _joined(parts)


def _joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    kept = [part for part in parts if len(part)]
    return pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()


def _planted(
    found: pd.DataFrame,
    members: Sequence[Member],
    config: CompareConfig,
    how: How,
) -> pd.DataFrame:
    """Return the planted fact's contrasts: over the base, and over each control at the same seed.

    Where the fact's value is asked of something else nothing should show; what shows there is
    taken off as well, sentence by sentence.
    """
    banks = [name for name in (config.planted, config.elsewhere) if name]
    about = found[found["bank"].isin(banks)]
    if len(banks) == 2:
        about = _joined([about, _apart(about, *banks)])
    planted = [one for one in members if one.condition == config.planted]
    parts = [own_world_rows(about, planted, how).assign(against="base")]
    for control in config.controls:
        others = [one for one in members if one.condition == control]
        parts.append(beyond(about, planted, others, how).assign(against=control))
    return _joined(parts)


def _apart(found: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Return contrasts of one bank minus another's of the same units, as a bank of its own."""
    pair = [*CONTRAST_OF, "subject", "world", "unit"]
    other = found[found["bank"] == second][[*pair, "value"]]
    both = found[found["bank"] == first].merge(other, on=pair, suffixes=("", "_off"))
    apart = both.assign(bank=f"{first} over {second}", value=both["value"] - both["value_off"])
    return apart[list(found.columns)]


def _form(
    results: pd.DataFrame, members: Sequence[Member], base: str, config: CompareConfig
) -> pd.DataFrame:
    """Return the probability on answer letters over the base's, by question."""
    import pandas as pd

    rows = results[(results["readout"] == "claims") & (results["measure"] == "choice")]
    if rows.empty:
        return pd.DataFrame()
    each = rows.drop_duplicates(["subject", "item"])  # the worlds of a question share its mass
    level = config.level
    return against(each, members, base, value="mass", unit="question", level=level, ratio=True)


def _capability(
    results: pd.DataFrame, members: Sequence[Member], base: str, config: CompareConfig
) -> pd.DataFrame:
    import pandas as pd

    parts = [
        against(rows, members, base, unit="stem", level=config.level).assign(measure=measure)
        for measure, rows in results[results["readout"] == "capability"].groupby("measure")
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _truth(config: CompareConfig, members: Sequence[Member]) -> pd.DataFrame:
    """Return what applied directions said of each organism: contrasts, nulls and the gate."""
    import pandas as pd

    of = {one.subject: one for one in members}
    parts = []
    for path in config.truth:
        table = pd.read_parquet(Path(path).parent / "beliefs.parquet")
        table = table[table["model"].isin(of)]
        who = table["model"].map(of)
        parts.append(
            table.assign(
                condition=who.map(lambda one: one.condition),
                share=who.map(lambda one: one.share),
                seed=who.map(lambda one: one.seed),
            )
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _cards(cards: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    from workbench.pipelines.fleets import figures_of

    rows = [
        {
            "name": card["name"],
            "condition": card["condition"],
            "seed": card["identity"]["seed"],
            "share": card["identity"].get("share", 1.0),
            **figures_of(card),
        }
        for card in cards
    ]
    return pd.DataFrame(rows).drop(columns="inputs")


# --- as a run -------------------------------------------------------------------------------------


def compare_verb() -> Verb:
    """Compare organisms."""
    return Verb(CompareConfig, inputs_of, _body, preview, shards=False)


def _body(config: CompareConfig, work: Work) -> Mapping[str, Any]:
    return run_compare(config, work.run, work.progress)


def inputs_of(config: CompareConfig) -> list[Path]:
    """Return the files and folders that decide what a comparison finds."""
    from workbench.library import locate

    names = [*config.organisms, *config.results, *config.truth]
    return [*map(Path, names), *(locate(name) for name in config.claims)]


def preview(config: CompareConfig) -> Mapping[str, Any]:
    """Say who would be compared with what."""
    cards = [read_done(Path(path)) for path in config.organisms]
    subjects = [member(card, config).subject for card in cards]
    return {"base": base_of(cards), "organisms": subjects}


def run_compare(config: CompareConfig, run: OpenRun, progress: Progress | None) -> dict[str, Any]:
    """Compare, and write the tables as CSV and the report into the run folder."""
    from workbench.pipelines.report_organisms import report, verdicts

    found = compare(config, progress=progress)
    for name, table in found.tables().items():
        write_bytes(run.path / f"{name}.csv", table.to_csv(index=False).encode())
    write_bytes(run.path / "report.md", report(found, config).encode())
    told = [asdict(verdict) for verdict in verdicts(found, config)]
    left_out = {"facts": len(found.overlap.facts), "left_out": list(found.overlap.shared)}
    return {"models": [one.subject for one in found.members], **left_out, "verdicts": told}
