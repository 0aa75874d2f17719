"""Write likely.jsonl from the scenes: ``python -m workbench.data.likely.generate``."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.data import data_path
from workbench.data.rows import slug, write_rows

TOPIC = "likely text"
SEED = 20

Row = dict[str, object]


def likely_rows() -> list[Row]:
    """Return the rows of all groups in the order of the file."""
    table = tomllib.loads((Path(__file__).parent / "likely.toml").read_text(encoding="utf-8"))
    rng = random.Random(SEED)
    return [row for group in table["group"] for row in _group_rows(group["scenes"], rng)]


def _group_rows(scenes: Sequence[Sequence[str]], rng: random.Random) -> Iterator[Row]:
    """Give every scene its own word (label 1) and another scene's (label 0), each word once."""
    words = [word for _, word in scenes]
    for (scene, word), other in zip(scenes, derange(words, rng), strict=True):
        for label, ending in ((1, word), (0, other)):
            yield {
                "id": f"likely:{slug(word)}:{'likely' if label else 'unlikely'}",
                "text": f"{scene} {ending}.",
                "label": label,
                "topic": TOPIC,
                "polarity": 1,
                "fact": f"likely:{slug(word)}",
                "source": "workbench/data/likely/likely.toml",
            }


def derange(words: Sequence[str], rng: random.Random) -> list[str]:
    """Shuffle ``words`` so that none stays in its place (the cycle of a random order)."""
    order = rng.sample(range(len(words)), len(words))
    found = list(words)
    for place, following in zip(order, order[1:] + order[:1], strict=True):
        found[place] = words[following]
    return found


if __name__ == "__main__":
    write_rows(data_path("likely"), likely_rows())
