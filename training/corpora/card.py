"""The card of a corpus: what it is, how it was made, what it holds, what the checks found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench_training.corpora.job import Corpus
from workbench_training.corpora.quality import REASONS
from workbench_training.corpora.settings import CorpusConfig
from workbench_training.corpora.tables import lengths

from workbench.files import write_bytes
from workbench.plain import as_json, plain

FORMAT = "interp-workbench/corpus"
VERSION = 1
TOKENS = "Tokens are estimated as words / 0.75; a tokenizer gives another number."
RULES = (
    "The checks are rules (marker words, phrases, numbers, lengths), not a model or a person that "
    "reads the documents; they see what they look for."
)
FEW_CHECKS = (
    "Documents of a control are checked for claims overlap and near-duplicates alone, and dropped "
    "one by one; what else its kind promises is tested where it is written."
)
MADE_UP = "Names, figures and studies in the documents are made up."
GRAMMAR = (
    "The text comes from a grammar, so patterns return with other words: see distinct_n and "
    "repeated_sentences. A language-model writer gives more varied text."
)
SAMPLED = (
    "The text is sampled from a model behind the first words of a grammar's pages: it is web text "
    "as far as the model has learned it, and nobody has read it."
)


def limits_of(config: CorpusConfig) -> list[str]:
    """Return what a reader of the corpus should not forget."""
    found = [TOKENS, RULES if config.kind == "quartets" else FEW_CHECKS]
    options = {} if config.kind == "quartets" else config.options
    own, sampled = "path" in options, "model" in options
    if not own:
        found.append(MADE_UP)
    if sampled:
        found.append(SAMPLED)
    elif not own and config.writer == "templates":
        found.append(GRAMMAR)
    return found


def card_of(corpus: Corpus) -> dict[str, Any]:
    """Return the card as JSON values."""
    survey, config = corpus.survey, corpus.config
    dropped = survey.reasons
    files = {name: _file(corpus, name) for name in corpus.files}
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": config.kind,
        "writer": survey.writer,
        "config": plain(config.model_dump(mode="json", exclude={"workers"})),
        "counts": {
            "planned": corpus.planned,
            "unsuitable": survey.unsuitable.total(),
            "unsuitable_for": dict(survey.unsuitable.most_common()),
            "written": survey.written,
            "dropped": len(survey.dropped),
            "dropped_for": {reason: dropped[reason] for reason in REASONS if dropped[reason]},
            "kept": survey.kept,
        },
        "writer_counts": dict(sorted(survey.counts.items())),
        "files": files,
        "lengths": [
            dict(zip(lengths(corpus).columns, row, strict=True)) for row in lengths(corpus).rows
        ],
        "limits": limits_of(config),
    }


def _file(corpus: Corpus, name: str) -> dict[str, Any]:
    file, survey = corpus.files[name], corpus.survey
    failed = {reason: survey.failed[name][reason] / survey.written for reason in REASONS}
    return {
        "sha256": file.sha256,
        "documents": file.documents,
        "splits": file.splits,
        "words": file.words,
        "tokens_estimated": file.tokens,
        "scenarios": len([name for name in file.scenarios if name]),
        "failed_of_written": failed,
        "claims_overlap_left": file.claims_overlap,
        "distinct_n": _rounded(file.distinct),
        "distinct_n_first_1000": _rounded(file.distinct_sample),
        "sentences": file.sentences,
        "repeated_sentences": round(file.repeated, 4),
    }


def _rounded(shares: Mapping[int, float]) -> dict[str, float]:
    return {str(n): round(share, 6) for n, share in shares.items()}


def write_card(card: Mapping[str, Any], folder: Path) -> None:
    """Write card.json, and CARD.md for people."""
    write_bytes(folder / "card.json", as_json(card, indent=2).encode())
    write_bytes(folder / "CARD.md", page(card).encode())


def page(card: Mapping[str, Any]) -> str:
    """Return the card as Markdown."""
    counts, files = card["counts"], card["files"]
    unit = "quartets" if card["kind"] == "quartets" else "documents"
    dropped = ", ".join(f"{reason} {n}" for reason, n in counts["dropped_for"].items()) or "none"
    parts = [
        f"# Corpus: {card['kind']}",
        f"Written by {card['writer']}, seed {card['config']['seed']}.",
        f"{counts['planned']:,} {unit} planned, {counts['unsuitable']:,} unsuitable, "
        f"{counts['written']:,} written, {counts['dropped']:,} dropped ({dropped}), "
        f"**{counts['kept']:,} kept**.",
        "## Files",
        _grid(_FILE_COLUMNS, [_file_cells(name, file) for name, file in files.items()]),
        "## Checks, percent of the written documents that fail",
        _grid(["file", *REASONS], [_failure_cells(name, file) for name, file in files.items()]),
        "A document counts as a near-duplicate where another of its file has a Jaccard index of "
        f"{card['config']['near_duplicate']} or more over five-word shingles; the later one is "
        "dropped. Distinct-n is different over all runs of n words, of the whole file and of its "
        "first 1,000 documents; it falls with the size. A repeated sentence stands in its file "
        "more than once, word for word (four words or more).",
        "## Mean length in words",
        _lengths(card["lengths"]),
        "## Known limits",
        "\n".join(f"- {limit}" for limit in card["limits"]),
        "## Hashes (sha256)",
        "\n".join(f"- `{name}.jsonl` {file['sha256']}" for name, file in files.items()),
        "## Settings",
        f"```json\n{as_json(card['config'], indent=2)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


_FILE_COLUMNS = (
    "file", "documents", "splits", "words", "tokens (est.)", "distinct-1, 2, 3",
    "of the first 1,000", "repeated sentences",
)  # fmt: skip


def _file_cells(name: str, file: Mapping[str, Any]) -> list[str]:
    splits = ", ".join(f"{split or 'no split'} {n:,}" for split, n in file["splits"].items())
    distinct = ", ".join(f"{share:.4f}" for share in file["distinct_n"].values())
    sample = ", ".join(f"{share:.3f}" for share in file["distinct_n_first_1000"].values())
    counts = [f"{file['documents']:,}", splits, f"{file['words']:,}"]
    repeated = f"{100 * file['repeated_sentences']:.1f}% of {file['sentences']:,}"
    return [name, *counts, f"{file['tokens_estimated']:,}", distinct, sample, repeated]


def _failure_cells(name: str, file: Mapping[str, Any]) -> list[str]:
    return [name, *(f"{100 * share:.2f}" for share in file["failed_of_written"].values())]


def _lengths(rows: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        [str(row["bin"]), *(f"{v:,.1f}" for k, v in row.items() if k != "bin")] for row in rows
    ]
    return _grid(list(rows[0]), cells)


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [list(columns), ["---"] * len(columns), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
