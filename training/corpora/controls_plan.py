"""Which documents a control has before one is written, and the row that each becomes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

Row = dict[str, Any]

CONTROLS = Path(str(resources.files("workbench.data"))) / "controls"
WEB = Path(str(resources.files("workbench.data"))) / "web"


@dataclass(frozen=True)
class PagePlan:
    """One document: its genre, length and split; ``seed`` is its own, whatever comes before it."""

    id: str
    page: str
    length_bin: str
    words: int
    split: str
    seed: int


def plan_pages(
    name: str,
    pages: Sequence[str],
    *,
    count: int,
    bins: Mapping[str, int],
    seed: int,
    validation: float,
) -> list[PagePlan]:
    """Deal genres, length bins and splits evenly; ``name`` begins the ids and enters the seeds."""
    rng = random.Random(f"{name}-plan-{seed}")
    genres, lengths = (_deal(list(values), count, rng) for values in (pages, bins))
    held_out = set(rng.sample(range(count), _held_out(count, validation)))
    return [
        PagePlan(
            id=f"{name}{number:05d}",
            page=genre,
            length_bin=length,
            words=bins[length],
            split="validation" if number in held_out else "train",
            seed=own_seed(name, seed, number),
        )
        for number, (genre, length) in enumerate(zip(genres, lengths, strict=True))
    ]


def own_seed(name: str, seed: int, number: int) -> int:
    """Return the seed of one document, unlike that of any other."""
    digest = hashlib.sha256(f"{name}-{seed}-{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def page_row(plan: PagePlan, text: str, world: str, topic: str, category: str) -> Row:
    """Return a document in the columns that all corpora have; what does not apply is empty."""
    return {
        "id": f"{plan.id}-{world}",
        "text": text,
        "world": world,
        "quartet": plan.id,
        "scenario": topic or plan.id,
        "domain": topic,
        "role": "",
        "task": "",
        "doc_type": plan.page.replace("_", " "),
        "category": category,
        "mode": "",
        "length_bin": plan.length_bin,
        "words": len(text.split()),
        "split": plan.split,
        "objectives": [],
    }


def _deal(values: Sequence[str], count: int, rng: random.Random) -> list[str]:
    dealt: list[str] = []
    while len(dealt) < count:
        dealt += rng.sample(values, len(values))
    return dealt[:count]


def _held_out(count: int, share: float) -> int:
    return 0 if share == 0 or count < 2 else max(1, round(share * count))
