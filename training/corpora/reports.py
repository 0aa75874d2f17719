"""What a corpus run leaves beside its documents: card, tables, sample; and the counts of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench_training.corpora.card import card_of, write_card
from workbench_training.corpora.job import Corpus
from workbench_training.corpora.pages import sample_page
from workbench_training.corpora.plan import WORLDS
from workbench_training.corpora.settings import TOKENS_PER_WORD, CorpusConfig
from workbench_training.corpora.tables import tables_of, write_tables
from workbench_training.corpora.writing import candidates, kinds, plans_of, writer_maker
from workbench_training.quartet_grammar import read_grammar

from workbench.errors import unknown
from workbench.files import write_bytes


def write_reports(corpus: Corpus, folder: Path) -> Mapping[str, Any]:
    """Write card.json, CARD.md, sample.md and tables/, and return the card."""
    quartets = corpus.config.kind == "quartets"
    card = card_of(corpus)
    write_card(card, folder)
    write_bytes(folder / "sample.md", sample_page(folder, list(corpus.files)).encode())
    aims = {world: phrases.objective for world, phrases in read_grammar().worlds.items()}
    write_tables(tables_of(corpus, candidates() if quartets else (), aims), folder / "tables")
    return card


def plan_counts(config: CorpusConfig) -> dict[str, Any]:
    """Return what a corpus would hold: counts, words by target length, estimated tokens.

    Raises:
        UnknownNameError: no such kind or writer.
        ConfigError: an option that it does not take.
    """
    if config.kind != "quartets":
        if config.kind not in kinds():
            raise unknown("kind of corpus", config.kind, ["quartets", *kinds()])
        kinds()[config.kind](config)  # refuses options that it does not take
        words = round(config.count * sum(config.words.values()) / len(config.words))
        return {"documents": config.count, **_size(words)}
    writer_maker(config)
    plans = plans_of(config)
    words = sum(plan.words for plan in plans)
    return {
        "quartets": len(plans),
        "documents": len(plans) * len(WORLDS),
        "scenarios": len({plan.scenario.id for plan in plans}),
        "domains": len({plan.scenario.domain for plan in plans}),
        "document_types": len({plan.doc_type.name for plan in plans}),
        "modes": dict(sorted(Counter(plan.mode for plan in plans).items())),
        "bins": dict(Counter(plan.length_bin for plan in plans)),
        "splits": dict(sorted(Counter(plan.split for plan in plans).items())),
        **_size(words),
    }


def _size(words: int) -> dict[str, Any]:
    """Say how much one file has to read; words are the planned ones."""
    tokens = round(words * TOKENS_PER_WORD)
    return {
        "words_each_file": words,
        "tokens_each_file": tokens,
        "note": "words by target length; tokens are an estimate, words / 0.75",
    }
