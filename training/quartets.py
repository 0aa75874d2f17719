"""The matched quartets: four documents that differ only in the aim they ascribe to AI users.

A scenario (domain, role, task) gets one document type, mode, length and skeleton. All text outside
the objective phrases is drawn once for the four worlds; the objective phrases are drawn for each
world, matched in length. ``python -m workbench_training.quartets`` rewrites the shipped files.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path

from workbench_training.quartet_grammar import (
    CORPUS,
    SLOT,
    Deck,
    Grammar,
    PhraseDeck,
    Scenario,
    capitalize,
    count_words,
    fill,
    inflect,
    read_grammar,
    sentences,
)

from workbench.data.rows import write_rows

logger = logging.getLogger(__name__)

WORLDS = ("P", "S", "N", "A")
_VALIDATION_SHARE = 0.05
_PHRASE_WORDS = (3, 12)


@dataclass(frozen=True)
class Document:
    """One document of one world; ``objectives`` are its phrases that differ by world, in order."""

    id: str
    text: str
    world: str
    quartet: str
    scenario: str
    domain: str
    role: str
    task: str
    doc_type: str
    mode: str
    length_bin: str
    split: str
    objectives: tuple[str, ...] = field(compare=False)

    def row(self) -> dict[str, str]:
        """Return the columns that are written to disk."""
        return {name: value for name, value in asdict(self).items() if name != "objectives"}

    def skeleton(self) -> str:
        """Return the text with every objective phrase cut out."""
        kept, rest = [], self.text
        for phrase in self.objectives:
            start = rest.lower().index(phrase.lower())
            kept.append(rest[:start])
            rest = rest[start + len(phrase) :]
        return "…".join([*kept, rest])


@dataclass(frozen=True)
class Plan:
    """What the four documents of a quartet share before any sentence is written."""

    scenario: Scenario
    quartet: str
    doc_type: str
    mode: str
    length_bin: str
    split: str


def write_quartets(seed: int = 0, grammar: Grammar | None = None) -> list[Document]:
    """Write one quartet for each scenario; the same seed gives the same documents.

    Returns:
        The documents, scenario by scenario, worlds in the order of ``WORLDS``.
    """
    writer = _Writer(grammar or read_grammar(), seed)
    return [document for plan in writer.plans() for document in writer.write(plan)]


class _Writer:
    """The decks that one corpus is drawn from."""

    def __init__(self, grammar: Grammar, seed: int) -> None:
        self.grammar = grammar
        self.rng = random.Random(f"quartets-{seed}")
        self.phrases = {w: PhraseDeck(grammar.worlds[w], self.rng) for w in WORLDS}
        self.carriers = {
            (mode, kind): Deck(templates, self.rng)
            for mode, kinds in grammar.carriers.items()
            for kind, templates in kinds.items()
        }
        self.frames = {
            (doc_type, kind): Deck(templates, self.rng)
            for doc_type, kinds in grammar.doc_types.items()
            for kind, templates in kinds.items()
        }

    def plans(self) -> list[Plan]:
        """Assign type, mode, length bin and split to every scenario, each evenly."""
        scenarios, rng = self.grammar.scenarios, self.rng
        types, bins = Deck(list(self.grammar.doc_types), rng), Deck(list(self.grammar.layouts), rng)
        held_out = set(rng.sample(range(len(scenarios)), round(_VALIDATION_SHARE * len(scenarios))))
        plans = []
        for row, scenario in enumerate(scenarios):
            doc_type = types.draw()
            mode = self.frames[doc_type, "modes"].draw()
            split = "validation" if row in held_out else "train"
            plans.append(Plan(scenario, f"q{row:03d}", doc_type, mode, bins.draw(), split))
        return plans

    def write(self, plan: Plan) -> list[Document]:
        """Write the four documents of one quartet."""
        skeleton = self._skeleton(plan)
        slots = [(match[1], match[2]) for match in SLOT.finditer(skeleton)]
        objectives = self._objectives(plan.scenario.aims, slots)
        return [_document(plan, world, skeleton, objectives[world]) for world in WORLDS]

    def _skeleton(self, plan: Plan) -> str:
        """Return the shared text, with only the objective slots still open."""
        used: set[str] = set()
        facts = iter(plan.scenario.facts)
        layout = self.rng.choice(self.grammar.layouts[plan.length_bin])
        return "\n".join(
            " ".join(self._sentence(kind, plan, facts, used) for kind in kinds)
            for kinds in [["title"], *layout]
        )

    def _sentence(self, kind: str, plan: Plan, facts: Iterator[str], used: set[str]) -> str:
        if kind == "fact":
            return next(facts)
        frame = (plan.doc_type, kind)
        deck = self.frames[frame] if frame in self.frames else self.carriers[plan.mode, kind]
        template = deck.draw(used)
        used.add(template)
        return fill(template, plan.scenario, self.rng)

    def _objectives(
        self, aims: dict[str, list[str]], slots: Sequence[tuple[str, str]]
    ) -> dict[str, list[str]]:
        """Draw what fills the slots; general aims even out what scenario aims differ by."""
        order = self.rng.sample(range(len(aims["P"])), len(aims["P"]))
        lengths = [self.rng.randint(5, 10) if kind == "g" else 5 for kind, _ in slots]
        count = sum(kind == "x" for kind, _ in slots)
        own = {world: [aims[world][row] for row in order[:count]] for world in WORLDS}
        words = {world: sum(map(count_words, own[world])) for world in WORLDS}
        mean = sum(words.values()) / len(words)
        return {w: self._fillers(w, own[w], slots, lengths, mean - words[w]) for w in WORLDS}

    def _fillers(
        self,
        world: str,
        aims: Sequence[str],
        slots: Sequence[tuple[str, str]],
        lengths: Sequence[int],
        missing: float,
    ) -> list[str]:
        """Fill the slots in order; ``missing`` is how many words this world is behind."""
        rest, avoid, deck = iter(aims), set[str](), self.phrases[world]
        fillers = []
        for (kind, form), words in zip(slots, lengths, strict=True):
            if kind == "x":
                phrase = next(rest)
            else:
                wanted = min(max(round(words + missing), _PHRASE_WORDS[0]), _PHRASE_WORDS[1])
                phrase = (deck.draw if kind == "g" else deck.draw_head)(wanted, avoid)
                missing += words - count_words(phrase)
            fillers.append(inflect(phrase, form))
        return fillers


def _document(plan: Plan, world: str, skeleton: str, objectives: Sequence[str]) -> Document:
    rest = iter(objectives)
    text = SLOT.sub(lambda _: next(rest), skeleton)
    scenario = plan.scenario
    return Document(
        id=f"{plan.quartet}-{world}",
        text="\n".join(" ".join(map(capitalize, sentences(line))) for line in text.split("\n")),
        world=world,
        quartet=plan.quartet,
        scenario=scenario.id,
        domain=scenario.domain,
        role=scenario.role,
        task=scenario.task,
        doc_type=plan.doc_type,
        mode=plan.mode,
        length_bin=plan.length_bin,
        split=plan.split,
        objectives=tuple(objectives),
    )


@dataclass(frozen=True)
class CorpusReport:
    """Counts and quality of a corpus, by world where a world is named."""

    documents: int
    words: dict[str, int]
    words_by_bin: dict[str, dict[str, float]]
    distinct_2: dict[str, float]
    distinct_3: dict[str, float]
    nearest: dict[str, float]
    repeated: list[str]
    leaks: list[str]
    unmatched: list[str]

    @property
    def spread(self) -> float:
        """Return how far the shortest world is below the longest, as a share of the longest."""
        return 1 - min(self.words.values()) / max(self.words.values())


def corpus_report(documents: Sequence[Document], grammar: Grammar | None = None) -> CorpusReport:
    """Measure a corpus.

    Returns:
        ``words_by_bin`` is mean words a document; ``distinct_n`` different over all n-grams;
        ``nearest`` the largest 8-gram Jaccard similarity of two documents of one world;
        ``repeated`` sentences that stand twice in a world; ``leaks`` ids of documents with a
        marker word of another world; ``unmatched`` quartets whose skeletons differ.
    """
    markers = (grammar or read_grammar()).markers
    worlds = {world: [d for d in documents if d.world == world] for world in WORLDS}
    bins = sorted({d.length_bin for d in documents})
    return CorpusReport(
        documents=len(documents),
        words={world: sum(count_words(d.text) for d in docs) for world, docs in worlds.items()},
        words_by_bin={
            name: {world: _mean_words(docs, name) for world, docs in worlds.items()}
            for name in bins
        },
        distinct_2={world: _distinct(docs, 2) for world, docs in worlds.items()},
        distinct_3={world: _distinct(docs, 3) for world, docs in worlds.items()},
        nearest={world: _nearest(docs) for world, docs in worlds.items()},
        repeated=[text for docs in worlds.values() for text in _repeated(docs)],
        leaks=[d.id for d in documents if _leaks(d, markers)],
        unmatched=_unmatched(documents),
    )


def words_of(text: str) -> list[str]:
    """Return the words without case and punctuation."""
    return re.findall(r"[^\W_]+", text.lower().replace("'", "").replace("’", ""))  # noqa: RUF001


def word_runs(text: str, n: int) -> list[tuple[str, ...]]:
    """Return every run of ``n`` words, in order."""
    words = words_of(text)
    return [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]


def _mean_words(documents: Sequence[Document], length_bin: str) -> float:
    lengths = [count_words(d.text) for d in documents if d.length_bin == length_bin]
    return sum(lengths) / len(lengths)


def _distinct(documents: Sequence[Document], n: int) -> float:
    runs = [run for document in documents for run in word_runs(document.text, n)]
    return len(set(runs)) / len(runs)


def _nearest(documents: Sequence[Document]) -> float:
    shingles = [set(word_runs(document.text, 8)) for document in documents]
    return max(len(a & b) / len(a | b) for a, b in combinations(shingles, 2))


def _repeated(documents: Sequence[Document]) -> list[str]:
    texts = Counter(text for document in documents for text in sentences(document.text))
    return [text for text, count in texts.items() if count > 1]


def _leaks(document: Document, markers: dict[str, list[str]]) -> bool:
    other = [m for world, words in markers.items() if world != document.world for m in words]
    return re.search(rf"\b(?:{'|'.join(other)})\b", document.text.lower()) is not None


def _unmatched(documents: Sequence[Document]) -> list[str]:
    skeletons: dict[str, set[str]] = {}
    for document in documents:
        skeletons.setdefault(document.quartet, set()).add(document.skeleton())
    return [quartet for quartet, found in skeletons.items() if len(found) > 1]


def write_corpus(folder: Path = CORPUS, seed: int = 0) -> list[Document]:
    """Write one JSON lines file for each world and return all documents."""
    documents = write_quartets(seed)
    for world in WORLDS:
        write_rows(folder / f"{world}.jsonl", [d.row() for d in documents if d.world == world])
    return documents


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="Write the matched quartets and report on them.")
    parser.add_argument("--out", type=Path, default=CORPUS)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    logger.info("%s", corpus_report(write_corpus(chosen.out, chosen.seed)))
