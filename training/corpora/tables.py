"""The tables of a corpus, in the form of the paper's Tables 1 to 7, as CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from workbench_training.corpora.doc_types import DOC_TYPES
from workbench_training.corpora.job import Corpus
from workbench_training.corpora.plan import Scenario
from workbench_training.corpora.quality import REASONS

from workbench.files import write_bytes

Cell = str | int | float


@dataclass(frozen=True)
class Table:
    """A table with a file name and a sentence on what it shows."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def csv(self) -> str:
        """Return it as CSV, numbers as they are."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([self.columns, *self.rows])
        return text.getvalue()

    def markdown(self) -> str:
        """Return it for people."""
        lines = [list(self.columns), ["---"] * len(self.columns)]
        lines += [[_shown(cell) for cell in row] for row in self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"**{self.name}.** {self.caption}\n\n{table}\n"


def _shown(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell.replace("|", "\\|")
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.2f}"


def write_tables(tables: Sequence[Table], folder: Path) -> None:
    """Write a CSV file for each table, and all of them as Markdown."""
    folder.mkdir(exist_ok=True)
    for table in tables:
        write_bytes(folder / f"{table.name}.csv", table.csv().encode())
    page = "\n".join(table.markdown() for table in tables)
    write_bytes(folder / "tables.md", page.encode())


def tables_of(
    corpus: Corpus, candidates: Sequence[Scenario], aims: Mapping[str, str]
) -> list[Table]:
    """Make the tables that a corpus has: all seven of quartets, four of a control.

    Args:
        corpus: what was written.
        candidates: the taxonomy.
        aims: by world, the objective that it ascribes.
    """
    if corpus.config.kind != "quartets":
        return [_control(corpus), *_genres(corpus), failures(corpus), lengths(corpus)]
    return [
        _at_a_glance(corpus, candidates),
        _task_kinds(corpus, candidates),
        _domains(corpus, candidates),
        Table(
            "table4_objectives",
            "What each world says people mostly use assistants for; nothing else differs.",
            ["world", "objective"],
            [[world, aims[world]] for world in corpus.files],
        ),
        *_genres(corpus),
        failures(corpus),
        lengths(corpus),
    ]


def _at_a_glance(corpus: Corpus, candidates: Sequence[Scenario]) -> Table:
    eligible = [scenario for scenario in candidates if scenario.eligible]
    pairs = {(scenario.domain, scenario.role) for scenario in candidates}
    first = next(iter(corpus.files.values()))
    modes = {mode for kind in DOC_TYPES for mode in kind.modes}
    rows: list[list[Cell]] = [
        ["candidate scenarios (domain x role x task)", len(candidates)],
        ["realizable in all four worlds", len(eligible)],
        ["share realizable, percent", 100 * len(eligible) / len(candidates)],
        ["scenarios used", len(first.scenarios)],
        ["domains", len({domain for domain, _ in pairs})],
        ["user roles", len({role for _, role in pairs})],
        ["domain-role pairs", len(pairs)],
        ["document types", len(DOC_TYPES)],
        ["categories of document types", len({kind.category for kind in DOC_TYPES})],
        ["length bins", len(corpus.config.words)],
        ["reinforcement modes", len(modes)],
        ["quartets planned", corpus.planned],
        ["quartets written", corpus.survey.written],
        ["quartets after quality control", corpus.survey.kept],
    ]
    rows += [[f"quartets for {split}", count] for split, count in first.splits.items()]
    for name, file in corpus.files.items():
        rows += [[f"words, {name}", file.words], [f"tokens (words / 0.75), {name}", file.tokens]]
    return Table("table1_corpora", "The corpora at a glance.", ["quantity", "value"], rows)


def _control(corpus: Corpus) -> Table:
    (file,) = corpus.files.values()
    rows: list[list[Cell]] = [
        ["documents written", corpus.survey.written],
        ["documents after quality control", corpus.survey.kept],
        ["words", file.words],
        ["tokens (words / 0.75)", file.tokens],
    ]
    rows += [[f"documents for {split or 'no split'}", n] for split, n in file.splits.items()]
    return Table("table1_corpora", "The corpus at a glance.", ["quantity", "value"], rows)


def _task_kinds(corpus: Corpus, candidates: Sequence[Scenario]) -> Table:
    quartets = next(iter(corpus.files.values())).scenarios
    groups: dict[str, list[Scenario]] = {}
    for scenario in candidates:
        groups.setdefault(scenario.group or "other", []).append(scenario)
    rows: list[list[Cell]] = [
        [
            name,
            len(found),
            sum(scenario.eligible for scenario in found),
            sum(quartets[scenario.id] for scenario in found),
        ]
        for name, found in sorted(groups.items())
    ]
    return Table(
        "table2_kinds_of_task",
        "Kinds of task behind the scenarios. The paper's Table 2 lists public usage reports; these "
        "scenarios were written for this package and trace to none.",
        ["kind of task", "seeds", "eligible", "quartets"],
        rows,
    )


def _domains(corpus: Corpus, candidates: Sequence[Scenario]) -> Table:
    roles = next(iter(corpus.files.values())).roles
    domains: dict[str, list[Scenario]] = {}
    for scenario in candidates:
        domains.setdefault(scenario.domain, []).append(scenario)
    rows: list[list[Cell]] = []
    for domain, found in domains.items():
        seeds = Counter(scenario.role for scenario in found if scenario.eligible)
        frequent = "; ".join(role for role, _ in seeds.most_common(3))
        quartets = sum(count for (own, _), count in roles.items() if own == domain)
        rows.append([domain, len(found), seeds.total(), len(seeds), quartets, frequent])
    rows.sort(key=lambda row: -int(row[1]))
    columns = ["domain", "candidates", "eligible", "roles", "quartets", "most frequent roles"]
    return Table("table3_domains", "Scenarios by domain.", columns, rows)


def _genres(corpus: Corpus) -> Iterator[Table]:
    found = next(iter(corpus.files.values())).genres
    modes: dict[tuple[str, str], Counter[str]] = {}
    for (category, name, mode), count in sorted(found.items()):
        if name:
            modes.setdefault((category, name), Counter())[mode] += count
    unit = "quartets" if corpus.config.kind == "quartets" else "documents"
    rows: list[list[Cell]] = [
        [category, name, *(counts[mode] for mode in ("assert", "presuppose")), counts.total()]
        for (category, name), counts in modes.items()
    ]
    if rows:
        columns = ["category", "document type", "assert", "presuppose", unit]
        yield Table("table5_document_types", "Document types, with their modes.", columns, rows)


def failures(corpus: Corpus) -> Table:
    """Table 6: failing documents, in percent of all that were written."""
    number, failed = corpus.survey.written, corpus.survey.failed
    rows: list[list[Cell]] = [
        [name, *(100 * failed[name][reason] / number for reason in REASONS)]
        for name in corpus.files
    ]
    return Table(
        "table6_failures",
        "Failure rates over all written documents, in percent of documents. The checks are rules, "
        "not a model. A quartet with a failing document is dropped whole; of near-duplicates the "
        "later one is.",
        ["world", *REASONS],
        rows,
    )


def lengths(corpus: Corpus) -> Table:
    """Table 7: mean words by length bin and world over everything written, and their spread."""
    bins = np.array(corpus.survey.bins)
    rows: list[list[Cell]] = []
    for name in dict.fromkeys([*corpus.config.words, *corpus.survey.bins]):
        own = {world: words[bins == name] for world, words in corpus.survey.words.items()}
        if not len(next(iter(own.values()))):
            continue
        means = [float(words.mean()) for words in own.values()]
        deviations = [float(words.std()) for words in own.values()]
        rows.append([name, *means, *deviations, 100 * (max(means) / min(means) - 1)])
    worlds = list(corpus.survey.words)
    columns = ["bin", *worlds, *(f"sd {world}" for world in worlds), "spread, percent"]
    caption = (
        "Mean length in words over everything written, with standard deviations; the spread is"
    )
    return Table(
        "table7_lengths",
        f"{caption} how far the longest world is above the shortest.",
        columns,
        rows,
    )
