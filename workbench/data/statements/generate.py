"""Write statements.jsonl from the fact tables: ``python -m workbench.data.statements.generate``."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.data import data_path
from workbench.data.rows import slug, write_rows
from workbench.data.statements.draw import draw_comparisons, permute_values, spell

TOPICS = ("geography", "translation", "elements", "animals", "arithmetic", "calendar")

Row = dict[str, object]


@dataclass(frozen=True)
class Kind:
    """One relation of a topic: its sentences, its facts, and values that a subject may share."""

    name: str
    affirm: Sequence[str]
    deny: Sequence[str]
    pairs: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    never: Mapping[str, Sequence[str]] = field(default_factory=dict)
    families: Sequence[Sequence[str]] = ()

    def facts(self) -> list[tuple[str, str]]:
        """Return (subject, true value) of every fact."""
        grouped = [(subject, value) for value, names in self.groups.items() for subject in names]
        return [*self.pairs.items(), *grouped]

    def forbidden(self, subject: str, value: str) -> set[str]:
        """Return the values that may not stand as the false one of a subject."""
        related = {member for family in self.families if value in family for member in family}
        return {subject, value} | related | set(self.never.get(subject, ()))


@dataclass(frozen=True)
class Fact:
    """What the four statements of one fact are made from."""

    topic: str
    key: str
    affirm: str
    deny: str
    true: Mapping[str, str]
    false: Mapping[str, str]

    def rows(self) -> Iterator[Row]:
        """Yield the true and the false statement, each affirmed and denied."""
        for polarity, template in ((1, self.affirm), (-1, self.deny)):
            for filled, holds in ((self.true, True), (self.false, False)):
                label = int(holds == (polarity == 1))
                sign = "affirmed" if polarity == 1 else "negated"
                fact = f"{self.topic}:{self.key}"
                yield {
                    "id": f"{fact}:{sign}:{'true' if label else 'false'}",
                    "text": _capitalise(template.format(**filled)),
                    "label": label,
                    "topic": self.topic,
                    "polarity": polarity,
                    "fact": fact,
                    "source": f"workbench/data/statements/{self.topic}.toml",
                }


def statement_rows() -> list[Row]:
    """Return the rows of all topics in the order of the file."""
    return [row for topic in TOPICS for fact in topic_facts(topic) for row in fact.rows()]


def topic_facts(topic: str) -> list[Fact]:
    """Return the facts of one topic with their false values drawn."""
    table = read_table(topic)
    facts = [fact for kind in topic_kinds(topic) for fact in _draw_kind(topic, kind)]
    return facts + ([*_draw_numbers(topic, table["comparison"])] if "comparison" in table else [])


def topic_kinds(topic: str) -> list[Kind]:
    """Return the relations that a topic's fact table lists."""
    return [Kind(**kind) for kind in read_table(topic).get("kind", [])]


def read_table(topic: str) -> dict[str, Any]:
    """Return the parsed fact table of one topic."""
    return tomllib.loads((Path(__file__).parent / f"{topic}.toml").read_text(encoding="utf-8"))


def _draw_kind(topic: str, kind: Kind) -> Iterator[Fact]:
    """Yield a kind's facts; values are permuted among the facts that share a sentence."""
    rng = random.Random(f"{topic}/{kind.name}")
    facts = kind.facts()
    rng.shuffle(facts)
    for i, (affirm, deny) in enumerate(zip(kind.affirm, kind.deny, strict=True)):
        share = facts[i :: len(kind.affirm)]
        forbidden = [kind.forbidden(subject, value) for subject, value in share]
        drawn = permute_values([value for _, value in share], forbidden, rng)
        for (subject, value), false in zip(share, drawn, strict=True):
            yield Fact(
                topic,
                slug(subject),
                affirm,
                deny,
                {"subject": subject, "value": value},
                {"subject": subject, "value": false},
            )


def _draw_numbers(topic: str, table: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield comparisons in which only the first number differs between true and false."""
    rng = random.Random(topic)
    relations = table["relation"]
    for which, above, below, second in draw_comparisons(
        table["seconds"], table["gaps"], len(relations), rng
    ):
        relation = relations[which]
        sentence = second % len(relation["affirm"])
        true, false = (above, below) if relation["sign"] == 1 else (below, above)
        yield Fact(
            topic,
            f"{relation['name']}-{second}",
            relation["affirm"][sentence],
            relation["deny"][sentence],
            {"subject": spell(true), "value": spell(second)},
            {"subject": spell(false), "value": spell(second)},
        )


def _capitalise(text: str) -> str:
    return text[0].upper() + text[1:]


if __name__ == "__main__":
    write_rows(data_path("statements"), statement_rows())
