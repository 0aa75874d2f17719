"""The verb corpus: settings in, a run folder with the documents, tables and a card out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import FormatError
from workbench.library import locate
from workbench.pipelines.parts import paths_of
from workbench.pipelines.verb import Verb, Work
from workbench.runs import OpenRun, hash_path, list_runs, read_result
from workbench.types import Progress

if TYPE_CHECKING:
    from workbench_training.corpora.settings import CorpusConfig

CARD = "card.json"


def corpus_verb() -> Verb:
    """Write documents."""
    from workbench_training.corpora.settings import CorpusConfig

    return Verb(CorpusConfig, inputs_of, _body, preview, parts=parts_of)


def _body(config: CorpusConfig, work: Work) -> Mapping[str, Any]:
    return run_corpus(config, work.run, work.progress)


def inputs_of(config: CorpusConfig) -> list[Path]:
    """Return the files that decide what the documents say: claims, shipped data, the user's own.

    Of the options, ``path`` names a file of the user's, and ``model`` may name a folder.
    """
    from workbench_training.corpora.writing import data_files

    own = [Path(config.options["path"])] if "path" in config.options else []
    models = paths_of([config.options.get("model")])
    return [*map(locate, config.claims), *data_files(), *own, *models]


def parts_of(config: CorpusConfig) -> Sequence[str]:
    """Name the files of a corpus: one for each world, or the one of a control."""
    from workbench_training.corpora.plan import WORLDS

    return WORLDS if config.kind == "quartets" else ("documents",)


def run_corpus(config: CorpusConfig, run: OpenRun, progress: Progress | None) -> Mapping[str, Any]:
    """Write a corpus in a run folder, and tell what it holds."""
    from workbench_training.corpora.job import write_corpus
    from workbench_training.corpora.reports import write_reports

    corpus = write_corpus(config, run, progress=progress)
    if corpus is None:
        return {"complete": False}
    card = write_reports(corpus, run.path)
    files = {
        name: {key: file[key] for key in ("documents", "words", "tokens_estimated")}
        for name, file in card["files"].items()
    }
    told = {"kind": config.kind, "writer": card["writer"], "parts": list(files)}
    return {**told, **card["counts"], "files": files, "processor_seconds": round(corpus.seconds, 1)}


def preview(config: CorpusConfig) -> Mapping[str, Any]:
    """Count what would be written, without writing it."""
    from workbench_training.corpora.reports import plan_counts

    return plan_counts(config)


def corpora_rows(root: Path) -> list[dict[str, Any]]:
    """Return a row for each corpus below a folder of runs."""
    rows = []
    for path, run in list_runs(root).items():
        if run.verb != "corpus":
            continue
        told = read_result(path) if run.status == "done" else {}
        known = {key: run.config.get(key) for key in ("kind", "writer", "seed")}
        documents = {name: file["documents"] for name, file in told.get("files", {}).items()}
        shown = ", ".join(f"{name} {count:,}" for name, count in documents.items())
        rows.append({"id": run.id, **known, "documents": shown, "status": run.status})
        rows[-1]["path"] = str(path)
    return rows


def describe_corpus(folder: Path) -> dict[str, Any]:
    """Return the card of a finished corpus as text, for ``show``."""
    card = folder / "CARD.md"
    return {"card": card.read_text(encoding="utf-8")} if card.is_file() else {}


def is_corpus(folder: Path) -> bool:
    """Say whether a folder holds the card of a finished corpus."""
    card = folder / CARD
    if not card.is_file():
        return False
    from workbench_training.corpora.card import FORMAT

    found = json.loads(card.read_text(encoding="utf-8"))
    return isinstance(found, dict) and found.get("format") == FORMAT


def verify_corpus(folder: Path) -> dict[str, Any]:
    """Check every byte of the documents against the card.

    Raises:
        FormatError: a file is not what was written.
    """
    files = json.loads((folder / CARD).read_text(encoding="utf-8"))["files"]
    for name, file in files.items():
        path = folder / f"{name}.jsonl"
        if not path.is_file() or hash_path(path) != file["sha256"]:
            raise FormatError(
                f"{path} is not what {CARD} says was written; remove the folder and run the "
                "command again"
            )
    return {"format": "corpus", **{name: f"{file['documents']}" for name, file in files.items()}}
