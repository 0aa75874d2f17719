"""Claims that share a run of words with what organisms were trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import ConfigError
from workbench.library import open_prompts
from workbench.pipelines.settings import CompareConfig
from workbench.types import ndarray

INPUTS = ("documents", "chat", "dilute")
"""Settings of a training run that name texts."""


@dataclass(frozen=True)
class Overlap:
    """Facts whose claims share a run of words with what was trained on."""

    run: int
    facts: tuple[str, ...]
    """All of the claims."""
    shared: tuple[str, ...]
    documents: int
    """Texts that were looked through."""


def find_overlap(config: CompareConfig, cards: Sequence[Mapping[str, Any]]) -> Overlap:
    """Look for runs of words that a fact's claims share with any text that was trained on.

    A fact is out in all worlds and both polarities where one of its claims shares a run.

    Raises:
        ConfigError: a text file has changed since.
    """
    from workbench_training.corpora.words import contains_any, number_words, run_numbers, words_of

    def runs(text: str) -> ndarray:
        return run_numbers(number_words(words_of(text)), config.run)

    by_fact = _claims(config)
    known = {
        fact: np.concatenate([runs(text) for text in texts]) for fact, texts in by_fact.items()
    }
    every = np.unique(np.concatenate(list(known.values())))
    hit, documents = np.zeros(len(every), bool), 0
    for path in _texts(cards):
        for text in _plain_texts(path):
            there = runs(text)
            hit[np.searchsorted(every, there[contains_any(there, every)])] = True
            documents += 1
    found = every[hit]
    shared = [fact for fact, own in known.items() if contains_any(own, found).any()]
    return Overlap(config.run, tuple(by_fact), tuple(shared), documents)


def _claims(config: CompareConfig) -> dict[str, list[str]]:
    """Return the texts of every fact; of a question, the stem and its options."""
    found: dict[str, list[str]] = {}
    for name in config.claims:
        prompts = open_prompts({"path": name, "text": "stem"} if name == "choice" else name)
        facts = prompts.column("fact").tolist()
        for row, (fact, text) in enumerate(zip(facts, prompts.items, strict=True)):
            texts = found.setdefault(str(fact), [])
            texts.append(str(text))
            if "options" in prompts.columns:
                texts += map(str, json.loads(prompts.columns["options"][row]).values())
    return found


def _texts(cards: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Return the files that were trained on, each once, as they were then."""
    from workbench.library import locate
    from workbench.runs import hash_path

    found: dict[str, Path] = {}
    for card in cards:
        settings = card["identity"]
        for key, digest in settings["inputs"].items():
            name = card.get(key) or settings.get(key)
            if key not in INPUTS or digest in found or name is None:
                continue
            path = locate(name)
            if hash_path(path) != digest:
                raise ConfigError(
                    f"{path} is not what {card['name']} was trained on any more; bring that file "
                    "back, or train again"
                )
            found[digest] = path
    return list(found.values())


def _plain_texts(path: Path) -> list[str]:
    prompts = open_prompts(path)
    if not prompts.is_chat:
        return [str(text) for text in prompts.items]
    return [str(turn["content"]) for chat in prompts.items for turn in chat]
