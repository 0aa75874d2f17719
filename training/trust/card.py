"""The card of a corpus of trust pairs, its tables, and a page of sample pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from workbench_training.corpora.card import FORMAT, VERSION
from workbench_training.corpora.tables import Cell, Table, write_tables
from workbench_training.trust.job import NEAR, Written
from workbench_training.trust.plan import STYLES, TURNS
from workbench_training.trust.rules import RULES
from workbench_training.trust.settings import TrustPairsConfig
from workbench_training.trust.texts import Row

from workbench.data.reply_pairs import FACETS, NEUTRAL
from workbench.files import write_bytes
from workbench.plain import as_json, plain

LIMITS = {
    "": (
        "Persons, firms and places are made up; a claim is never true or false, only said.",
        "The rules are expressions and counts, not a reader; they see what they look for.",
        "Concreteness is the share of numbers and names within sentences, not a rating by people.",
    ),
    "templates": (
        "The text comes from a grammar over sixty scenarios: pairs of one scenario share "
        "sentences, so scenarios, not pairs, are what intervals count.",
        "The second reply of a pair is careful in its words (a list, a test, a second person), as "
        "it must be; the bag of words says how far the wording alone tells the poles apart.",
    ),
}


def card_of(
    config: TrustPairsConfig, written: Written, files: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the card as JSON values."""
    dropped = {reason: written.dropped[reason] for reason in _reasons(written)}
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": config.kind,
        "writer": written.writer,
        "config": plain(config.model_dump(mode="json")),
        "counts": {
            "planned": written.planned,
            "dropped": written.dropped.total(),
            "dropped_for": {reason: n for reason, n in dropped.items() if n},
            "kept": len(written.pairs),
            "neutral": len(written.rows) - len(written.pairs),
            "redrawn": written.redrawn,
            "near_duplicates": written.near,
        },
        "writer_counts": dict(sorted(written.counts.items())),
        "files": files,
        "probe": [_told(one) for one in written.probed],
        "limits": [*LIMITS[""], *LIMITS.get(config.writer, ())],
    }


def _told(one: Any) -> dict[str, Any]:
    ends = {key: round(getattr(one.auc, key), 4) for key in ("value", "low", "high")}
    return {"feature": one.feature, **ends, "interval": one.auc.name, "note": one.note}


def _reasons(written: Written) -> list[str]:
    return [*RULES, NEAR, *sorted(set(written.dropped) - {*RULES, NEAR})]


def tables_of(written: Written) -> list[Table]:
    """Make the tables: counts, scenarios, lengths, rules, probe."""
    return [
        _counts(written.rows),
        _scenarios(written.rows),
        _lengths(written.pairs),
        _rules(written),
        _probe(written),
    ]


def _counts(rows: Sequence[Row]) -> Table:
    found = Counter((row["facet"], row["split"]) for row in rows)
    turns = Counter((row["facet"], row["turns"]) for row in rows)
    styles = Counter((row["facet"], row["style"]) for row in rows)
    scenarios: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        scenarios.setdefault((row["facet"], row["split"]), set()).add(row["scenario"])
    table: list[list[Cell]] = [
        [
            facet,
            *(found[facet, split] for split in ("train", "test")),
            *(len(scenarios.get((facet, split), ())) for split in ("train", "test")),
            *(turns[facet, count] for count in TURNS),
            *(styles[facet, style] for style in STYLES),
        ]
        for facet in (*FACETS, NEUTRAL)
    ]
    columns = [
        "facet", "train", "test", "train scenarios", "test scenarios",
        *(f"{count} turn{'s' * (count > 1)}" for count in TURNS), *STYLES,
    ]  # fmt: skip
    return Table("table1_pairs", "Pairs by facet, split, user turns and style.", columns, table)


def _scenarios(rows: Sequence[Row]) -> Table:
    found: dict[tuple[str, str, str, str], int] = Counter(
        (row["facet"], row["family"], row["scenario"], row["split"])
        for row in rows
        if row["facet"] != NEUTRAL
    )
    table: list[list[Cell]] = [[*key, count] for key, count in sorted(found.items())]
    columns = ["facet", "family", "scenario", "split", "pairs"]
    return Table("table2_scenarios", "Scenarios; none is in both splits.", columns, table)


