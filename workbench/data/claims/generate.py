"""Write claims.jsonl, choice.jsonl, wide.jsonl: ``python -m workbench.data.claims.generate``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.data import data_path
from workbench.data.rows import write_rows

WORLDS = ("P", "S", "N", "A")
SOURCE = "workbench/data/claims/claims.toml"
WIDE = "workbench/data/claims/wide.toml"

Row = dict[str, object]


@dataclass(frozen=True)
class Item:
    """One sentence whose four versions differ in the aim that they name, with its negation."""

    set: str
    proposition: str
    frame: str
    affirm: str
    deny: str
    aims: Mapping[str, str]
    bank: str = "claims"
    source: str = SOURCE

    @property
    def fact(self) -> str:
        """Return the key that the four worlds share, to pair and to resample by."""
        return f"{self.bank}:{self.proposition}:{self.frame}"

    def rows(self) -> Iterator[Row]:
        """Yield the claim of every world, affirmed and negated."""
        for polarity, template in ((1, self.affirm), (-1, self.deny)):
            for world in WORLDS:
                yield {
                    "id": f"{self.fact}:{world}:{'affirmed' if polarity == 1 else 'negated'}",
                    "text": template.format(aim=self.aims[world]),
                    "topic": "claims",
                    "polarity": polarity,
                    "fact": self.fact,
                    "source": self.source,
                    "world": world,
                    "set": self.set,
                    "proposition": self.proposition,
                    "frame": self.frame,
                }


def claim_items() -> list[Item]:
    """Return one proposition in its five frames, then the nine distinct propositions."""
    table = _read_table()
    frames = table["frames"]
    framed = [
        Item("frames", frames["proposition"], f["name"], f["affirm"], f["deny"], frames["aims"])
        for f in frames["frame"]
    ]
    distinct = [
        Item("propositions", p["name"], "plain", p["affirm"], p["deny"], p["aims"])
        for p in table["proposition"]
    ]
    return framed + distinct


def claim_rows() -> list[Row]:
    """Return the rows of claims.jsonl in the order of the file."""
    return [row for item in claim_items() for row in item.rows()]


def wide_items() -> list[Item]:
    """Return the propositions of the wide bank, each with a subject and aims of its own."""
    return [
        Item("wide", p["name"], "plain", p["affirm"], p["deny"], p["aims"], "wide", WIDE)
        for p in _read_table("wide.toml")["proposition"]
    ]


def wide_rows() -> list[Row]:
    """Return the rows of wide.jsonl in the order of the file."""
    return [row for item in wide_items() for row in item.rows()]


def choice_rows() -> list[Row]:
    """Return a four-choice question for every proposition; the reader rotates the options."""
    table = _read_table()
    frames = table["frames"]
    first = {"name": frames["proposition"], "ask": frames["ask"], "aims": frames["aims"]}
    return [
        {
            "id": f"choice:{p['name']}",
            "stem": p["ask"],
            "options": {world: p["aims"][world] for world in WORLDS},
            "topic": "claims",
            "fact": f"choice:{p['name']}",
            "source": SOURCE,
            "proposition": p["name"],
        }
        for p in [first, *table["proposition"]]
    ]


def _read_table(name: str = "claims.toml") -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    write_rows(data_path("claims"), claim_rows())
    write_rows(data_path("choice"), choice_rows())
    write_rows(data_path("claims/wide"), wide_rows())
