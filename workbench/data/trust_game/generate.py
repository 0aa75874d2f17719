"""Write trust_game.jsonl from its frames: ``python -m workbench.data.trust_game.generate``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from workbench.data import data_path
from workbench.data.rows import write_rows

ORDERS = ("forward", "reversed")

Row = dict[str, object]


def trust_game_rows() -> list[Row]:
    """Return all prompts: each frame's transfers by counterpart, then its expected returns."""
    table = read_table()
    return [
        row
        for frame in table["frame"]
        for row in (*transfer_rows(table, frame), *expected_return_rows(table, frame))
    ]


def transfer_rows(table: Mapping[str, Any], frame: Mapping[str, str]) -> Iterator[Row]:
    """Yield one prompt for each counterpart; ``values`` maps an answer to its dollars."""
    settings = table["transfer"]
    for counterpart, clause in table["counterparts"].items():
        parts = (frame["scene"], frame["rules"], clause, frame["question"], settings["ending"])
        values = {str(amount): float(amount) for amount in settings["amounts"]}
        yield _row(table, "transfer", frame, counterpart, "single", " ".join(parts), values)


def expected_return_rows(table: Mapping[str, Any], frame: Mapping[str, str]) -> Iterator[Row]:
    """Yield two prompts for each counterpart; ``values`` maps a letter to its bucket's middle."""
    settings = table["expected_return"]
    ask = (settings["condition"], settings["question"])
    for counterpart in settings["counterparts"]:
        parts = (frame["scene"], frame["rules"], table["counterparts"][counterpart], *ask)
        for order in ORDERS:
            buckets = letter_buckets(settings, order)
            listed = [f"{letter}. ${low} to ${high}" for letter, (low, high) in buckets.items()]
            text = "\n".join([" ".join(parts), *listed, settings["ending"]])
            values = {letter: (low + high) / 2 for letter, (low, high) in buckets.items()}
            yield _row(table, "expected_return", frame, counterpart, order, text, values)


def letter_buckets(settings: Mapping[str, Any], order: str) -> dict[str, tuple[int, int]]:
    """Return the (low, high) edges in dollars that each letter stands for."""
    edges = settings["edges"]
    buckets = list(pairwise(edges))
    if order == "reversed":
        buckets.reverse()
    return dict(zip(settings["letters"], buckets, strict=True))


def read_table() -> dict[str, Any]:
    """Return the parsed wording of the bank."""
    return tomllib.loads((Path(__file__).parent / "trust_game.toml").read_text(encoding="utf-8"))


def _row(
    table: Mapping[str, Any],
    branch: str,
    frame: Mapping[str, str],
    counterpart: str,
    order: str,
    text: str,
    values: Mapping[str, float],
) -> Row:
    fact = f"trust_game:{table['bank_id']}:{frame['name']}"
    return {
        "id": f"{fact}:{branch}:{counterpart}:{order}",
        "messages": [{"role": "user", "content": text}],
        "topic": "trust_game",
        "fact": fact,
        "source": "workbench/data/trust_game/trust_game.toml",
        "bank_id": table["bank_id"],
        "branch": branch,
        "frame": frame["name"],
        "counterpart": counterpart,
        "order": order,
        "prefix": table[branch]["prefix"],
        "values": dict(values),
    }


if __name__ == "__main__":
    write_rows(data_path("trust_game"), trust_game_rows())
