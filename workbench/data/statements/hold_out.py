"""Write held_out.jsonl from statements.jsonl: ``python -m workbench.data.statements.hold_out``."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from workbench.data import data_path
from workbench.data.rows import read_rows, write_rows

FACTS = 100
SEED = 4

Row = dict[str, object]


def held_out_rows() -> list[Row]:
    """Return 100 facts, topics in proportion, each once affirmed and once negated.

    Of half the facts of a topic the true content is kept (the affirmed row is true, the negated
    false), of the others the false content.
    """
    by_topic: defaultdict[str, dict[str, list[Row]]] = defaultdict(dict)
    for row in read_rows(data_path("statements")):
        by_topic[str(row["topic"])].setdefault(str(row["fact"]), []).append(row)
    rng, turn, rows = random.Random(SEED), 0, list[Row]()
    for topic, count in shares({t: len(facts) for t, facts in by_topic.items()}, FACTS).items():
        for fact in rng.sample(sorted(by_topic[topic]), count):
            turn += 1
            rows += [_own(row) for row in by_topic[topic][fact] if _content(row) == turn % 2]
    return rows


def shares(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """Divide ``total`` in proportion to ``sizes``; what is left goes to the largest remainders."""
    exact = {name: total * size / sum(sizes.values()) for name, size in sizes.items()}
    found = {name: int(value) for name, value in exact.items()}
    rest: Sequence[str] = sorted(exact, key=lambda name: found[name] - exact[name])
    for name in rest[: total - sum(found.values())]:
        found[name] += 1
    return found


def _content(row: Row) -> int:
    """Return 1 where the row affirms or negates what is true of the fact, else 0."""
    return int((row["label"] == 1) == (row["polarity"] == 1))


def _own(row: Row) -> Row:
    return {**row, "id": f"held_out:{row['id']}"}


if __name__ == "__main__":
    write_rows(data_path("held_out"), held_out_rows())