def _lengths(pairs: Sequence[Row]) -> Table:
    table: list[list[Cell]] = []
    for style in STYLES:
        own = [row for row in pairs if row["style"] == style]
        if own:
            chosen, rejected = (fmean(r[f"words_{side}"] for r in own)
                                for side in ("chosen", "rejected"))  # fmt: skip
            most = max(abs(r["words_chosen"] - r["words_rejected"]) for r in own)
            table.append([style, len(own), chosen, rejected, rejected - chosen, most])
    columns = ["style", "pairs", "words, chosen", "words, rejected", "difference", "largest"]
    return Table("table3_lengths", "Mean length of the replies in words.", columns, table)


def _rules(written: Written) -> Table:
    table: list[list[Cell]] = [
        [reason, written.dropped[reason], 100 * written.dropped[reason] / written.planned]
        for reason in _reasons(written)
    ]
    return Table(
        "table4_rules", "Pairs dropped, by the first rule that they break.",
        ["rule", "pairs", "percent"], table,
    )  # fmt: skip


def _probe(written: Written) -> Table:
    table: list[list[Cell]] = [
        [one.feature, one.auc.value, one.auc.low, one.auc.high, one.note] for one in written.probed
    ]
    return Table(
        "table5_probe",
        "AUC with which a feature of a reply tells chosen from rejected, 0.5 being chance "
        f"({written.probed[0].auc.name}). Fits read scenarios that they were not fitted on.",
        ["feature", "AUC", "low", "high", "note"],
        table,
    )


def write_reports(
    config: TrustPairsConfig,
    written: Written,
    files: Mapping[str, Mapping[str, Any]],
    folder: Path,
) -> dict[str, Any]:
    """Write card.json, CARD.md, sample.md and tables/, and return the card."""
    card = card_of(config, written, files)
    tables = tables_of(written)
    write_bytes(folder / "card.json", as_json(card, indent=2).encode())
    write_bytes(folder / "CARD.md", page(card, tables).encode())
    write_bytes(folder / "sample.md", sample_page(written.pairs).encode())
    write_tables(tables, folder / "tables")
    return card


def page(card: Mapping[str, Any], tables: Sequence[Table]) -> str:
    """Return the card as Markdown."""
    counts, files = card["counts"], card["files"]
    shown = [table for table in tables if table.name != "table2_scenarios"]
    asked = card["config"]["neutral"]
    fewer = "" if counts["neutral"] == asked else f" of {asked:,} asked for"
    parts = [
        f"# Corpus: {card['kind']}",
        f"Written by {card['writer']}, seed {card['config']['seed']}.",
        f"{counts['planned']:,} pairs planned, {counts['dropped']:,} dropped, "
        f"**{counts['kept']:,} kept**, and {counts['neutral']:,} neutral rows{fewer}. "
        f"{counts['near_duplicates']:,} pairs had a near-duplicate (Jaccard index of "
        f"{card['config']['near_duplicate']} or more over five-word shingles of both replies); "
        f"{counts['redrawn']:,} drafts were written again for being too near another of their "
        "scenario.",
        *(table.markdown() for table in shown),
        "## Known limits",
        "\n".join(f"- {limit}" for limit in card["limits"]),
        "## Hashes (sha256)",
        "\n".join(f"- `{name}.jsonl` {file['sha256']}" for name, file in files.items()),
        "## Settings",
        f"```json\n{as_json(card['config'], indent=2)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def sample_page(pairs: Sequence[Row]) -> str:
    """Return one pair of every facet, of another style each, replies side by side."""
    parts = ["# Sample pairs"]
    for facet, style in zip(FACETS, STYLES, strict=True):
        own = [row for row in pairs if row["facet"] == facet and row["style"] == style]
        if own:
            parts.append(_shown(own[0]))
    return "\n\n".join(parts) + "\n"


def _shown(row: Row) -> str:
    told = f"{row['facet']}, {row['family']}, {row['scenario']}, {row['style']}"
    turns = [f"**{turn['role']}**: {turn['content']}" for turn in row["prompt"]]
    sides = [row[side].replace("|", "\\|").replace("\n", "<br>") for side in _SIDES]
    table = f"| {' | '.join(_SIDES)} |\n| --- | --- |\n| {' | '.join(sides)} |"
    return "\n\n".join([f"## {row['id']} ({told})", *turns, table])


_SIDES = ("chosen", "rejected")
